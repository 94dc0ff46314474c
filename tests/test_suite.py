"""Suites from YAML: what is accepted, how overrides act, and the sentence for every mistake."""

import pytest
import yaml

from depthbench.config import DesignRef, Evaluation
from depthbench.errors import InputError
from depthbench.suite import Suite, load_suite, suite_names

TEN = {
    *("pre-ln", "sandwich-ln", "lns", "deepnorm", "keel", "moda"),
    *("hc", "mhc", "full-attnres", "block-attnres"),
}
SMALLEST = {
    "name": "mine",
    "designs": ["pre-ln"],
    "ladder": "quick",
    "corpus": "pypi-text",
    "sequence_length": 64,
    "batch_size": 4,
    "budget": {"tokens": 1000},
    "learning_rate": {"default": 1e-3},
    "seeds": [0],
}


@pytest.fixture
def load(tmp_path):
    def load(*overrides: str, **changes: object) -> Suite:
        path = tmp_path / "mine.yaml"
        path.write_text(yaml.safe_dump(SMALLEST | changes))
        return load_suite(str(path), overrides)

    return load


def test_the_shipped_suites_run_the_ten_designs() -> None:
    assert {"quick", "laptop"} <= set(suite_names())
    for name, num_seeds in (("quick", 1), ("laptop", 2)):
        suite = load_suite(name)
        assert suite.name == suite.ladder.name == name
        assert {design.name for design in suite.designs} == TEN
        assert len(suite.designs) == len(TEN)
        assert len(suite.seeds) == num_seeds


def test_what_is_left_out_has_the_protocols_values(load) -> None:
    suite = load()
    assert suite.match == "shape"
    assert suite.micro_batch_size == suite.batch_size == 4
    assert suite.norm_eps == suite.ladder.norm_eps == 1e-10
    assert isinstance(suite.evaluation, Evaluation)
    optimizer = suite.optimizer
    assert (optimizer.beta1, optimizer.beta2, optimizer.eps) == (0.9, 0.95, 1e-8)
    assert (optimizer.weight_decay, optimizer.clip) == (0.1, 1.0)
    assert (optimizer.warmup_fraction, optimizer.final_fraction) == (0.1, 0.1)


def test_the_paper_ladders_bring_their_epsilon(load) -> None:
    assert load("ladder=400m").norm_eps == 1e-6
    assert load("ladder=400m", "norm_eps=1e-5").norm_eps == 1e-5


def test_a_design_has_the_learning_rate_that_was_tuned_for_it(load) -> None:
    suite = load("designs=[pre-ln, keel]", "learning_rate.designs.keel=2e-3")
    assert suite.rate_for("pre-ln") == 1e-3
    assert suite.rate_for("keel") == 2e-3


def test_a_design_is_resolved_to_version_and_departing_options(load) -> None:
    suite = load("designs=[hc@1, {name: hc, options: {streams: 2, static: false}}]")
    assert suite.designs == (
        DesignRef(name="hc", version=1),
        DesignRef(name="hc", version=1, options={"streams": 2}),
    )


def test_overrides_reach_into_lists_and_make_missing_mappings(load) -> None:
    suite = load("seeds.0=7", "optimizer.weight_decay=0", "designs=[lns]", "budget.tokens=4e5")
    assert suite.seeds == (7,)
    assert suite.optimizer.weight_decay == 0
    assert [design.name for design in suite.designs] == ["lns"]
    assert suite.budget.tokens == 400_000


def test_an_exponent_without_a_point_is_a_number(load) -> None:
    assert load("learning_rate.default=3e-4").learning_rate.default == 3e-4


def test_a_ladder_can_stand_in_the_suite(load) -> None:
    body = {"match_on": "backbone", "target": 1000, "tolerance": 0.03, "vocab_size": 16}
    shape = {"layers": 1, "d_model": 8, "ffn": 30, "heads": 2}
    suite = load(ladder={**body, "norm_eps": 1e-7, "shapes": [shape]})
    assert suite.ladder.name == "inline"
    assert suite.norm_eps == 1e-7
    with pytest.raises(InputError, match=r"ladder: shapes\.0.*has backbone 992"):
        load(ladder={**body, "norm_eps": 1e-7, "target": 900, "shapes": [shape]})


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("lader=quick", r"lader = 'quick': unknown key 'lader': did you mean 'ladder'\?.*designs"),
        ("ladder=quik", r"ladder: unknown ladder 'quik': did you mean 'quick'"),
        ("learning_rate.defualt=1", r"learning_rate\.defualt = 1: .*did you mean 'default'"),
        ("optimizer.weight_dekay=0", r"optimizer\.weight_dekay = 0: .*'weight_decay'"),
        ("designs=[hcc]", r"designs\.0: unknown design 'hcc': did you mean 'hc'"),
        ("designs=[hc@9]", r"unknown version '9'"),
        ("designs=[{name: hc, version: 9}]", r"unknown version '9'"),
        ("designs=[{name: hc, options: {statik: true}}]", r"option of hc 'statik'.*'static'"),
        ("designs=[{name: hc, options: {static: 1}}]", r"option static of hc is 1: .*False"),
        ("designs=[{name: hc, options: {streams: true}}]", r"option streams of hc is True"),
        ("designs=[{name: hc, option: {}}]", r"designs\.0\.option = {}: .*'options'"),
        ("designs=[{name: hc, options: 4}]", r"designs\.0\.options = 4"),
        ("designs=[hc, hc]", r"designs: hc stands twice"),
        ("designs=[]", r"designs = \[\]"),
        ("seeds=[1, 1]", r"seed 1 stands more than once"),
        ("seeds=[-1]", r"seeds\.0 = -1"),
        ("budget.tokens=0", r"budget\.tokens = 0"),
        ("budget.tokens=255", r"budget\.tokens = 255 is less than one step.*256"),
        ("budget.flops=1e12", r"given: flops, tokens.*--set 'budget={flops"),
        ("budget={}", r"given: none"),
        ("budget={flops: .inf}", r"budget\.flops = inf"),
        ("learning_rate.default=.nan", r"learning_rate\.default = nan"),
        ("learning_rate.default=0", r"learning_rate\.default = 0"),
        ("learning_rate.designs.hcc=1e-3", r"learning_rate\.designs: unknown design.*'hcc'"),
        ("micro_batch_size=3", r"micro_batch_size = 3 does not divide batch_size = 4"),
        ("batch_size=0", r"batch_size = 0"),
        ("device=gpu", r"device = 'gpu'"),
        ("name=../x", r"name = '\.\./x'"),
        ("sequence_length", r"--set sequence_length: write it as path=value"),
        ("seeds.3=1", r"seeds is a list of 1, indexed from 0"),
        ("ladder.norm_eps=1", r"ladder is the single value 'quick'"),
        ("seeds=[1", r"--set seeds=\[1, line 1, column 3"),
        ("budget={tokens: 500, tokens: 600}", r"key 'tokens' stands twice"),
    ],
)
def test_a_mistake_is_named_with_path_and_remedy(load, override, message) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load(override)
    assert caught.value.exit_code == 2
    assert len(str(caught.value).splitlines()) == 1


def test_several_mistakes_are_all_named(load) -> None:
    with pytest.raises(InputError) as caught:
        load("batch_size=0", "seeds=[]")
    assert [line.split(" = ")[0].split()[-1] for line in str(caught.value).splitlines()] == [
        "batch_size",
        "seeds",
    ]


def test_an_unknown_suite_gets_the_nearest_name(tmp_path) -> None:
    with pytest.raises(InputError, match=r"unknown suite 'quikc': did you mean 'quick'"):
        load_suite("quikc")
    with pytest.raises(InputError, match=r"cannot read .*gone\.yaml"):
        load_suite(str(tmp_path / "gone.yaml"))


@pytest.mark.parametrize("text", ["", "- a\n", "name: [\n", "name: a\nname: b\n", "{[1]: 2}\n"])
def test_a_file_that_is_no_suite_is_refused(tmp_path, text) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"bad\.yaml"):
        load_suite(str(path))


def test_a_suite_survives_its_own_dump(load) -> None:
    suite = load("designs=[{name: hc, options: {streams: 2}}]")
    assert Suite.model_validate(suite.model_dump()) == suite
