"""What loops are worth: the law of looped stacks, fitted to the runs of each design."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from depthbench.errors import InputError
from depthbench.report.series import Look, Series
from depthbench.report.stacks import Stack, Stacks
from depthbench.report.tables import DESIGN, Column, Row
from depthbench.report.values import Footnotes, Value, joined, number
from depthbench.scaling import Fit, Runs, fit
from depthbench.scaling.documents import SMALL_MODEL
from depthbench.scaling.identify import LARGE_DEVIATION
from depthbench.store import Record

NUM_STARTS, NUM_RESAMPLES = 8, 60  # some two seconds a design
CONSTANT_COLUMNS = (
    DESIGN,
    Column("Constant", "Of g = exp[c·(1 − T⁻ᵖ·B⁻ᑫ)] (Truncate or Not?, arXiv 2610.26030).", False),
    Column("Value", "At the best fit."),
    Column("95 %", "Central 95 % of the bootstrap over runs within each (T, B)."),
    Column("Deviation", "Predicted standard deviation of least squares, as a share of the value."),
    Column("Runs", "Finished runs with tied loops that the law was fitted to."),
)
NOT_KNOWN = 10.0  # of the value: a deviation that says no more than infinity does
NOT_DETERMINED = "the runs do not determine it: the deviation is above ten times its value"


@dataclass(frozen=True)
class Fits:
    """By design the fitted law, or why there is none."""

    found: Mapping[Series, Fit]
    refused: Mapping[Series, str]


def fits_of(stacks: Stacks, order: Sequence[Series]) -> Fits:
    """A law for each design; the tied loops of all shapes and budgets, each seed a run."""
    found: dict[Series, Fit] = {}
    refused: dict[Series, str] = {}
    for series in order:
        own = [stack for stack in stacks.best if stack.series == series]
        runs = runs_of(own)
        if not own:
            continue
        if runs is None:
            refused[series] = "no run with a loop has finished"
            continue
        try:
            found[series] = fit(runs, num_starts=NUM_STARTS, num_resamples=NUM_RESAMPLES)
        except InputError as error:
            refused[series] = str(error)
    return Fits(found, refused)


def runs_of(stacks: Iterable[Stack]) -> Runs | None:
    """The finished runs with tied loops. None without any."""
    rows = [r for stack in stacks if stack.is_tied for r in stack.line.done if _has_size(r)]
    if not rows:
        return None
    columns = {
        name: np.array([float(row[name]) for row in rows])
        for name in ("N_once", "N_rec", "T", "B", "D", "loss")
    }
    return Runs(**columns)


def _has_size(record: Record) -> bool:
    return record["N_once"] is not None and record["N_rec"] is not None


def constant_rows(fits: Fits, looks: Mapping[Series, Look], notes: Footnotes) -> list[Row]:
    """Values in the order of `CONSTANT_COLUMNS`."""
    order = list(looks)
    rows: list[Row] = []
    for series, found in fits.found.items():
        for place, (name, value) in enumerate(found.law.g.items()):
            low, high = found.intervals[name]
            deviation = found.deviations[name]
            values = [
                Value(looks[series].label, looks[series].summary),
                Value(name),
                Value(number(value)),
                Value(f"{number(low)} to {number(high)}"),
                Value(f"{100 * deviation:.0f} %")
                if deviation < NOT_KNOWN
                else notes.blank(NOT_DETERMINED),
                Value(str(len(found.runs))),
            ]
            rows.append(Row(order.index(series), values, place == 0 and bool(rows)))
    return rows


def _warned(found: Fit) -> str:
    """The fit's warnings, those of one kind together."""
    vague = [name for name, deviation in found.deviations.items() if deviation > LARGE_DEVIATION]
    others = [w for w in found.warnings if not w.startswith(tuple(f"{n} is" for n in vague))]
    say = others
    if vague:
        say = [f"the runs hardly determine {joined(vague)}", *others]
    return f"To be read with care: {'; '.join(say)}." if say else ""


def worth_sentences(fits: Fits, looks: Mapping[Series, Look]) -> list[str]:
    """How the law was fitted, what is doubtful in it, and where there is none."""
    say = []
    if fits.found:
        say.append(
            "Fitted to every finished run with a tied loop, by design: Loss = E + A / N_eff^α + "
            "B_D / D^β, N_eff = N_once + g(T, B)·N_rec, with N_rec the parameters in the loop. "
            f"{NUM_STARTS} starts and {NUM_RESAMPLES} resamples only, so that the page is quick to "
            "build: `depthbench scaling fit` takes 500 and 200, and has the other constants."
        )
    for series, found in fits.found.items():
        agree = f"{found.num_agreeing} of {found.num_starts} starts came to this fit"
        say.append(
            f"{looks[series].label}: {agree}; it leaves {100 * found.noise:.2g} % of the loss. "
            f"{_warned(found)}".strip()
        )
    if any(np.max(f.runs.N_once + f.runs.N_rec) < SMALL_MODEL for f in fits.found.values()):
        say.append(
            "These are models of less than 2 million parameters without embeddings, whose losses "
            "differ by 0.16 to 1.3 % between seeds: p and q come out at ±10 to 20 % at best, so "
            "the intervals are the result and not the values."
        )
    reasons: dict[str, list[str]] = {}
    for series, reason in fits.refused.items():
        reasons.setdefault(reason, []).append(looks[series].label)
    say += [f"No fit for {joined(who)}: {why}." for why, who in reasons.items()]
    return say
