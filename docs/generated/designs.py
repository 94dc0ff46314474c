"""Every registered design, with its equation, its options and what it costs."""

import sys

import residuals
from depthbench.config import DesignRef, Shape
from depthbench.designs import lay_out
from depthbench.ledger import forward_flops_per_token
from depthbench.shapes import Ladder, backbone_parameters, load_ladders
from generated.markdown import arxiv, code, prose, table, written
from residuals import Design

LADDER, LAYERS, LENGTH = "400m", 24, 2048
FAMILIES = {
    "baseline": "Baseline",
    "norm": "Norms and scales",
    "streams": "Several streams",
    "access": "Access across layers",
}


def page() -> str:
    """All designs by family."""
    ladder, shape = _shape()
    found = residuals.all_designs()
    families = dict.fromkeys(design.family for design in found)
    parts = [_intro(ladder, shape), _costs(found, ladder, shape)]
    for family in families:
        parts.append(f"## {FAMILIES.get(family, family)}\n")
        parts += [_design(design) for design in found if design.family == family]
    return "\n".join(parts)


def _shape() -> tuple[Ladder, Shape]:
    ladder = load_ladders()[LADDER]
    return ladder, next(shape for shape in ladder.shapes if shape.layers == LAYERS)


def _intro(ladder: Ladder, shape: Shape) -> str:
    ten = ", ".join(code(name) for name in residuals.BENCHMARK)
    return f"""# Designs

Notation: a stack has K blocks and L = 2K sublayers, attention and MLP in turn. `x` is the residual
stream, `F` a sublayer, `N` its RMSNorm. Letters behind a tensor's name are its axes: B sequences,
T tokens, D = d_model, M or m streams. A loop runs blocks R times in the `whole` layout; see
[loops](loops.md).

The ten designs of the benchmark are {ten}. The others are controls and examples. How a design is
written is shown in the [tutorial](tutorial.md#write-a-design).

## Cost

At {shape.layers} layers × {shape.d_model} of ladder `{ladder.name}` (ffn {shape.ffn},
{shape.heads} heads, backbone {backbone_parameters(shape) / 1e6:.1f}M parameters), with default
options and without a loop. *Extra parameters* are those beyond Pre-LN's. *Routing* is FLOPs of one
token's forward pass beyond Pre-LN's, multiply and add counted as two: matrix products, and weighted
sums over streams or depth. *Share* is of Pre-LN's forward pass at {LENGTH} tokens, head included.
"""


def _costs(found: list[type[Design]], ladder: Ladder, shape: Shape) -> str:
    plain = _laid_out(residuals.get("pre-ln"), ladder, shape)
    forward = forward_flops_per_token(shape, ladder.vocab_size, LENGTH, plain)
    backbone = backbone_parameters(shape)
    rows = []
    for design in found:
        laid_out = _laid_out(design, ladder, shape)
        extra, routing = laid_out.num_extra_params(), laid_out.routing_flops()
        rows.append(
            (
                f"[{design.title}](#{design.name})",
                f"{extra:,}",
                f"{extra / backbone:.3%}",
                f"{routing.matmul:,}",
                f"{routing.mixing:,}",
                f"{(routing.matmul + routing.mixing) / forward:.3%}",
                "yes" if design.can_loop else "no",
            )
        )
    head = ("design", "extra parameters", "of the backbone", "routing, products")
    return table((*head, "routing, sums", "share", "loops"), rows)


def _laid_out(design: type[Design], ladder: Ladder, shape: Shape) -> Design:
    return lay_out(DesignRef(name=design.name, version=design.version), shape, ladder.norm_eps)


def _design(design: type[Design]) -> str:
    module = sys.modules[design.__module__]
    defaults = design.option_defaults()
    facts = [
        ("name", code(design.name)),
        ("version", design.version),
        ("family", design.family),
        ("paper", arxiv(design.paper)),
        ("can run in a loop", "yes" if design.can_loop else "no"),
        ("file", code(f"residuals/{module.__name__.rpartition('.')[2]}.py")),
    ]
    parts = [f"### {design.title} {{#{design.name}}}\n", prose(design.__doc__), ""]
    parts += [f"Source: {prose(module.__doc__)}", "", table(("field", "value"), facts)]
    if defaults:
        options = [(code(name), code(written(value))) for name, value in defaults.items()]
        parts.append(table(("option", "default"), options))
    return "\n".join(parts)
