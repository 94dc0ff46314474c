"""What a terminal and a page can show: sentences and tables of texts."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Texts by column; the first column names the row. `numbers`: columns to the right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Block:
    """A part with a heading. `warnings` are sentences that must not be overlooked."""

    heading: str
    warnings: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
