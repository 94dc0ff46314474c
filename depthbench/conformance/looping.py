"""Does the rule keep its meaning where blocks are run several times?"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from depthbench.config import CoreLoop, WholeLoop
from depthbench.conformance.checks import NotAskedError, check, fail
from depthbench.conformance.costs import check_flops
from depthbench.conformance.subject import Subject
from depthbench.conformance.tiny import VOCAB, gradients, move, relative, shape_of, tokens_of
from depthbench.conformance.tokens import check_decoding
from depthbench.model.looped import Core, LoopedDecoder

SAME = 1e-9
WHERE = ("__init__", "start", "read", "write", "finish", "num_extra_params", "routing_flops")
NEEDS = ("forward", "roles", "in-place", "gradients", "determinism")
ABOVE = ("token-locality", "incremental-decoding", "parameter-formula", "flop-formula")
_DIRECTION = torch.linspace(-1, 1, VOCAB, dtype=torch.float64)


def _asked(subject: Subject) -> None:
    if not subject.design.can_loop:
        raise NotAskedError("the design declares that it cannot loop (can_loop = False)")


@check("whole-loop", *WHERE, needs=(*NEEDS, *ABOVE))
def whole_loop(subject: Subject) -> str:
    """Is one round the plain stack, and do all of the above hold with several?"""
    _asked(subject)
    tokens = tokens_of()
    plain, once = subject.decoder(shape_of(4)), subject.looped(WholeLoop(rounds=1))
    once.load_state_dict(plain.state_dict())
    if not torch.equal(once.logits(tokens), plain.logits(tokens)):
        fail("one round is not the plain stack")
    thrice, base = subject.looped(WholeLoop(rounds=3)), subject.baseline().decoder(shape_of(4))
    built = sum(p.numel() for p in thrice.parameters()) - sum(p.numel() for p in base.parameters())
    formula = subject.built(shape_of(4), rounds=3).num_extra_params()
    if built != formula:
        fail(f"with 3 rounds num_extra_params says {formula:,} and {built:,} are built")
    move(thrice, 0.1)
    logits = thrice.logits(tokens)
    if not logits.isfinite().all():
        fail("logits are not finite with 3 rounds")
    for name, gradient in gradients((logits * _DIRECTION).sum(), thrice).items():
        if not (gradient.isfinite().all() and gradient.any()):
            fail(f"with 3 rounds the gradient of {name} is zero everywhere or not finite")
    check_decoding(subject, rounds=2)
    check_flops(subject, shape_of(2), rounds=2)
    return "one round is the plain stack; three reach every parameter; decoding and formulas hold"


@check("core-loop", *WHERE, needs=NEEDS)
def core_loop(subject: Subject) -> str:
    """Is T = 1 the plain stack, and is a shared gradient the sum of those of copies?"""
    _asked(subject)
    _check_one_loop(subject)
    model, tokens = _core(subject, forward=3, backward=3), tokens_of()
    copies = [_core(subject, forward=3, backward=3).cores[0] for _ in range(3)]
    for core in copies:
        core.load_state_dict(model.cores[0].state_dict())
    tied, untied = model.logits(tokens), _written_out(model, tokens, 0, copies)
    off = relative(tied, untied)
    if not off <= SAME:
        fail(f"three loops differ from three copies in a row by {off:.2g}")
    shared = gradients((tied * _DIRECTION).sum(), model.cores[0])
    found = gradients((untied * _DIRECTION).sum(), nn.ModuleList(copies))
    for name, gradient in shared.items():
        total = torch.stack([found[f"{t}.{name}"] for t in range(3)]).sum(0)
        if not relative(gradient, total) <= SAME:
            fail(f"the gradient of {name} is not the sum over the three loops")
    return "T = 1 is the plain stack; tied gradients are the sum of three copies'"


def _check_one_loop(subject: Subject) -> None:
    """Where every token starts at RMS one, the norms around a single core change nothing."""
    loop = CoreLoop(prelude=0, coda=0, forward=1, injection="none")
    plain, once = subject.decoder(shape_of(4)), subject.looped(loop)
    move(plain, 0.1)
    with torch.no_grad():
        weight = plain.embedding.weight
        weight.div_(weight.square().mean(-1, keepdim=True).sqrt())
        own = once.state_dict()
        for name, tensor in plain.state_dict().items():
            inside = f"cores.0.{name}"
            own[inside if inside in own else name].copy_(tensor)
        plain.final_norm.gain.fill_(1.0)
        own["final_norm.gain"].fill_(1.0)
        off = relative(once.logits(tokens_of()), plain.logits(tokens_of()))
    if not off <= SAME:
        fail(f"a core that is run once differs from the plain stack by {off:.2g}")


@check("truncation", *WHERE, needs=NEEDS)
def truncation(subject: Subject) -> str:
    """Are truncated gradients those of the loops written out with s detached?"""
    _asked(subject)
    tokens = tokens_of()
    for backward in (1, 3):
        model = _core(subject, forward=4, backward=backward)
        logits, expected = model.logits(tokens), _written_out(model, tokens, 4 - backward)
        if not relative(logits, expected) <= SAME:
            fail(f"with B = {backward} of 4 the logits are others")
        found = gradients((logits * _DIRECTION).sum(), model)
        for name, gradient in gradients((expected * _DIRECTION).sum(), model).items():
            if not relative(found[name], gradient) <= SAME:
                fail(f"with B = {backward} of 4 the gradient of {name} is another")
    return "B = 1 and 3 of T = 4, in float64"


def _core(subject: Subject, forward: int, backward: int) -> LoopedDecoder:
    loop = CoreLoop(prelude=1, coda=1, forward=forward, backward=backward)
    model = subject.looped(loop)
    assert isinstance(model, LoopedDecoder)
    move(model, 0.1)
    return model


def _written_out(
    model: LoopedDecoder, tokens: Tensor, num_cut: int, cores: Sequence[nn.Module] = ()
) -> Tensor:
    """Logits with every loop under autograd and s detached after the first `num_cut`."""
    seq = model.sequence(tokens.shape[1])
    assert model.prelude is not None
    assert model.coda is not None
    e = s = model.prelude_norm(model.prelude(model.embedding(tokens), seq))
    for t in range(model.loop.forward):
        core = cast(Core, cores[t] if cores else model.cores[0])
        s = core.loop(e, s, seq, None, t)
        if t == num_cut - 1:
            s = s.detach()
    logits: Tensor = model.head(model.final_norm(model.coda(s, seq)))
    return logits
