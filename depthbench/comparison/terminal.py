"""A comparison in a terminal."""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from depthbench.comparison.blocks import Block, Table
from depthbench.console import print_table


def show(blocks: Sequence[Block]) -> None:
    """Prints every block, its warnings first."""
    for block in blocks:
        print(block.heading)
        for sentence in (*(f"! {warning}" for warning in block.warnings), *block.sentences):
            print(f"  {sentence}")
        for table in block.tables:
            print()
            _show(table)
        print()


def _show(table: Table) -> None:
    columns: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
        name: itemgetter(name) for name in table.columns
    }
    records = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    print_table(table.title, records, columns)
