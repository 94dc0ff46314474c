"""Panels of a looped part: loss against executed depth, against compute, and g(T, B)."""

from collections.abc import Iterable, Mapping, Sequence

from depthbench.report.lines import Spread
from depthbench.report.panels import NATS, Mark, Panel, deviation
from depthbench.report.places import COMPUTE, EXECUTED, LOOPS, At, Place
from depthbench.report.series import Look, Series
from depthbench.report.stacks import Stack, Stacks
from depthbench.report.towers import Tower
from depthbench.scaling import Fit

EQUAL_FLOPS, UNTIED, BEATEN = "no loop, equal FLOPs", "untied, equal tokens", "beaten"
Means = dict[Series, dict[Place, Spread]]


def depth_panel(tower: Tower, stacks: Stacks, number: int = 1) -> Panel:
    """Loss of a tower's loops; open marks are what shares no weights at the same executed depth."""
    values: Means = {}
    diverged: dict[Series, list[Place]] = {}
    marks: list[Mark] = []
    for series, by_depth in tower.lines.items():
        for executed, stack in by_depth.items():
            place = At(executed, f"{executed} blocks")
            if stack.loss:
                values.setdefault(series, {})[place] = stack.loss
            elif stack.line.diverged:
                diverged.setdefault(series, []).append(place)
            if executed == tower.shape.layers:
                continue
            controls = ((EQUAL_FLOPS, "s", stacks.equal_flops), (UNTIED, "D", stacks.untied))
            for kind, marker, find in controls:
                control = find(stack)
                if control and control.loss:
                    marks.append(Mark(series, place, control.loss, kind, marker))
    levels = [(s, plain.loss.mean) for s, plain in tower.plain.items() if plain.loss]
    return Panel(
        f"executed-{number}",
        tower.title,
        NATS,
        [At(executed, f"{executed} blocks") for executed in tower.depths],
        values,
        _bars(values),
        diverged,
        axis=EXECUTED,
        marks=marks,
        levels=levels,
    )


def _bars(values: Means) -> dict[tuple[Series, Place], tuple[float, float]]:
    found = {(s, at): deviation(value) for s, by in values.items() for at, value in by.items()}
    return {key: reach for key, reach in found.items() if reach}


def compute_panel(series: Series, stacks: Stacks, looks: Mapping[Series, Look]) -> Panel | None:
    """Loss of one design against FLOPs: a line joins the runs of one (T, B) that none beats.

    None without any loss.
    """
    groups: dict[Series, list[Stack]] = {}
    every = [s for s in stacks.best if s.series == series and s.loss and s.flops]
    for stack in every:
        groups.setdefault(stack.loops, []).append(stack)
    if not every:
        return None
    values: Means = {}
    marks: list[Mark] = []
    for loops in (known for known in looks if known in groups):
        kept = unbeaten(groups[loops])
        values[loops] = dict(_points(kept))
        beaten = [stack for stack in groups[loops] if stack not in kept]
        marks += [Mark(loops, at, loss, BEATEN, ".") for at, loss in _points(beaten)]
    places = sorted({at for by in values.values() for at in by} | {mark.place for mark in marks})
    return Panel(
        f"compute-{list(looks).index(series)}",
        looks[series].label,
        NATS,
        places,
        values,
        _bars(values),
        {},
        axis=COMPUTE,
        marks=marks,
        frontier=[(at.x, loss.mean) for at, loss in _points(unbeaten(every))],
    )


def unbeaten(stacks: Iterable[Stack]) -> list[Stack]:
    """Those with a lower loss than every cheaper one, the cheapest first."""
    kept: list[Stack] = []
    lowest = float("inf")
    for stack in sorted(stacks, key=lambda s: (s.flops or 0.0, s.loss.mean if s.loss else 0.0)):
        if stack.loss and stack.loss.mean < lowest:
            kept.append(stack)
            lowest = stack.loss.mean
    return kept


def _points(stacks: Iterable[Stack]) -> Iterable[tuple[At, Spread]]:
    for stack in stacks:
        if stack.flops and stack.loss:
            yield At(stack.flops, stack.label), stack.loss


def g_panel(fits: Mapping[Series, Fit]) -> Panel | None:
    """g at every (T, B) that was run, with its bootstrap intervals. None without any fit."""
    pairs = sorted({(worth.T, worth.B) for found in fits.values() for worth in found.worths})
    if not pairs:
        return None
    place: dict[tuple[int, int], Place] = {
        pair: At(2.0**i, f"({pair[0]}, {pair[1]})") for i, pair in enumerate(pairs)
    }
    values: Means = {}
    bars: dict[tuple[Series, Place], tuple[float, float]] = {}
    for series, found in fits.items():
        for worth in found.worths:
            at = place[worth.T, worth.B]
            values.setdefault(series, {})[at] = Spread(worth.g, None, len(found.runs))
            if worth.interval:
                bars[series, at] = worth.interval
    places: Sequence[Place] = list(place.values())
    title = "g(T, B), worth of a recurrent parameter"
    return Panel("g", title, "g", [*places], values, bars, {}, axis=LOOPS, levels=[(None, 1.0)])
