"""What every registered design must satisfy; a new design is covered by being registered."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import residuals
from depthbench.config import CellConfig, DesignRef
from depthbench.ledger import forward_flops_per_token, ledger
from depthbench.model import attention
from depthbench.model.decoder import Decoder, build_decoder
from depthbench.model.rotary import Rotary
from depthbench.train.checkpoint import load_weights, save_weights
from residuals.parameters import declared
from tests.residuals.kit import (
    EXACT_EPS,
    VOCAB,
    gradients,
    make_model,
    perturb,
    randn,
    relative,
    shape_of,
    stack_of,
    tokens_of,
)

DESIGNS = residuals.names()
SHAPE = shape_of(3)
every_design = pytest.mark.parametrize("name", DESIGNS)


def generic_model(name: str, **options: Any) -> Decoder:
    """No parameter at its initial value, so that nothing is tested at a fixed point."""
    model = make_model(name, SHAPE, **options)
    perturb(model)
    return model


def summed_nll(model: Decoder) -> Tensor:
    tokens = tokens_of(2, 10)
    return model.summed_nll(tokens[:, :-1], tokens[:, 1:])


@every_design
def test_class_says_what_it_is(name: str) -> None:
    design = residuals.get(name)
    assert design.name == name
    assert design.version >= 1
    assert design.title
    assert design.family
    assert design.paper
    assert design.summary().strip()
    assert residuals.get(f"{name}@{design.version}") is design


@every_design
def test_logits_before_a_token_do_not_see_it(name: str) -> None:
    model = generic_model(name)
    tokens = tokens_of(2, 9)
    before = model.logits(tokens)
    for t in (3, 8):
        changed = tokens.clone()
        changed[:, t] = (changed[:, t] + 1) % VOCAB
        after = model.logits(changed)
        torch.testing.assert_close(after[:, :t], before[:, :t], rtol=1e-12, atol=1e-12)
        assert (after[:, t:] - before[:, t:]).abs().amax((0, 2)).min() > 1e-6


def only_self(
    q: Tensor, k: Tensor, v: Tensor, rotary: Rotary, backend: str | None = None
) -> Tensor:
    """Attention whose mixing over positions is the identity."""
    return v.repeat_interleave(q.shape[2] // v.shape[2], 2)


def only_self_joint(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rotary: Rotary,
    depth_k: tuple[Tensor, ...],
    depth_v: tuple[Tensor, ...],
    rotate_depth_query: bool = False,
) -> Tensor:
    keys, values = (
        torch.stack((own, *(slot.view(own.shape) for slot in slots)))
        for own, slots in ((k, depth_k), (v, depth_v))
    )
    p = torch.softmax((q * keys).sum(-1), 0)
    return (p[..., None] * values).sum(0)


@every_design
def test_design_itself_is_local_to_a_token(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "causal", only_self)
    monkeypatch.setattr(attention, "joint", only_self_joint)
    model = generic_model(name)
    tokens = tokens_of(2, 7)
    logits = model.logits(tokens)
    order = torch.tensor([4, 2, 6, 0, 5, 1, 3])
    permuted = model.logits(tokens[:, order])
    torch.testing.assert_close(permuted, logits[:, order], rtol=1e-12, atol=1e-12)
    others = (tokens + 1) % VOCAB
    others[:, 3] = tokens[:, 3]
    alone = model.logits(others)[:, 3]
    torch.testing.assert_close(alone, logits[:, 3], rtol=1e-12, atol=1e-12)


@every_design
def test_every_parameter_gets_a_finite_gradient(name: str) -> None:
    for model in (make_model(name, SHAPE, dtype=torch.float32, eps=1e-6), generic_model(name)):
        summed_nll(model).backward()
        for parameter, p in model.named_parameters():
            assert p.grad is not None, parameter
            assert p.grad.isfinite().all(), parameter
    # Off the initial point nothing is dead, a query of the embedding alone included.
    assert all(p.grad.abs().max() > 0 for p in model.parameters() if p.grad is not None)


def num_parameters(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def variants(name: str) -> Iterator[dict[str, Any]]:
    """The defaults, given explicitly, and each switch turned over."""
    defaults = residuals.get(name).option_defaults()
    yield defaults
    for option, value in defaults.items():
        if isinstance(value, bool):
            yield {option: not value}


@every_design
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_parameter_formula_is_what_is_built(name: str, kv_heads: int) -> None:
    for layer_count in (1, 2, 5):
        shape = shape_of(layer_count, kv_heads=kv_heads)
        base = num_parameters(make_model("pre-ln", shape))
        for options in variants(name):
            model = make_model(name, shape, **options)
            extra = num_parameters(model) - base
            assert model.design.num_extra_params() == extra, (layer_count, options)


def cell_config(name: str, **changes: Any) -> CellConfig:
    document = {
        "suite": "unit",
        "ladder": "inline",
        "design": {"name": name, "version": residuals.get(name).version},
        "shape": SHAPE.model_dump(),
        "corpus": {"name": "x", "hash": "0", "tokenizer_hash": "0", "vocab_size": VOCAB},
        "sequence_length": 16,
        "batch_size": 4,
        "micro_batch_size": 4,
        "steps": 10,
        "optimizer": {"learning_rate": 1e-3},
        "evaluation": {"tokens": 64},
        "norm_eps": 1e-6,
        "seed": 0,
    }
    return CellConfig.model_validate(document | changes)


@every_design
def test_ledger_counts_the_built_model(name: str) -> None:
    totals = ledger(cell_config(name))
    model, base = make_model(name, SHAPE), make_model("pre-ln", SHAPE)
    backbone = num_parameters(base.blocks) + num_parameters(base.design)
    assert totals.parameters == num_parameters(model)
    assert totals.backbone == backbone
    assert totals.added == num_parameters(model) - num_parameters(base)
    assert totals.added_by_design_share == totals.added / backbone
    assert totals.total_flops == totals.train_flops_per_token * 10 * 4 * 16


@every_design
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_flop_formulas_against_the_counter(
    name: str, kv_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter sees the whole T² of the plain backend; the ledger counts its causal half."""
    monkeypatch.setattr(attention, "choose", lambda q, k: "plain")
    shape, B, T = shape_of(5, 32, heads=2, kv_heads=kv_heads), 2, 48
    model = make_model(name, shape, dtype=torch.float32, eps=1e-6)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.logits(tokens_of(B, T))
    counted = counter.get_total_flops() / (B * T)
    matrices = (
        sum(p.numel() for b in model.blocks for p in b.parameters() if p.ndim == 2)
        + VOCAB * shape.d_model
    )
    routing = model.design.routing_flops()
    half_attention = 2 * shape.layers * shape.d_model * T
    assert counted == pytest.approx(2 * matrices + 2 * half_attention + routing.matmul, rel=0.01)
    formula = forward_flops_per_token(shape, VOCAB, T, model.design)
    assert formula == pytest.approx(counted - half_attention + routing.mixing, rel=0.01)


@every_design
def test_routing_products_are_exactly_the_counted_ones(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 % of a whole model would hide a small routing term: here the rest is subtracted."""
    monkeypatch.setattr(attention, "choose", lambda q, k: "plain")
    counts = []
    for design in (name, "pre-ln"):
        model = make_model(design, SHAPE, dtype=torch.float32, eps=1e-6)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(tokens_of(2, 8))
        counts.append(counter.get_total_flops() / 16)
    expected = residuals.build(name, stack_of(SHAPE)).routing_flops().matmul
    assert counts[0] - counts[1] == expected


@every_design
def test_save_and_load_are_bitwise(name: str, tmp_path: Path) -> None:
    model = make_model(name, SHAPE, dtype=torch.float32, eps=1e-6)
    perturb(model)
    save_weights(tmp_path / "model.safetensors", model)
    other = make_model(name, SHAPE, dtype=torch.float32, eps=1e-6, seed=1)
    load_weights(tmp_path / "model.safetensors", other)
    for (parameter, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q), parameter
    tokens = tokens_of()
    assert torch.equal(model.logits(tokens), other.logits(tokens))


def snapshot(model: Decoder) -> dict[str, Any]:
    """Every attribute of every module; tensors by value, containers by content."""
    seen: dict[str, Any] = {}
    for prefix, module in model.named_modules():
        for key, value in vars(module).items():
            seen[f"{prefix}.{key}"] = repr(value)
        for key, parameter in module.named_parameters(recurse=False):
            seen[f"{prefix}.{key}"] = parameter.detach().clone().numpy().tobytes()
        seen[f"{prefix} buffers"] = repr(dict(module.named_buffers(recurse=False)))
    return seen


@every_design
def test_nothing_is_kept_on_the_module_between_forwards(name: str) -> None:
    model = generic_model(name)
    tokens = tokens_of()
    before = snapshot(model)
    first = model.logits(tokens)
    model.logits(tokens_of(3, 5, seed=8)).sum().backward()
    model.zero_grad()
    assert torch.equal(model.logits(tokens), first)
    assert snapshot(model) == before


@every_design
def test_every_parameter_is_declared_with_role_and_rule(name: str) -> None:
    model = make_model(name, SHAPE)
    listed = list(declared(model))
    assert [full for full, _, _ in listed] == [full for full, _ in model.named_parameters()]
    for full, parameter, rule in listed:
        assert sum(rows for rows, _ in rule.parts.values()) == parameter.shape[0], full
        if rule.role is residuals.NORM_GAIN or rule.role is residuals.ROUTING_STATIC:
            assert not rule.role.decay, full
        if full.endswith("gain"):
            assert rule.role is residuals.NORM_GAIN, full
        if not full.startswith("design.") and parameter.ndim == 2:
            assert rule.role is residuals.WEIGHT, full


@every_design
def test_backbone_starts_as_pre_ln_does_times_the_design_gain(name: str) -> None:
    model, base = (make_model(n, SHAPE, dtype=torch.float32, seed=4) for n in (name, "pre-ln"))
    expected = dict(base.named_parameters())
    for full, parameter, rule in declared(model):
        if full.startswith("design."):
            continue
        sizes = [rows for rows, _ in rule.parts.values()]
        rows = zip(rule.parts, parameter.split(sizes), expected[full].split(sizes), strict=True)
        for role, ours, theirs in rows:
            if full.startswith("blocks."):
                gain = model.design.init_gain(role, parameter.shape[1], len(ours))
                torch.testing.assert_close(ours, theirs * gain, rtol=1e-5, atol=1e-9)
            if not full.startswith("blocks.") or gain == 1.0:
                assert torch.equal(ours, theirs), f"{full} {role}"


@every_design
def test_values_do_not_depend_on_the_layout_or_on_the_global_generator(name: str) -> None:
    torch.manual_seed(1)
    direct = make_model(name, SHAPE, dtype=torch.float32, seed=4)
    torch.manual_seed(2)
    ref = DesignRef(name=name, version=residuals.get(name).version)
    through_meta = build_decoder(SHAPE, VOCAB, ref, EXACT_EPS, seed=4)
    other_seed = build_decoder(SHAPE, VOCAB, ref, EXACT_EPS, seed=5)
    for (full, p), q in zip(direct.named_parameters(), through_meta.parameters(), strict=True):
        assert torch.equal(p, q), full
    assert not torch.equal(direct.head.weight, other_seed.head.weight)


class CoefficientTypes(TorchDispatchMode):
    """Input dtypes of the operations that norms and routing coefficients are made of."""

    OPERATIONS = frozenset(
        "_softmax _log_softmax sigmoid tanh exp rsqrt rsqrt_ linalg_vector_norm native_layer_norm"
        " logsumexp".split()
    )

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[str, torch.dtype]] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function.overloadpacket.__name__ in self.OPERATIONS:
            tensors = (x for x in args if isinstance(x, Tensor) and x.is_floating_point())
            self.seen.update((str(function), x.dtype) for x in tensors)
        return function(*args, **(kwargs or {}))


@every_design
def test_bf16_autocast_is_finite_with_coefficients_in_fp32(name: str) -> None:
    model = make_model(name, SHAPE, dtype=torch.float32, eps=1e-6)
    perturb(model, 0.05)
    tokens = tokens_of(2, 10)
    wide = summed_nll(model)
    with CoefficientTypes() as types, torch.autocast("cpu", torch.bfloat16):
        hidden = model(tokens[:, :-1])
    assert {dtype for _, dtype in types.seen} == {torch.float32}, types.seen
    assert hidden.dtype is torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        narrow = summed_nll(model)
    narrow.backward()
    assert narrow.item() == pytest.approx(wide.item(), rel=0.02)
    for parameter, p in model.named_parameters():
        assert p.grad is not None, parameter
        assert p.grad.dtype is torch.float32, parameter
        assert p.grad.isfinite().all(), parameter


@every_design
def test_options_build_and_run(name: str) -> None:
    tokens = tokens_of()
    default = make_model(name, SHAPE).logits(tokens)
    explicit = make_model(name, SHAPE, **residuals.get(name).option_defaults()).logits(tokens)
    assert torch.equal(default, explicit)
    for options in variants(name):
        model = generic_model(name, **options)
        assert summed_nll(model).isfinite(), options
    with pytest.raises(residuals.DesignError, match="no_such_option"):
        residuals.build(name, stack_of(SHAPE), no_such_option=1)


@every_design
def test_meta_device_forward_gives_shapes(name: str) -> None:
    with torch.device("meta"):
        model = Decoder(SHAPE, VOCAB, residuals.build(name, stack_of(SHAPE)))
        assert model.logits(torch.zeros(2, 7, dtype=torch.long)).shape == (2, 7, VOCAB)


def assert_compiled_equals_eager(name: str, num_blocks: int, backend: str) -> None:
    torch._dynamo.reset()
    model = make_model(name, shape_of(num_blocks), eps=1e-6, dtype=torch.float32)
    perturb(model, 0.1)
    tokens = tokens_of(2, 6)
    weight = randn(2, 6, VOCAB, dtype=torch.float32)
    eager = gradients((model.logits(tokens) * weight).sum(), model)
    compiled = torch.compile(model.logits, backend=backend, fullgraph=True, dynamic=False)
    logits = compiled(tokens)
    torch.testing.assert_close(logits, model.logits(tokens), rtol=2e-5, atol=2e-5)
    for parameter, gradient in gradients((logits * weight).sum(), model).items():
        assert relative(gradient, eager[parameter]) < 2e-4, parameter


@every_design
def test_one_compiled_graph_equals_eager(name: str) -> None:
    assert_compiled_equals_eager(name, 2, "aot_eager")


def test_generated_code_equals_eager() -> None:
    """The whole compiler takes half a minute a design: one block of one stands for all."""
    assert_compiled_equals_eager("hc", 1, "inductor")
