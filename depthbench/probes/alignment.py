"""Visit alignment: how coherently the visits of a looped block pull at its weights."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from depthbench.probes.executed import Executed
from depthbench.probes.registry import Findings, probe
from residuals import State


@probe(
    "alignment",
    title="Visit alignment",
    definition=(
        "κ = ‖Σ_t g_t‖² / Σ_t ‖g_t‖² over the visits t of a block that carry gradients in "
        "training, g_t the gradient of the mean loss with respect to its matrices as they act in "
        "visit t (DeepLoop, arXiv 2607.13491)"
    ),
    unit="1 (unrelated) … number of visits with gradients (identical)",
    axes=("", "block"),
)
def alignment(stack: Executed, thresholds: dict[str, float]) -> Findings:
    """κ of each block of the model, None where it is visited once, and their mean.

    Of the weights that visits share these are the matrices of attention and MLP, which every
    design has and which DeepLoop's β scales. Norm gains and routing are the design's and left out,
    or κ would be of other weights in every design.
    """
    visits = visit_gradients(stack)
    if all(shared is None for shared in visits):
        return Findings(reason="every block is visited once: no weight is shared by visits")
    kappa = [None if shared is None else coherence(shared) for shared in visits]
    known = [value for value in kappa if value is not None]
    return Findings({"kappa": kappa}, {"mean": sum(known) / len(known)})


def visit_gradients(stack: Executed) -> list[list[Tensor] | None]:
    """For each block its g_t, flat, by visit with gradients; None if it is visited once.

    Their sum is the gradient that training computes for the shared matrices.
    """
    visits: dict[nn.Module, list[int]] = {}
    for segment in stack.segments:
        for place in segment.places:
            visits.setdefault(segment.block(place)[0], []).append(place)
    shared = {place for places in visits.values() for place in places if len(places) > 1}
    if not shared:
        return [None] * len(visits)
    copies: dict[int, dict[str, Tensor]] = {}

    def step(place: int, state: State) -> State:
        segment = stack.segment(place)
        block, k = segment.block(place)
        copy: dict[str, Tensor] = {}
        if place in shared and not segment.cut:
            copy = {n: p.detach().requires_grad_() for n, p in block.named_parameters()}
            copies[place] = copy
        visit = 2 * (place - segment.first)
        after: State = functional_call(block, copy, (k, visit, segment.design, state, stack.seq))
        return after

    loss = stack.traced(step)
    weights = [weight for copy in copies.values() for weight in copy.values()]
    found = iter(torch.autograd.grad(loss, weights))
    flat = {at: torch.cat([next(found).flatten() for _ in copy]) for at, copy in copies.items()}
    return [
        [flat[place] for place in places if place in flat] if len(places) > 1 else None
        for places in visits.values()
    ]


def coherence(gradients: Sequence[Tensor]) -> float:
    """`‖Σ g‖² / Σ ‖g‖²`: the number of gradients if all are equal, 1 if they are orthogonal."""
    total = torch.stack([g.double() for g in gradients])
    return (total.sum(0).square().sum() / total.square().sum()).item()
