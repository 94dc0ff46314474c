"""How sensitive every design is to its learning rate: curves, panels, and a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from depthbench.report.drawn import few, legend
from depthbench.report.lines import ShapeKey, Spread
from depthbench.report.loops import read_loop, words
from depthbench.report.panels import NATS, Mark, Panel
from depthbench.report.places import RATE, At, Place
from depthbench.report.sections import split
from depthbench.report.series import Look, Series
from depthbench.report.tables import DESIGN, Column, Row
from depthbench.report.values import Footnotes, Value, joined
from depthbench.report.views import Looks, Part, table
from depthbench.store import Record
from depthbench.tuning import Curve, curves
from depthbench.tuning.curves import BASIN

_DIVERGED = "every rate that was tried diverged"
_INTERIOR, _EDGE = "best rate", "best rate, the outermost tried"
RATE_COLUMNS = (
    DESIGN,
    Column("Shape", "Decoder blocks (L) and model width (d), and the loop if there is one.", False),
    Column("Best rate", "Of those tried the one of the lowest loss, mean over tuning seeds."),
    Column("Loss there", "Validation loss in nats per token at the end of the tuning runs."),
    Column(
        "Optimum",
        "interior: rates on both sides are worse. At an edge a better rate may lie beyond: runs "
        "with that rate, or one interpolated from it, are not ranked.",
        False,
        True,
    ),
    Column(
        "Basin",
        f"Width in octaves of the rates whose loss is within {BASIN:g} nats of the best, "
        "interpolated over log rate. ≥: an end is open, as no rate beyond was tried there.",
    ),
    Column("From, to", "The ends of the basin; in brackets where they are open.", False),
    Column("Rates tried", "Lowest, highest, and how many."),
    Column("Seeds", "Numbers of the tuning seeds, none of which is scored.", False),
    Column("Diverged at", "Rates at which a seed diverged, which counts as worse than any loss."),
)


@dataclass(frozen=True)
class Rates:
    """The tuning rows that may be compared with each other, as curves and their panels."""

    records: Sequence[Record]
    differing: Mapping[str, str]
    curves: list[Curve]
    panels: list[Panel]


def rates_of(records: Sequence[Record], looks: Mapping[Series, Look]) -> list[Rates]:
    """Groups of tuning rows; loops and shapes of one group have panels of their own."""
    order = list(looks)
    groups = []
    for section in split(records, ("loop",)):
        found = curves(section.records)
        found.sort(key=lambda curve: (_place(curve), order.index(_owner(curve))))
        panels = [
            _panel(number, [curve for curve in found if _place(curve) == place])
            for number, place in enumerate(dict.fromkeys(map(_place, found)), 1)
        ]
        groups.append(Rates(section.records, section.differing, found, panels))
    return groups


def _owner(curve: Curve) -> Series:
    return Series(curve.key.design, curve.key.version, curve.key.options)


def _place(curve: Curve) -> tuple[str, float, int, int]:
    """Loop and shape; shallow and wide first."""
    key = curve.key
    return key.loop or "", -key.d_model / key.layers, key.layers, key.d_model


def _called(curve: Curve) -> str:
    label = ShapeKey(curve.key.layers, curve.key.d_model).label
    return f"{label}, {words(read_loop(curve.key.loop))}" if curve.key.loop else label


def _panel(number: int, members: Sequence[Curve]) -> Panel:
    values: dict[Series, dict[Place, Spread]] = {}
    diverged: dict[Series, list[Place]] = {}
    marks = []
    for curve in members:
        series = _owner(curve)
        for point in curve.points:
            if point.loss is None:
                diverged.setdefault(series, []).append(_at(point.rate))
            else:
                loss = Spread(point.loss, None, len(point.seeds))
                values.setdefault(series, {})[_at(point.rate)] = loss
        best = curve.best
        if best:
            kind, marker = (_EDGE, "s") if curve.edge else (_INTERIOR, "o")
            marks.append(Mark(series, _at(best.rate), values[series][_at(best.rate)], kind, marker))
    places: list[Place] = [
        _at(rate) for rate in sorted({point.rate for curve in members for point in curve.points})
    ]
    return Panel(
        f"rate-{number}",
        _called(members[0]),
        NATS,
        places,
        values,
        {},
        diverged,
        axis=RATE,
        marks=marks,
    )


def _at(rate: float) -> At:
    return At(rate, f"{rate:.3g}")


def rates_view(rates: Rates, looks: Looks, stem: str) -> Part:
    """What the page shows of them."""
    notes = Footnotes()
    several = any(len(point.seeds) > 1 for curve in rates.curves for point in curve.points)
    text = "Means over the tuning seeds." if several else "One run a point."
    drawn = [(panel, text) for panel in rates.panels if panel.values]
    shown = {series for panel in rates.panels for series in panel.series}
    return Part(
        _say(rates, looks),
        few(drawn, looks),
        legend(shown, looks),
        [
            table(
                RATE_COLUMNS,
                _rows(rates, looks, notes),
                "Best learning rate of every design at every shape that was tuned.",
                "rates",
                notes,
            )
        ],
        stem if drawn else "",
    )


def _say(rates: Rates, looks: Looks) -> list[str]:
    seeds = joined(str(s) for s in sorted({record["seed"] for record in rates.records}))
    sentences = [
        "These runs only looked for learning rates: they are in no other figure, mean or rank. "
        f"Every design was given the same grid, on seeds of its own ({seeds}), and went on beyond "
        "it where its best rate was the outermost. ○ is the best rate of a design, □ one at an "
        "edge."
    ]
    edges = [f"{looks[_owner(c)].label} at {_called(c)}" for c in rates.curves if c.edge]
    if edges:
        sentences.append(f"At an edge: {joined(edges)}. What runs at these rates is not ranked.")
    waiting = [r for r in rates.records if r["status"] not in ("done", "diverged")]
    if waiting:
        sentences.append(
            f"{len(waiting)} of {len(rates.records)} tuning runs have not ended or have failed: "
            "the curves are not final."
        )
    return sentences


def _rows(rates: Rates, looks: Looks, notes: Footnotes) -> list[Row]:
    """Values in the order of `RATE_COLUMNS`."""
    order = list(looks)
    rows = []
    for place, curve in enumerate(rates.curves):
        look, best, tried = looks[_owner(curve)], curve.best, curve.points
        lost = [f"{point.rate:.3g}" for point in tried if point.loss is None]
        seeds = sorted({seed for point in tried for seed in point.seeds})
        values = [
            Value(look.label, look.summary),
            Value(_called(curve), order=float(curve.key.layers)),
            Value(f"{best.rate:.3g}", order=best.rate) if best else notes.blank(_DIVERGED),
            Value(f"{best.loss:.4f}") if best else notes.blank(_DIVERGED),
            _optimum(curve),
            *_basin(curve, notes),
            Value(f"{tried[0].rate:.3g} to {tried[-1].rate:.3g}", below=f"{len(tried)} rates"),
            Value(joined(map(str, seeds))),
            Value(joined(lost)) if lost else notes.blank("no run diverged"),
        ]
        opens = place > 0 and _place(curve) != _place(rates.curves[place - 1])
        rows.append(Row(order.index(_owner(curve)), values, opens))
    return rows


def _optimum(curve: Curve) -> Value:
    text = f"at the {curve.edge} edge" if curve.edge else "interior"
    return Value(text, kind=text)


def _basin(curve: Curve, notes: Footnotes) -> list[Value]:
    basin = curve.basin
    if basin is None:
        return [notes.blank(_DIVERGED)] * 2
    is_open = basin.open_below or basin.open_above
    low = f"({basin.low:.3g})" if basin.open_below else f"{basin.low:.3g}"
    high = f"({basin.high:.3g})" if basin.open_above else f"{basin.high:.3g}"
    width = f"{'≥ ' if is_open else ''}{basin.octaves:.2f}"
    return [Value(width, order=basin.octaves), Value(f"{low} to {high}", order=basin.low)]
