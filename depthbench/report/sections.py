"""Rows that may be compared with each other, kept apart from those that may not."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from depthbench.report.values import plain
from depthbench.store import Record

FIELDS = {
    "corpus_hash": "corpus",
    "tokenizer_hash": "tokenizer",
    "evaluation": "evaluation set",
    "ladder": "ladder",
    "match": "matching",
    "loop": "loop",
    "budget": "budget track",
    "amount": "budget",
    "sequence_length": "sequence length",
    "batch_size": "batch size",
    "precision": "precision",
}
LOOPED = ("ladder", "loop", "amount")  # what the rows of a looped part may differ in
_NEAR = 1.1  # budgets in tokens per parameter differ as much as the shapes of one ladder do


@dataclass(frozen=True)
class Section:
    """Comparable records. `differing`: the fields that set it apart, with its own values."""

    records: Sequence[Record]
    differing: dict[str, str]


def looped_suites(records: Iterable[Record]) -> set[str]:
    """Suites with at least one loop: their stacks without one are controls."""
    return {record["suite"] for record in records if record["loop"] is not None}


def split(records: Sequence[Record], free: Collection[str] = ()) -> list[Section]:
    """Groups of comparable records, the largest first. They may differ in what `free` names."""
    groups: dict[tuple[tuple[str, str], ...], list[Record]] = defaultdict(list)
    for record, fields in zip(records, _all_fields(records, free), strict=True):
        groups[tuple(fields.items())].append(record)
    keys = [dict(key) for key in groups]
    names = list(dict.fromkeys(name for key in keys for name in key))
    differing = [n for n in names if len({key.get(n) for key in keys}) > 1]
    sections = [
        Section(members, {n: key.get(n, "not set") for n in differing})
        for key, members in zip(keys, groups.values(), strict=True)
    ]
    return sorted(sections, key=lambda section: -len(section.records))


def _all_fields(records: Sequence[Record], free: Collection[str]) -> list[dict[str, str]]:
    fixed = [_fixed_fields(record, free) for record in records]
    if "amount" in free:
        return fixed
    alike: dict[tuple[tuple[str, str], ...], list[Record]] = defaultdict(list)
    for record, fields in zip(records, fixed, strict=True):
        alike[tuple(fields.items())].append(record)
    return [
        fields | {FIELDS["amount"]: _amount(record, alike[tuple(fields.items())])}
        for record, fields in zip(records, fixed, strict=True)
    ]


def _fixed_fields(record: Record, free: Collection[str]) -> dict[str, str]:
    kept = {name: title for name, title in FIELDS.items() if name not in free}
    fields = {title: str(record[name]) for name, title in kept.items() if name in record}
    fields["corpus"] = f"{record['corpus']} {record['corpus_hash']}"
    recipe = json.loads(record["recipe"])
    return fields | {name.replace("_", " "): plain(value) for name, value in recipe.items()}


def _amount(record: Record, alike: Sequence[Record]) -> str:
    """The budget that `record` shares with others, named by the least of them.

    Token counts of one shape must be equal; those of different shapes, and FLOPs, only near.
    """
    unit = "total_flops" if record["budget"] == "flops" else "tokens"
    counts: dict[tuple[int, int], set[int]] = defaultdict(set)
    for other in alike:
        counts[other["layers"], other["d_model"]].add(other["tokens"])
    exact = unit == "tokens" and any(len(values) > 1 for values in counts.values())
    gap = 1.0 if exact else _NEAR
    values = sorted({other[unit] for other in alike if other[unit]})
    least = [v for i, v in enumerate(values) if i == 0 or v > gap * values[i - 1]]
    own = [v for v in least if record[unit] and v <= record[unit]] or least[:1]
    if not own:
        return "not recorded"
    return f"{own[-1]:.3g} FLOPs" if unit == "total_flops" else f"{own[-1]:,} tokens"
