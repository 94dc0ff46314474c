"""The figure: what is drawn where, and that its SVG is fit to stand inside a page."""

import re
from collections.abc import Callable
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from depthbench.report.canvas import COMPACT, WIDE
from depthbench.report.figures import draw
from depthbench.report.lines import Spread, best_lines, lines_of
from depthbench.report.panel_plot import plot_panel
from depthbench.report.panels import Panel, panels
from depthbench.report.series import Look, Series, looks
from depthbench.store import Record

Make = Callable[..., Record]
SVG = "{http://www.w3.org/2000/svg}"
SHAPES = ((4, 128), (8, 96), (16, 64))


def matrix(record: Make, **losses: list[float]) -> list[Record]:
    return [
        record(design=name.replace("_", "-"), layers=layers, d_model=width, loss=loss)
        for name, values in losses.items()
        for (layers, width), loss in zip(SHAPES, values, strict=True)
    ]


def shown(records: list[Record]) -> tuple[list[Panel], dict[Series, Look]]:
    found = looks(records)
    return panels(best_lines(lines_of(records)), list(found)), found


def texts(svg: str) -> dict[str, float]:
    """Text and its horizontal place."""
    result = {}
    for element in ElementTree.fromstring(svg).iter(f"{SVG}text"):
        moved = re.search(r"translate\(([-\d.]+)", element.get("transform") or "")
        result["".join(element.itertext())] = float(moved[1] if moved else element.get("x") or 0)
    return result


def test_depth_grows_to_the_right_and_ticks_name_the_shapes(record: Make) -> None:
    panel_list, found = shown(matrix(record, pre_ln=[3.0, 3.1, 3.2], hc=[3.0, 2.9, 2.8]))
    places = texts(draw(panel_list[:1], found, WIDE, "svg").decode())
    assert places["L4 / d128"] < places["L8 / d96"] < places["L16 / d64"] < places["HC"]


def test_crowded_ticks_keep_the_ends_and_run_into_nothing(record: Make) -> None:
    ladder = ((16, 1216), (20, 1120), (24, 1024), (28, 960), (32, 896), (42, 800), (70, 640))
    records = [record(layers=layers, d_model=width) for layers, width in ladder]
    panel_list, found = shown(records)
    places = texts(draw(panel_list[:1], found, COMPACT, "svg").decode())
    ticks = [(x, text) for text, x in places.items() if re.fullmatch(r"L\d+ / d\d+", text)]
    ticks.sort()
    assert (ticks[0][1], ticks[-1][1]) == ("L16 / d1216", "L70 / d640")
    assert 2 < len(ticks) < len(ladder)
    assert min(b[0] - a[0] for a, b in pairwise(ticks)) > 5 * COMPACT.font


def test_a_missing_shape_leaves_a_gap(record: Make) -> None:
    records = matrix(record, pre_ln=[3.0, 3.1, 3.2], hc=[3.0, 2.9, 2.8])
    records[4] |= {"status": "failed", "loss": None}
    panel_list, found = shown(records)
    root = ElementTree.fromstring(plot_panel(panel_list[0], found, COMPACT))
    segments = {}
    for group in root.iter("g"):
        lines = [path.get("d", "") for path in group.findall("path") if path.get("class") == "line"]
        segments[group.get("data-series")] = sum(line.count("L") for line in lines)
    assert segments == {"0": 2, "1": 0}


def test_the_second_panel_is_the_difference_to_pre_ln(record: Make) -> None:
    panel_list, _ = shown(matrix(record, pre_ln=[3.0, 3.1, 3.2], hc=[3.0, 2.9, 2.8]))
    loss, difference = panel_list
    assert [loss.measure, difference.measure] == ["loss", "difference"]
    values = {s.design: [v.mean for v in by.values()] for s, by in difference.values.items()}
    assert values["pre-ln"] == [0.0, 0.0, 0.0]
    assert values["hc"] == pytest.approx([0.0, -0.2, -0.4])


def test_without_pre_ln_there_is_no_difference_panel(record: Make) -> None:
    panel_list, _ = shown(matrix(record, hc=[3.0, 2.9, 2.8]))
    assert [panel.measure for panel in panel_list] == ["loss"]


def test_without_any_result_there_is_no_panel(record: Make) -> None:
    assert shown([record(status="pending", loss=None)])[0] == []


def test_a_far_outlier_is_marked_at_the_edge_and_flattens_nothing(record: Make) -> None:
    close = {name: [3.0, 3.1, 3.2] for name in ("pre_ln", "hc", "mhc", "lns")}
    panel = shown(matrix(record, **close, keel=[3.1, 3.2, 9.0]))[0][0]
    assert panel.limits[1] < 4.0
    assert [(s.design, shape.layers, value) for s, shape, value in panel.outside] == [
        ("keel", 16, 9.0)
    ]


def test_what_lies_near_is_never_left_out(record: Make) -> None:
    close = {name: [3.0, 3.0, 3.01] for name in ("pre_ln", "hc", "mhc", "lns")}
    panel = shown(matrix(record, **close, keel=[3.01, 3.015, 3.02]))[0][0]
    assert panel.outside == []


def test_a_diverged_cell_is_marked(record: Make) -> None:
    records = matrix(record, pre_ln=[3.0, 3.1, 3.2], keel=[3.1, 3.2, 3.3])
    records[-1] |= {"status": "diverged", "diverged_step": 3, "loss": None}
    panel_list, _ = shown(records)
    for panel in panel_list:
        assert [(s.design, [x.layers for x in at]) for s, at in panel.diverged.items()] == [
            ("keel", [16])
        ]


def test_names_at_the_right_never_overlap(record: Make) -> None:
    names = ["pre-ln", "hc", "mhc", "lns", "keel", "moda", "deepnorm", "full-attnres", "x1", "x2"]
    records = [
        record(design=name, layers=layers, d_model=width, loss=3.0)
        for name in names
        for layers, width in SHAPES
    ]
    panel_list, found = shown(records)
    svg = draw(panel_list[:1], found, WIDE, "svg").decode()
    heights = []
    for element in ElementTree.fromstring(svg).iter(f"{SVG}text"):
        if "".join(element.itertext()) in {look.label for look in found.values()}:
            place = re.search(r"translate\([-\d.]+ ([-\d.]+)", element.get("transform") or "")
            heights.append(float(place[1]) if place else float(element.get("y") or 0))
    heights.sort()
    assert len(heights) == len(names)
    assert min(b - a for a, b in pairwise(heights)) >= WIDE.font


def test_no_two_series_look_alike(record: Make) -> None:
    designs = ["pre-ln", "post-ln", "sandwich-ln", "lns", "deepnorm", "keel", "deeploop", "hc"]
    designs += ["mhc", "moda", "full-attnres", "block-attnres", "plug-a", "plug-b"]
    found = looks([record(design=name) for name in designs])
    assert len({look.light for look in found.values()}) == len(designs)
    assert len({look.dark for look in found.values()}) == len(designs)
    without_colour = {(look.family, look.dash, look.marker) for look in found.values()}
    assert len(without_colour) == len(designs)
    first = next(iter(found))
    assert first.is_baseline
    assert found[first].width > max(look.width for s, look in found.items() if s != first)


def test_names_of_versions_and_options_tell_series_apart(record: Make) -> None:
    records = [
        record(design="hc"),
        record(design="hc", design_version=2),
        record(design="nobody-knows", options='{"m": 4, "tanh": false}'),
    ]
    labels = {look.label for look in looks(records).values()}
    assert labels == {"HC @1", "HC @2", "nobody-knows (m=4, tanh=false)"}


def test_any_name_can_be_drawn(record: Make) -> None:
    name = "_$x_{1$ </text><script>&"
    panel_list, found = shown(matrix(record, pre_ln=[3.0, 3.1, 3.2], **{name: [3.0, 3.0, 3.0]}))
    svg = draw(panel_list, found, WIDE, "svg").decode()
    assert "<script" not in svg
    label = next(look.label for s, look in found.items() if not s.is_baseline)
    assert label[:19] + "…" in texts(svg)


def test_the_same_rows_give_the_same_files(record: Make) -> None:
    panel_list, found = shown(matrix(record, pre_ln=[3.0, 3.1, 3.2], hc=[3.0, 2.9, 2.8]))
    for form in ("svg", "png"):
        first, second = (draw(panel_list, found, WIDE, form) for _ in range(2))
        assert first == second
    assert draw(panel_list, found, WIDE, "png").startswith(b"\x89PNG")


def test_bars_reach_one_deviation_to_both_sides(record: Make) -> None:
    records = [record(seed=seed, loss=loss) for seed, loss in enumerate((3.0, 3.2, 3.4))]
    [panel, *_] = shown(records)[0]
    [values] = panel.values.values()
    [value] = values.values()
    assert value == pytest.approx(Spread(3.2, 0.2, 3))
    assert panel.limits[0] < 3.0
    assert panel.limits[1] > 3.4
