"""Visit alignment on constructed gradients and models, and on loops against the same unrolled."""

from typing import Any

import pytest
import torch
from torch import Tensor

from depthbench.model.decoder import Decoder, LanguageModel
from depthbench.model.looped import LoopedDecoder
from depthbench.probes import get
from depthbench.probes.alignment import coherence, visit_gradients
from depthbench.probes.executed import Executed
from tests.probes.loops import make_looped
from tests.residuals.kit import make_model, perturb, randn, shape_of, tokens_of

DESIGNS = ["pre-ln", "hc", "full-attnres", "deeploop"]
HUGE_EPS = 1e32  # a norm is then a division by √eps


def executed(model: LanguageModel, length: int = 6) -> Executed:
    tokens = tokens_of(3, length)
    return Executed(model, tokens[:, :-1], tokens[:, 1:])


def kappa_of(model: LanguageModel, length: int = 6) -> list[float | None]:
    kappa: list[float | None] = (
        get("alignment").measure(executed(model, length), {}).values["kappa"]
    )
    return kappa


def flat(tensors: Any) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


@pytest.mark.parametrize("rounds", [2, 3, 7])
def test_identical_visits_give_their_number_and_orthogonal_ones_one(rounds: int) -> None:
    g = torch.tensor([3.0, -1.0, 2.0])
    assert coherence([g] * rounds) == pytest.approx(rounds)
    assert coherence([(1 + i) * row for i, row in enumerate(torch.eye(7)[:rounds])]) == 1
    assert coherence([g, -g]) == 0
    # ‖(1, 1) + (1, 0)‖² / (2 + 1)
    assert coherence([torch.tensor([1.0, 1.0]), torch.tensor([1.0, 0.0])]) == pytest.approx(5 / 3)


@pytest.mark.parametrize("name", ["pre-ln", "deeploop", "hc"])
def test_visits_are_the_copies_of_the_unrolled_stack(name: str) -> None:
    K, R = 2, 3
    tied, untied = make_model(name, shape_of(K), rounds=R), make_model(name, shape_of(K * R))
    perturb(tied, 0.1)
    own = dict(tied.named_parameters())
    with torch.no_grad():
        for path, parameter in untied.named_parameters():
            parts = path.split(".")
            for i, part in enumerate(parts):
                if part.isdigit():
                    parts[i] = str(int(part) % (K if parts[0] == "blocks" else 2 * K))
            parameter.copy_(own[".".join(parts)])
    tokens, targets = tokens_of(), tokens_of(seed=4)
    untied.summed_nll(tokens, targets).backward()
    expected = []
    for b in range(K):
        visits = [
            torch.cat([p.grad.flatten() for p in untied.blocks[b + r * K].parameters()])
            for r in range(R)
        ]
        expected.append(sum(visits).square().sum() / sum(v.square().sum() for v in visits))
    found = get("alignment").measure(Executed(tied, tokens, targets), {})
    assert found.values["kappa"] == pytest.approx([e.item() for e in expected], rel=1e-9)
    assert all(0 <= kappa <= R + 1e-9 for kappa in found.values["kappa"])


def test_a_stack_without_a_loop_has_no_alignment() -> None:
    model = make_model("pre-ln")
    found = get("alignment").measure(Executed(model, tokens_of(), tokens_of(seed=4)), {})
    assert "visited once" in str(found.reason)
    assert not found.values


def test_untied_cores_share_nothing() -> None:
    for loop in ({"forward": 3, "tied": False}, {"forward": 1}):
        found = get("alignment").measure(executed(make_looped("pre-ln", **loop)), {})
        assert "visited once" in str(found.reason)


def looped(name: str, layout: dict[str, Any]) -> tuple[Decoder | LoopedDecoder, list[Any], int]:
    """A model, its blocks in the order of their first visit, and how many visits have gradients."""
    if "rounds" in layout:
        model = make_model(name, shape_of(2, 8), eps=1e-5, **layout)
        perturb(model, 0.1)
        return model, list(model.blocks), layout["rounds"]
    core = make_looped(name, scale=0.1, **layout)
    parts = [part for part in (core.prelude, *core.cores, core.coda) if part is not None]
    return core, [block for part in parts for block in part.blocks], core.loop.backward


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize(
    "layout",
    [
        {"rounds": 3},
        {"forward": 4, "backward": 2},
        {"forward": 3, "backward": 3, "injection": "add"},
        {"forward": 4, "backward": 3, "injection": "none", "prelude": 0},
        {"forward": 3, "backward": 1, "coda": 0},
    ],
    ids=str,
)
def test_visits_add_up_to_the_gradient_of_training(name, layout) -> None:
    model, blocks, num_carrying = looped(name, layout)
    stack = executed(model)
    (model.summed_nll(stack.tokens_BT, stack.targets_BT) / stack.targets_BT.numel()).backward()
    expected = [None if b is None else flat(p.grad for p in b.parameters()) for b in blocks]
    visits = visit_gradients(executed(model.requires_grad_(False)))
    kappa = kappa_of(model)
    assert len(visits) == len(kappa) == len(blocks)
    loop = getattr(model, "loop", None)
    once = set() if loop is None else {*range(loop.prelude), *range(4 - loop.coda, 4)}
    for b, (shared, value) in enumerate(zip(visits, kappa, strict=True)):
        if b in once:
            assert shared is None
            assert value is None
            continue
        assert len(shared) == num_carrying
        total = sum(shared)
        torch.testing.assert_close(total, expected[b], rtol=1e-9, atol=1e-13)
        squares = sum(g.square().sum() for g in shared)
        assert value == pytest.approx((total.square().sum() / squares).item(), rel=1e-9)
        assert 0 <= value <= num_carrying + 1e-9
        assert num_carrying > 1 or value == pytest.approx(1)


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("backward", [1, 2, 3])
def test_visits_of_a_core_are_the_cores_of_the_untied_loop(name, backward) -> None:
    """Copies with the same weights, s detached behind the loops that are cut."""
    loop = {"forward": 3, "scale": 0.1}
    tied, untied = (
        make_looped(name, **loop, backward=backward),
        make_looped(name, **loop, tied=False),
    )
    for part in ("embedding", "prelude", "prelude_norm", "coda", "final_norm", "head"):
        getattr(untied, part).load_state_dict(getattr(tied, part).state_dict())
    for core in untied.cores:
        core.load_state_dict(tied.cores[0].state_dict())
    stack = executed(tied)
    seq = untied.sequence(stack.tokens_BT.shape[1])
    e = s = untied.prelude_norm(untied.prelude(untied.embedding(stack.tokens_BT), seq))
    for t, core in enumerate(untied.cores):
        s = core.norm(core(core.injected(e, s), seq, None, 0))
        s = s.detach() if t == 2 - backward else s
    logits = untied.head(untied.final_norm(untied.coda(s, seq)))
    targets = stack.targets_BT.flatten()
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets).backward()
    visits = visit_gradients(stack)
    assert visits[0] is None
    assert visits[3] is None
    for b in (0, 1):
        copies = [
            flat(p.grad for p in core.blocks[b].parameters())
            for core in list(untied.cores)[-backward:]
        ]
        assert len(visits[1 + b]) == backward
        for found, expected in zip(visits[1 + b], copies, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-13)


@torch.no_grad()
def silenced(model: Decoder | LoopedDecoder) -> Any:
    """Blocks that write nothing: every visit of one reads the same."""
    for name, parameter in model.named_parameters():
        if name.endswith(("attention.out.weight", "mlp.down.weight")):
            parameter.zero_()
        elif name.endswith("gain"):
            parameter.fill_(1.0)
    return model


@pytest.mark.parametrize("rounds", [2, 5])
def test_identical_visits_of_a_model_give_their_number(rounds) -> None:
    model = make_model("pre-ln", shape_of(2, 8), rounds=rounds)
    perturb(model)
    assert kappa_of(silenced(model)) == pytest.approx([rounds] * 2)


@pytest.mark.parametrize("backward", [1, 2, 4])
def test_identical_visits_of_a_core_give_the_number_with_gradients(backward) -> None:
    """`s = N(s)` again and again: with unit gains a norm of what is normed changes nothing."""
    loop = {"forward": 4, "backward": backward, "injection": "none"}
    kappa = kappa_of(silenced(make_looped("pre-ln", eps=1e-24, **loop)))
    assert kappa[0] is kappa[3] is None
    assert kappa[1:3] == pytest.approx([backward] * 2)


def test_visits_whose_gradients_halve() -> None:
    """`s ← N(e + s)` with s = e: the sum is 2e, and N at 2e hands half of a gradient back.

    So g_t is (½)^(T-1-t) of the last: κ = (Σ 2^-i)² / Σ 4^-i.
    """
    model = silenced(make_looped("pre-ln", eps=1e-24, forward=3, injection="add"))
    assert kappa_of(model)[1:3] == pytest.approx(
        [(1 + 1 / 2 + 1 / 4) ** 2 / (1 + 1 / 4 + 1 / 16)] * 2
    )


def test_of_a_loop_that_reads_e_alone_one_visit_pulls() -> None:
    model = make_looped("pre-ln", forward=3)
    with torch.no_grad():
        model.cores[0].injection.weight.copy_(torch.eye(8, 16))
    assert kappa_of(model)[1:3] == pytest.approx([1, 1])


@torch.no_grad()
def turning(model: Any, blocks: Any, norms: Any) -> Any:
    """A block that turns its state from axis a to axis a + 1, for embeddings along axis 0.

    Without norms inside and of one token it is `x ← x + O·V·x` with V = 1, O = turn − 1.
    """
    model.embedding.weight[:, 1:] = 0
    for norm in norms:
        norm.eps = HUGE_EPS
        norm.gain.fill_(HUGE_EPS**0.5)
    for block in blocks:
        q, k, v = block.attention.qkv.matrices().values()
        q.zero_()
        k.zero_()
        v.copy_(torch.eye(8))
        block.attention.out.weight.copy_(torch.eye(8).roll(1, 0) - torch.eye(8))
        block.mlp.gate_up.weight.zero_()
        block.mlp.down.weight.zero_()
    return model


def test_orthogonal_visits_of_a_model_give_one() -> None:
    """Visit t reads axis t, so its gradients are outer products with another axis each."""
    whole = make_model("pre-ln", shape_of(1, 8), eps=1e-6, rounds=4)
    perturb(whole)
    turned = turning(whole, whole.blocks, whole.design.norms)
    assert kappa_of(turned, length=2) == pytest.approx([1.0])
    # Along all axes at once every visit reads the same.
    with torch.no_grad():
        turned.embedding.weight.copy_(randn(23, 1).expand(-1, 8))
    assert abs(kappa_of(turned, length=2)[0] - 1) > 0.5
    core = make_looped(
        "pre-ln", shape=shape_of(1, 8), prelude=0, coda=0, forward=4, injection="none"
    )
    core = turning(core, core.cores[0].blocks, core.cores[0].design.norms)
    assert kappa_of(core, length=2) == pytest.approx([1.0])
