"""Stacks built by hand, of which every score is known."""

from itertools import combinations
from math import log, pi
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import residuals
from depthbench import probes
from depthbench.model.decoder import Decoder
from depthbench.probes.executed import Executed
from depthbench.probes.registry import Findings
from tests.residuals.kit import VOCAB, make_model, perturb, randn, shape_of, tokens_of

K, D = 5, 8
# With an eps beyond every square a norm is a division by √eps: undone, Pre-LN has no norm at all.
HUGE_EPS = 1e32
pairs = list(combinations(range(K), 2))


def executed(model: Decoder, batch: int = 2, length: int = 6) -> Executed:
    tokens = tokens_of(batch, length + 1)
    return Executed(model, tokens[:, :-1], tokens[:, 1:])


def measured(stack: Executed, name: str, **thresholds: float) -> Findings:
    probe = probes.get(name)
    return probe.measure(stack, {**probe.thresholds, **thresholds})


@torch.no_grad()
def silence(model: Decoder, block: int) -> None:
    model.blocks[block].attention.out.weight.zero_()
    model.blocks[block].mlp.down.weight.zero_()


@torch.no_grad()
def linear_stack(maps: list[Tensor], num_heads: int = 2) -> Decoder:
    """Pre-LN whose block b is `x ← x + maps[b]·(mean of x over the positions so far)`."""
    model = make_model("pre-ln", shape_of(len(maps), D, heads=num_heads), eps=HUGE_EPS)
    perturb(model.embedding)
    for norm in model.design.norms:
        norm.gain.fill_(HUGE_EPS**0.5)
    for block, weight in zip(model.blocks, maps, strict=True):
        q, k, v = block.attention.qkv.matrices().values()
        q.zero_()
        k.zero_()  # equal logits: a mean
        v.copy_(torch.eye(D))
        block.attention.out.weight.copy_(weight)
        block.mlp.down.weight.zero_()
    model.final_norm.eps = 1e-6
    return model


def unit(index: int) -> Tensor:
    return torch.eye(D, dtype=torch.float64)[index]


@pytest.mark.parametrize("name", ["pre-ln", "lns", "sandwich-ln", "moda", "hc", "mhc"])
def test_a_block_that_is_the_identity(name: str) -> None:
    model = make_model(name, shape_of(K, D), eps=1e-6)
    perturb(model, 0.1)
    if name in ("hc", "mhc"):  # with streams that stay what they are
        options = {"residual_mixing": "identity"} if name == "mhc" else {}
        model = make_model(name, shape_of(K, D), eps=1e-6, **options)
        perturb(model.blocks, 0.1)
    j = 2
    silence(model, j)
    if name == "moda":  # whose silent block would still be heard through its slots
        for b in range(j + 1, K):
            torch.nn.init.zeros_(model.blocks[b].attention.out.weight)
    stack = executed(model)
    across = measured(stack, "angular").values["across"]
    assert across[j] == 0
    assert all(value > 1e-4 for b, value in enumerate(across) if b != j)
    causal = measured(stack, "causal").values
    for scores in causal.values():
        assert scores[j][j + 1 :] == [0.0] * (K - j - 1)  # leaving it out changes nothing
        assert [scores[s][j] for s in range(j)] == [0.0] * j  # and it does nothing itself
        assert all(scores[s][b] > 0 for s, b in pairs if j not in (s, b))
    assert measured(stack, "pruning").values["increase"][j] == 0


def test_commuting_linear_blocks_may_be_exchanged() -> None:
    """Polynomials of one matrix commute with each other and with the mean over positions."""
    M = randn(D, D) / D**0.5
    maps = [c * M + 0.3 * c * c * M @ M for c in (0.7, -0.4, 1.1, 0.3, -0.9)]
    score = measured(executed(linear_stack(maps)), "permutation").values["score"]
    assert all(score[i][j] < 1e-12 for i, j in pairs)
    maps[3] = randn(D, D, seed=2) / D**0.5
    score = measured(executed(linear_stack(maps)), "permutation").values["score"]
    for i, j in pairs:  # what stands between two blocks, or is one of them
        assert (score[i][j] > 1e-6) == (i <= 3 <= j), (i, j)


def test_one_block_reads_what_only_one_other_writes() -> None:
    s, reader = 1, 3
    maps = [0.1 * torch.outer(unit(b), unit(7)) for b in range(K)]  # from the embedding alone
    maps[s] = torch.outer(unit(5), unit(7))
    maps[reader] = torch.outer(unit(6), unit(5))
    model = linear_stack(maps)
    with torch.no_grad():
        model.embedding.weight[:, 5] = 0
    found = measured(executed(model), "causal").values
    for scores in found.values():
        for pair in pairs:
            expected = 1.0 if pair == (s, reader) else 0.0
            assert scores[pair[0]][pair[1]] == pytest.approx(expected, abs=1e-12), pair


def test_half_of_what_is_read_comes_from_one_block() -> None:
    """A reader of the sum of two equal writers changes by one half without either."""
    maps = [torch.zeros(D, D).double() for _ in range(K)]
    maps[0] = maps[2] = torch.outer(unit(5), unit(7))
    maps[4] = torch.outer(unit(6), unit(5))
    model = linear_stack(maps)
    with torch.no_grad():
        model.embedding.weight[:, 5] = 0
    found = measured(executed(model), "causal", late=0.45)
    for scores in found.values.values():
        assert scores[0][4] == pytest.approx(0.5, abs=1e-12)
        assert scores[2][4] == pytest.approx(0.5, abs=1e-12)
        assert scores[0][2] == pytest.approx(0.0, abs=1e-12)
    # Late blocks are 2, 3 and 4: of their three pairs only (2, 4) is above 0.45.
    assert found.summary["late_states"] == pytest.approx(1 / 3)
    assert measured(executed(model), "causal", late=0.51).summary["late_outputs"] == 0


def test_angles_of_a_turning_state() -> None:
    """One block turns the plane of the embedding by a right angle, the next ones by halves."""

    def turn(angle: float) -> Tensor:
        c, s = torch.cos(torch.tensor(angle)).double(), torch.sin(torch.tensor(angle)).double()
        turned = torch.eye(D, dtype=torch.float64)
        turned[:2, :2] = torch.stack((torch.stack((c, -s)), torch.stack((s, c))))
        return turned - torch.eye(D)

    model = linear_stack([turn(pi / 2), turn(pi / 4), turn(-pi / 8)])
    with torch.no_grad():
        model.embedding.weight[:, 2:] = 0
    found = measured(executed(model, length=1), "angular")
    distance = found.values["distance"]
    expected = [[0, 1 / 2, 3 / 4, 5 / 8], [0, 0, 1 / 4, 1 / 8], [0, 0, 0, 1 / 8]]
    for i, row in enumerate(expected):
        for j in range(i + 1, 4):
            assert distance[i][j] == pytest.approx(row[j], abs=1e-7)
            assert distance[j][i] == distance[i][j]
    assert found.values["across"] == pytest.approx([1 / 2, 1 / 4, 1 / 8], abs=1e-7)
    assert found.summary["mean"] == pytest.approx(7 / 24, abs=1e-7)


@pytest.mark.parametrize("name", residuals.names())
def test_angles_are_the_arc_cosine(name: str) -> None:
    model = make_model(name, shape_of(3, D), eps=1e-6)
    perturb(model)
    stack = executed(model)
    distance = measured(stack, "angular").values["distance"]
    for i, j in combinations(range(4), 2):
        angle = F.cosine_similarity(stack.z[i], stack.z[j], dim=-1).arccos().mean() / pi
        assert distance[i][j] == pytest.approx(angle.item(), rel=1e-9)
        assert 0 < distance[i][j] < 1


@pytest.mark.parametrize("name", ["hc", "mhc", "full-attnres", "block-attnres"])
def test_the_same_function_has_the_same_scores(name: str) -> None:
    """At initialisation these are Pre-LN; only their depth states differ from its."""
    base, model = make_model("pre-ln", shape_of(K, D)), make_model(name, shape_of(K, D))
    stacks = executed(base), executed(model)
    expected, found = (measured(stack, "causal") for stack in stacks)
    for s, b in pairs:
        score = expected.values["outputs"][s][b]
        assert found.values["outputs"][s][b] == pytest.approx(score, rel=1e-9)
        assert score > 1e-3
    assert found.summary["late_outputs"] == expected.summary["late_outputs"]
    for probe in ("permutation", "pruning"):
        mine, theirs = (torch.tensor(_numbers(measured(x, probe).values)) for x in stacks)
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-12)


def _numbers(values: dict[str, Any]) -> list[float]:
    (found,) = values.values()
    rows = found if isinstance(found[0], list) else [found]
    return [value for row in rows for value in row if value is not None]


@pytest.mark.parametrize("name", ["full-attnres", "block-attnres"])
def test_copying_the_newest_source_raises_the_score_of_the_same_function(name: str) -> None:
    stack = executed(make_model(name, shape_of(K, D)))
    mean, copied = (measured(stack, "causal", copy=flag).values["outputs"] for flag in (0.0, 1.0))
    assert copied[0] == mean[0]  # without the first block there is only the embedding to read
    assert all(copied[s][s + 1] > mean[s][s + 1] for s in range(1, K - 1))
    assert sum(copied[s][b] for s, b in pairs) > 1.5 * sum(mean[s][b] for s, b in pairs)
    plain = executed(make_model("pre-ln", shape_of(K, D)))
    scores = [measured(plain, "causal", copy=flag).values for flag in (0.0, 1.0)]
    assert scores[0] == scores[1]  # in one stream there is nothing to choose


@pytest.mark.parametrize("name", residuals.names())
def test_lens_ends_at_the_model_itself(name: str) -> None:
    model = make_model(name, shape_of(3, D), eps=1e-6)
    perturb(model)
    stack = executed(model, batch=3, length=100)  # more tokens than are looked at in one go
    found = measured(stack, "lens").values
    whole = model.token_nll(stack.tokens_BT, stack.targets_BT).mean().item()
    assert found["cross_entropy"][-1] == pytest.approx(whole, rel=1e-12)
    assert found["kl"][-1] == pytest.approx(0, abs=1e-12)
    assert found["top5_overlap"][-1] == 1
    with torch.no_grad():
        final = model.logits(stack.tokens_BT)
        for place in range(3):
            logits = model.head(stack.read_out(place, stack.points[place]))
            p = torch.softmax(final, -1)
            kl = (p * (p.log() - torch.log_softmax(logits, -1))).sum(-1).mean().item()
            assert found["kl"][place] == pytest.approx(kl, rel=1e-9)
            entropy = F.cross_entropy(logits.flatten(0, 1), stack.targets_BT.flatten()).item()
            assert found["cross_entropy"][place] == pytest.approx(entropy, rel=1e-12)
            shared = [
                len(set(a.tolist()) & set(b.tolist())) / 5
                for a, b in zip(
                    final.topk(5).indices.flatten(0, 1),
                    logits.topk(5).indices.flatten(0, 1),
                    strict=True,
                )
            ]
            assert found["top5_overlap"][place] == pytest.approx(sum(shared) / len(shared))


def test_lens_of_a_head_that_says_nothing() -> None:
    model = make_model("pre-ln", shape_of(3, D), eps=1e-6)
    torch.nn.init.zeros_(model.head.weight)
    found = measured(executed(model), "lens").values
    assert found["cross_entropy"] == pytest.approx([log(VOCAB)] * 4)
    assert found["kl"] == pytest.approx([0.0] * 4)


def test_representation_ranks_of_constructed_states() -> None:
    """Eight tokens along r axes alike: both ranks are r; one more block adds an axis."""
    extra = torch.outer(unit(3), unit(0) + unit(1) + unit(2))
    model = linear_stack([torch.zeros(D, D).double(), extra])
    axes = torch.eye(D, dtype=torch.float64)[torch.arange(VOCAB) % 3]
    with torch.no_grad():
        model.embedding.weight.copy_(axes)
    tokens = torch.arange(12)[:, None]
    found = measured(Executed(model, tokens, tokens), "representation").values
    assert found["effective_rank"][:2] == pytest.approx([3.0, 3.0])
    assert found["stable_rank"][:2] == pytest.approx([3.0, 3.0])
    # Rows e_i + e_3, i = 0, 1, 2, four times each: squared singular values 16, 4 and 4.
    p = torch.tensor([0.5, 0.25, 0.25])
    assert found["stable_rank"][2] == pytest.approx(24 / 16)
    assert found["effective_rank"][2] == pytest.approx((-p * p.log()).sum().exp().item())


def test_statistics_are_moments_of_outputs_and_their_gradients() -> None:
    for name in residuals.names():
        model = make_model(name, shape_of(2, D), eps=1e-6)
        perturb(model)
        stack = executed(model, 1, 4)
        found = measured(stack, "statistics").values
        nudge = torch.zeros(4, 1, 4, D, dtype=torch.float64, requires_grad=True)
        outputs, loss = nudged(model, stack, nudge)
        (gradient,) = torch.autograd.grad(loss, nudge)
        for kind, tensors in (("output", outputs), ("gradient", gradient.unbind())):
            for k, x in enumerate(tensors):
                expected = {
                    "mean": x.sum() / x.numel(),
                    "variance": x.pow(2).mean() - x.mean() ** 2,
                    "magnitude": x.abs().sum() / x.numel(),
                    "rms": x.pow(2).mean() ** 0.5,
                }
                for statistic, value in expected.items():
                    actual = found[f"{kind}_{statistic}"][k]
                    assert actual == pytest.approx(value.item(), rel=1e-8, abs=1e-14), (name, k)


def nudged(model: Decoder, stack: Executed, nudge: Tensor) -> tuple[list[Tensor], Tensor]:
    """Sublayer outputs, and the mean loss when something is added to each."""
    outputs: list[Tensor] = []

    def hook(module: torch.nn.Module, inputs: Any, y: Tensor) -> Tensor:
        outputs.append(y.detach())
        return y + nudge[len(outputs) - 1]

    sublayers = (x for block in model.blocks for x in (block.attention.out, block.mlp))
    handles = [module.register_forward_hook(hook) for module in sublayers]
    logits = model.logits(stack.tokens_BT)
    for handle in handles:
        handle.remove()
    return outputs, F.cross_entropy(logits.flatten(0, 1), stack.targets_BT.flatten())
