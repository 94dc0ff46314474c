"""Visit alignment: how coherently the visits of a looped block pull at its weights."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import functional_call

from depthbench.model.loss import summed_nll
from depthbench.probes.executed import Executed
from depthbench.probes.registry import Findings, probe


@probe(
    "alignment",
    title="Visit alignment",
    definition=(
        "κ = ‖Σ_r g_r‖² / Σ_r ‖g_r‖² over the rounds r of a block, g_r the gradient of the mean "
        "loss with respect to its weights as they act in round r (DeepLoop, arXiv 2607.13491)"
    ),
    unit="1 (unrelated) … number of rounds (identical)",
    axes=("", "block"),
)
def alignment(stack: Executed, thresholds: dict[str, float]) -> Findings:
    """κ of each block, and their mean."""
    design, model = stack.design, stack.model
    rounds, num_blocks = design.stack.num_rounds, design.stack.num_blocks
    if rounds == 1:
        return Findings(reason="every block is visited once: no weight is shared by visits")
    copies: list[dict[str, Tensor]] = []
    seq = model.sequence(stack.tokens_BT.shape[1])
    with torch.enable_grad():
        state = design.start(model.embedding(stack.tokens_BT).detach())
        for place in range(stack.num_places):
            b = place % num_blocks
            block = model.blocks[b]
            copies.append({n: p.detach().requires_grad_() for n, p in block.named_parameters()})
            state = functional_call(block, copies[-1], (2 * b, 2 * place, design, state, seq))
        x_BTD = stack.read_out(stack.num_places, state)
        loss = summed_nll(x_BTD, model.head.weight, stack.targets_BT) / stack.targets_BT.numel()
        weights = [weight for copy in copies for weight in copy.values()]
        found = iter(torch.autograd.grad(loss, weights))
    flat = [torch.cat([next(found).flatten() for _ in copy]) for copy in copies]
    kappa = [coherence(flat[b::num_blocks]) for b in range(num_blocks)]
    return Findings({"kappa": kappa}, {"mean": sum(kappa) / num_blocks})


def coherence(gradients: Sequence[Tensor]) -> float:
    """`‖Σ g‖² / Σ ‖g‖²`: the number of gradients if all are equal, 1 if they are orthogonal."""
    total = torch.stack([g.double() for g in gradients])
    return (total.sum(0).square().sum() / total.square().sum()).item()
