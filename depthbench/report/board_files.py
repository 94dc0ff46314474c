"""The leaderboards of all sections as files: CSV, Parquet, JSON, and Markdown for a README."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from depthbench import __version__
from depthbench.folder import replacing, write_json
from depthbench.report.entries import Entries, Entry
from depthbench.report.lines import Blank
from depthbench.report.sections import Section
from depthbench.report.series import Look, Series
from depthbench.report.tables import interval
from depthbench.report.values import rank_range, signed
from depthbench.statistics import Estimate
from depthbench.store import Record
from depthbench.tables import ROWS_SCHEMA

_FORMULA = re.compile(r"^[\s\x00-\x1f]*[=+\-@\t\r＝＋－＠]")
_ESTIMATES = {
    "difference": "difference",
    "slope": "slope_per_halving",
    "slope_beyond": "slope_per_halving_beyond",
    "change": "change",
    "change_beyond": "change_beyond",
}
_WHOLE = ("section", "design_version", "rank", "rank_worst", "num_seeds")  # else 1.0
Boards = Sequence[tuple[Section, Entries]]


def write_boards(
    boards: Boards, records: Sequence[Record], out: Path, looks: Mapping[Series, Look]
) -> None:
    """Writes `leaderboard.csv`, `.parquet`, `.json` and `.md` into `out`.

    One line a design and section in all of them; without any there is the JSON alone. That has all
    rows of the report too, so that it can be compared with another. Slopes are per halving of the
    aspect ratio, so that below zero depth helps; what ends in `_beyond` is minus the baseline's.
    """
    lines = [
        _flat(number, section, entries, entry, looks)
        for number, (section, entries) in enumerate(boards, 1)
        for entry in entries.entries
    ]
    document = {"schema": ROWS_SCHEMA, "depthbench": __version__}
    write_json(out / "leaderboard.json", document | {"leaderboard": lines, "rows": [*records]})
    if not lines:
        return
    frame = pd.DataFrame(lines).astype(dict.fromkeys(_WHOLE, "Int64"))
    with replacing(out / "leaderboard.csv") as path:
        without_formulas(frame).to_csv(path, index=False)
    with replacing(out / "leaderboard.parquet") as path:
        frame.to_parquet(path, index=False)
    with replacing(out / "leaderboard.md") as path:
        path.write_text(markdown(boards, looks), encoding="utf-8")


def without_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with an apostrophe before every text that a spreadsheet would compute.

    That is text which begins, after blanks, with = + - @ or a control character. Numbers are left
    alone; Parquet and JSON have the text as it is.
    """
    safe = frame.copy()
    for name in safe.columns:
        if not pd.api.types.is_numeric_dtype(safe[name].dtype):
            safe[name] = safe[name].map(_plain_text, na_action="ignore")
    return safe


def _plain_text(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _flat(
    number: int,
    section: Section,
    entries: Entries,
    entry: Entry,
    looks: Mapping[Series, Look],
) -> dict[str, Any]:
    standing, board = entry.standing, entries.board
    series, look = standing.series, looks[standing.series]
    flat: dict[str, Any] = {
        "section": number,
        "section_fields": json.dumps(section.differing),
        "shapes": "; ".join(shape.label for shape in board.ladder),
        "design": series.design,
        "design_version": series.version,
        "options": series.options,
        "title": look.label,
        "family": look.family,
        "rank": standing.rank,
        "rank_worst": standing.worst,
        "rank_reason": standing.why_unranked,
        "behind": "; ".join(looks[other].label for other in standing.behind),
    }
    for name, called in _ESTIMATES.items():
        flat |= _estimate(called, getattr(standing, name))
    flat["domains"] = entries.evaluation or None
    flat |= {f"domain/{name}": _known(value) for name, value in entry.domains.items()}
    flat |= {name: _known(value) for name, value in entry.late.items()}
    flat |= {name: _known(value) for name, value in entry.amounts.items()}
    flat |= {f"{name}_relative": _known(value) for name, value in entry.costs.items()}
    run = board.analysis.noise.run
    return flat | {
        "added_share": _known(entry.added_share),
        "seeds": ", ".join(map(str, entry.seeds)),
        "num_seeds": entry.num_seeds[0],
        "learning_rates": "; ".join(f"{s.label} {rate:g} {how}" for s, rate, how in entry.rates),
        "rate_at_edge": bool(standing.at_edge),
        "conformance": None if isinstance(entry.conformance, Blank) else entry.conformance,
        "status": entry.status,
        "details": entry.details or None,
        "hosts": "; ".join(entry.hosts),
        "noise_sd": run.sd if run else None,
        "smallest_detectable": run.detectable if run else None,
    }


def _estimate(name: str, found: Estimate) -> dict[str, Any]:
    parts = {"": found.value, "_low": found.low, "_high": found.high, "_p_holm": found.p_holm}
    return {f"{name}{part}": value for part, value in parts.items()} | {
        f"{name}_reason": found.reason
    }


def _known(value: float | str) -> float | None:
    return None if isinstance(value, str) else value


def markdown(boards: Boards, looks: Mapping[Series, Look]) -> str:
    """One table a section, its reasons below."""
    parts = []
    for number, (section, entries) in enumerate(boards, 1):
        if len(boards) > 1:
            fields = "; ".join(f"{name}: {value}" for name, value in section.differing.items())
            parts.append(f"### Group {number}: {_cell(fields)}\n")
        parts.append("\n".join(_table(entries, looks)) + "\n")
    return "\n".join(parts)


def _table(entries: Entries, looks: Mapping[Series, Look]) -> Iterator[str]:
    board = entries.board
    titles = ("Rank", "Design", "− Pre-LN, nats", "Slope per halving", "Change with depth")
    yield f"| {' | '.join((*titles, 'Speed', 'Seeds', 'Rate', 'Conformance', 'Status'))} |"
    yield "| ---: | :--- | ---: | ---: | ---: | ---: | ---: | :--- | :--- | :--- |"
    reasons: dict[str, str] = {}
    for entry in entries.entries:
        standing = entry.standing
        label = looks[standing.series].label
        if standing.rank is None:
            reasons[label] = standing.why_unranked or "not known"
        speed = entry.costs["tokens_per_second"]
        cells = (
            "—" if standing.rank is None else rank_range(standing.rank, standing.worst),
            label,
            _with_interval(standing.difference),
            _with_interval(standing.slope),
            _with_interval(standing.change),
            "—" if isinstance(speed, Blank) else f"{speed:.2f} ×",
            entry.seeds_text,
            " → ".join(dict.fromkeys(f"{rate:.3g}" for _, rate, _ in entry.rates)),
            "—" if isinstance(entry.conformance, Blank) else entry.conformance,
            f"{entry.status} ({entry.details})" if entry.details else entry.status,
        )
        yield f"| {' | '.join(map(_cell, cells))} |"
    yield ""
    shapes = ", ".join(shape.label for shape in board.ladder) or "no shape"
    yield (
        f"Mean over {shapes}, 95 % intervals. Below zero a design is better than Pre-LN, and depth "
        "helps. Ranks run from the first to the last that noise leaves open."
    )
    same = set(reasons.values())
    if len(same) == 1 and len(reasons) > 1:
        yield f"Without a rank: {_cell(same.pop())}."
    else:
        for label, why in reasons.items():
            yield f"{_cell(label)} has no rank: {_cell(why)}."


def _with_interval(found: Estimate) -> str:
    if found.value is None:
        return "—"
    if found.low is None or found.high is None:
        return signed(found.value)
    return f"{signed(found.value)} ({interval(found.low, found.high)})"


def _cell(text: str) -> str:
    """Text as Markdown shows it, whatever is in it: on one line, with nothing that is markup."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    line = line if len(line) <= 160 else line[:159] + "…"
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", line).replace("://", "&#58;//")
