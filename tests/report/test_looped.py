"""A looped part: which runs stand beside which, where they are drawn, and the law they give."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from depthbench.config import CellConfig
from depthbench.ledger import ledger
from depthbench.report.canvas import MANY, SMALL
from depthbench.report.figures import draw
from depthbench.report.lines import Blank, Spread
from depthbench.report.looped import Looped
from depthbench.report.looped_panels import EQUAL_FLOPS, UNTIED, unbeaten
from depthbench.report.loops import Loops, loop_looks, read_loop, words
from depthbench.report.places import round_ticks
from depthbench.report.sections import LOOPED, looped_suites, split
from depthbench.report.series import Look, Series, series_of
from depthbench.report.stacks import Stack, Stacks, difference, differences
from depthbench.store import Record
from tests.report.looped_kit import (
    CORES,
    PAIRS,
    WHOLE,
    known_loss,
    ladder,
    part_of,
    read,
    suite,
    write_looped,
)

Make = Callable[..., Record]
WHOLES = '{"layout":"whole","rounds":%d}'


def at(panel: Any, series: Series) -> dict[float, float]:
    return {place.x: value.mean for place, value in panel.values[series].items()}


def test_the_panel_of_executed_depth_holds_the_loops_with_all_gradients(
    part: tuple[Looped, dict[Series, Look]], cores: tuple[list[Record], list[CellConfig]]
) -> None:
    looped, _ = part
    assert [tower.shape.d_model for tower in looped.towers] == [40, 56, 80]
    assert {tower.tokens for tower in looped.towers} == {999_936}  # the budget of most runs
    panel = looped.depth[1]
    [series] = panel.values
    mine = [c for c in cores[1] if c.shape.d_model == 56 and c.tokens == 999_936 and c.loop]
    expected = {
        1 + 4 * cell.loop.forward + 1: known_loss(cell)
        for cell in mine
        if cell.loop and cell.loop.forward == cell.loop.backward and cell.loop.tied
    }
    assert at(panel, series) == pytest.approx(expected)
    assert sorted(expected) == [6, 10, 34]


def test_controls_stand_open_at_the_same_depth_and_the_plain_stack_is_a_rule(
    part: tuple[Looped, dict[Series, Look]], cores: tuple[list[Record], list[CellConfig]]
) -> None:
    looped, appearance = part
    cells = cores[1]
    panel = looped.depth[1]
    plain = [c for c in cells if c.loop is None]
    [same] = [known_loss(c) for c in plain if c.shape.layers == 6]
    assert [level for _, level in panel.levels] == [pytest.approx(same)]
    marks = {(m.kind, m.place.x): m.value.mean for m in panel.marks}
    full = {c.loop.forward: ledger(c).total_flops for c in cells if _is_full(c)}
    for blocks, forward in ((10, 2), (34, 8)):
        deep = [c for c in plain if c.shape.layers == blocks]
        near = min(deep, key=lambda c: abs(ledger(c).total_flops - full[forward]))
        assert marks[EQUAL_FLOPS, blocks] == pytest.approx(known_loss(near))
        [untied] = [c for c in cells if _is_untied(c) and c.loop.forward == forward]
        assert marks[UNTIED, blocks] == pytest.approx(known_loss(untied))
    assert len(marks) == 4
    drawn = draw(looped.depth, appearance, MANY, "svg").decode()
    assert all(kind in drawn for kind in (EQUAL_FLOPS, UNTIED))
    unmarked = replace(panel, marks=())
    shapes = [
        draw([p], appearance, SMALL, "svg").decode().count("series:") for p in (panel, unmarked)
    ]
    assert shapes[0] - shapes[1] == 4


def test_a_truncated_loop_has_the_untied_control_with_all_gradients(
    part: tuple[Looped, dict[Series, Look]], cores: tuple[list[Record], list[CellConfig]]
) -> None:
    stacks = part[0].stacks
    pair = (8, 1)
    [stack] = [s for s in stacks.every if _pair(s) == pair and s.is_tied and stacks.plain(s)]
    [untied] = [c for c in cores[1] if _is_untied(c) and c.loop.forward == 8]
    found = differences(stack, stacks)["untied"]
    mine = [c for c in cores[1] if c.shape.d_model == 56 and c.tokens == 999_936]
    [own] = [c for c in mine if c.loop and (c.loop.forward, c.loop.backward) == pair]
    assert found == Spread(pytest.approx(known_loss(own) - known_loss(untied)), None, 1)


def _pair(stack: Stack) -> tuple[int, int] | None:
    return (stack.loop.forward, stack.loop.backward) if stack.loop else None


def _is_full(cell: CellConfig) -> Any:
    mine = cell.shape.d_model == 56 and cell.tokens == 999_936
    return mine and cell.loop and cell.loop.forward == cell.loop.backward and cell.loop.tied


def _is_untied(cell: CellConfig) -> Any:
    return cell.loop and not cell.loop.tied


def test_every_run_is_on_the_line_of_its_forward_and_backward_loops(
    part: tuple[Looped, dict[Series, Look]], cores: tuple[list[Record], list[CellConfig]]
) -> None:
    looped, appearance = part
    [panel] = looped.compute
    named = {appearance[series].label: series for series in panel.values}
    assert list(named) == [
        "no loop",
        *(f"({T}, {B})" for T, B in PAIRS),
        *(f"untied ×{T}" for T in (2, 4, 8)),
    ]
    drawn = {series: set(by) for series, by in panel.values.items()}
    for mark in panel.marks:
        drawn[mark.series].add(mark.place)
    for T, B in PAIRS:
        flops = {
            ledger(c).total_flops
            for c in cores[1]
            if c.loop and (c.loop.forward, c.loop.backward) == (T, B) and not _is_untied(c)
        }
        assert {place.x for place in drawn[named[f"({T}, {B})"]]} == flops
        assert len(flops) == 9  # three widths at three budgets
    for values in panel.values.values():
        losses = [value.mean for _, value in sorted(values.items())]
        assert losses == sorted(losses, reverse=True)
    points = {(r["total_flops"], r["loss"]) for r in cores[0]}
    kept = {p for p in points if not any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in points)}
    assert set(panel.frontier) == kept


def stacks_with(record: Make, *changes: dict[str, Any]) -> list[Stack]:
    base = {"layers": 6, "d_model": 56, "suite": "looped", "steps": 100}
    return Stacks([record(**base | change) for change in changes]).every


def test_a_run_that_a_cheaper_one_equals_is_beaten(record: Make) -> None:
    points = ((1.0, 5.0), (2.0, 4.0), (3.0, 4.0), (4.0, 4.5), (5.0, 3.0))
    found = stacks_with(
        record,
        *(
            {"loop": CORES % (2, 2), "tokens": 10 + i, "total_flops": x, "loss": y}
            for i, (x, y) in enumerate(points)
        ),
    )
    assert [(s.flops, s.line.loss.mean) for s in unbeaten(found)] == [(1, 5), (2, 4), (5, 3)]


def test_differences_are_paired_by_seed(record: Make) -> None:
    loop = {"loop": CORES % (8, 8), "total_flops": 1000.0}
    deep = {"layers": 34, "total_flops": 995.0, "tokens": 700_000}
    stacks = Stacks(
        [
            record(layers=layers, steps=100, d_model=56, **change)
            for layers, change in (
                (6, loop | {"seed": 1, "loss": 4.0}),
                (6, loop | {"seed": 2, "loss": 4.2}),
                (6, {"seed": 1, "loss": 4.5}),
                (6, {"seed": 2, "loss": 4.9}),
                (6, {"seed": 3, "loss": 9.0}),
            )
        ]
        + [record(steps=100, d_model=56, **deep | {"seed": 2, "loss": 3.9})]
    )
    [looped] = [stack for stack in stacks.every if stack.loop]
    found = differences(looped, stacks)
    assert found["plain"] == pytest.approx(Spread(-0.6, math.sqrt(0.02), 2))
    assert found["equal_flops"] == pytest.approx(Spread(0.3, None, 1), nan_ok=True)
    assert isinstance(found["untied"], Blank)
    assert "untied" in found["untied"]


@pytest.mark.parametrize(("flops", "found"), [(1000.0, True), (1009.0, True), (1011.0, False)])
def test_equal_flops_means_within_a_step(record: Make, flops: float, found: bool) -> None:
    control = record(layers=34, d_model=56, steps=100, total_flops=1000.0)
    looped = record(
        layers=6, d_model=56, steps=100, loop=CORES % (8, 8), total_flops=flops, tokens=5
    )
    stacks = Stacks([control, looped])
    [stack] = [stack for stack in stacks.every if stack.loop]
    assert (stacks.equal_flops(stack) is not None) == found


def test_a_control_that_is_not_done_is_named_as_the_reason(record: Make) -> None:
    plain = record(layers=6, d_model=56, status="pending", loss=None)
    [stack] = stacks_with(record, {"loop": CORES % (2, 2)})
    stacks = Stacks([plain, record(layers=6, d_model=56, loop=CORES % (2, 2))])
    found = difference(stack, stacks.plain(stack), "none")
    assert found == "L6 / d56, no loop, 1.00\N{NO-BREAK SPACE}M tokens: pending"


def test_a_whole_stack_run_once_is_the_plain_one(tmp_path: Path) -> None:
    cells = [cell for cell, _ in write_looped(tmp_path, suite(**WHOLE))]
    looped, _ = part_of(read(tmp_path))
    [panel] = looped.depth
    assert {place.x for by in panel.values.values() for place in by} == {2, 4, 8}
    once = {c.design.name: known_loss(c) for c in cells if c.loop and c.loop.forward == 1}
    assert {s.design: level for s, level in panel.levels if s} == pytest.approx(once)
    assert len(once) == 2
    assert len(looped.compute) == 2
    labels = {(s.forward, s.backward) for p in looped.compute for s in p.values}
    assert labels == {(1, 1), (2, 2), (4, 4)}


def test_a_control_without_a_loop_is_the_first_point_of_whole_stacks(record: Make) -> None:
    records = [
        record(layers=2, d_model=96, loop=text, loss=loss)
        for text, loss in ((None, 4.5), (WHOLES % 2, 4.0), (WHOLES % 4, 3.9))
    ]
    [panel] = part_of(records)[0].depth
    [values] = panel.values.values()
    assert {p.x: value.mean for p, value in values.items()} == {2: 4.5, 4: 4.0, 8: 3.9}


def test_of_several_seeds_the_mean_and_its_deviation_are_drawn(record: Make) -> None:
    losses = {1: (5.0, 5.2), 2: (4.0, 4.4)}
    records = [
        record(layers=2, d_model=96, loop=WHOLES % rounds, seed=seed, loss=loss)
        for rounds, values in losses.items()
        for seed, loss in enumerate(values)
    ]
    looped, _ = part_of(records)
    [panel] = looped.depth
    [values] = panel.values.values()
    assert {p.x: v for p, v in values.items()}[4] == pytest.approx(Spread(4.2, math.sqrt(0.08), 2))
    ends = {place.x: bar for (_, place), bar in panel.bars.items()}
    assert ends[4] == pytest.approx((4.2 - math.sqrt(0.08), 4.2 + math.sqrt(0.08)))


def test_a_loop_that_diverged_is_marked_where_it_would_stand(record: Make) -> None:
    records = [record(layers=2, d_model=96, loop=WHOLES % rounds) for rounds in (1, 2, 4)]
    records[2] |= {"status": "diverged", "diverged_step": 5, "loss": None}
    [panel] = part_of(records)[0].depth
    assert [place.x for places in panel.diverged.values() for place in places] == [8]
    assert all(place.x != 8 for by in panel.values.values() for place in by)


def test_three_far_points_are_all_inside_their_panel(record: Make) -> None:
    records = [
        record(layers=2, d_model=96, design="hc", loop=WHOLES % rounds, loss=loss)
        for rounds, loss in ((1, 4.0), (2, 4.01), (4, 9.0))
    ]
    [panel] = part_of(records)[0].depth
    assert panel.outside == []
    assert panel.limits[1] > 9.0


def test_a_suite_with_one_loop_is_looped_and_its_rows_are_one_group(record: Make) -> None:
    records = [
        record(suite="a", loop=WHOLES % 2),
        record(suite="a", ladder="other", tokens=5_000_000, loop=None),
        record(suite="b", loop=None),
    ]
    assert looped_suites(records) == {"a"}
    assert [len(s.records) for s in split(records[:2], LOOPED)] == [2]
    assert len(split(records[:2])) == 2
    assert len(split([records[0], records[1] | {"precision": "bf16"}], LOOPED)) == 2


def test_runs_that_looked_for_a_learning_rate_are_not_stacks(record: Make) -> None:
    records = [record(layers=2, loop=WHOLES % rounds) for rounds in (1, 2)]
    looped, _ = part_of([*records, records[1] | {"role": "tuning", "learning_rate": 0.5}])
    assert {stack.line.learning_rate for stack in looped.stacks.every} == {0.01}


def test_of_several_rates_the_best_is_drawn(record: Make) -> None:
    records = [
        record(layers=2, loop=WHOLES % 2, learning_rate=rate, loss=loss)
        for rate, loss in ((0.01, 4.0), (0.02, 3.5))
    ]
    stacks = Stacks(records)
    assert len(stacks.every) == 2
    assert [stack.line.learning_rate for stack in stacks.best] == [0.02]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no loop"),
        (WHOLES % 4, "whole ×4"),
        (CORES % (8, 1), "1 + core ×8 (B 1) + 1"),
        (CORES.replace("}", ',"tied":false}') % (4, 4), "1 + untied ×4 (B 4) + 1"),
        (
            CORES.replace("}", ',"injection":"add"}') % (2, 2),
            "1 + core ×2 (B 2) + 1, injection add",
        ),
    ],
)
def test_loops_in_words(text: str | None, said: str) -> None:
    assert words(read_loop(text)) == said


def test_no_two_loops_look_alike(record: Make) -> None:
    pairs = [(T, B) for T in (1, 2, 3, 4, 8) for B in (1, 2, 8) if B <= T]
    texts = [CORES % pair for pair in pairs] + [WHOLES % 2, None]
    found = loop_looks([record(loop=text) for text in texts])
    assert len({look.label for look in found.values()}) == len(texts)
    assert len({look.light for look in found.values()}) == len(texts)
    first = next(iter(found))
    assert isinstance(first, Loops)
    assert first.is_baseline
    assert series_of(record()) not in found


@pytest.mark.parametrize(
    ("ends", "ticks"),
    [
        ((1e12, 3e13), ["1e12", "2e12", "5e12", "1e13", "2e13"]),
        ((1.9e12, 4.1e12), ["2e12", "3e12", "4e12"]),
        ((2.43e12, 2.9e12), ["2.4e12", "2.9e12"]),
        ((2.43e12, 2.43e12), ["2.4e12"]),
    ],
)
def test_ticks_are_as_round_as_fit(ends: tuple[float, float], ticks: list[str]) -> None:
    assert [text for _, text in round_ticks(*ends)] == ticks


def test_shapes_of_one_depth_have_no_panel(tmp_path: Path) -> None:
    loops = [{"layout": "whole", "rounds": 2}]
    write_looped(tmp_path, suite(**WHOLE | {"loops": loops, "ladder": ladder((2, 32))}))
    assert part_of(read(tmp_path))[0].depth == []
