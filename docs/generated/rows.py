"""Every column of a result table."""

from collections.abc import Mapping

from depthbench.columns import COLUMNS, FAMILIES, Column
from generated.markdown import code, table

TYPES = {"str": "text", "Int64": "integer", "float64": "number", "boolean": "true or false"}

INTRO = """# Rows

A report writes one row for each cell, into `rows.csv` and `rows.parquet`; `depthbench.store.rows`
gives the same as a pandas table. All columns are always there, in this order. A value that a cell
does not have is empty: losses and domain and probe columns belong to cells that are `done`.

`nats` are natural logarithms. FLOPs count multiply and add as two, and attention's causal half.
"""

OPEN = """## Columns by source, domain and probe

A table has as many of these as its cells were asked for. The sources are those of the corpus, the
domains are `coding`, `stem` and `math`, and what each probe sums up stands with the
[probes](probes.md).
"""


def page() -> str:
    """The columns in the order of the table, then the open-ended families."""
    return "\n".join([INTRO, "## Columns\n", _described(COLUMNS), "", OPEN, _described(FAMILIES)])


def _described(columns: Mapping[str, Column]) -> str:
    rows = [(code(name), TYPES[column.dtype], column.meaning) for name, column in columns.items()]
    return table(("column", "type", "meaning"), rows)
