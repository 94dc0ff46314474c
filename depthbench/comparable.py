"""Which rows of two reports may be ranked together, and in what the others differ.

What sets rows apart is decided in `report.sections`, for one report as for two.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from depthbench.errors import InputError
from depthbench.report.sections import FIELDS, Section, split
from depthbench.store import Record

RUN = (
    *("design", "design_version", "options"),
    *("layers", "d_model", "ffn", "heads", "kv_heads", "seed"),
)
"""What two rows of one setting agree in if they are the same run, before and after."""

MOST_KINDS = 1000
_READ = (*FIELDS, "corpus", "recipe", "layers", "d_model", "tokens")


@dataclass(frozen=True)
class Difference:
    """A field, with the values that each report has for it."""

    field: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """Rows of both reports that may be ranked together; `fields` sets them apart from others."""

    fields: Mapping[str, str]
    before: Sequence[Record]
    after: Sequence[Record]

    @property
    def shared(self) -> bool:
        return bool(self.before and self.after)


def settings(before: Sequence[Record], after: Sequence[Record]) -> list[Setting]:
    """The rows of two reports in groups of comparable ones, the largest first.

    A row's key is design and version, shape, budget, recipe, hashes of corpus, tokenizer and
    evaluation, precision and seed; a setting is that without design, shape and seed. The name of
    a ladder is no part of it, and counts only while there are shared settings with it: two ladders
    of one report may have a shape in common.
    """
    named = _settings(before, after, ())
    if any(setting.shared for setting in named):
        return named
    return _settings(before, after, ("ladder",))


def groups(rows: Sequence[Record]) -> list[Setting]:
    """The rows of one report likewise, as `before`; ladders apart."""
    return _settings(rows, (), ())


def differences(setting: Setting, others: Iterable[Setting]) -> tuple[Difference, ...]:
    """In what a setting of one report differs from the nearest among those of the other."""
    own = setting.fields
    found = [
        {n: (v, other.fields[n]) for n, v in own.items() if other.fields[n] != v}
        for other in others
    ]
    if not found:
        return ()
    nearest = min(found, key=len)
    turned = not setting.before
    return tuple(
        Difference(name, (theirs,), (mine,)) if turned else Difference(name, (mine,), (theirs,))
        for name, (mine, theirs) in nearest.items()
    )


def together(parts: Iterable[Difference]) -> tuple[Difference, ...]:
    """One difference for every field, with all its values."""
    before: dict[str, dict[str, None]] = defaultdict(dict)
    after: dict[str, dict[str, None]] = defaultdict(dict)
    for part in parts:
        before[part.field] |= dict.fromkeys(part.before)
        after[part.field] |= dict.fromkeys(part.after)
    return tuple(Difference(name, tuple(before[name]), tuple(after[name])) for name in before)


def run_differences(
    before: Sequence[Record], after: Sequence[Record], key: Sequence[str]
) -> tuple[Difference, ...]:
    """In which fields of the key comparable rows without a run in common differ.

    Fields that have no value in common, else those that have not the same values.
    """
    found = []
    for name in key:
        values = [_values(rows, name) for rows in (before, after)]
        if values[0] != values[1]:
            parts = (tuple(sorted(part, key=_natural)) for part in values)
            found.append((Difference(name.replace("_", " "), *parts), values[0] & values[1]))
    return tuple(d for d, common in found if not common) or tuple(d for d, _ in found)


def _values(rows: Iterable[Record], name: str) -> set[str]:
    return {_text(str(row.get(name))) for row in rows}


def _natural(text: str) -> tuple[int, str]:
    return (len(text) if text.isdigit() else 0), text


def _settings(
    before: Sequence[Record], after: Sequence[Record], free: Collection[str]
) -> list[Setting]:
    alike: dict[tuple[object, ...], tuple[list[Record], list[Record]]] = defaultdict(
        lambda: ([], [])
    )
    for side, rows in enumerate((before, after)):
        for row in rows:
            alike[_alike(row)][side].append(row)
    if len(alike) > MOST_KINDS:
        raise InputError(
            f"{len(alike):,} kinds of rows, by setting, shape and budget, are too many to compare: "
            f"at most {MOST_KINDS:,}"
        )
    one_each = [next(iter(rows[0] + rows[1])) for rows in alike.values()]
    found = [_setting(section, alike) for section in split(one_each, free)]
    return sorted(found, key=lambda setting: -len(setting.before) - len(setting.after))


def _setting(
    section: Section, alike: Mapping[tuple[object, ...], tuple[list[Record], list[Record]]]
) -> Setting:
    parts = [alike[_alike(row)] for row in section.records]
    fields = {name: _text(value) for name, value in section.differing.items()}
    before, after = ([row for part in parts for row in part[side]] for side in (0, 1))
    return Setting(fields, before, after)


def _alike(row: Record) -> tuple[object, ...]:
    """All that `split` looks at: it takes long over many rows that are equal in it."""
    flops = row.get("total_flops") if row.get("budget") == "flops" else None
    return (*(row.get(name) for name in _READ), flops)


def _text(value: str) -> str:
    return "none" if value == "None" else value.strip()
