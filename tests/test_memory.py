"""Estimates of memory and disk against closed forms, counts by hand and real peaks."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import residuals
from depthbench import memory as module
from depthbench.activations import UNKNOWN, kept
from depthbench.config import CellConfig, DesignRef, Shape
from depthbench.ledger import ledger
from depthbench.memory import (
    activation_bytes,
    disk_bytes,
    memory_bytes,
    needed,
    rank_bytes,
    state_bytes,
)
from tests.kit import cell_config

MIB, GIB = 2**20, 2**30
SQUARE = Shape(layers=5, d_model=64, ffn=176, heads=4)
L16 = Shape(layers=16, d_model=1216, ffn=3248, heads=16)
L70 = Shape(layers=70, d_model=640, ffn=1712, heads=16)
VOCAB = 50_280


def cell(design: str, shape: Shape, vocab: int = VOCAB, **changes: Any) -> CellConfig:
    sizes = {"sequence_length": 128, "batch_size": 8, "micro_batch_size": 8, "steps": 10}
    return cell_config(design, vocab, **{"shape": shape.model_dump(), **sizes, **changes})


def paper(design: str, shape: Shape, **changes: Any) -> CellConfig:
    """A cell as the paper suites have it."""
    sizes = {"sequence_length": 2048, "batch_size": 512, "micro_batch_size": 4}
    device = {"device": "cuda", "precision": "bf16", "ranks": {"num": 8, "mode": "ddp"}}
    return cell(design, shape, **{**sizes, **device, **changes})


def ref(name: str) -> DesignRef:
    return DesignRef(name=name, version=residuals.get(name).version)


@pytest.mark.parametrize(
    ("design", "inside", "between"),
    [
        # fp32: of a block's two sublayers the stream and its normed form (4 · 4 bytes), q, k, v and
        # attention's output (4 · 4). Between blocks one stream.
        ("pre-ln", 32, 4),
        # Its two branch outputs, which the outer norms read, on top.
        ("sandwich-ln", 40, 4),
        # Between blocks four streams.
        ("hc", None, 16),
        ("mhc", None, 16),
    ],
)
def test_what_a_block_keeps_in_fp32_counted_by_hand(design, inside, between) -> None:
    found = kept(ref(design), "fp32")
    assert found.boundary == pytest.approx(between, rel=0.02)
    assert inside is None or found.block == pytest.approx(inside, rel=0.02)


def test_what_a_block_keeps_under_autocast_counted_by_hand() -> None:
    """Pre-LN: both streams in fp32; in bf16 the normed input once for each of q, k, v, gate and up,
    and q, k, v and the output of attention: 2 · 4 + 9 · 2. MoDA passes on four slots in bf16."""
    assert kept(ref("pre-ln"), "bf16").block == pytest.approx(26, rel=0.02)
    assert kept(ref("pre-ln"), "bf16").growth == pytest.approx(0, abs=0.1)
    assert kept(ref("moda"), "bf16").boundary > 4 + 4 * 2 - 2
    assert kept(ref("pre-ln"), "paper_bf16") == kept(ref("pre-ln"), "bf16")


def test_designs_that_look_back_keep_more_in_deeper_stacks() -> None:
    for design in ("moda", "full-attnres"):
        assert kept(ref(design), "bf16").growth > 1
        assert kept(ref(design), "bf16").at(64) > kept(ref(design), "bf16").at(8)
    streams, plain = (kept(ref(design), "bf16").block for design in ("hc", "pre-ln"))
    assert streams > 3 * plain


def test_a_design_that_is_not_there_is_estimated_high() -> None:
    assert kept(DesignRef(name="gone", version=1), "bf16") == UNKNOWN
    assert UNKNOWN.block > 2 * kept(ref("pre-ln"), "fp32").block


def test_activations_of_pre_ln_in_closed_form() -> None:
    """Of every token 16 blocks and two more, each of 26·d and four bf16 tensors of the MLP's width;
    five fp32 tensors around the blocks."""
    config = paper("pre-ln", L16)
    expected = 4 * 2048 * (18 * (26 * 1216 + 4 * 2 * 3248) + 5 * 4 * 1216)
    assert activation_bytes(config) == pytest.approx(expected, rel=0.02)
    again = paper("pre-ln", L16, activation_checkpointing=True)
    expected = 4 * 2048 * (16 * 4 * 1216 + 3 * (26 * 1216 + 4 * 2 * 3248) + 5 * 4 * 1216)
    assert activation_bytes(again) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("design", residuals.BENCHMARK)
def test_activations_grow_with_what_they_are_of(design) -> None:
    base = activation_bytes(paper(design, L16))
    assert activation_bytes(paper(design, L16, micro_batch_size=8)) == pytest.approx(2 * base)
    assert activation_bytes(paper(design, L16, sequence_length=4096)) == pytest.approx(2 * base)
    assert activation_bytes(paper(design, L16, activation_checkpointing=True)) < base / 2
    assert activation_bytes(paper(design, L16, precision="fp32")) > base
    deeper = L16.model_copy(update={"layers": 32})
    assert 1.7 * base < activation_bytes(paper(design, deeper)) < 2.4 * base
    wider = Shape(layers=16, d_model=2 * 1216, ffn=2 * 3248, heads=32)
    assert activation_bytes(paper(design, wider)) == pytest.approx(2 * base)
    # A rank never holds more sequences than its share of the batch.
    few = paper(design, L16, batch_size=16, micro_batch_size=16)
    assert activation_bytes(few) == pytest.approx(base / 2)


def test_a_loop_keeps_every_visit_that_has_gradients() -> None:
    loop = {"layout": "prelude-core-coda", "prelude": 1, "coda": 1, "forward": 4}
    whole, cut = (
        activation_bytes(cell("pre-ln", SQUARE, loop=loop | {"backward": backward}))
        for backward in (4, 2)
    )
    # 2 + 3 · 4 blocks and two more against 2 + 3 · 2 and two more; the ends are a small part.
    assert whole / cut == pytest.approx(16 / 10, rel=0.03)


def test_attention_without_a_fused_kernel_keeps_whole_matrices() -> None:
    """Two fp32 numbers at most for every head, token, key and block, and for two blocks more."""
    fused, plain = (activation_bytes(paper("moda", L16, device=d)) for d in ("cuda", "mps"))
    assert plain - fused == 4 * 2048 * 18 * (4 + 4) * 16 * 2048
    assert activation_bytes(paper("pre-ln", L16, device="mps")) == activation_bytes(
        paper("pre-ln", L16)
    )


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("bf16", 4), ("paper_bf16", 2)])
def test_state_of_a_whole_model_is_weights_gradients_moments_and_a_copy(precision, size) -> None:
    """16 bytes a parameter with weights in fp32, 8 with all in bf16; a copy of the weights."""
    for num in (1, 8):
        config = paper("pre-ln", L16, precision=precision, ranks={"num": num, "mode": "ddp"})
        assert state_bytes(config, 10**6) == (4 + 1) * size * 10**6
    alone = paper("pre-ln", L16, precision=precision, ranks={"num": 1, "mode": "fsdp"})
    assert state_bytes(alone, 10**6) == (4 + 1) * size * 10**6


def test_state_of_a_sharded_model_in_closed_form() -> None:
    """An eighth of four copies; the embedding, the head and two blocks whole, with gradient and
    copy; whole gradients while micro-batches add up."""
    block = 4 * 1216**2 + 3 * 1216 * 3248 + 2 * 1216
    total = 16 * block + 2 * VOCAB * 1216 + 1216
    root = total - 16 * block
    sharded = {"ranks": {"num": 8, "mode": "fsdp"}, "precision": "fp32"}
    adding = paper("pre-ln", L16, **sharded)
    at_once = paper("pre-ln", L16, **sharded, batch_size=32)
    gathered = 3 * 4 * (root + 2 * block)
    assert state_bytes(at_once, total) == pytest.approx(2 * total + gathered, abs=8)
    assert state_bytes(adding, total) == pytest.approx(2 * total + gathered + 4 * total, abs=8)
    casts = paper("pre-ln", L16, **sharded | {"precision": "bf16"})
    assert state_bytes(casts, total) - state_bytes(adding, total) == 2 * total


def test_more_ranks_shard_finer_and_never_need_more() -> None:
    parameters = ledger(paper("mhc", L16)).parameters
    found = [
        rank_bytes(paper("mhc", L16, ranks={"num": num, "mode": "fsdp"}), parameters)
        for num in (2, 4, 8, 64, 512)
    ]
    assert found == sorted(found, reverse=True)
    whole = rank_bytes(paper("mhc", L16), parameters)
    assert found[2] < whole
    assert rank_bytes(paper("mhc", L16, precision="paper_bf16"), parameters) < whole


def test_a_rank_on_an_accelerator_leaves_the_machine_its_own_memory() -> None:
    config = paper("hc", L70)
    parameters = ledger(config).parameters
    assert rank_bytes(config, parameters) > GIB + state_bytes(config, parameters)
    # Eight processes of some gigabytes, and a checkpoint of 12 bytes a parameter on its way.
    assert memory_bytes(config, parameters) == 8 * 4 * GIB + 12 * parameters
    on_cpu = cell("hc", SQUARE, ranks={"num": 3})
    assert memory_bytes(on_cpu, 10**6) == 3 * rank_bytes(on_cpu, 10**6)


def test_what_makes_a_cell_fit_is_said() -> None:
    """One setting if one is enough, the cheaper first; nothing if nothing does."""
    config = paper("hc", L70)
    parameters = ledger(config).parameters
    sharded = {"ranks": {"num": 8, "mode": "fsdp"}}
    again = {"activation_checkpointing": True}
    plain, one, other, both = (
        rank_bytes(paper("hc", L70, **changes), parameters)
        for changes in ({}, sharded, again, sharded | again)
    )
    assert both < other < one < plain
    fsdp, checkpointing = "ranks.mode=fsdp", "activation_checkpointing=true"
    for room, expected in (
        (plain, ()),
        (plain - 1, (fsdp,)),
        (one - 1, (checkpointing,)),
        (other - 1, (fsdp, checkpointing)),
        (both - 1, None),
    ):
        assert needed(config, parameters, room) == expected
    # A single rank has nobody to share with.
    alone = paper("hc", L70, ranks={"num": 1})
    assert needed(alone, parameters, rank_bytes(alone, parameters) - 1) == (checkpointing,)


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("bf16", 4), ("paper_bf16", 2)])
def test_disk_holds_two_checkpoints_one_being_written_and_the_weights(precision, size) -> None:
    """A checkpoint is the weights and both moments."""
    config = paper("pre-ln", L16, precision=precision)
    expected = 3 * (3 * size * 10**6) + size * 10**6
    assert expected <= disk_bytes(config, 10**6) < 1.1 * expected


MEASURE = """
import os, sys, tempfile
from pathlib import Path
from types import SimpleNamespace
import numpy as np
import depthbench.cell, residuals
from depthbench.config import CellConfig
from depthbench.data import Corpus
from depthbench.folder import CellFolder
from depthbench.train.trainer import train

residuals.names()
tokens = (np.arange(20_000) * 7919 % 4096).astype(np.uint16)
header = SimpleNamespace(name="made", hash="ab")
corpus = Corpus(Path(), header, tokens, {"made": tokens}, {}, np.ones(4096, np.int32))
for line in sys.stdin:
    if os.fork() == 0:
        train(CellConfig.model_validate_json(line), CellFolder(Path(tempfile.mkdtemp())), corpus)
        status = Path("/proc/self/status").read_text()
        print(status.partition("VmHWM:")[2].split()[0], flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_estimate_is_above_the_peak_and_not_absurd(tmp_path) -> None:
    """A whole training step and an evaluation at the quick suite's deepest shape."""
    shape = Shape(layers=16, d_model=48, ffn=128, heads=2)
    cells = [
        cell(design, shape, 4096, steps=1, evaluation={"tokens": 2048}, norm_eps=1e-10)
        for design in ("pre-ln", "mhc", "full-attnres", "moda")
    ]
    # Too long for the backend that keeps blocks, MoDA has whole matrices of probabilities; and an
    # evaluation of four windows must fit into what a micro-batch of one needs.
    wide = Shape(layers=3, d_model=32, ffn=96, heads=8)
    long = {"sequence_length": 1536, "batch_size": 1, "micro_batch_size": 1, "steps": 1}
    cells.append(cell("moda", wide, 4096, evaluation={"tokens": 4 * 1536}, **long))
    root = str(Path(module.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": root, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE],
        input="".join(config.model_dump_json() + "\n" for config in cells),
        env=environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    peaks = [int(line) * 1024 for line in done.stdout.split()]
    for config, peak in zip(cells, peaks, strict=True):
        estimate = memory_bytes(config, ledger(config).parameters)
        assert peak < estimate < 3 * peak, config.design.name


def test_memory_grows_with_what_is_kept() -> None:
    base = cell("pre-ln", SQUARE)
    bytes_of = {"base": memory_bytes(base, 10**6)}
    bytes_of["parameters"] = memory_bytes(base, 2 * 10**6)
    bytes_of["micro"] = memory_bytes(cell("pre-ln", SQUARE, micro_batch_size=4), 10**6)
    assert bytes_of["parameters"] - bytes_of["base"] >= 16 * 10**6  # weights, gradients, moments
    idle = memory_bytes(cell("pre-ln", SQUARE, batch_size=1, micro_batch_size=1), 0)
    assert bytes_of["micro"] < bytes_of["base"]
    assert idle > 240 * MIB  # a process with torch loaded
