"""Runs to fit a law to: a CSV or parquet file with one row a run, or a folder of cells."""

import csv
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from depthbench.errors import InputError
from depthbench.scaling.forms import Array
from depthbench.scaling.law import Quantity, compute

COLUMNS = ("N_once", "N_rec", "T", "B", "D", "loss")
_LEAST = {"N_once": 0.0, "N_rec": 0.0, "T": 1.0, "B": 1.0, "D": 1.0}
_SHARED = (
    *("options", "match", "corpus_hash", "tokenizer_hash", "evaluation"),
    *("sequence_length", "batch_size", "precision", "recipe"),
)
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Runs:
    """Columns of n runs, each [n]: parameters, loops, tokens, and loss in nats per token."""

    N_once: Array
    N_rec: Array
    T: Array
    B: Array
    D: Array
    loss: Array

    def __len__(self) -> int:
        return len(self.loss)

    def take(self, index: Any) -> "Runs":
        """The runs at `index`, in its order, as often as they are named."""
        return Runs(*(getattr(self, field.name)[index] for field in fields(self)))

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The distinct (T, B)."""
        return sorted({(int(t), int(b)) for t, b in zip(self.T, self.B, strict=True)})

    @property
    def designs(self) -> Array:
        """What was run, without the loss, [n, 5]: runs that differ only in the seed are equal."""
        return np.stack([self.N_once, self.N_rec, self.T, self.B, self.D], axis=1)

    @property
    def recurrent_share(self) -> float:
        """The median of N_rec / (N_once + N_rec)."""
        return float(np.median(self.N_rec / (self.N_once + self.N_rec)))

    @property
    def ranges(self) -> dict[Quantity, tuple[float, float]]:
        """Least and greatest of everything that a plan chooses."""
        cost = compute(self.N_once, self.N_rec, self.T, self.B, self.D)
        known: dict[Quantity, Array] = {"compute": cost, "N": self.N_once + self.N_rec}
        known |= {"D": self.D, "T": self.T, "B": self.B}
        return {name: (float(v.min()), float(v.max())) for name, v in known.items()}


def read_runs(path: Path, design: str | None = None) -> tuple[Runs, dict[str, int]]:
    """The runs in `path`, and how many rows were left out for which reason.

    Left out are rows whose status is not `done`, those of tuning and, where there is a column
    `loop`, those without a loop or with an untied one: controls that say nothing of g. `seed` makes
    two rows with equal numbers two runs. A law is of one `design`, one kind of loop, one corpus and
    one recipe: rows that say otherwise are refused. Raises `InputError` with file, line and reason.
    """
    read = _cells if path.is_dir() else _parquet if path.suffix == ".parquet" else _csv
    kept: list[dict[str, float]] = []
    seen: dict[tuple[Any, ...], str] = {}
    found_designs: set[str] = set()
    left_out: Counter[str] = Counter()
    kinds: dict[str, dict[str, str]] = defaultdict(dict)
    for place, row in read(path):
        if "design" in row:
            found_designs.add(str(row["design"]))
            if design is not None and str(row["design"]) != design:
                continue
        if reason := _left_out(row, place):
            left_out[reason] += 1
            continue
        numbers = _checked(row, place)
        for name, value in _kind(row).items():
            kinds[name].setdefault(value, place)
        twin = (*numbers.values(),) if "seed" not in row else _design_of(numbers, row["seed"])
        if twin in seen:
            raise InputError(
                f"{place} repeats {seen[twin]}: leave one of them out, or add a column seed"
            )
        seen[twin] = place
        kept.append(numbers)
    _one_design(path, found_designs, design)
    for name, values in kinds.items():
        if len(values) > 1:
            (first, where), (second, there) = list(values.items())[:2]
            raise InputError(
                f"{where} has {name} {first} and {there} has {second}, and a law is of runs that "
                f"differ in N_once, N_rec, T, B and D only: keep those of one {name}"
            )
    if not kept:
        reasons = "".join(f", {num} left out ({reason})" for reason, num in left_out.items())
        raise InputError(f"{path} has no run to fit{reasons}: a fit needs finished runs with loops")
    columns = (np.array([row[name] for row in kept]) for name in COLUMNS)
    return Runs(*columns), dict(left_out)


def _kind(row: Row) -> dict[str, str]:
    """What all runs of a law share, as far as the row says it."""
    kind = {name: str(row[name]) for name in _SHARED if name in row}
    loop = row.get("loop")
    if isinstance(loop, str) and loop:
        fields = json.loads(loop)
        kind["kind of loop"] = " ".join(
            str(fields[name]) for name in ("layout", "injection") if name in fields
        )
    return kind


def _left_out(row: Row, place: str) -> str | None:
    if row.get("role") == "tuning":
        return "a run that looked for a learning rate"
    if row.get("status", "done") != "done":
        return "not done"
    if "loop" not in row:
        return None
    loop = row["loop"]
    if not isinstance(loop, str) or not loop:  # missing values of a table are no strings
        return "a control without a loop"
    try:
        tied = json.loads(loop).get("tied", True)
    except (ValueError, AttributeError):
        raise InputError(f"{place}: loop = {loop!r} is not the JSON of a loop") from None
    return None if tied else "a control whose loop is untied"


def _design_of(numbers: Mapping[str, float], seed: object) -> tuple[Any, ...]:
    return (*(numbers[name] for name in COLUMNS if name != "loss"), str(seed))


def _one_design(path: Path, found: set[str], chosen: str | None) -> None:
    if chosen is not None and chosen not in found:
        from residuals import unknown  # imports torch: only once something is wrong

        raise InputError(f"{path}: {unknown('design', chosen, sorted(found))}")
    if chosen is None and len(found) > 1:
        raise InputError(
            f"{path} holds the designs {', '.join(sorted(found))}, and a law is of one design: "
            "choose it with --design"
        )


def _checked(row: Row, place: str) -> dict[str, float]:
    numbers = {}
    for name in COLUMNS:
        try:
            value = float(row[name])
        except (TypeError, ValueError):
            raise InputError(f"{place}: {name} = {row[name]!r} is not a number") from None
        if not math.isfinite(value):
            raise InputError(f"{place}: {name} = {value} is not finite: leave that run out")
        if name in ("T", "B") and value != int(value):
            raise InputError(f"{place}: {name} = {value:g} is not a whole number of loops")
        if value < _LEAST.get(name, 0.0) or (name == "loss" and value == 0.0):
            least = f"at least {_LEAST[name]:g}" if name in _LEAST else "above 0"
            raise InputError(f"{place}: {name} = {value:g} must be {least}")
        numbers[name] = value
    if numbers["B"] > numbers["T"]:
        raise InputError(
            f"{place}: B = {numbers['B']:g} exceeds T = {numbers['T']:g}: gradients pass at most "
            "the loops that ran"
        )
    if numbers["N_once"] + numbers["N_rec"] == 0:
        raise InputError(f"{place}: N_once and N_rec are both 0: a model has parameters")
    return numbers


def _require(path: Path, columns: list[str]) -> None:
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        raise InputError(
            f"{path} has no column {', '.join(missing)}: it needs {', '.join(COLUMNS)}; "
            f"found: {', '.join(columns) or 'none'}"
        )


def _csv(path: Path) -> Iterator[tuple[str, Row]]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            _require(path, list(reader.fieldnames or []))
            for row in reader:
                yield f"{path}, line {reader.line_num}", row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {path}: {error}") from None


def _parquet(path: Path) -> Iterator[tuple[str, Row]]:
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise InputError(f"cannot read {path}: {error}") from None
    _require(path, list(frame.columns))
    for number, record in enumerate(frame.to_dict("records"), 1):
        yield f"{path}, row {number}", {str(name): value for name, value in record.items()}


def _cells(path: Path) -> Iterator[tuple[str, Row]]:
    from depthbench.store import cell_folders, rows

    for record in rows(cell_folders(path)).to_dict("records"):
        yield str(record["path"]), {str(name): value for name, value in record.items()}
