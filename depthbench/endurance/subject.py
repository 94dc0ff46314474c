"""What is killed: the cells of a suite, or small ones of its own."""

import json
import os
from pathlib import Path

import numpy as np

import residuals
from depthbench import corpora, plan
from depthbench.errors import InputError
from depthbench.folder import write_json
from depthbench.suite import Suite, load_suite

_WORDS = "a stack that is cut off within a word has to find that very word again"


def prepare(out: Path, suite_name: str | None, cells: int) -> None:
    """Writes `out/plan.json` with at most that many cells.

    Without a suite, its own: text and corpus go into `out` too. Raises `InputError` if `out` was
    used before or the suite tunes its rates.
    """
    if out.exists() and any(out.iterdir()):
        raise InputError(f"{out} is not empty: a trial begins anew, choose another folder")
    suite = load_suite(suite_name) if suite_name else _own(out, cells)
    if suite.tune is not None:
        raise InputError(f"suite {suite.name} tunes first: take one that gives its learning rates")
    corpus = corpora.prepare_ref(suite.corpus, suite.local, lambda *_: None, suite.hub)
    planned = [
        {
            "config": cell.config.model_dump(mode="json"),
            "seconds": cell.seconds,
            "memory_bytes": cell.memory_bytes,
            "disk_bytes": cell.disk_bytes,
        }
        for cell in plan.plan(suite, corpus)[:cells]
    ]
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "plan.json", {"cells": planned})


def _own(out: Path, cells: int) -> Suite:
    """No fewer than that many cells of half a second, as far apart in design as can be."""
    os.environ["DEPTHBENCH_CACHE"] = str(out.resolve() / "cache")
    names = residuals.names()
    text = out / "text.jsonl"
    document = {
        "name": "endurance",
        "designs": names[:: max(1, len(names) // cells)],
        "seeds": list(range(1, 2 + (cells - 1) // len(names))),
        "ladder": {
            "match_on": None,
            "vocab_size": 280,
            "norm_eps": 1e-6,
            "shapes": [{"layers": 2, "d_model": 16, "ffn": 24, "heads": 2}],
        },
        "corpus": str(text),
        "local": {"vocab_size": 280, "validation_share": 0.2},
        "sequence_length": 16,
        "batch_size": 4,
        "budget": {"tokens": 30 * 4 * 16},
        "learning_rate": {"default": 3e-3},
        "evaluation": {"tokens": 2048, "points": 3},
        "measures": {"statistics_every": 10, "windows": 1},
    }
    draw = np.random.default_rng(0)
    rows = [" ".join(draw.choice(_WORDS.split(), 30 + n % 31)) for n in range(200)]
    out.mkdir(parents=True, exist_ok=True)
    text.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    return Suite.model_validate(document)
