"""The rows of a report from anywhere, with nothing in them that a page or a terminal would obey."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from depthbench.errors import DepthbenchError, InputError
from depthbench.printable import printable
from depthbench.store import Record
from depthbench.tables import read_records

MOST_BYTES = 256 * 2**20
MOST_ROWS = 20_000
LONGEST = 4000
_SHOWN_ERROR = 300
_LARGEST_LOSS = 1e4  # nats; no model's, and sums of such are still numbers

_SETTING = (
    *("corpus", "corpus_hash", "tokenizer_hash", "evaluation", "ladder", "match", "budget"),
    *("sequence_length", "batch_size", "precision", "recipe", "tokens"),
)
_PLACED = ("design_version", "layers", "d_model", "seed", "status", *_SETTING)
_KEPT = (
    *("design", "options", "loop", "ffn", "heads", "kv_heads", *_PLACED),
    *("role", "suite", "cell", "path", "learning_rate", "diverged_step", "error", "loss"),
    *("total_flops", "tokens_per_second", "host", "device", "threads"),
)
_AT_LEAST = {"layers": 1, "d_model": 1, "seed": 0, "design_version": 0}
_MOST = 10**9
_FAULTS = (ArithmeticError, LookupError, TypeError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Report:
    """Rows of one report. `label` is its letter, `source` what it was called on the command line.

    Left out of `rows` are `num_tuning` runs that looked for a learning rate, and `num_damaged`
    cells of which not even the design can be read. `note`: where published numbers are from.
    """

    label: str
    source: str
    rows: list[Record]
    num_tuning: int = 0
    num_damaged: int = 0
    note: str | None = None

    @property
    def published(self) -> bool:
        return self.note is not None


def read_report(source: str, label: str) -> Report:
    """The report at a path: a folder of cells, a table of rows, or a report's JSON.

    Raises `InputError` for what is missing, too large, damaged, or holds no row to compare.
    """
    path, name = Path(source), printable(source)
    if not path.exists():
        raise InputError(f"{name} does not exist: name a folder of cells, or a report's rows")
    try:
        _refuse_huge(path)
        records = read_records(path)
    except (DepthbenchError, OSError) as error:
        raise InputError(shortened(printable(str(error)), 600)) from None
    except _FAULTS as error:
        what = shortened(printable(str(error)), 200)
        raise InputError(f"{name} cannot be read as rows: {what}") from None
    _refuse_many(len(records), path)
    tried = [record for record in records if record.get("role") == "tuning"]
    scored = [record for record in records if record.get("role") != "tuning"]
    known = [record for record in scored if record.get("design") is not None]
    rows = [_checked(record, f"{name}, row {n}") for n, record in enumerate(known, 1)]
    if not rows:
        raise InputError(
            f"{name} has no row to compare: {len(tried)} of its {len(records)} rows are of tuning, "
            f"{len(scored)} are damaged"
        )
    return Report(label, name, rows, len(tried), len(scored) - len(known))


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _refuse_huge(path: Path) -> None:
    tables = [path]
    if path.is_dir():
        tables = [*path.rglob("*.json"), *path.glob("rows.parquet")]
    elif not path.is_file():
        raise InputError(f"{path} is neither a file nor a folder")
    for table in tables:
        num_bytes = table.stat().st_size
        if table.suffix == ".parquet":
            groups = pq.ParquetFile(table).metadata
            _refuse_many(groups.num_rows, table)
            unpacked = sum(
                groups.row_group(i).total_byte_size for i in range(groups.num_row_groups)
            )
            num_bytes = max(num_bytes, unpacked)
        if num_bytes > MOST_BYTES:
            raise InputError(
                f"{table} has {num_bytes / 2**20:,.0f} MiB, and at most {MOST_BYTES / 2**20:,.0f} "
                "MiB of rows are read: leave rows or columns out"
            )


def _refuse_many(num_rows: int, path: Path) -> None:
    if num_rows > MOST_ROWS:
        raise InputError(
            f"{printable(str(path))} has {num_rows:,} rows, and at most {MOST_ROWS:,} are compared"
        )


def _checked(record: Mapping[str, Any], place: str) -> Record:
    """What is compared of a row. Raises `InputError` for values that cannot be."""
    row: Record = {name: _safe(record.get(name), name, place) for name in _KEPT}
    place = f"{place} ({shortened(str(row['cell']), 80)})" if row["cell"] else place
    lacking = [name for name in _PLACED if row[name] is None]
    if lacking:
        raise InputError(
            f"{place} has no {', '.join(lacking)}: without that it cannot be compared; give the "
            "report's folder of cells, or rows that this version has written"
        )
    for name, least in _AT_LEAST.items():
        if not least <= row[name] <= _MOST:
            raise InputError(f"{place}: {name} = {row[name]} is not between {least} and {_MOST}")
    loss = row["loss"]
    if loss is not None and math.isfinite(loss) and not 0 <= loss <= _LARGEST_LOSS:
        raise InputError(f"{place}: loss = {loss} is no loss in nats per token")
    rate = row["learning_rate"]
    if rate is not None and not 0 <= rate <= _MOST:
        raise InputError(f"{place}: learning_rate = {rate} is no learning rate")
    _refuse_no_recipe(row["recipe"], place)
    row["options"] = row["options"] or "{}"
    if row["match"] == "total":
        row["ffn"] = None  # follows from the design's own parameters
    return row


def _safe(value: Any, name: str, place: str) -> Any:
    if not isinstance(value, str):
        return value
    value = printable(value)
    if name == "error":
        return shortened(value, _SHOWN_ERROR)
    if len(value) > LONGEST:
        raise InputError(
            f"{place}: {name} has {len(value):,} characters, and no field needs over {LONGEST:,}"
        )
    return value


def _refuse_no_recipe(text: str, place: str) -> None:
    try:
        recipe = json.loads(text)
    except (ValueError, RecursionError):
        recipe = None
    scalars = isinstance(recipe, dict) and all(
        isinstance(value, str | int | float) for value in recipe.values()
    )
    if not scalars:
        raise InputError(f"{place}: recipe = {shortened(text, 80)} is no JSON object of settings")
