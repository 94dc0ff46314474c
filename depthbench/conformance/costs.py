"""Are the formulas of what a design costs right, and what does it cost beside Pre-LN?"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from statistics import median

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from depthbench.config import Shape
from depthbench.conformance.checks import check, fail
from depthbench.conformance.subject import BASELINE, Subject
from depthbench.conformance.tiny import VOCAB, shape_of
from depthbench.conformance.tokens import logits_through
from depthbench.ledger import forward_flops_per_token
from depthbench.model import attention
from depthbench.model.decoder import Decoder
from depthbench.model.rotary import Rotary
from depthbench.train.memory import activation_bytes
from depthbench.train.objective import alone
from residuals import State

LENGTH = 48


@dataclass(frozen=True)
class Plain:
    """Attention by matrix products, the whole T² of which the counter sees."""

    rotary: Rotary

    def __call__(self, q_BTHd: Tensor, k_BTGd: Tensor, v_BTGd: Tensor) -> Tensor:
        return attention.causal(q_BTHd, k_BTGd, v_BTGd, self.rotary, "plain")

    def joint(
        self,
        q_BTHd: Tensor,
        k_BTGd: Tensor,
        v_BTGd: Tensor,
        depth_k: State,
        depth_v: State,
        rotate_depth_query: bool = False,
    ) -> Tensor:
        qkv = (q_BTHd, k_BTGd, v_BTGd)
        return attention.joint(
            *qkv, self.rotary, depth_k, depth_v, rotate_depth_query, backend="plain"
        )


def counted(subject: Subject, shape: Shape, rounds: int = 1) -> tuple[float, Decoder]:
    """What torch's counter sees of a forward pass on the meta device, per token; and the model."""
    with torch.device("meta"):
        model = Decoder(shape, VOCAB, subject.built(shape, rounds=rounds))
        tokens = torch.zeros(2, LENGTH, dtype=torch.long)
        seq = Plain(model.sequence(LENGTH).rotary)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            logits_through(model, seq, tokens)
    return counter.get_total_flops() / (2 * LENGTH), model


@cache
def _baseline_counted(shape: Shape, rounds: int) -> float:
    return counted(Subject.named(BASELINE), shape, rounds)[0]


@check("flop-formula", "routing_flops")
def flop_formula(subject: Subject) -> str:
    """Is `routing_flops().matmul` what torch's counter sees, and the ledger's total within 1 %?"""
    mixing = [check_flops(subject, shape_of(5, 32)), check_flops(subject, shape_of(2, kv_heads=1))]
    uncounted = f"; mixing ({max(mixing):,}) is not seen by the counter" if any(mixing) else ""
    return f"agrees at {len(mixing)} shapes{uncounted}"


def check_flops(subject: Subject, shape: Shape, rounds: int = 1) -> int:
    """Fails if a formula is not what is counted; returns what the counter does not see."""
    total, model = counted(subject, shape, rounds)
    added = total - _baseline_counted(shape, rounds)
    routing = model.design.routing_flops()
    where = f"with {shape.layers} blocks of width {shape.d_model} and {rounds} round(s)"
    if not all(type(flops) is int and flops >= 0 for flops in (routing.matmul, routing.mixing)):
        fail(f"routing_flops says {routing}: FLOPs are whole numbers, and not negative")
    if abs(routing.matmul - added) > 0.01 * max(added, 1):
        fail(
            f"routing_flops says matmul = {routing.matmul:,} a token and {added:,.0f} are counted, "
            + where
        )
    causal = total - 2 * shape.layers * shape.d_model * LENGTH * rounds
    formula = forward_flops_per_token(shape, VOCAB, LENGTH, model.design) - routing.mixing
    if abs(formula - causal) > 0.01 * causal:
        fail(f"the ledger says {formula:,} a token and {causal:,.0f} are counted, {where}")
    return routing.mixing


@check("memory", judged=False)
def memory(subject: Subject) -> str:
    """How many bytes does autograd keep, relative to Pre-LN?"""
    shape = shape_of(8, 64, 4, 4)

    def kept(each: Subject) -> int:
        cell = each.cell(shape, sequence_length=64)
        return activation_bytes(alone(each.single(shape), cell), cell)

    ours, theirs = kept(subject), kept(subject.baseline())
    return f"{ours / theirs:.2f} × Pre-LN's saved tensors, at 8 blocks of width 64"


@check("speed", judged=False)
def speed(subject: Subject) -> str:
    """How long does a training step take, relative to Pre-LN in turn with it?"""
    shape = shape_of(8, 64, 4, 4)
    steps = [_step(each.single(shape)) for each in (subject, subject.baseline())]
    seconds: list[list[float]] = [[], []]
    for repeat in range(6):
        for step, taken in zip(steps, seconds, strict=True):
            start = time.perf_counter()
            step()
            if repeat:  # the first is a warm-up
                taken.append(time.perf_counter() - start)
    ratio = median(seconds[0]) / median(seconds[1])
    return f"{ratio:.2f} × Pre-LN's forward and backward, at 8 blocks of width 64"


def _step(model: Decoder) -> Callable[[], None]:
    tokens = torch.zeros(4, 64, dtype=torch.long)

    def step() -> None:
        model.summed_nll(tokens, tokens).backward()

    return step
