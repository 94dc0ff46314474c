"""SVG of the page: where points stand, what they say, and that no text becomes markup."""

import re
from collections.abc import Callable
from math import hypot
from xml.etree import ElementTree

import numpy as np
import pytest

from depthbench.report.canvas import COMPACT, SMALL, WIDE
from depthbench.report.cells import Probed
from depthbench.report.depth import Chart, _place, plot_chart
from depthbench.report.lines import best_lines, lines_of
from depthbench.report.panel_plot import plot_panel
from depthbench.report.panels import Panel, panels
from depthbench.report.plot import Frame, in_digits, marker
from depthbench.report.series import MARKERS, Look, Series, looks
from depthbench.statistics import Estimate
from depthbench.store import Record
from tests.report.kit import probe_document, square

Make = Callable[..., Record]
SHAPES = ((4, 128), (8, 96), (16, 64))


def two(record: Make, name: str = "hc") -> tuple[list[Panel], dict[Series, Look]]:
    """Pre-LN and another design at three shapes with seeds 5 and 6."""
    records = [
        record(design=design, layers=layers, d_model=width, seed=seed, loss=3.0 + level + seed / 10)
        for design, level in (("pre-ln", 0.0), (name, 0.5))
        for layers, width in SHAPES
        for seed in (5, 6)
    ]
    found = looks(records)
    best = best_lines(lines_of(records))
    beyond = {key: Estimate(0.5, 0.375, 0.625) for key in best if not key[0].is_baseline}
    return panels(best, list(found), beyond), found


def points(svg: str) -> dict[str, list[tuple[float, float, list[str]]]]:
    """Place and lines of text of every point, by series."""
    found: dict[str, list[tuple[float, float, list[str]]]] = {}
    for group in ElementTree.fromstring(svg).iter("g"):
        for path in group.findall("path"):
            if path.get("data-tip"):
                x, y = re.findall(r"[-\d.]+", str(path.get("transform")))
                lines = str(path.get("data-tip")).split("\n")
                found.setdefault(str(group.get("data-series")), []).append(
                    (float(x), float(y), lines)
                )
    return found


def test_a_frame_is_linear_in_the_logarithm_and_turns_heights_round() -> None:
    frame = Frame(SMALL, (32.0, 2.0), (1.0, 3.0))
    left, bottom, width, height = SMALL.plot
    assert frame.across(32.0) == left
    assert frame.across(2.0) == pytest.approx(left + width)
    assert frame.across(8.0) == pytest.approx(left + width / 2)
    assert frame.down(1.0) == pytest.approx(SMALL.height - bottom)
    assert frame.down(3.0) == pytest.approx(SMALL.height - bottom - height)
    assert frame.down(2.5) == pytest.approx(SMALL.height - bottom - 0.75 * height)


def test_every_point_says_design_shape_value_interval_and_seeds(record: Make) -> None:
    (loss, difference), found = two(record)
    for _, _, lines in points(plot_panel(loss, found, WIDE))["1"]:
        name, shape, value, reach, seeds = lines
        assert name == "HC"
        assert shape in {"L4 / d128", "L8 / d96", "L16 / d64"}
        assert value == "4.05 nats per token"
        sd = 0.1 / 2**0.5
        assert reach == f"{4.05 - sd:.4f} to {4.05 + sd:.4f}: sample deviation over seeds"
        assert seeds == "seeds 5 and 6"
    for _, _, lines in points(plot_panel(difference, found, WIDE))["1"]:
        assert lines[2:4] == ["0.5 nats per token", "0.375 to 0.625: 95 % interval"]


def test_depth_grows_to_the_right_and_better_is_lower(record: Make) -> None:
    (loss, _), found = two(record)
    drawn = points(plot_panel(loss, found, WIDE))
    for marks in drawn.values():
        across = [x for x, _, _ in marks]
        assert across == sorted(across)
    assert all(y > other for (_, y, _), (_, other, _) in zip(drawn["0"], drawn["1"], strict=True))


def test_seeds_have_a_band_and_single_runs_have_none(record: Make) -> None:
    (loss, _), found = two(record)
    assert plot_panel(loss, found, WIDE).count('class="band"') == 2
    single = [record(layers=layers, d_model=width) for layers, width in SHAPES]
    alone = panels(best_lines(lines_of(single)), list(looks(single)))[0]
    assert 'class="band"' not in plot_panel(alone, looks(single), WIDE)


def test_no_name_becomes_markup(record: Make) -> None:
    name = "</text></svg><script>x</script>\"'&\x00\u202e"
    (loss, _), found = two(record, name)
    svg = plot_panel(loss, found, WIDE)
    assert "<script" not in svg
    assert ElementTree.fromstring(svg).tag == "svg"
    assert points(svg)["1"][0][2][0] == name.replace("\x00", "\ufffd").replace("\u202e", "\ufffd")


@pytest.mark.parametrize("shape", [*MARKERS, "x"])
def test_markers_lie_within_their_radius(shape: str) -> None:
    drawn = marker(shape, 4.0)
    if shape != "o":
        corners = [float(n) for n in re.findall(r"-?[\d.]+", drawn)]
        reach = 4.0 * (2**0.5 if shape == "x" else 1.0)
        assert all(
            hypot(x, y) < reach + 0.1 for x, y in zip(corners[::2], corners[1::2], strict=True)
        )
    assert len({marker(other, 4.0) for other in MARKERS}) == len(MARKERS)


def test_numbers_have_the_digits_that_tell_them_apart() -> None:
    assert in_digits([-0.1, 0.0, 0.05]) == ["−0.10", "0.00", "0.05"]
    assert in_digits([1.0, 2.0]) == ["1", "2"]


def test_names_stay_legible_on_a_phone(record: Make) -> None:
    (loss, _), found = two(record)
    root = ElementTree.fromstring(plot_panel(loss, found, COMPACT))
    assert root.get("viewBox") == f"0 0 {COMPACT.width} {COMPACT.height}"
    assert float(str(root.get("font-size"))) == COMPACT.font


def probed(name: str, values: dict[str, object], axes: list[str]) -> Probed:
    document = probe_document(name, values, axes=axes)
    return Probed(document, {k: np.array(v, dtype=float) for k, v in values.items()})


def test_places_are_named_by_the_document_and_not_by_their_number() -> None:
    """A loop of two blocks and two rounds executes four: as many as two blocks have sublayers."""
    pairs = probed("angular", {"distance": square(5), "across": [0.1] * 4}, ["state", "state"])
    assert _place(4, pairs) == "step from one state to the next"
    assert _place(5, pairs) == "state"
    assert _place(9, pairs) == "place in depth"
    alone = probed("alignment", {"kappa": [1.0, 2.0]}, ["", "block"])
    assert _place(2, alone) == "block"
    unnamed = probed("transport", {"rank": [1.0] * 4}, ["", "place in depth"])
    assert _place(4, unnamed) == "place in depth"


def test_a_chart_has_gaps_where_nothing_is_defined(record: Make) -> None:
    found = looks([record()])
    [owner] = found
    values = np.array([1.0, 2.0, np.nan, 4.0, 5.0])
    svg = plot_chart(Chart("lens", "Lens", "nats", "block", {owner: values}, 3.0), found)
    [path] = [p for p in ElementTree.fromstring(svg).iter("path") if p.get("class") == "line"]
    assert str(path.get("d")).count("M") == 2
    assert len(points(svg)["0"]) == 4
    assert 'class="level"' in svg
