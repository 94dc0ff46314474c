"""Prelude, core and coda, against the loop written out, in float64."""

import re
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

import residuals
from depthbench.config import CoreLoop, DesignRef, Shape
from depthbench.designs import lay_out_parts
from depthbench.model.cache import KeyValueCache
from depthbench.model.looped import LoopedDecoder
from tests.residuals.kit import gradients, perturb, relative, saved_bytes, shape_of, tokens_of

DESIGNS = ["pre-ln", "hc", "full-attnres", "deeploop"]
VOCAB = 23


def looped(
    design: str, shape: Shape | None = None, dtype: torch.dtype = torch.float64, **loop: Any
) -> LoopedDecoder:
    shape = shape or shape_of(4)
    how = CoreLoop(**{"prelude": 1, "coda": 1, "forward": 4} | loop)
    ref = DesignRef(name=design, version=residuals.get(design).version)
    with torch.device("meta"):
        model = LoopedDecoder(shape, VOCAB, lay_out_parts(ref, shape, 1e-24, how), how)
    model.to_empty(device="cpu")
    residuals.initialise(model, 0)
    return model.to(dtype)


def written_out(model: LoopedDecoder, tokens: Tensor, num_cut: int) -> Tensor:
    """Logits with every loop under autograd and s detached after the first `num_cut`."""
    seq = model.sequence(tokens.shape[1])
    core = model.cores[0]
    e = s = model.prelude_norm(model.prelude(model.embedding(tokens), seq))
    for t in range(model.loop.forward):
        u = torch.cat((e, s), -1) @ core.injection.weight.T
        s = core.norm(core(u, seq, None, t))
        if t == num_cut - 1:
            s = s.detach()
    return model.head(model.final_norm(model.coda(s, seq)))


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("backward", [1, 3, 4])
def test_truncated_gradients_are_those_with_s_detached(design, backward) -> None:
    model = looped(design, backward=backward)
    perturb(model, 0.1)
    tokens = tokens_of()
    direction = torch.linspace(-1, 1, VOCAB, dtype=torch.float64)
    actual, expected = model.logits(tokens), written_out(model, tokens, 4 - backward)
    assert relative(actual, expected) < 1e-12
    found = gradients((actual * direction).sum(), model)
    wanted = gradients((expected * direction).sum(), model)
    assert max(relative(found[name], wanted[name]) for name in found) < 1e-10
    full = gradients((written_out(model, tokens, 0) * direction).sum(), model)
    differs = max(relative(found[name], full[name]) for name in found)
    assert (differs > 1e-3) == (backward < 4)
    # The prelude learns through e, whatever is cut.
    assert all(g.abs().max() > 0 for name, g in found.items() if name.startswith("prelude."))


@pytest.mark.parametrize("design", DESIGNS)
def test_tied_is_untied_and_shared_gradients_are_sums(design) -> None:
    """One core run three times against three cores with the same weights."""
    model, copies = looped(design, forward=3), looped(design, forward=3, tied=False)
    perturb(model, 0.1)
    weights = model.state_dict()
    copies.load_state_dict({name: weights[tied_name(name)] for name in copies.state_dict()})
    tokens = tokens_of()
    tied, untied = model.logits(tokens), copies.logits(tokens)
    assert relative(tied, untied) < 1e-12
    direction = torch.linspace(-1, 1, VOCAB, dtype=torch.float64)
    shared = gradients((tied * direction).sum(), model)
    found = gradients((untied * direction).sum(), copies)
    for name, gradient in shared.items():
        total = sum(g for other, g in found.items() if tied_name(other) == name)
        assert relative(gradient, total) < 1e-10, name


def tied_name(name: str) -> str:
    """Of a parameter of any copy, that of the core which loops share."""
    return re.sub(r"^cores\.\d+\.", "cores.0.", name)


@pytest.mark.parametrize("design", residuals.names())
def test_every_design_loops_with_a_gradient_for_every_parameter(design) -> None:
    for loop in ({"backward": 2}, {"prelude": 0, "coda": 0}, {"injection": "add"}):
        model = looped(design, **loop)
        model.summed_nll(tokens_of(), tokens_of(seed=4)).backward()
        assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("design", ["hc", "mhc", "full-attnres", "block-attnres"])
def test_equality_at_initialisation_holds_in_a_loop(design) -> None:
    logits, plain = (looped(name).logits(tokens_of()) for name in (design, "pre-ln"))
    assert relative(logits, plain) < 1e-12


def test_the_first_input_of_the_core_is_e() -> None:
    model = looped("pre-ln")
    e, s = (torch.randn(2, 3, 16, dtype=torch.float64) for _ in range(2))
    assert torch.equal(model.cores[0].injection(e, s), e)


def test_depth_goes_on_counting_through_the_loops() -> None:
    """LNS divides by √b with b = 1 in the prelude, 2 … 9 in four loops of two, 10 in the coda."""
    model = looped("lns")
    ones = torch.ones(1, 1, 16, dtype=torch.float64)
    found = []
    for part in (model.prelude, *model.cores, model.coda):
        for design in part.placed:
            for k in range(0, design.stack.num_sublayers, 2):
                found.append(design.read(k, k, (ones,))[0][0, 0, 0].item() ** -2)
    assert found == pytest.approx(list(range(1, 11)))
    deep, keel, loop = (looped(n).cores[0].design for n in ("deepnorm", "keel", "deeploop"))
    assert (deep.alpha, keel.alpha) == pytest.approx((20**0.25, 20.0))
    assert (loop.alpha, loop.beta) == pytest.approx((20**0.5, 80**-0.5))


@pytest.mark.parametrize("design", DESIGNS)
def test_memory_grows_with_gradients_not_with_loops(design) -> None:
    shape = shape_of(3, 32)

    def kept(forward: int, backward: int) -> int:
        model = looped(design, shape, torch.float32, forward=forward, backward=backward)
        with saved_bytes(model) as total:
            loss = model.summed_nll(tokens_of(2, 16), tokens_of(2, 16, seed=4))
        loss.backward()
        return total[0]

    assert kept(8, 2) == kept(4, 2)
    step = kept(4, 3) - kept(4, 2)
    assert step > 0.2 * kept(4, 2)
    assert kept(8, 8) - kept(8, 7) == pytest.approx(step, rel=0.01)


@pytest.mark.parametrize("design", DESIGNS)
def test_causality_and_a_cache_with_a_pair_for_every_loop(design) -> None:
    model = looped(design)
    perturb(model, 0.1)
    tokens = tokens_of(2, 9)
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % VOCAB
    before, after = model.logits(tokens), model.logits(changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5], after[:, 5])
    cache = KeyValueCache()
    parts = [model(chunk, cache) for chunk in tokens.split((4, 1, 4), 1)]
    assert relative(model.head(torch.cat(parts, 1)), before) < 1e-11
    assert len(cache.pairs) == 1 + 4 * 2 + 1


@pytest.mark.parametrize("design", ["pre-ln", "hc"])
def test_compiled_is_eager_in_one_graph(design) -> None:
    model = looped(design, backward=2)
    tokens = tokens_of()
    eager = model(tokens)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)(tokens)
    assert relative(compiled, eager) < 1e-12


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        ({"forward": 2, "backward": 3}, "backward = 3 is more than forward = 2"),
        ({"forward": 0}, "greater than or equal to 1"),
        ({"forward": 2, "backward": 0}, "greater than or equal to 1"),
        ({"forward": 3, "backward": 2, "tied": False}, "the first cores would never learn"),
        ({"forward": 2, "injection": "multiply"}, "'linear', 'add' or 'none'"),
    ],
)
def test_a_loop_that_cannot_be_is_refused(loop, said) -> None:
    with pytest.raises(ValidationError, match=said):
        CoreLoop(prelude=1, coda=1, **loop)
