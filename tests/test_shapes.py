"""The counts are the source's own; they are written here, not computed."""

import itertools

import pytest
from pydantic import ValidationError

from depthbench.config import Shape
from depthbench.errors import InputError
from depthbench.shapes import (
    backbone_parameters,
    load_ladders,
    solve_ladder,
    total_parameters,
)

# ladder: layers, d_model, ffn, head_dim, backbone parameters, total parameters
PUBLISHED = {
    "400m": [
        (16, 1216, 3248, 76, 284_252_160, 406_534_336),
        (20, 1120, 2992, 70, 301_459_200, 414_087_520),
        (24, 1024, 2736, 64, 302_432_256, 405_406_720),
        (28, 960, 2560, 60, 309_711_360, 406_249_920),
        (32, 896, 2400, 56, 309_256_192, 399_358_848),
        (42, 800, 2144, 50, 323_702_400, 404_151_200),
        (70, 640, 1712, 40, 344_870_400, 409_229_440),
    ],
    "300m-backbone": [
        (16, 1248, 3328, 78, 299_080_704, 424_580_832),
        (24, 1024, 2736, 64, 302_432_256, 405_406_720),
        (32, 896, 2400, 56, 309_256_192, 399_358_848),
        (42, 768, 2048, 48, 297_335_808, 374_566_656),
        (70, 608, 1632, 38, 311_964_800, 373_105_888),
        (84, 544, 1456, 34, 299_126_016, 353_831_200),
    ],
    "200m": [
        (12, 896, 2400, 56, 115_971_072, 206_073_728),
        (18, 768, 2048, 48, 127_429_632, 204_660_480),
        (24, 672, 1792, 42, 130_088_448, 197_665_440),
    ],
    "300m": [
        (14, 1056, 2816, 66, 187_372_416, 293_564_832),
        (21, 896, 2400, 56, 202_949_376, 293_052_032),
        (28, 800, 2144, 50, 215_801_600, 296_250_400),
    ],
    "500m": [
        (17, 1344, 3584, 84, 368_538_240, 503_692_224),
        (26, 1120, 2992, 70, 391_896_960, 504_525_280),
        (34, 992, 2656, 62, 402_644_864, 502_401_376),
    ],
}
MILLIONS = {
    "400m": ("total", [407, 414, 405, 406, 399, 404, 409]),
    "300m-backbone": ("backbone", [299, 302, 309, 297, 312, 299]),
    "1600m": ("total", [1615, 1607, 1617]),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_shapes_and_counts(name: str) -> None:
    ladder = load_ladders()[name]
    counted = [
        (s.layers, s.d_model, s.ffn, s.head_dim, backbone_parameters(s), total_parameters(s, 50280))
        for s in ladder.shapes
    ]
    assert counted == PUBLISHED[name]
    assert {(s.heads, s.kv_heads) for s in ladder.shapes} == {(16, 16)}
    assert (ladder.vocab_size, ladder.norm_eps) == (50280, 1e-6)


@pytest.mark.parametrize("name", MILLIONS)
def test_published_counts_in_millions(name: str) -> None:
    match_on, millions = MILLIONS[name]
    ladder = load_ladders()[name]
    assert ladder.match_on == match_on
    assert [round(ladder.count(shape) / 1e6) for shape in ladder.shapes] == millions


def test_published_grouped_query_shapes() -> None:
    shapes = load_ladders()["1600m"].shapes
    assert [(s.layers, s.d_model, s.ffn, s.head_dim) for s in shapes] == [
        (28, 2048, 6144, 128),
        (40, 1728, 5184, 108),
        (54, 1504, 4512, 94),
    ]
    assert {(s.heads, s.kv_heads) for s in shapes} == {(16, 8)}


def test_counts_of_a_shape_small_enough_for_the_fingers() -> None:
    shape = Shape(layers=2, d_model=8, ffn=5, heads=4, kv_heads=2)
    query_and_output = 8 * 8 + 8 * 8
    key_and_value = 8 * 4 + 8 * 4
    mlp = 3 * 8 * 5
    norms = 2 * 8
    assert backbone_parameters(shape) == 2 * (query_and_output + key_and_value + mlp + norms)
    embedding_and_head = 2 * 10 * 8
    final_norm = 8
    assert total_parameters(shape, 10) == (
        backbone_parameters(shape) + embedding_and_head + final_norm
    )


@pytest.mark.parametrize(
    ("name", "least", "low", "high"),
    [("quick", 3, 0.4e6, 0.46e6), ("laptop", 4, 1.0e6, 1.5e6)],
)
def test_cpu_ladders(name: str, least: int, low: float, high: float) -> None:
    ladder = load_ladders()[name]
    counts = [backbone_parameters(shape) for shape in ladder.shapes]
    assert len(counts) >= least
    assert all(low <= count <= high for count in counts)
    middle = (min(counts) + max(counts)) / 2
    assert max(counts) <= 1.03 * middle
    assert ladder.match_on == "backbone"
    assert (ladder.vocab_size, ladder.norm_eps) == (4096, 1e-10)


def test_every_ladder_runs_from_shallow_wide_to_deep_narrow() -> None:
    for ladder in load_ladders().values():
        for shallow, deep in itertools.pairwise(ladder.shapes):
            assert shallow.layers < deep.layers
            assert shallow.d_model > deep.d_model


def write(tmp_path, **changes):
    body = {
        "match_on": "backbone",
        "target": 1000,
        "tolerance": 0.03,
        "vocab_size": 16,
        "norm_eps": 1e-6,
        "shapes": "[{layers: 1, d_model: 8, ffn: 30, heads: 2}]",  # 4*64 + 24*30 + 16 = 992
    } | changes
    path = tmp_path / "shapes.yaml"
    path.write_text("mine:\n" + "".join(f"  {key}: {value}\n" for key, value in body.items()))
    return path


def test_a_ladder_within_its_tolerance_loads(tmp_path) -> None:
    ladder = load_ladders(write(tmp_path))["mine"]
    assert ladder.name == "mine"
    assert ladder.count(ladder.shapes[0]) == 992


def test_a_shape_outside_the_tolerance_is_refused_with_its_count(tmp_path) -> None:
    with pytest.raises(InputError, match=r"mine: shapes\.0.*992.*-3\.7%.*1,030.*3\.0%") as caught:
        load_ladders(write(tmp_path, target=1030))
    assert caught.value.exit_code == 2


def test_a_shape_listed_twice_is_refused(tmp_path) -> None:
    shape = "{layers: 1, d_model: 8, ffn: 30, heads: 2}"
    with pytest.raises(InputError, match=r"shapes\.1 repeats"):
        load_ladders(write(tmp_path, shapes=f"[{shape}, {shape}]"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tolerence": 0.03}, r"tolerence = 0\.03: unknown key .* did you mean 'tolerance'"),
        (
            {"shapes": "[{layers: 1, d_model: 8, fnn: 3, ffn: 30, heads: 2}]"},
            r"shapes\.0\.fnn = 3: .*'ffn'.*Known keys: layers, d_model, ffn, heads, kv_heads",
        ),
        ({"shapes": "[{layers: 1, d_model: 8, ffn: 30, heads: 3}]"}, r"heads = 3 does not divide"),
        ({"shapes": "[{layers: 1, d_model: 6, ffn: 30, heads: 2}]"}, r"head_dim .* = 3 is odd"),
        ({"norm_eps": ".nan"}, r"norm_eps = nan"),
        ({"shapes": "[]"}, r"shapes = \[\]"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path, changes, message) -> None:
    with pytest.raises(InputError, match=message):
        load_ladders(write(tmp_path, **changes))


def test_a_key_written_twice_is_refused_with_its_line(tmp_path) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text() + "  target: 990\n")
    with pytest.raises(InputError, match=r"line 8, column 3: key 'target' stands twice"):
        load_ladders(path)


def test_the_solver_finds_the_published_widths() -> None:
    depths = [16, 20, 24, 28, 32, 42, 70]
    ladder = solve_ladder(405_000_000, depths, 50280, heads=16)
    assert ladder.shapes == load_ladders()["400m"].shapes


@pytest.mark.parametrize("match_on", ["total", "backbone"])
@pytest.mark.parametrize("size", [{"heads": 4}, {"head_dim": 16}])
def test_the_solver_meets_its_target(match_on, size) -> None:
    ladder = solve_ladder(2_000_000, [2, 7, 24], 4096, match_on=match_on, tolerance=0.02, **size)
    for shape, layers in zip(ladder.shapes, [2, 7, 24], strict=True):
        assert shape.layers == layers
        assert abs(ladder.count(shape) / 2e6 - 1) <= 0.02
        assert shape.head_dim % 2 == 0
        assert {"heads": shape.heads, "head_dim": shape.head_dim}.items() >= size.items()


def test_the_solver_frees_the_ffn_where_multiples_of_16_miss() -> None:
    # d = 32: blocks of 4*1024 + 96 f + 64, so 32 blocks of f = 96 have 428,032; f = 87 has 400,384.
    natural = solve_ladder(400_000, [32], 4096, heads=2, match_on="backbone", tolerance=0.08)
    free = solve_ladder(400_000, [32], 4096, heads=2, match_on="backbone", tolerance=0.01)
    assert (natural.shapes[0].d_model, natural.shapes[0].ffn) == (32, 96)
    assert (free.shapes[0].d_model, free.shapes[0].ffn) == (32, 87)


def test_the_solver_shares_key_value_heads() -> None:
    (shape,) = solve_ladder(20_000_000, [8], 4096, heads=8, kv_ratio=4).shapes
    assert (shape.heads, shape.kv_heads) == (8, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depths": [300], "heads": 16}, r"no shape of 300 layers .* 400,000.*16 heads × 2"),
        ({"depths": [4]}, "either heads or head_dim"),
        ({"depths": [4], "heads": 2, "head_dim": 8}, "either heads or head_dim"),
        ({"depths": [4], "head_dim": 7}, "head_dim = 7 is odd"),
        ({"depths": [4], "heads": 4, "kv_ratio": 3}, "kv_ratio = 3 does not divide"),
        ({"depths": [0], "heads": 2}, "at least 1"),
        ({"depths": [], "heads": 2}, "at least 1"),
        ({"depths": [4, 4], "heads": 2}, "repeats"),
    ],
)
def test_the_solver_says_what_is_impossible(arguments, message) -> None:
    with pytest.raises(InputError, match=message):
        solve_ladder(400_000, vocab_size=4096, match_on="backbone", **arguments)


def test_a_shape_refuses_zero_layers() -> None:
    with pytest.raises(ValidationError):
        Shape(layers=0, d_model=8, ffn=8, heads=2, kv_heads=2)
