"""What a loop is worth: the fit to a suite's runs, and what is said where there is none."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from depthbench.report.looped import Looped
from depthbench.report.series import Look, Series
from depthbench.report.stacks import Stacks
from depthbench.report.values import Footnotes
from depthbench.report.worth import Fits, constant_rows, runs_of, worth_sentences
from depthbench.store import Record
from tests.report.looped_kit import CORES, LAW, PAIRS, WHOLE, part_of, read, suite, write_looped

Make = Callable[..., Record]


def test_the_fit_finds_the_law_that_made_the_losses(
    part: tuple[Looped, dict[Series, Look]],
) -> None:
    looped, _ = part
    [found] = looped.fits.found.values()
    assert len(found.runs) == 45  # without the nine controls
    assert found.law.g == pytest.approx(LAW.g, rel=0.02)
    assert looped.worth is not None
    [values] = looped.worth.values.values()
    drawn = {place.label: value.mean for place, value in values.items()}
    assert drawn == pytest.approx(
        {f"({T}, {B})": float(LAW.g_at(T, B)) for T, B in PAIRS}, rel=0.01
    )
    intervals = [bar for _, bar in sorted(looped.worth.bars.items(), key=lambda b: b[0][1])]
    assert intervals == [worth.interval for worth in found.worths]
    assert looped.worth.levels == [(None, 1.0)]
    assert looped.worth.limits[0] < 1.0


def test_without_a_law_the_reason_is_said(tmp_path: Path) -> None:
    write_looped(tmp_path, suite(**WHOLE))
    looped, appearance = part_of(read(tmp_path))
    assert looped.worth is None
    [sentence] = worth_sentences(looped.fits, appearance)
    assert sentence.startswith("No fit for Pre-LN and DeepLoop: 3 runs cannot determine 8 constant")


def test_what_the_runs_hardly_determine_is_said(
    part: tuple[Looped, dict[Series, Look]],
) -> None:
    looped, appearance = part
    [(series, found)] = looped.fits.found.items()
    deviations = dict.fromkeys(found.deviations, 0.1) | {"p": 0.4, "c": 25.0}
    warnings = (
        "p is hardly determined: 40%",
        "c is hardly determined: 2500%",
        "c ended at a bound",
    )
    doubtful = replace(found, deviations=deviations, warnings=warnings)
    fits = Fits({series: doubtful}, {})
    say = " ".join(worth_sentences(fits, appearance))
    assert "To be read with care: the runs hardly determine p and c; c ended at a bound." in say
    notes = Footnotes()
    texts = {
        row.values[1].text: row.values[4].text for row in constant_rows(fits, appearance, notes)
    }
    assert texts == {"p": "40 %", "q": "10 %", "c": "—"}
    assert len(notes.reasons) == 1


def test_controls_are_no_runs_of_a_law(record: Make) -> None:
    sizes = {"N_once": 10, "N_rec": 20, "T": 2, "B": 2, "D": 30}
    untied = CORES.replace("}", ',"tied":false}') % (2, 2)
    kept = record(loop=CORES % (2, 2), loss=4.25, **sizes)
    others = [record(loop=None, **sizes), record(loop=untied, **sizes)]
    runs = runs_of(Stacks([kept, *others]).every)
    assert runs is not None
    assert runs.loss.tolist() == [4.25]
    assert (runs.N_once[0], runs.N_rec[0], runs.T[0], runs.B[0], runs.D[0]) == (10, 20, 2, 2, 30)
