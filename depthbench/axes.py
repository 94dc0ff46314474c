"""What a suite varies: designs, shapes, loops, seeds and budgets."""

from itertools import pairwise
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from depthbench.config import DesignRef, Frozen, Loop
from depthbench.shapes import Ladder, load_ladders

T = TypeVar("T")


def _design(value: Any) -> Any:
    """`name`, `name@version` or `{name, options}` as a `DesignRef` with only what departs."""
    import residuals

    fields = {"name": value} if isinstance(value, str) else value
    if not isinstance(fields, dict) or not isinstance(fields.get("name"), str):
        return fields
    version = f"@{fields['version']}" if "version" in fields else ""
    design = residuals.get(fields["name"] + version)
    resolved = {**fields, "name": design.name, "version": design.version}
    options, defaults = fields.get("options", {}), design.option_defaults()
    if not isinstance(options, dict):
        return resolved
    for option, given in options.items():
        if option not in defaults:
            raise ValueError(residuals.unknown(f"option of {design.name}", str(option), defaults))
        if not _same_kind(given, defaults[option]):
            raise ValueError(
                f"option {option} of {design.name} is {given!r}: "
                f"give a value like its default, {defaults[option]!r}"
            )
    departing = {option: given for option, given in options.items() if given != defaults[option]}
    return resolved | {"options": departing}


def _same_kind(given: object, default: object) -> bool:
    if default is None:
        return True
    if isinstance(default, float) and not isinstance(given, bool):
        return isinstance(given, int | float)
    return type(given) is type(default)


def _ladder(value: Any) -> Any:
    """A name of `shapes.yaml` as its ladder; an inline mapping stays, named `inline` by default."""
    if isinstance(value, str):
        ladders = load_ladders()
        if value not in ladders:
            from residuals.errors import unknown

            raise ValueError(unknown("ladder", value, ladders))
        return ladders[value]
    return {"name": "inline", **value} if isinstance(value, dict) else value


def _distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"{value} stands twice: keep one")
    return values


def _distinct_seeds(seeds: tuple[int, ...]) -> tuple[int, ...]:
    repeated = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if repeated:
        raise ValueError(
            f"seed {repeated[0]} stands more than once in {list(seeds)}: a repeated seed is "
            "the same run, not a second sample"
        )
    return seeds


def _distinct_designs(designs: tuple[DesignRef, ...]) -> tuple[DesignRef, ...]:
    for index, design in enumerate(designs):
        if design in designs[:index]:
            raise ValueError(f"{design.name} stands twice with the same options: keep one")
    return designs


Designs = Annotated[
    tuple[Annotated[DesignRef, BeforeValidator(_design)], ...],
    Field(min_length=1),
    AfterValidator(_distinct_designs),
]
NamedLadder = Annotated[Ladder, BeforeValidator(_ladder)]
Loops = Annotated[
    tuple[Loop | None, ...],
    Field(min_length=1, description="null: no loop"),
    AfterValidator(_distinct),
]
Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1), AfterValidator(_distinct_seeds)
]
Control = Literal["equal-flops", "equal-parameters", "untied"]


class Budget(Frozen):
    """How long each cell trains; exactly one of the three."""

    tokens: int | None = Field(None, ge=1)
    flops: float | None = Field(None, gt=0)
    tokens_per_parameter: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = sorted(self.model_dump(exclude_none=True))
        if len(given) != 1:
            raise ValueError(
                f"a budget is one of tokens, flops, tokens_per_parameter; given: "
                f"{', '.join(given) or 'none'}. To change the kind override the whole of it: "
                "--set 'budget={flops: 1e13}'"
            )
        return self


class Tune(Frozen):
    """How peak learning rates are found: the same grid for every design, at some of the shapes.

    `rates` is geometric. A design whose best rate is the outermost gets up to `extensions` further
    ones on that side. `budget`: of tuning cells, if it is not the suite's.
    """

    rates: tuple[Annotated[float, Field(gt=0)], ...] = Field(min_length=3)
    layers: tuple[int, ...] = Field(min_length=1, description="shapes of the ladder, by depth")
    seeds: Seeds
    extensions: int = Field(4, ge=0, le=16)
    budget: Budget | None = None

    @field_validator("rates")
    @classmethod
    def _geometric(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        factors = [high / low for low, high in pairwise(rates)]
        if min(factors) < 1.05 or max(factors) > 1.01 * min(factors) or max(factors) > 2.001:
            raise ValueError(
                f"{list(rates)} is not a geometric grid of factor 2 or finer: give ascending rates "
                "with the same ratio, as in 7.5e-4, 1.5e-3, 3e-3"
            )
        return rates

    @property
    def factor(self) -> float:
        """Between neighbouring rates."""
        return float((self.rates[-1] / self.rates[0]) ** (1 / (len(self.rates) - 1)))


class Also(Frozen):
    """A further part of a suite: the whole of it with some axes replaced."""

    designs: Designs | None = None
    ladder: NamedLadder | None = None
    loops: Loops | None = None
    controls: tuple[Control, ...] | None = None
    budget: Budget | None = None
    seeds: Seeds | None = None

    def axes(self) -> dict[str, object]:
        """Those that are given, by name."""
        given = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: value for name, value in given.items() if value is not None}
