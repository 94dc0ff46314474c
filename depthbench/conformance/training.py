"""Does it train, and go on where it was stopped?"""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch

from depthbench.config import CellConfig
from depthbench.conformance.checks import check, fail
from depthbench.conformance.subject import Subject
from depthbench.conformance.tiny import VOCAB
from depthbench.data import Corpus
from depthbench.data.layout import Header
from depthbench.folder import CellFolder, read_metrics
from depthbench.train.trainer import train

STEPS = 4


@check("resume", "__init__", needs=("forward", "roles", "in-place", "gradients", "determinism"))
def resume(subject: Subject) -> str:
    """Do two steps, a stop and two more give the losses and weights of four, in every bit?"""
    config = subject.cell(steps=STEPS)
    with tempfile.TemporaryDirectory(prefix="depthbench-check-") as folder:
        ends = []
        for name, stops in (("straight", ()), ("stopped", (2,))):
            cell = CellFolder(Path(folder, name))
            cell.create(config)
            ends.append(_run(config, cell, stops))
    if ends[0] != ends[1]:
        fail(
            f"losses are {ends[1][0]} after a stop and {ends[0][0]} without: something that is no "
            "parameter was learned, or lost"
        )
    return f"{STEPS} steps of training, stopped after 2, bitwise"


def _run(config: CellConfig, cell: CellFolder, stops: tuple[int, ...]) -> tuple[list[float], bytes]:
    """Losses and final weights of a run that is stopped before these steps and goes on."""
    for stop in (*stops, STEPS):
        torch.manual_seed(0)
        asked = iter(range(len(read_metrics(cell.metrics_path)), STEPS + 1))
        outcome = train(config, cell, corpus(), partial(_reached, asked, stop), 1e9, _say_nothing)
        if outcome.status == "diverged":
            fail(f"it diverges in {STEPS} steps at learning rate 0.01")
    losses = [record["loss"] for record in read_metrics(cell.metrics_path) if "loss" in record]
    return losses, cell.model_path.read_bytes()


def _reached(steps: Iterator[int], stop: int) -> bool:
    return next(steps) == stop


def _say_nothing(sentence: str) -> None:
    pass


def corpus() -> Corpus:
    """A few hundred tokens at random, in memory."""
    tokens = np.random.Generator(np.random.PCG64(0)).integers(VOCAB, size=400, dtype=np.uint16)
    header = Header(
        tokenizer_hash="0",
        arrays={},
        format=1,
        name="none",
        origin="none",
        hash="0",
        recipe="",
        sources={},
        licences={},
        vocab_size=VOCAB,
        end_of_text=0,
        unigram_entropy=1.0,
    )
    return Corpus(
        path=Path(),
        header=header,
        train=tokens,
        validation={"none": tokens[:100]},
        held_out={},
        token_bytes=np.ones(VOCAB, dtype=np.int32),
    )
