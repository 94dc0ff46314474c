"""Parameters that say what they are and how they start.

Every parameter of a model is *declared*: with a role, which fixes its weight decay and learning
rate, and with an initial rule. Initial values are a pure function of (seed, parameter name), so two
designs start from equal shared weights, whatever else they own and on whatever device they live.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from residuals.errors import DesignError

BASE_STD = 0.02
"""Standard deviation of the base initialisation of every backbone matrix, cut at 3 deviations."""

Init = Callable[[torch.Size, torch.Generator], Tensor]


@dataclass(frozen=True)
class Role:
    """What a parameter is to the optimiser: `decay` and a multiplier on the learning rate."""

    name: str
    decay: bool
    lr_multiplier: float = 1.0


WEIGHT = Role("weight", decay=True)
NORM_GAIN = Role("norm gain", decay=False)
ROUTING_STATIC = Role("routing static", decay=False)
ROUTING_DYNAMIC = Role("routing dynamic", decay=True)


def truncated_normal(std: float, cut: float = 3.0) -> Init:
    """Normal(0, std), cut at `cut` standard deviations.

    `trunc_normal_` takes absolute bounds; its defaults of ±2 would never cut at std 0.02.
    """

    def init(shape: torch.Size, generator: torch.Generator) -> Tensor:
        values = torch.empty(shape, dtype=torch.float32)
        bound = cut * std
        return nn.init.trunc_normal_(values, 0.0, std, -bound, bound, generator=generator)

    return init


def constant(value: float) -> Init:
    """Every entry equals `value`."""
    return lambda shape, generator: torch.full(shape, value, dtype=torch.float32)


def exactly(values: Tensor) -> Init:
    """The given values; the shape must agree."""
    return lambda shape, generator: values.to(torch.float32).reshape(shape)


@dataclass(frozen=True)
class Rule:
    """Role and initial values; `parts` splits a fused weight's rows, each drawn by its name."""

    role: Role
    parts: Mapping[str, tuple[int, Init]]


class Declared(nn.Module):
    """A module whose own parameters all come from `declare`."""

    def __init__(self) -> None:
        super().__init__()
        self.rules: dict[str, Rule] = {}

    def declare(self, name: str, shape: tuple[int, ...], role: Role, init: Init) -> None:
        """Adds the parameter `name`; it is filled by `initialise`."""
        self.declare_fused(name, shape[1:], role, {name: (shape[0], init)})

    def declare_fused(
        self, name: str, row: tuple[int, ...], role: Role, parts: Mapping[str, tuple[int, Init]]
    ) -> None:
        """Adds one parameter made of named groups of rows of shape `row`, drawn separately."""
        num_rows = sum(rows for rows, _ in parts.values())
        self.register_parameter(name, nn.Parameter(torch.empty(num_rows, *row)))
        self.rules[name] = Rule(role, parts)


def declared(model: nn.Module) -> Iterator[tuple[str, nn.Parameter, Rule]]:
    """Every parameter once with its full name and rule; an undeclared one is an error."""
    for name, _ in model.named_buffers():
        raise DesignError(
            f"buffer {name!r}: a model is laid out without values, so a buffer would hold whatever "
            "was in memory; compute the constant where it is used, or declare a parameter"
        )
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            full = f"{prefix}.{name}" if prefix else name
            rule = module.rules.get(name) if isinstance(module, Declared) else None
            if rule is None:
                raise DesignError(
                    f"parameter {full!r} has no role and no initial rule: create it with "
                    "Declared.declare(name, shape, role, init)"
                )
            yield full, parameter, rule


@torch.no_grad()
def initialise(
    model: nn.Module,
    seed: int,
    part: Callable[[nn.Parameter, Tensor], Tensor] = lambda parameter, values: values,
) -> None:
    """Fills every parameter by its rule. Drawn one by one in fp32 on the CPU, cast and moved.

    `part` takes what is held here of the values, where that is not all.
    """
    for full, parameter, rule in declared(model):
        prefix = full.rpartition(".")[0]
        drawn = [
            init(torch.Size((rows, *parameter.shape[1:])), _generator(seed, f"{prefix}.{part}"))
            for part, (rows, init) in rule.parts.items()
        ]
        parameter.copy_(part(parameter, torch.cat(drawn)))


def _generator(seed: int, name: str) -> torch.Generator:
    key = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(key[:8], "little") % 2**63)
