"""A comparison as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from depthbench.comparison import Reports
from depthbench.comparison.pairs import Compared, Judged, Pair
from depthbench.comparison.reading import Report
from depthbench.statistics import CellChange

SCHEMA = 1
Document = dict[str, Any]


def document(found: Reports) -> Document:
    """Numbers, text, lists and null; losses in nats per token."""
    return {
        "schema": SCHEMA,
        "tolerance": found.tolerance,
        "ignore_version": found.ignore_version,
        "comparable": found.comparable,
        "regressed": found.regressed,
        "reports": [_report(report) for report in found.reports],
        "comparisons": [_pair(pair) for pair in found.pairs],
        "alone": [asdict(part) for part in found.parts],
    }


def _report(report: Report) -> Document:
    return {
        "label": report.label,
        "source": report.source,
        "num_rows": len(report.rows),
        "num_tuning": report.num_tuning,
        "num_damaged": report.num_damaged,
        "note": report.note,
    }


def _pair(pair: Pair) -> Document:
    return {
        "before": pair.before.label,
        "after": pair.after.label,
        "comparable": pair.comparable,
        "regressed": bool(pair.regressions),
        "differing": [asdict(difference) for difference in pair.differing],
        "settings": [_setting(part, pair.key) for part in pair.compared],
        "not_compared": [asdict(apart) for apart in pair.apart],
        "versions": [asdict(versions) for versions in pair.versions],
        "new_designs": [dict(design) for design in pair.new],
        "gone_designs": [dict(design) for design in pair.gone],
    }


def _setting(part: Compared, key: Sequence[str]) -> Document:
    return {
        "fields": dict(part.fields),
        "designs": [_design(judged, part, key) for judged in part.designs],
        "new_runs": [dict(run) for run in part.comparison.new],
        "gone_runs": [dict(run) for run in part.comparison.gone],
    }


def _design(judged: Judged, part: Compared, key: Sequence[str]) -> Document:
    change = judged.change
    return {
        **change.design,
        "change": asdict(change.change),
        "verdict": change.verdict,
        "regression": judged.regression,
        "num_lost": change.num_lost,
        "rank_before": change.rank_before,
        "rank_after": change.rank_after,
        "rank_reason": change.rank_reason,
        "speed": asdict(judged.speed),
        "cells": [_cell(cell, part, key) for cell in judged.cells],
    }


def _cell(cell: CellChange, part: Compared, key: Sequence[str]) -> Document:
    return {
        **cell.cell,
        "before": cell.before,
        "after": cell.after,
        "change": asdict(cell.change),
        "learning_rates": _rates(cell, part, key),
        "lost": _endings(cell, cell.lost, part, key, 1),
        "gained": _endings(cell, cell.gained, part, key, 0),
    }


def _endings(
    cell: CellChange, seeds: Mapping[int, str], part: Compared, key: Sequence[str], side: int
) -> list[Document]:
    """Seed, status and error of runs that did not finish; `side` 0 is before, 1 after."""
    found = []
    for seed, status in seeds.items():
        row = part.runs[_run(cell, seed, key)][side]
        error = row["error"] if row else None
        found.append({"seed": seed, "status": status, "error": error})
    return found


def _rates(cell: CellChange, part: Compared, key: Sequence[str]) -> list[list[float]]:
    """Learning rates of the cell's runs, before and after."""
    found: tuple[set[float], set[float]] = (set(), set())
    for seed in part.seeds:
        rows = part.runs.get(_run(cell, seed, key), (None, None))
        for row, rates in zip(rows, found, strict=True):
            if row and all(rows) and row["learning_rate"] is not None:
                rates.add(row["learning_rate"])
    return [sorted(rates) for rates in found]


def _run(cell: CellChange, seed: int, key: Sequence[str]) -> tuple[Any, ...]:
    return tuple(seed if name == "seed" else cell.cell[name] for name in key)
