"""A suite: what a matrix compares and under which budget, read from YAML and checked as a whole."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from depthbench.assets import asset
from depthbench.config import (
    DesignRef,
    Evaluation,
    Frozen,
    Loop,
    Match,
    Measures,
    Optimizer,
    OptimizerRecipe,
    Precision,
)
from depthbench.data import LocalOptions
from depthbench.errors import InputError
from depthbench.inputs import overridden, read_yaml, validated
from depthbench.shapes import Ladder, load_ladders


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


class LearningRates(Frozen):
    """Peak learning rates: one for all designs, and those that were tuned by themselves."""

    default: float = Field(gt=0)
    designs: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)

    @field_validator("designs")
    @classmethod
    def _known(cls, designs: dict[str, float]) -> dict[str, float]:
        """Of any design, whether this suite has it or not: a suite's designs can be overridden."""
        import residuals

        for name in designs:
            residuals.get(name)
        return designs


class Suite(Frozen):
    """Every design at every shape of the ladder in every loop with every seed is one cell."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    description: str = ""
    designs: tuple[Annotated[DesignRef, BeforeValidator(_design)], ...] = Field(min_length=1)
    ladder: Annotated[Ladder, BeforeValidator(_ladder)]
    match: Match = "shape"
    loops: tuple[Loop | None, ...] = Field((None,), min_length=1, description="null: no loop")
    corpus: str = Field(min_length=1, description="a known corpus, or a file or folder of text")
    local: LocalOptions = Field(default_factory=LocalOptions, description="how local text is read")
    sequence_length: int = Field(ge=2)
    batch_size: int = Field(ge=1, description="sequences per optimiser step")
    micro_batch_size: int = Field(default_factory=lambda data: data["batch_size"], ge=1)
    budget: Budget
    learning_rate: LearningRates
    optimizer: OptimizerRecipe = OptimizerRecipe()
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)
    evaluation: Evaluation = Field(
        default_factory=lambda: validated(
            Evaluation, read_yaml(asset("evals/validation.yaml")), "evals/validation.yaml"
        )
    )
    measures: Measures = Measures()
    norm_eps: float = Field(default_factory=lambda data: data["ladder"].norm_eps, gt=0)
    precision: Precision = "fp32"
    device: str = Field("cpu", pattern=r"^(cpu|mps|cuda(:\d+)?)$")
    compile: bool = False
    threads: int = Field(1, ge=1)

    @field_validator("seeds")
    @classmethod
    def _distinct_seeds(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        repeated = sorted({seed for seed in seeds if seeds.count(seed) > 1})
        if repeated:
            raise ValueError(
                f"seed {repeated[0]} stands more than once in {list(seeds)}: a repeated seed is "
                "the same run, not a second sample"
            )
        return seeds

    @field_validator("measures")
    @classmethod
    def _known_measures(cls, measures: Measures) -> Measures:
        from depthbench import probes
        from depthbench.domains.definitions import DOMAINS
        from residuals.errors import unknown

        for kind, given, known in (
            ("probe", measures.probes, probes.names()),
            ("domain", measures.domains, list(DOMAINS)),
        ):
            for name in given:
                if name not in known:
                    raise ValueError(unknown(kind, name, known))
        return measures

    @field_validator("loops")
    @classmethod
    def _distinct_loops(cls, loops: tuple[Loop | None, ...]) -> tuple[Loop | None, ...]:
        for index, loop in enumerate(loops):
            if loop in loops[:index]:
                raise ValueError(f"{loop} stands twice: keep one")
        return loops

    @field_validator("designs")
    @classmethod
    def _distinct_designs(cls, designs: tuple[DesignRef, ...]) -> tuple[DesignRef, ...]:
        for index, design in enumerate(designs):
            if design in designs[:index]:
                raise ValueError(f"{design.name} stands twice with the same options: keep one")
        return designs

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.batch_size % self.micro_batch_size:
            raise ValueError(
                f"micro_batch_size = {self.micro_batch_size} does not divide "
                f"batch_size = {self.batch_size}: choose a divisor"
            )
        step = self.batch_size * self.sequence_length
        if self.budget.tokens is not None and self.budget.tokens < step:
            raise ValueError(
                f"budget.tokens = {self.budget.tokens} is less than one step of batch_size × "
                f"sequence_length = {step} tokens: raise it or shrink the batch"
            )
        return self

    def optimizer_for(self, design: str) -> Optimizer:
        """The recipe with the peak learning rate of `design`."""
        rates = self.learning_rate
        rate = rates.designs.get(design, rates.default)
        return Optimizer(**self.optimizer.model_dump(), learning_rate=rate)


def suite_names() -> list[str]:
    """Names of the suites that ship with the package."""
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in (files("depthbench") / "suites").iterdir()
        if entry.name.endswith(".yaml")
    )


def load_suite(name_or_path: str, overrides: Sequence[str] = ()) -> Suite:
    """The shipped suite of that name or the one in a YAML file, with `path=value` overrides.

    Raises `InputError` with the path, the value and the nearest name of whatever does not fit.
    """
    file = _suite_file(name_or_path)
    document = read_yaml(file)
    if not isinstance(document, dict):
        raise InputError(f"{file}: a suite is a mapping, found {document!r}")
    return validated(Suite, overridden(document, overrides), f"suite {name_or_path}")


def _suite_file(name_or_path: str) -> Path:
    known = suite_names()
    if name_or_path in known:
        return Path(str(files("depthbench") / "suites" / f"{name_or_path}.yaml"))
    path = Path(name_or_path)
    if path.suffix in {".yaml", ".yml"} or path.is_file():
        return path
    from residuals.errors import unknown

    raise InputError(f"{unknown('suite', name_or_path, known)} A path ends in .yaml.")
