"""Rows and folders that tests of the report share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from depthbench.config import CellConfig
from depthbench.report.looped import Looped
from depthbench.report.series import Look, Series
from depthbench.store import COLUMNS, Record, cell_folders, records
from tests.report.cells import write_matrix
from tests.report.looped_kit import part_of, read, suite, write_looped


@pytest.fixture
def matrix(tmp_path: Path) -> Callable[..., Path]:
    """Writes a matrix under a fresh root and returns the root."""

    def write(**arguments: Any) -> Path:
        return write_matrix(tmp_path / "runs", **arguments)

    return write


@pytest.fixture
def record() -> Callable[..., Record]:
    """Makes one finished record; keywords replace its fields."""

    def make(**changes: Any) -> Record:
        base: Record = dict.fromkeys(COLUMNS)
        base |= {
            "suite": "quick",
            "cell": "cell",
            "path": "runs/cell",
            "design": "pre-ln",
            "design_version": 1,
            "options": "{}",
            "ladder": "quick",
            "layers": 4,
            "d_model": 128,
            "match": "shape",
            "seed": 1,
            "learning_rate": 0.01,
            "sequence_length": 128,
            "batch_size": 8,
            "steps": 1000,
            "tokens": 1_000_000,
            "budget": "tokens",
            "precision": "fp32",
            "recipe": '{"weight_decay": 0.1}',
            "corpus": "pypi-text",
            "corpus_hash": "aaaa",
            "tokenizer_hash": "t1",
            "evaluation": "e1",
            "status": "done",
            "loss": 3.0,
            "total_flops": 1e15,
            "parameters": 2_000_000,
            "backbone": 1_000_000,
            "added": 0,
            "added_share": 0.0,
            "host": "a",
            "device": "cpu",
            "ranks": 1,
            "threads": 1,
        }
        return base | changes

    return make


@pytest.fixture
def records_of() -> Callable[[Path], list[Record]]:
    """The records under a root, as the report reads them."""
    return lambda root: records(cell_folders(root))


@pytest.fixture(scope="session")
def cores(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Record], list[CellConfig]]:
    """Rows and cells of the suite of cores, with losses exactly by the law."""
    root = tmp_path_factory.mktemp("cores")
    cells = [cell for cell, _ in write_looped(root, suite())]
    return read(root), cells


@pytest.fixture(scope="session")
def part(cores: tuple[list[Record], list[CellConfig]]) -> tuple[Looped, dict[Series, Look]]:
    return part_of(cores[0])
