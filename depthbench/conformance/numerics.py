"""Are the numbers the same however they are computed: again, compiled, in bf16, from a file?"""

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from depthbench.conformance.checks import check, fail
from depthbench.conformance.subject import Subject
from depthbench.conformance.tiny import (
    VOCAB,
    gradients,
    move,
    relative,
    shape_of,
    summed_nll,
    tokens_of,
)
from depthbench.model.decoder import Decoder
from depthbench.train.weights import load_weights, save_weights

BACKWARD = ("forward", "in-place", "gradients", "determinism")


@check("determinism", "start", "read", "attend", "write", "finish", needs=("forward", "in-place"))
def determinism(subject: Subject) -> str:
    """Do two runs of one model agree in every bit, whatever the global generator does?"""
    model = subject.single()
    move(model, 0.1)
    runs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        loss = summed_nll(model)
        runs.append({"the loss": loss.detach(), **gradients(loss, model)})
    for name, first in runs[0].items():
        if not torch.equal(runs[1][name].nan_to_num(), first.nan_to_num()):
            fail(f"{name} is another in a second run, by {relative(runs[1][name], first):.2g}")
    return "loss and every gradient, bitwise"


@check("compile", "start", "read", "attend", "write", "finish", needs=BACKWARD)
def compiled(subject: Subject) -> str:
    """Does torch.compile make one graph of it, with the same numbers?"""
    check_compiled(subject, 2)
    return "2 blocks, forward and backward, as one graph (backend aot_eager: no code generated)"


def check_compiled(subject: Subject, num_blocks: int, backend: str = "aot_eager") -> None:
    """Fails if so many blocks are not one graph, or give other logits or gradients as one."""
    torch._dynamo.reset()
    model = subject.single(shape_of(num_blocks))
    move(model, 0.1)
    tokens, weight = tokens_of(2, 6), torch.linspace(-1, 1, VOCAB)
    logits = model.logits(tokens)
    expected = gradients((logits * weight).sum(), model)
    graph = torch.compile(model.logits, backend=backend, fullgraph=True, dynamic=False)
    found = graph(tokens)
    off = relative(found, logits)
    if not off <= 1e-4:
        fail(f"compiled logits differ by {off:.2g}")
    for name, gradient in gradients((found * weight).sum(), model).items():
        off = relative(gradient, expected[name])
        if not off <= 5e-4:
            fail(f"the compiled gradient of {name} differs by {off:.2g}")


class CoefficientTypes(TorchDispatchMode):
    """Input dtypes of the operations that norms and routing coefficients are made of."""

    OPERATIONS = frozenset(
        "_softmax _log_softmax sigmoid tanh exp rsqrt rsqrt_ linalg_vector_norm native_layer_norm"
        " logsumexp".split()
    )

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[tuple[str, torch.dtype]] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function.overloadpacket.__name__ in self.OPERATIONS:
            tensors = (x for x in args if isinstance(x, Tensor) and x.is_floating_point())
            self.seen.update((function.overloadpacket.__name__, x.dtype) for x in tensors)
        return function(*args, **(kwargs or {}))


@check("bf16", "start", "read", "attend", "write", "finish", needs=BACKWARD)
def bf16(subject: Subject) -> str:
    """Under bf16 autocast, are coefficients in fp32, gradients finite and the loss near fp32's?"""
    model = subject.single()
    move(model, 0.05)
    wide = summed_nll(model).item()
    with CoefficientTypes() as types, torch.autocast("cpu", torch.bfloat16):
        hidden = model(tokens_of(2, 9))
    narrow_kinds = sorted({name for name, dtype in types.seen if dtype != torch.float32})
    if narrow_kinds:
        fail(
            f"{', '.join(narrow_kinds)} of bf16 values: compute norms and coefficients in fp32 "
            "(residuals.norms.at_least_fp32)"
        )
    if hidden.dtype != torch.float32:
        fail(f"what the head reads is {hidden.dtype}: the final norm's output is fp32")
    with torch.autocast("cpu", torch.bfloat16):
        loss = summed_nll(model)
    off = abs(loss.item() - wide) / abs(wide)
    if not off <= 0.02:
        fail(f"the loss is {loss.item():.4g} and {wide:.4g} in fp32")
    for name, gradient in gradients(loss, model).items():
        if not gradient.isfinite().all():
            fail(f"the gradient of {name} is not finite")
    return f"loss within {off:.1e} of fp32's, coefficients in fp32"


@check("save-load", "__init__", needs=("forward", "roles", "determinism"))
def save_load(subject: Subject) -> str:
    """Do saved and loaded weights give the same logits, in every bit?"""
    model, other = subject.single(), subject.single(seed=1)
    move(model)
    with tempfile.TemporaryDirectory(prefix="depthbench-check-") as folder:
        path = Path(folder, "model.safetensors")
        save_weights(path, model)
        load_weights(path, other)
    if not torch.equal(model.logits(tokens_of()), other.logits(tokens_of())):
        fail("loaded weights give other logits: something that is no parameter decides")
    return "bitwise, into a model of another seed"


@check("checkpointing", "start", "read", "attend", "write", "finish", needs=BACKWARD)
def checkpointing(subject: Subject) -> str:
    """Are gradients the same when every block's activations are computed again?"""
    model = subject.single()
    move(model, 0.1)
    weight = torch.linspace(-1, 1, VOCAB)
    kept, again = (
        gradients((_logits(model, recomputed) * weight).sum(), model)
        for recomputed in (False, True)
    )
    for name, gradient in kept.items():
        if not torch.equal(again[name], gradient):
            off = relative(again[name], gradient)
            fail(f"the gradient of {name} differs by {off:.2g}")
    return "torch.utils.checkpoint around every block, bitwise"


def _logits(model: Decoder, recomputed: bool) -> Tensor:
    tokens, design = tokens_of(), model.design
    seq, state = model.sequence(tokens.shape[1]), design.start(model.embedding(tokens))
    for visit in range(0, design.stack.num_visits, 2):
        block = model.blocks[visit // 2]
        call = (visit, visit, design, state, seq)
        state = checkpoint(block, *call, use_reentrant=False) if recomputed else block(*call)
    logits: Tensor = model.head(model.final_norm(design.finish(state)))
    return logits
