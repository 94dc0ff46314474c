"""The ledger against published figures, built models and torch's own counter."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import residuals
from depthbench.config import CellConfig, DesignRef, Shape
from depthbench.designs import lay_out
from depthbench.ledger import (
    forward_flops_per_token,
    kv_cache_bytes,
    ledger,
    parts,
    prefill_flops,
)
from depthbench.model.build import lay_out_model
from depthbench.model.decoder import Decoder
from tests.kit import cell_config

MIB, TERA = 2**20, 1e12
VOCAB = 50_280
ISO_TOTAL = {
    16: Shape(layers=16, d_model=1216, ffn=3248, heads=16),
    20: Shape(layers=20, d_model=1120, ffn=2992, heads=16),
    24: Shape(layers=24, d_model=1024, ffn=2736, heads=16),
    28: Shape(layers=28, d_model=960, ffn=2560, heads=16),
    32: Shape(layers=32, d_model=896, ffn=2400, heads=16),
    42: Shape(layers=42, d_model=800, ffn=2144, heads=16),
    70: Shape(layers=70, d_model=640, ffn=1712, heads=16),
}
L84 = Shape(layers=84, d_model=544, ffn=1456, heads=16)
# What each design adds at 16, 20, 24, 28, 32, 42 and 70 layers of the 405M ladder and at 84 of the
# 302M-backbone ladder. All six published definitions are the ones used here.
ADDED = {
    "hc": (234304, 269840, 296160, 324016, 345728, 405384, 541240, 552720),
    "mhc": (3736416, 4301880, 4719888, 5162472, 5506752, 6453468, 8605380, 8778168),
    "full-attnres": (77824, 89600, 98304, 107520, 114688, 134400, 179200, 182784),
    "sandwich-ln": (38912, 44800, 49152, 53760, 57344, 67200, 89600, 91392),
    "keel": (37696, 43680, 48128, 52800, 56448, 66400, 88960, 90848),
    "moda": (44359680, 47667200, 48234496, 49766400, 49774592, 52480000, 56524800, 49125376),
}
BACKBONE = (284252160, 301459200, 302432256, 309711360, 309256192, 323702400, 344870400, 299126016)
TOTAL = (406534336, 414087520, 405406720, 406249920, 399358848, 404151200, 409229440, 353831200)
GROUPED = Shape(layers=3, d_model=48, ffn=144, heads=4, kv_heads=2)
SQUARE = Shape(layers=5, d_model=64, ffn=176, heads=4)


def cell(design: str, shape: Shape, vocab: int = VOCAB, **changes: Any) -> CellConfig:
    sizes = {"sequence_length": 128, "batch_size": 8, "micro_batch_size": 8, "steps": 10}
    return cell_config(design, vocab, **{"shape": shape.model_dump(), **sizes, **changes})


def on_meta(design: str, shape: Shape, vocab: int) -> Decoder:
    laid_out = lay_out(DesignRef(name=design, version=residuals.get(design).version), shape, 1e-6)
    with torch.device("meta"):
        return Decoder(shape, vocab, laid_out)


@pytest.mark.parametrize("design", ADDED)
def test_added_parameters_are_the_published_ones(design) -> None:
    for shape, added in zip((*ISO_TOTAL.values(), L84), ADDED[design], strict=True):
        assert ledger(cell(design, shape)).added == added


def test_backbones_and_totals_are_the_published_ones() -> None:
    for index, shape in enumerate((*ISO_TOTAL.values(), L84)):
        for design in ("pre-ln", "mhc"):
            costs = ledger(cell(design, shape))
            added = ADDED["mhc"][index] if design == "mhc" else 0
            assert costs.backbone == BACKBONE[index]
            assert costs.parameters == TOTAL[index] + added
            assert costs.added_by_design_share == pytest.approx(added / BACKBONE[index])


def test_shares_at_paper_scale_are_as_the_protocol_says() -> None:
    """MoDA adds 11 to 14 % of the total at 400M, mHC 1 to 2 %."""
    for design, low, high in (("moda", 0.105, 0.14), ("mhc", 0.009, 0.0211)):
        for index in range(7):
            assert low < ADDED[design][index] / TOTAL[index] < high


@pytest.mark.parametrize("design", residuals.names())
@pytest.mark.parametrize("shape", [SQUARE, GROUPED], ids=["mha", "gqa"])
def test_parameters_are_those_of_the_built_model(design, shape) -> None:
    costs = ledger(cell(design, shape, vocab=100))
    model = on_meta(design, shape, 100)
    assert costs.parameters == sum(p.numel() for p in model.parameters())
    outside = 2 * 100 * shape.d_model + shape.d_model
    assert costs.backbone + costs.added == costs.parameters - outside
    assert ledger(cell("pre-ln", shape, vocab=100)).added == 0


def test_prefill_flops_are_the_published_ones() -> None:
    """3.0 → 4.4 TFLOP measured from aspect ratio 76 to 9.1; the formula gives 2.98 and 4.33."""
    for layers, published in ((16, 2.98), (70, 4.33)):
        costs = ledger(cell("pre-ln", ISO_TOTAL[layers]))
        assert costs.prefill_flops / TERA == pytest.approx(published, abs=0.005)
    shape = ISO_TOTAL[70]
    mixing = [ledger(cell(design, shape)).prefill_flops for design in ("full-attnres", "pre-ln")]
    assert (mixing[0] - mixing[1]) / TERA == pytest.approx(0.1, abs=0.01)


def test_the_cache_is_the_published_one_and_the_same_for_every_design() -> None:
    for layers, mib in ((16, 304), (24, 384), (32, 448), (42, 525), (70, 700)):
        for design in ("pre-ln", "moda", "full-attnres"):
            costs = ledger(cell(design, ISO_TOTAL[layers]))
            assert costs.kv_cache_bytes == mib * MIB
    assert kv_cache_bytes(ISO_TOTAL[70]) > 2 * kv_cache_bytes(ISO_TOTAL[16])
    # Half the key-value heads, half the cache: 2 · 3 layers · 2 heads · 12 · 100 tokens · 2 bytes.
    assert kv_cache_bytes(GROUPED, 100) == 2 * 3 * 2 * 12 * 100 * 2


@pytest.mark.parametrize("design", residuals.names())
@pytest.mark.parametrize("shape", [SQUARE, GROUPED], ids=["mha", "gqa"])
def test_flops_agree_with_the_counter(design, shape) -> None:
    """The counter sees whole T², no elementwise mixing; a backward pass costs twice a forward."""
    length, vocab = 256, 400
    model = on_meta(design, shape, vocab)
    tokens = torch.zeros(1, length, dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as forward:
        logits = model.logits(tokens)
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    routing = model.design.routing_flops()
    counted = forward.get_total_flops() / length
    half = 2 * shape.layers * shape.d_model * length
    per_token = forward_flops_per_token(shape, vocab, length, model.design)
    assert per_token - routing.mixing + half == pytest.approx(counted, rel=0.01)
    assert backward.get_total_flops() == pytest.approx(2 * forward.get_total_flops(), rel=0.01)
    costs = ledger(cell(design, shape, vocab, sequence_length=length))
    assert costs.train_flops_per_token == 3 * per_token
    head = 2 * vocab * shape.d_model
    without_head = (counted - head - half + routing.mixing) * length
    assert prefill_flops(shape, model.design, length) == pytest.approx(without_head, rel=0.01)


def test_the_run_costs_its_tokens() -> None:
    costs = ledger(cell("hc", SQUARE, steps=7, batch_size=4, micro_batch_size=2))
    assert costs.total_flops == costs.train_flops_per_token * 7 * 4 * 128


def test_pre_ln_flops_in_closed_form() -> None:
    """Per token, T = 10: twice every matrix entry, 2·d·T a layer of attention, the head."""
    shape = Shape(layers=1, d_model=4, ffn=8, heads=2, kv_heads=1)
    design = lay_out(DesignRef(name="pre-ln", version=1), shape, 1e-6)
    matrices = 4 * 4 + 4 * 2 + 4 * 2 + 4 * 4 + 3 * 4 * 8
    expected = 2 * matrices + 2 * 4 * 10 + 2 * 100 * 4
    assert forward_flops_per_token(shape, 100, 10, design) == expected


@pytest.mark.parametrize("design", ["pre-ln", "hc", "full-attnres", "moda", "keel", "deeploop"])
@pytest.mark.parametrize(
    "loop",
    [
        {"layout": "whole", "rounds": 3},
        {"layout": "prelude-core-coda", "prelude": 1, "coda": 1, "forward": 4, "backward": 2},
        {"layout": "prelude-core-coda", "prelude": 0, "coda": 2, "forward": 3, "injection": "add"},
        {"layout": "prelude-core-coda", "prelude": 0, "coda": 1, "forward": 3, "tied": False},
    ],
    ids=["whole", "truncated", "add", "untied"],
)
def test_a_loop_costs_what_the_counter_sees(design, loop) -> None:
    """Loops without gradients cost a forward pass; the others three. Parameters stand once."""
    length, vocab = 256, 400
    config = cell(design, SQUARE, vocab, sequence_length=length, loop=loop)
    costs, model = ledger(config), lay_out_model(config)
    assert costs.parameters == sum(p.numel() for p in model.parameters())
    tokens = torch.zeros(1, length, dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as forward:
        logits = model.logits(tokens)
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    stack = parts(config)
    mixing = [part.design.routing_flops().mixing for part in stack]
    half = [2 * p.num_blocks * p.design.stack.num_rounds * 64 * length for p in stack]
    for counter, count, factor in (
        (forward, costs.forward_flops_per_token, [p.forward for p in stack]),
        (backward, costs.backward_flops_per_token, [2 * p.backward for p in stack]),
    ):
        unseen = sum(f * (h - m) for f, h, m in zip(factor, half, mixing, strict=True))
        assert count + unseen == pytest.approx(counter.get_total_flops() / length, rel=0.01)


def test_compute_of_a_loop_in_closed_form() -> None:
    """C = 6·N_once + (2T + 4B)·N_rec of the matrices, plus attention and the head."""
    loop = {"layout": "prelude-core-coda", "prelude": 1, "coda": 1, "forward": 4, "backward": 2}
    costs = ledger(cell("pre-ln", SQUARE, 400, loop=loop))
    block = 4 * 64 * 64 + 3 * 64 * 176
    once, recurrent = 2 * block, 3 * block + 2 * 64 * 64
    attention = 2 * 64 * 128
    expected = (
        6 * (once + 2 * attention / 2) + 16 * (recurrent + 3 * attention / 2)
    ) + 6 * 400 * 64
    assert costs.train_flops_per_token == expected
    gains = 2 * 64
    assert costs.recurrent == recurrent + 3 * gains + 64
    assert costs.once == once + 2 * gains + 64
    assert costs.executed == costs.once + 4 * costs.recurrent
    assert costs.kv_cache_bytes == kv_cache_bytes(SQUARE.model_copy(update={"layers": 14}))


def test_the_norm_of_what_is_injected_is_run_once_with_or_without_a_prelude() -> None:
    """Five blocks, looped: gains of two norms a block, the injection and the norm of a loop."""
    loop = {"layout": "prelude-core-coda", "prelude": 0, "coda": 0, "forward": 3}
    costs = ledger(cell("pre-ln", SQUARE, 400, loop=loop))
    block = 4 * 64 * 64 + 3 * 64 * 176 + 2 * 64
    assert costs.recurrent == 5 * block + 2 * 64 * 64 + 64
    assert costs.once == 64
    assert costs.executed == 64 + 3 * costs.recurrent


@pytest.mark.parametrize(
    ("loop", "shared"),
    [
        (None, 0),
        ({"layout": "whole", "rounds": 1}, 0),
        ({"layout": "whole", "rounds": 3}, 5),
        # What a law counts as N_rec does not change with T: at T = 1 the core is run once, too.
        ({"layout": "prelude-core-coda", "prelude": 1, "coda": 1, "forward": 1}, 3),
        ({"layout": "prelude-core-coda", "prelude": 1, "coda": 1, "forward": 8}, 3),
        ({"layout": "prelude-core-coda", "prelude": 1, "coda": 1, "forward": 8, "tied": False}, 0),
    ],
)
def test_recurrent_parameters_are_those_that_loops_share(loop, shared) -> None:
    costs = ledger(cell("pre-ln", SQUARE, 400, loop=loop))
    block = 4 * 64 * 64 + 3 * 64 * 176 + 2 * 64
    injected = 2 * 64 * 64 + 64 if shared == 3 else 0
    assert costs.recurrent == shared * block + injected
    assert costs.once + costs.recurrent == costs.backbone
