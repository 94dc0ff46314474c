"""Visit alignment on constructed gradients, and on a loop against the same stack unrolled."""

import pytest
import torch

from depthbench.probes import get
from depthbench.probes.alignment import coherence
from depthbench.probes.executed import Executed
from tests.residuals.kit import make_model, perturb, shape_of, tokens_of


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
