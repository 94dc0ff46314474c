"""The heat maps of all designs: rows for the page, and one picture for a file."""

from collections.abc import Mapping
from dataclasses import dataclass

import matplotlib
from matplotlib.figure import Figure

from depthbench.report.canvas import INK, MUTED, RC, saved
from depthbench.report.cells import Array
from depthbench.report.maps import legend_uri, rgb
from depthbench.report.probes import Chosen, Probes
from depthbench.report.series import Look, Series
from depthbench.report.sheets import Map, map_of, name_of
from depthbench.report.values import Footnotes, Value, number

_SIDE, _GAP, _LEFT, _TOP, _DPI = 198, 32, 200, 90, 72  # of the picture, in pixels


@dataclass(frozen=True)
class PlateHead:
    """Title and colours of one column of maps."""

    title: str
    unit: str
    axes: str
    colours: str
    low: str
    high: str


@dataclass(frozen=True)
class PlateRow:
    """The maps of one design; a `Value` stands where there is none and says why."""

    series: int
    label: str
    shape: str
    note: str
    address: str
    maps: list[Map | Value]


def plate_heads(probes: Probes) -> list[PlateHead]:
    """One for each column."""
    return [
        PlateHead(
            column.title,
            column.unit,
            f"{column.axes[0]} down, {column.axes[1]} across",
            legend_uri(column.limits),
            *map(number, column.limits),
        )
        for column in probes.columns
    ]


def plate_rows(probes: Probes, looks: Mapping[Series, Look], notes: Footnotes) -> list[PlateRow]:
    """One for each design, also where it has no map at all."""
    order = list(looks)
    return [
        PlateRow(
            order.index(chosen.series),
            looks[chosen.series].label,
            chosen.line.shape.label,
            chosen.note,
            f"#{chosen.cell.anchor}" if chosen.cell else "",
            _maps(chosen, probes, looks, notes),
        )
        for chosen in probes.chosen
    ]


def _maps(
    chosen: Chosen, probes: Probes, looks: Mapping[Series, Look], notes: Footnotes
) -> list[Map | Value]:
    found: list[Map | Value] = []
    for column in probes.columns:
        cell = chosen.cell
        drawn = map_of(cell, column.key, probes, name_of(cell, looks)) if cell else None
        found.append(drawn or notes.blank(why_no_map(chosen, column.key[0])))
    return found


def why_no_map(chosen: Chosen, probe: str) -> str:
    """Why the design has no map of that probe."""
    if chosen.cell is None:
        return chosen.note
    probed = chosen.cell.probes.get(probe)
    if probed is None:
        return chosen.cell.why_no_probe(probe)
    return probed.reason or "the document has no such map"


def picture(probes: Probes, looks: Mapping[Series, Look]) -> bytes:
    """All maps with their designs, as one PNG."""
    step = _SIDE + _GAP
    width, height = _LEFT + step * len(probes.columns), _TOP + step * len(probes.chosen)
    with matplotlib.rc_context(RC | {"font.size": 12}):
        figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI)

        def write(x: float, y: float, text: str, **style: str) -> None:
            figure.text(x / width, 1 - y / height, text, va="top", **style)  # type: ignore[arg-type]

        for place, column in enumerate(probes.columns):
            left, (low, high) = _LEFT + place * step, column.limits
            write(left, 12, column.title, color=INK, fontweight="bold")
            write(left, 40, f"{number(low)} to {number(high)}\n{column.unit}", color=MUTED)
        for row, chosen in enumerate(probes.chosen):
            top = _TOP + row * step
            write(12, top, f"{looks[chosen.series].label}\n{chosen.line.shape.label}", color=INK)
            for place, column in enumerate(probes.columns):
                left = _LEFT + place * step
                values = chosen.values(column.key)
                if values is None:
                    write(left, top, "no answer", color=MUTED, fontstyle="italic")
                else:
                    drawn = _enlarged(rgb(values, column.limits))
                    figure.figimage(drawn, left, height - top - len(drawn), resize=False)
        return saved(figure, "png", _DPI)


def _enlarged(image: Array) -> Array:
    """(rows, columns, 3) so that the longer side nearly fills the field, each pixel as a square."""
    pixels = max(1, _SIDE // max(image.shape[:2]))
    return image.repeat(pixels, axis=0).repeat(pixels, axis=1)
