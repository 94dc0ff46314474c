"""HC and mHC: orientation, path weights, and what the manifold keeps."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import residuals
from residuals import Design
from residuals.sinkhorn import sinkhorn
from tests.residuals.kit import (
    drive,
    make_design,
    make_model,
    perturb,
    randn,
    random_branches,
    relative,
    shape_of,
    stack_of,
    tokens_of,
)

both = pytest.mark.parametrize("name", ["hc", "mhc"])
M, D, K = 4, 8, 3


def zero_branch(k: int, x: Tensor) -> Tensor:
    return torch.zeros_like(x)


@both
def test_parameters_a_sublayer(name: str) -> None:
    d = 24
    for m in (2, 4):
        per_sublayer = {
            "hc": d * (m + 2) + m * (m + 2) + 2,
            "mhc": m * d * (m * m + 2 * m) + m * m + 2 * m + 3,
        }[name]
        design = residuals.build(name, stack_of(shape_of(5, d)), streams=m)
        assert design.num_extra_params() == 10 * per_sublayer
    assert per_sublayer == {"hc": 6 * d + 26, "mhc": 96 * d + 27}[name]


@both
def test_initial_values_and_decay(name: str) -> None:
    design = make_design(name, 3, D)
    sigmoid = torch.sigmoid(torch.tensor([8.0, -8.0], dtype=torch.float64))
    H = randn(1, 2, M, D)
    for k in range(6):
        mix, write = design.coefficients(k, H)
        a = torch.eye(M, dtype=torch.float64)[k % M]
        A = torch.eye(M, dtype=torch.float64)
        if name == "mhc":
            a = torch.where(a == 1, *sigmoid)
            off = torch.exp(torch.tensor(-8.0)).double()
            A = torch.where(A == 1, 1.0, off) / (1 + 3 * off)  # already doubly stochastic
        assert relative(mix[0], a.expand(1, 2, M)) < 1e-12
        assert relative(mix[1:].permute(1, 2, 0, 3), A.expand(1, 2, M, M)) < 1e-7
        assert torch.equal(write, torch.ones_like(write))
    decayed = {
        "hc": {"dynamic": True, "static": False, "scales": False},
        "mhc": {"phi": True, "bias": False, "gains": False},
    }[name]
    for _, module in design.routing.named_children():
        assert {n: rule.role.decay for n, rule in module.rules.items()} == decayed
    strength = {"hc": "scales", "mhc": "gains"}[name]
    assert torch.equal(getattr(design.routing[0], strength).float().unique(), torch.tensor([0.01]))


def test_permutation_in_hc_permutes_the_carried_streams() -> None:
    """Entry (s, t) of A moves stream s into stream t: a cycle tells it from its transpose."""
    design = make_design("hc", 1, D, static=True)
    cycle = [1, 2, 3, 0]
    with torch.no_grad():
        design.routing[0].static[1:-1] = torch.eye(M)[cycle].T  # row 1 + t is column t of A
    A = design.routing[0].static[1:-1].T
    assert all(A[s, cycle[s]] == 1 for s in range(M))
    H = randn(1, 2, M, D)
    x, carry = design.read(0, 0, (H,))
    (after,) = design.write(0, 0, carry, torch.zeros_like(x))
    for s in range(M):
        assert torch.equal(after[:, :, cycle[s]], H[:, :, s])


def test_permutation_in_mhc_is_h_res_times_h() -> None:
    """`H' = H_res H`: row t of H_res gives stream t."""
    design = make_design("mhc", 1, D)
    cycle = [1, 2, 3, 0]
    with torch.no_grad():
        logits = torch.full((M, M), -60.0)
        for s in range(M):
            logits[cycle[s], s] = 0.0
        design.routing[0].bias[2 * M :] = logits.flatten()
    H = randn(1, 2, M, D)
    x, carry = design.read(0, 0, (H,))
    (after,) = design.write(0, 0, carry, torch.zeros_like(x))
    for s in range(M):
        assert relative(after[:, :, cycle[s]], H[:, :, s]) < 1e-12


@both
@pytest.mark.parametrize("num_blocks", [1, 3])
def test_path_weights_reconstruct_the_sublayer_inputs(name: str, num_blocks: int) -> None:
    """`a_lᵀ·A_{l−1}ᵀ⋯A_{i+1}ᵀ·β_i` for output i, `a_lᵀ·A_{l−1}ᵀ⋯A_0ᵀ·1` for the embedding."""
    design = make_design(name, num_blocks, D)
    perturb(design, 0.5)
    embedding, L = randn(2, 3, D), 2 * num_blocks
    outputs: list[Tensor] = []
    branches = random_branches(L, D)

    def branch(k: int, x: Tensor) -> Tensor:
        outputs.append(branches(k, x))
        return outputs[-1]

    last, inputs, states = drive(design, embedding, branch)
    a, carried, beta = [], [], []
    for k in range(L):
        mix, write = design.coefficients(k, states[k][0])
        a.append(mix[0])
        carried.append(mix[1:].permute(1, 2, 0, 3))  # Aᵀ of HC, H_res of mHC
        beta.append(write)
    a.append(torch.full_like(a[0], 1.0 if name == "hc" else 1 / M))
    for j in range(L + 1):
        row = a[j]
        total = torch.zeros_like(embedding)
        for i in reversed(range(j)):
            total = total + (row * beta[i]).sum(-1, keepdim=True) * outputs[i]
            row = (row.unsqueeze(-2) @ carried[i]).squeeze(-2)
        total = total + row.sum(-1, keepdim=True) * embedding
        if j == L:
            assert relative(last, total) < 1e-12
        else:
            normed = total / total.pow(2).mean(-1, keepdim=True).sqrt() * design.norms[j].gain
            assert relative(inputs[j], normed) < 1e-11


def generic_coefficients(design: Design, H: Tensor) -> Tensor:
    mix, write = design.coefficients(0, H)
    return torch.cat((mix.movedim(0, -1).flatten(2), write), -1)


def test_norm_of_mhc_runs_over_all_streams_at_once() -> None:
    design = make_design("mhc", 1, D)
    perturb(design, 0.5)
    with torch.no_grad():
        design.routing[0].phi[:, :D] = 0  # nothing is read from stream 0
    H = randn(1, 2, M, D)
    scaled = H.clone()
    scaled[:, :, 0] *= 10
    change = (generic_coefficients(design, scaled) - generic_coefficients(design, H)).abs().max()
    assert change > 1e-3
    # Their direction alone decides: a common factor changes nothing.
    common = generic_coefficients(design, 10 * H)
    assert relative(common, generic_coefficients(design, H)) < 1e-12


def test_norm_of_hc_runs_over_each_stream() -> None:
    design = make_design("hc", 1, D)
    perturb(design, 0.5)
    H = randn(1, 2, M, D)
    factors = torch.tensor([10.0, 1.0, 0.1, 3.0], dtype=torch.float64)[:, None]
    before, after = (generic_coefficients(design, x) for x in (H, factors * H))
    assert relative(after, before) < 1e-12


def test_output_weights_of_mhc_are_one_at_zero_logits_and_within_two() -> None:
    design = make_design("mhc", 1, D)
    H = randn(1, 50, M, D)
    assert torch.equal(design.coefficients(0, H)[1], torch.ones(1, 50, M).double())
    with torch.no_grad():
        design.routing[0].bias[M : 2 * M] = torch.tensor([-50.0, 50.0, 0.0, 1.0])
    write = design.coefficients(0, H)[1][0, 0]
    expected = [0.0, 2.0, 1.0, 2 / (1 + torch.e**-1)]
    torch.testing.assert_close(write, torch.tensor(expected).double(), rtol=1e-6, atol=1e-6)


def test_mean_of_the_streams_is_conserved_by_mhc_without_branches() -> None:
    """Up to the column error of the product of the mixings, and exactly as that product says."""
    design = make_design("mhc", K, D)
    perturb(design, 0.5)
    with torch.no_grad():
        for routing in design.routing:
            routing.bias[2 * M :] = torch.randn(M * M, generator=torch.Generator().manual_seed(1))
    H = randn(1, 5, M, D)
    state, product = (H,), torch.eye(M, dtype=torch.float64).expand(1, 5, M, M)
    for k in range(2 * K):
        mix, _ = design.coefficients(k, state[0])
        product = mix[1:].permute(1, 2, 0, 3) @ product
        x, carry = design.read(k, k, state)
        state = design.write(k, k, carry, torch.zeros_like(x))
    drift = (state[0].mean(-2) - H.mean(-2)).abs().amax(-1)
    column_error = (product.sum(-2) - 1).abs().amax(-1)
    assert (drift <= column_error * H.abs().sum(-2).amax(-1) / M + 1e-12).all()
    assert column_error.max() < 1e-2
    assert (state[0] - H).abs().max() > 0.1  # while the streams did mix


def test_product_of_a_hundred_mixings_does_not_grow() -> None:
    for std in (0.5, 1.0, 2.0, 3.0):
        logits = std * randn(4, 4, 100, 20, seed=int(10 * std))
        matrices = sinkhorn(logits).permute(2, 3, 0, 1)
        product = torch.eye(4, dtype=torch.float64).expand(20, 4, 4)
        for matrix in matrices:
            product = matrix @ product
        assert torch.linalg.matrix_norm(product, 2).max() <= 1.001


@both
def test_streams_differ_after_twenty_steps(name: str) -> None:
    model = make_model(name, shape_of(2), eps=1e-6, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    tokens = tokens_of(4, 12)

    def spread() -> float:
        x, design = model.embedding.weight[tokens], model.design
        _, _, states = drive(design, x, random_branches_fp32)
        H = states[-1][0]
        return ((H - H.mean(-2, keepdim=True)).norm() / H.norm()).item()

    assert spread() < 1e-6
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(
            model.logits(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
        ).backward()
        optimizer.step()
    assert spread() > 1e-4


def random_branches_fp32(k: int, x: Tensor) -> Tensor:
    return torch.tanh(x + k)


def test_control_without_mixing_keeps_each_stream() -> None:
    design = make_design("mhc", 1, D, residual_mixing="identity")
    perturb(design, 0.5)
    H = randn(1, 2, M, D)
    x, carry = design.read(0, 0, (H,))
    assert torch.equal(design.write(0, 0, carry, torch.zeros_like(x))[0], H)


def test_options_of_hc() -> None:
    shape = shape_of(2)
    base, rescaled = (make_model("hc", shape, rescale_output=flag) for flag in (False, True))
    for a, b in zip(base.blocks, rescaled.blocks, strict=True):
        assert relative(2 * b.attention.out.weight, a.attention.out.weight) < 1e-6  # √m = 2
        assert relative(2 * b.mlp.down.weight, a.mlp.down.weight) < 1e-6
        assert torch.equal(b.attention.qkv.weight, a.attention.qkv.weight)
        assert torch.equal(b.mlp.gate_up.weight, a.mlp.gate_up.weight)
    static = make_design("hc", 2, D, static=True)
    perturb(static)
    first, second = (static.coefficients(1, randn(1, 2, M, D, seed=s)) for s in (1, 2))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("mhc", {"init": "gap-9"}, "gap-8"),
        ("mhc", {"residual_mixing": "none"}, "identity"),
        ("hc", {"streams": 0}, "streams"),
        ("mhc", {"streams": 0}, "streams"),
    ],
)
def test_wrong_option_is_refused(name: str, options: dict[str, object], word: str) -> None:
    with pytest.raises(residuals.DesignError, match=word):
        residuals.build(name, stack_of(shape_of()), **options)


def test_flops_of_one_sublayer() -> None:
    """One block, m = 4, d = 8, by hand."""
    hc = residuals.build("hc", stack_of(shape_of(1, D))).routing_flops()
    # A token and sublayer: 6 dynamic products with 4 streams, 5 sums of 4 streams, 4 written.
    assert (hc.matmul, hc.mixing) == (2 * (2 * 6 * 4 * D + 2 * 5 * 4 * D), 2 * 2 * 4 * D)
    mhc = residuals.build("mhc", stack_of(shape_of(1, D))).routing_flops()
    assert mhc.matmul == 2 * (2 * 24 * 4 * D + 2 * 5 * 4 * D)
    assert mhc.mixing >= 2 * 2 * 4 * D + 2 * 20 * 2 * 16  # 20 iterations touch 16 entries twice
