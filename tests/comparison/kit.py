"""Reports of chosen losses in every form they are published in, and the verb that compares them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import typer
from typer.testing import CliRunner

from depthbench.console import Reporting
from depthbench.row_verbs import compare, reproduce
from tests.kit import cell_config

SHAPES = ((2, 64), (4, 48), (8, 32))
Row = dict[str, Any]

app = typer.Typer(cls=Reporting, pretty_exceptions_enable=False)
app.command()(compare)
app.command()(reproduce)  # with one verb alone, typer takes its name for an argument


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def told(*arguments: object, code: int = 0) -> dict[str, Any]:
    """The JSON on stdout, which may hold nothing else, of a call that ends with `code`."""
    result = call(*arguments, "--json")
    assert result.exit_code == code, result.output
    found: dict[str, Any] = json.loads(result.stdout, parse_constant=_refuse)
    return found


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def row(
    design: str = "a", shape: int = 0, seed: int = 1, loss: float | None = 5.0, **changes: Any
) -> Row:
    """A finished run, or what `changes` make of it."""
    layers, d_model = SHAPES[shape]
    plain = {
        "suite": "unit",
        "role": "scored",
        "cell": f"{design}-L{layers}-d{d_model}-s{seed}",
        "path": f"runs/unit/{design}-{shape}-{seed}",
        "digest": f"{design}-{shape}-{seed}",
        "design": design,
        "design_version": 1,
        "options": "{}",
        "ladder": "unit",
        "loop": None,
        "layers": layers,
        "d_model": d_model,
        "ffn": 3 * d_model,
        "heads": 2,
        "kv_heads": 2,
        "match": "shape",
        "seed": seed,
        "learning_rate": 1e-3,
        "sequence_length": 128,
        "batch_size": 8,
        "tokens": 100_000,
        "budget": "tokens",
        "precision": "fp32",
        "recipe": json.dumps({"beta1": 0.9, "decay": "by-role"}),
        "corpus": "prose",
        "corpus_hash": "c0c0",
        "tokenizer_hash": "70ca",
        "evaluation": "e0e0",
        "status": "done",
        "error": None,
        "loss": loss,
        "tokens_per_second": 1000.0,
        "host": "bench",
        "device": "cpu",
        "threads": 1,
    }
    return plain | changes


def rows_of(losses: Mapping[str, Sequence[Sequence[float]]], **changes: Any) -> list[Row]:
    """Rows of every design's losses [shapes, seeds]; seeds from 1."""
    return [
        row(design, shape, seed, loss, **changes)
        for design, by_shape in losses.items()
        for shape, by_seed in enumerate(by_shape)
        for seed, loss in enumerate(by_seed, 1)
    ]


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """The rows as `.csv`, `.parquet` or `.json`, as the name ends."""
    records = [dict(row) for row in rows]
    if path.suffix == ".json":
        path.write_text(json.dumps({"schema": 1, "rows": records}))
    elif path.suffix == ".csv":
        pd.DataFrame(records).to_csv(path, index=False)
    else:
        pd.DataFrame(records).to_parquet(path, index=False)
    return path


def write_cells(root: Path, losses: Mapping[str, Sequence[Sequence[float]]]) -> Path:
    """Folders of finished cells, as the trainer leaves them."""
    for wanted in rows_of(losses):
        layers, d_model = wanted["layers"], wanted["d_model"]
        corpus = {"name": "prose", "hash": "c0c0", "tokenizer_hash": "70ca", "vocab_size": 500}
        config = cell_config(
            {"name": wanted["design"], "version": 1},
            shape={"layers": layers, "d_model": d_model, "ffn": 96, "heads": 2},
            corpus=corpus,
            seed=wanted["seed"],
        )
        result = {
            "schema": 1,
            "status": "done",
            "config": config.model_dump(mode="json"),
            "measures": {"loss": wanted["loss"], "bits_per_byte": 2.0},
            "ledger": {
                "parameters": 9,
                "backbone": 5,
                "added": 0,
                "added_by_design_share": 0.0,
                "train_flops_per_token": 54,
                "tokens_per_second": 1000.0,
            },
            "environment": {"host": "bench", "device": "cpu"},
        }
        folder = root / config.folder_name()
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(config.model_dump_json())
        (folder / "result.json").write_text(json.dumps(result))
    return root
