"""Cell folders as the trainer leaves them, with losses that follow a formula."""

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from depthbench.config import CellConfig
from depthbench.shapes import backbone_parameters, total_parameters

SHAPES = ((4, 128, 352), (8, 96, 256), (16, 64, 176))
VOCAB = 4096

# Loss at the middle shape, and its change per halving of the aspect ratio.
DESIGNS: dict[str, tuple[float, float]] = {
    "pre-ln": (4.110, 0.020),
    "sandwich-ln": (4.122, 0.006),
    "lns": (4.095, 0.011),
    "deepnorm": (4.204, 0.047),
    "keel": (4.171, 0.034),
    "moda": (4.081, 0.014),
    "hc": (4.062, -0.009),
    "mhc": (4.070, -0.012),
    "full-attnres": (4.079, -0.006),
    "block-attnres": (4.084, 0.001),
}
ADDED = {"moda": 0.114, "hc": 0.081, "mhc": 0.452, "full-attnres": 0.012}
SPEED = {"moda": 0.63, "hc": 0.74, "mhc": 0.61, "full-attnres": 0.67, "block-attnres": 0.86}


def config(design: str, shape: tuple[int, int, int], seed: int, **changes: Any) -> CellConfig:
    layers, d_model, ffn = shape
    values: dict[str, Any] = {
        "suite": "quick",
        "ladder": "quick",
        "design": {"name": design, "version": 1, "options": {}},
        "shape": {"layers": layers, "d_model": d_model, "ffn": ffn, "heads": 4},
        "corpus": {
            "name": "pypi-text",
            "hash": "9f2b6c01d4e7",
            "tokenizer_hash": "51c0ffee7a3d",
            "vocab_size": VOCAB,
        },
        "sequence_length": 128,
        "batch_size": 8,
        "micro_batch_size": 8,
        "steps": 1200,
        "optimizer": {"learning_rate": 0.004},
        "evaluation": {"tokens": 65536},
        "norm_eps": 1e-10,
        "seed": seed,
    }
    return CellConfig.model_validate(values | changes)


def loss_of(design: str, shape: tuple[int, int, int], seed: int, noise: float = 0.004) -> float:
    level, slope = DESIGNS.get(design, (4.1, 0.01))
    place = SHAPES.index(shape) if shape in SHAPES else 0
    halvings = (0.0, 1.415, 3.0)[place] - 1.5
    jitter = random.Random(f"{design}{shape}{seed}").gauss(0.0, noise)
    return level + slope * halvings + 0.006 * abs(halvings) + jitter


def result(cell: CellConfig, loss: float | None, **changes: Any) -> dict[str, Any]:
    """A `result.json`: done with `loss`, or without measures."""
    backbone = backbone_parameters(cell.shape)
    share = ADDED.get(cell.design.name, 0.0)
    added = round(share * backbone)
    parameters = total_parameters(cell.shape, cell.corpus.vocab_size) + added
    speed = 8800 * SPEED.get(cell.design.name, 0.97 if cell.design.name != "pre-ln" else 1.0)
    measures = None
    if loss is not None:
        measures = {
            "loss": loss,
            "bits_per_byte": loss / 2.11,
            "loss_by_source": {"sotu": loss - 0.2, "sympy": loss + 0.3},
            "bits_per_byte_by_source": {"sotu": loss / 2.2, "sympy": loss / 2.0},
            "tokens": 65536,
            "bytes": 199000,
            "train_loss": loss - 0.05,
            "unigram_entropy": 6.4312,
            "history": [[cell.tokens, loss]],
        }
    document = {
        "schema": 1,
        "status": "failed" if loss is None else "done",
        "config": cell.model_dump(mode="json"),
        "step": cell.steps,
        "diverged_step": None,
        "error": None,
        "measures": measures,
        "ledger": {
            "parameters": parameters,
            "backbone": backbone + added,
            "added": added,
            "added_by_design_share": share,
            "train_flops_per_token": 6 * parameters,
            "prefill_flops": 2 * backbone * 4096,
            "kv_cache_bytes": 8 * cell.shape.layers * cell.shape.d_model * 4096,
            "peak_memory_bytes": None,
            "tokens_per_second": speed,
            "step_seconds": cell.tokens_per_step / speed,
            "total_flops": 6 * parameters * cell.tokens,
        },
        "environment": {
            "depthbench": "0.1.0",
            "torch": "2.13.0",
            "python": "3.11.7",
            "numpy": "2.3.5",
            "platform": "Linux-6.1-x86_64",
            "host": "bench-01",
            "cpu": "AMD EPYC 9R14",
            "device": "cpu",
            "ranks": 1,
            "threads": 1,
            "git_commit": "3f9ad11",
            "git_dirty": False,
        },
        "times": {
            "started": "2026-01-05T10:00:00",
            "finished": "2026-01-05T10:02:20",
            "seconds": 140.0,
        },
    }
    return document | changes


def write_cell(root: Path, cell: CellConfig, document: Mapping[str, Any] | None) -> Path:
    folder = root / cell.suite / cell.folder_name()
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(cell.model_dump(mode="json")))
    if document is not None:
        (folder / "result.json").write_text(json.dumps(document))
    return folder


def write_matrix(
    root: Path,
    seeds: Iterable[int] = (1,),
    designs: Iterable[str] = tuple(DESIGNS),
    endings: Mapping[tuple[str, int], Mapping[str, Any] | None] | None = None,
    **changes: Any,
) -> Path:
    """All designs at all shapes and seeds.

    `endings`: by design and layers, what replaces a done result; None leaves the cell pending.
    """
    endings = endings or {}
    for design in designs:
        for shape in SHAPES:
            for seed in seeds:
                cell = config(design, shape, seed, **changes)
                document: Mapping[str, Any] | None = result(cell, loss_of(design, shape, seed))
                if (design, shape[0]) in endings:
                    ending = endings[design, shape[0]]
                    document = None if ending is None else {**result(cell, None), **ending}
                write_cell(root, cell, document)
    return root


ENDINGS: dict[tuple[str, int], Mapping[str, Any] | None] = {
    ("deepnorm", 16): {"status": "diverged", "step": 412, "diverged_step": 412},
    ("mhc", 8): {
        "status": "failed",
        "step": 90,
        "error": "RuntimeError: out of memory: tried to allocate 96.00 MiB",
        "ledger": None,
    },
}
