"""One sheet a finished cell: every probe with its maps and numbers, and every domain set."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from depthbench.probes import get, names
from depthbench.report.cells import Array, Cell, ordered
from depthbench.report.depth import spark
from depthbench.report.maps import data_uri
from depthbench.report.probes import Key, Probes
from depthbench.report.series import Look, Series, series_of
from depthbench.report.values import number


@dataclass(frozen=True)
class Map:
    """One image and what it is, in words."""

    address: str
    words: str
    title: str


@dataclass(frozen=True)
class Trace:
    """One value over the depth: polylines, and its ends in words."""

    title: str
    stretches: list[str]
    span: str


@dataclass(frozen=True)
class Sheet:
    """What a cell's sheet shows. `missing`: reason and the probes that it holds for."""

    anchor: str
    series: int
    name: str
    path: str
    loss: str
    maps: list[Map]
    traces: list[Trace]
    numbers: list[tuple[str, str]]
    missing: list[tuple[str, list[str]]]
    sets: list[list[str]]
    sample: str
    no_sets: str


def map_of(cell: Cell, key: Key, probes: Probes, who: str) -> Map | None:
    """The cell's map of that kind, on the scale of its column."""
    probe, kind = key
    probed = cell.probes.get(probe)
    values = probed.values.get(kind) if probed else None
    if values is None:
        return None
    column = next(column for column in probes.columns if column.key == key)
    rows, across = column.axes
    words = f"{column.title} of {who}, {rows} down, {across} across: {span(values)} {column.unit}"
    return Map(data_uri(values, column.limits), words, column.title)


def span(values: Array) -> str:
    """Least and greatest value."""
    finite = values[np.isfinite(values)]
    return f"{number(finite.min())} to {number(finite.max())}" if finite.size else "no value"


def name_of(cell: Cell, looks: Mapping[Series, Look]) -> str:
    record = cell.record
    label = looks[series_of(record)].label
    return f"{label}, L{record['layers']} / d{record['d_model']}, seed {record['seed']}"


def sheets(
    members: Iterable[Cell],
    probes: Probes,
    looks: Mapping[Series, Look],
    called: Callable[[Cell, Mapping[Series, Look]], str] = name_of,
) -> list[Sheet]:
    """A sheet for each of the cells, which go by the name that `called` gives."""
    order = list(looks)
    return [_sheet(cell, probes, called(cell, looks), order) for cell in members]


def _sheet(cell: Cell, probes: Probes, name: str, order: Sequence[Series]) -> Sheet:
    maps = [map_of(cell, column.key, probes, name) for column in probes.columns]
    samples = {_sample(probed.document["sample"]) for probed in cell.probes.values()}
    own = [cell.probes[probe] for probe in ordered(cell.probes)]
    return Sheet(
        anchor=cell.anchor,
        series=order.index(series_of(cell.record)),
        name=name,
        path=cell.record["path"],
        loss=f"{cell.record['loss']:.4f}",
        maps=[found for found in maps if found],
        traces=[
            Trace(f"{probed.title}: {kind.replace('_', ' ')}", spark(values), span(values))
            for probed in own
            for kind, values in probed.values.items()
            if values.ndim == 1
        ],
        numbers=[
            (f"{probed.title}: {what.replace('_', ' ')}", number(x, 4))
            for probed in own
            for what, x in probed.document["summary"].items()
            if x is not None
        ],
        missing=_missing(cell),
        sets=_sets(cell),
        sample="; ".join(sorted(samples)),
        no_sets="" if cell.domains else cell.why_no_domains,
    )


def _sample(sample: Mapping[str, object]) -> str:
    return f"{sample['windows']} held-out windows, {sample['tokens']} tokens of {sample['corpus']}"


def _missing(cell: Cell) -> list[tuple[str, list[str]]]:
    """Every probe without an answer, by reason."""
    reasons: dict[str, list[str]] = {}
    for name in [*names(), *(n for n in cell.probes if n not in names())]:
        probed = cell.probes.get(name)
        why = probed.reason if probed else cell.why_no_probe(name)
        if why:
            reasons.setdefault(why, []).append(probed.title if probed else get(name).title)
    return list(reasons.items())


def _sets(cell: Cell) -> list[list[str]]:
    """Set, nats, interval, bits, items, tokens, cut prompts and targets; or why it is not there."""
    document = cell.domains or {}
    rows = []
    for entry in document.get("sets", {}).values():
        low, high = entry["interval"]
        numbers = ("items", "tokens", "truncated_prompts", "truncated_targets")
        rows.append(
            [
                entry["title"],
                f"{entry['nats_per_token']:.3f}",
                f"{low:.3f} to {high:.3f}",
                f"{entry['bits_per_byte']:.3f}",
                *(f"{entry[number]:,}" for number in numbers),
            ]
        )
    rows += [[name, f"not there: {why}"] for name, why in document.get("unavailable", {}).items()]
    return rows
