"""How the command line speaks: tables, JSON, progress, and one message for what went wrong."""

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from depthbench.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, DepthbenchError
from depthbench.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from depthbench.data.progress import Progress

Record = Mapping[str, Any]
Columns = Mapping[str, Callable[[Record], Any]]


class Reporting(TyperGroup):
    """Commands whose expected errors become one message on stderr and the error's exit code.

    With DEPTHBENCH_DEBUG=1 the traceback comes first.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except Exception as error:
            code = _exit_code(error)
            if code is None:
                raise
            if os.environ.get("DEPTHBENCH_DEBUG") == "1":
                traceback.print_exc()
            message = Text(printable(f"depthbench: {error}", keep="\n"), "red")
            Console(stderr=True).print(message, soft_wrap=True)
            raise typer.Exit(code) from None


def _exit_code(error: Exception) -> int | None:
    """None for a fault of the program itself, which keeps its traceback."""
    if isinstance(error, DepthbenchError):
        return error.exit_code
    if isinstance(error, OSError) and error.filename is not None:
        return EXIT_FAILED  # a read-only folder, a full disk: the user's to mend
    designs = sys.modules.get("residuals.errors")  # importing it would import torch
    if designs is not None and isinstance(error, designs.DesignError):
        return EXIT_USAGE
    return None


def print_json(value: object) -> None:
    """Indented JSON, with numbers as Python writes them."""
    print(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))


def print_table(title: str, records: Sequence[Record], columns: Columns) -> None:
    """One line per record; numbers to the right; a terminal's width, else as wide as needed."""
    table = Table(title=_text(title), title_justify="left", box=None, pad_edge=False)
    cells = [[column(record) for column in columns.values()] for record in records]
    for index, header in enumerate(columns):
        numeric = any(isinstance(row[index], int | float) for row in cells)
        table.add_column(_text(header), justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*(_text(_shown(value)) for value in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, 1000))
    console.print(table)


def _text(text: str) -> Text:
    """Neither markup nor an order to the terminal, whoever wrote it."""
    return Text(printable(text, keep="\n"))


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def size(num_bytes: float) -> str:
    """Bytes in the largest fitting binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.3g} TiB"


@contextmanager
def bars() -> "Iterator[Progress]":
    """A function to call with stage, done and total; each stage is one line on stderr."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as shown:
        stages: dict[str, Any] = {}

        def tell(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages[stage] = shown.add_task(printable(stage), total=total)
            shown.update(stages[stage], completed=done, total=total)

        yield tell
