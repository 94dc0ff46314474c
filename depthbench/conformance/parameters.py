"""Does it run at all, and are its parameters declared, counted, initialised and trained?"""

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from depthbench.config import Optimizer
from depthbench.conformance.checks import check, fail
from depthbench.conformance.subject import Subject
from depthbench.conformance.tiny import EXACT_EPS, VOCAB, shape_of, summed_nll, tokens_of
from depthbench.model.decoder import Decoder, build_decoder
from depthbench.train.optimizer import assert_each_once, build_optimizer
from residuals import declared


@check("forward", "__init__", "start", "read", "write", "finish", needs=())
def forward(subject: Subject) -> str:
    """Does it build and give finite logits, with each switch, on the CPU and on the meta device?"""
    tokens = tokens_of(2, 7)
    for options in subject.variants():
        logits = subject.moved(**options).logits(tokens)
        if logits.shape != (2, 7, VOCAB):
            fail(f"logits have shape {tuple(logits.shape)} instead of (2, 7, {VOCAB})")
        if not logits.isfinite().all():
            fail(f"logits are not finite with {_shown(options)}")
    with torch.device("meta"):
        model = Decoder(shape_of(), VOCAB, subject.built(shape_of()))
        if model.logits(torch.zeros(2, 7, dtype=torch.long)).shape != (2, 7, VOCAB):
            fail("logits have another shape on the meta device")
    return f"finite with {len(subject.variants())} settings of its switches"


def _shown(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items()) or "no options"


@check("roles", "__init__", needs=())
def roles(subject: Subject) -> str:
    """Is every parameter declared, and in the optimiser exactly once?"""
    model = subject.decoder()
    for name, parameter, rule in declared(model):
        rows = sum(rows for rows, _ in rule.parts.values())
        if rows != parameter.shape[0]:
            fail(f"{name} has {parameter.shape[0]} rows and a rule for {rows}")
    assert_each_once(model, build_optimizer(model, Optimizer.model_validate({"learning_rate": 1})))
    found = sorted({rule.role.name for name, _, rule in declared(model) if _own(name)})
    return f"its parameters are: {', '.join(found)}" if found else "it has no parameters"


def _own(name: str) -> bool:
    return name.startswith("design.")


def _mention(name: str) -> str:
    return name if _own(name) else ""


@check("initialisation", "__init__", "init_gain", needs=("forward", "roles", "determinism"))
def initialisation(subject: Subject) -> str:
    """Are initial values functions of seed and name, and shared weights Pre-LN's times the gain?"""
    models = [_under_global_seed(seed, subject) for seed in (1, 2)]
    models.append(build_decoder(shape_of(), VOCAB, subject.cell().design, 1e-6, seed=4))
    first = dict(models[0].named_parameters())
    for other in models[1:]:
        for name, parameter in other.named_parameters():
            if not torch.equal(parameter, first[name]):
                fail(f"{name} starts otherwise with the same seed: use the rule's generator")
        if not torch.equal(other.logits(tokens_of()), models[0].logits(tokens_of())):
            fail("the same weights give other logits: a constant was drawn at random")
    _check_shared(subject, models[0])
    return "equal under two global seeds and by way of the meta device; shared weights are Pre-LN's"


def _under_global_seed(seed: int, subject: Subject) -> Decoder:
    """Built while the global generators of torch, Python and numpy are seeded, and put back."""
    kept = random.getstate(), np.random.get_state(legacy=False)
    try:
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        before = _generators()
        model = subject.single(seed=4)
        if _generators() != before:
            fail("building it draws from a global generator: use the one that a rule is given")
        return model
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])


def _generators() -> tuple[bytes, object, str]:
    numpys = np.random.get_state(legacy=False)["state"]
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), repr(numpys)


def _check_shared(subject: Subject, model: Decoder) -> None:
    expected = dict(subject.baseline().single(seed=4).named_parameters())
    for name, parameter, rule in declared(model):
        if _own(name):
            continue
        sizes = [rows for rows, _ in rule.parts.values()]
        pairs = zip(rule.parts, parameter.split(sizes), expected[name].split(sizes), strict=True)
        for role, ours, theirs in pairs:
            inside = name.startswith("blocks.")
            gain = model.design.init_gain(role, parameter.shape[1], len(ours)) if inside else 1.0
            if not _times(ours, theirs, gain):
                fail(f"{name} ({role}) does not start as Pre-LN's times {gain:.4g}")


def _times(ours: Tensor, theirs: Tensor, gain: float) -> bool:
    if gain == 1.0:
        return torch.equal(ours, theirs)
    return torch.allclose(ours, theirs * gain, rtol=1e-5, atol=1e-9)


@check("gradients", "read", "write", "finish", needs=("forward", "in-place"))
def gradients(subject: Subject) -> str:
    """Does every parameter get a finite gradient, none of them dead off the initial point?"""
    for model, moved in ((subject.single(), False), (subject.moved(), True)):
        summed_nll(model).backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is None:
                fail(f"no gradient reaches {name}: use it, or do not create it", _mention(name))
            if not parameter.grad.isfinite().all():
                fail(f"the gradient of {name} is not finite")
            if moved and not parameter.grad.any():
                fail(f"the gradient of {name} is zero everywhere", _mention(name))
    return f"{len(list(model.parameters()))} parameters, at the start and away from it"


@check("parameter-formula", "num_extra_params", needs=())
def parameter_formula(subject: Subject) -> str:
    """Is `num_extra_params` what is built?"""
    shapes = [shape_of(layers, kv_heads=g) for layers in (1, 2, 5) for g in (1, 2)]
    shapes.append(shape_of(2, 32))
    for shape in shapes:
        with torch.device("meta"):
            base = num_parameters(Decoder(shape, VOCAB, subject.baseline().built(shape)))
            for options in subject.variants():
                model = Decoder(shape, VOCAB, subject.built(shape, EXACT_EPS, **options))
                built, formula = num_parameters(model) - base, model.design.num_extra_params()
                if formula != built:
                    fail(
                        f"num_extra_params says {formula:,} and {built:,} are built, at {shape!r} "
                        f"with {_shown(options)}"
                    )
    return f"agrees at {len(shapes)} shapes with {len(subject.variants())} settings"


def num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
