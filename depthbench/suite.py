"""A suite: what a matrix compares and under which budget, read from YAML and checked as a whole."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from depthbench.assets import asset
from depthbench.axes import Also, Budget, Control, Designs, Loops, NamedLadder, Seeds, Tune
from depthbench.config import (
    Compile,
    Evaluation,
    Frozen,
    Match,
    Measures,
    OptimizerRecipe,
    Precision,
    Ranks,
)
from depthbench.data import HubOptions, LocalOptions
from depthbench.errors import InputError
from depthbench.inputs import overridden, read_yaml, validated


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
    """Every design at every shape of the ladder in every loop with every seed is one cell.

    `controls` adds, to every cell whose loop is run more than once, stacks that share nothing:
    `equal-parameters`, the same blocks run once; `equal-flops`, as many blocks as the loop runs,
    trained until the FLOPs are spent; `untied`, the same loop with weights of its own every time.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    description: str = ""
    designs: Designs
    ladder: NamedLadder
    match: Match = "shape"
    loops: Loops = (None,)
    controls: tuple[Control, ...] = ()
    also: tuple[Also, ...] = Field((), description="further parts, with other axes")
    corpus: str = Field(min_length=1, description="a known corpus, or a file or folder of text")
    local: LocalOptions = Field(default_factory=LocalOptions, description="how local text is read")
    hub: HubOptions = Field(
        default_factory=HubOptions, description="what is taken of a corpus of the hub"
    )
    sequence_length: int = Field(ge=2)
    batch_size: int = Field(ge=1, description="sequences per optimiser step")
    micro_batch_size: int = Field(default_factory=lambda data: data["batch_size"], ge=1)
    budget: Budget
    learning_rate: LearningRates | None = None
    tune: Tune | None = Field(None, description="instead of learning_rate: how to find them")
    optimizer: OptimizerRecipe = OptimizerRecipe()
    seeds: Seeds
    evaluation: Evaluation = Field(
        default_factory=lambda: validated(
            Evaluation, read_yaml(asset("evals/validation.yaml")), "evals/validation.yaml"
        )
    )
    measures: Measures = Measures()
    norm_eps: float = Field(default_factory=lambda data: data["ladder"].norm_eps, gt=0)
    precision: Precision = "fp32"
    device: str = Field("cpu", pattern=r"^(cpu|mps|cuda(:\d+)?)$")
    compile: Compile = False
    threads: int = Field(1, ge=1)
    ranks: Ranks = Field(default_factory=Ranks, description="processes that train one cell")
    activation_checkpointing: bool = Field(
        False, description="blocks keep their input and run again in the backward pass"
    )
    deterministic: bool = Field(False, description="only kernels that repeat bit for bit")

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

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.batch_size % self.micro_batch_size:
            raise ValueError(
                f"micro_batch_size = {self.micro_batch_size} does not divide "
                f"batch_size = {self.batch_size}: choose a divisor"
            )
        step = self.batch_size * self.sequence_length
        for place, part in enumerate(self.parts()):
            where = f"also.{place - 1}." if place else ""
            if part.budget.tokens is not None and part.budget.tokens < step:
                raise ValueError(
                    f"{where}budget.tokens = {part.budget.tokens} is less than one step of "
                    f"batch_size × sequence_length = {step} tokens: raise it or shrink the batch"
                )
        return self

    @model_validator(mode="after")
    def _one_source_of_rates(self) -> Self:
        if (self.learning_rate is None) == (self.tune is None):
            given = "neither" if self.tune is None else "both"
            raise ValueError(f"give learning_rate or tune; given: {given}")
        return self

    @model_validator(mode="after")
    def _can_tune(self) -> Self:
        if self.tune is None:
            return self
        if any(part.controls for part in self.parts()):
            raise ValueError(
                "tune together with controls: a control would take the rate of the loop that it "
                "is compared with, and one stack stand there at several. Give learning_rate"
            )
        if scored := sorted({*self.tune.seeds} & {seed for p in self.parts() for seed in p.seeds}):
            raise ValueError(
                f"tune.seeds has {scored[0]}, which is scored too: tune on other seeds, or the "
                "scores are those of the best of several tries"
            )
        depths = [shape.layers for shape in self.ladder.shapes]
        for layers in self.tune.layers:
            if depths.count(layers) != 1:
                raise ValueError(
                    f"tune.layers has {layers}, and ladder {self.ladder.name} has "
                    f"{depths.count(layers)} shapes of that depth: choose among {depths}"
                )
        return self

    def parts(self) -> list[Self]:
        """This suite without `also`, and every part of it with its own axes in their place."""
        changes = [dict[str, object](), *(also.axes() for also in self.also)]
        if "norm_eps" not in self.model_fields_set:
            for also, change in zip(self.also, changes[1:], strict=True):
                change |= {"norm_eps": also.ladder.norm_eps} if also.ladder else {}
        return [self.model_copy(update={"also": ()} | change) for change in changes]

    def rate_for(self, design: str) -> float:
        """The peak learning rate of `design`; before tuning, the middle of the grid."""
        if self.tune is not None:
            return self.tune.rates[len(self.tune.rates) // 2]
        assert self.learning_rate is not None, "checked when the suite was read"
        return self.learning_rate.designs.get(design, self.learning_rate.default)


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
