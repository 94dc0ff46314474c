"""Rows from wherever they were published: a folder of cells, a table, or the JSON of a report."""

from pathlib import Path

import pandas as pd

from depthbench.errors import InputError
from depthbench.folder import read_json
from depthbench.store import COLUMNS, Record, cell_folders, plain, records

ROWS_SCHEMA = 1
_NEEDED = ("design", "status", "digest", "loss")


def read_records(path: Path) -> list[Record]:
    """Rows of a folder with cells, of `rows.csv` or `rows.parquet`, or of a report's JSON.

    A folder without cells that holds a report is read by its `rows.parquet`. Nothing is executed.
    Raises `InputError` for what holds no rows, with the columns that are missing.
    """
    if path.is_dir():
        folders = cell_folders(path)
        table = path / "rows.parquet"
        if folders or not table.is_file():
            if not folders:
                raise InputError(f"no cell and no rows.parquet under {path}: name a result folder")
            return records(folders)
        path = table
    try:
        frame = _frame(path)
    except (OSError, ValueError, UnicodeDecodeError) as error:  # pandas' and pyarrow's are these
        raise InputError(f"cannot read {path}: {error}") from None
    missing = [name for name in _NEEDED if name not in frame.columns]
    if missing:
        raise InputError(
            f"{path} has no column {', '.join(missing)}: name a folder of cells, or the rows.csv, "
            "rows.parquet or leaderboard.json of a report"
        )
    known = {name: kind for name, kind in COLUMNS.items() if name in frame.columns}
    try:
        return plain(frame.astype(known))
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}: a column does not hold what its name says") from None


def _frame(path: Path) -> pd.DataFrame:
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    if path.suffix == ".json":
        document = read_json(path)
        if document.get("schema") != ROWS_SCHEMA or not isinstance(document.get("rows"), list):
            raise InputError(f"{path} is no report: it has no rows of schema {ROWS_SCHEMA}")
        return pd.DataFrame(document["rows"])
    if path.suffix == ".csv":
        return pd.read_csv(path, low_memory=False)
    raise InputError(f"{path} is neither a folder nor a .csv, .parquet or .json file with rows")
