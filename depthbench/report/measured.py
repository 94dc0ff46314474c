"""What a report takes from a cell's probe documents and domain sets, checked before it is shown."""

from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from depthbench.results import Part


class Sample(Part):
    """Which tokens a probe has seen."""

    corpus: str
    windows: int
    tokens: int


class ProbeDocument(Part):
    """`probes/<name>.json`, without its values."""

    title: str
    definition: str
    unit: str
    axes: tuple[()] | tuple[str, str]
    scale: tuple[float, float] | None
    thresholds: dict[str, float]
    sample: Sample
    reason: str | None = None
    summary: dict[str, float | None] = Field(default_factory=dict)


class SetEntry(Part):
    """One set of `domains.json`."""

    title: str
    domain: str
    nats_per_token: float
    bits_per_byte: float
    interval: tuple[float, float]
    items: int
    tokens: int
    bytes: int
    truncated_prompts: int
    truncated_targets: int


class SetsDocument(Part):
    """`domains.json`, as far as its sets go."""

    sets: dict[str, SetEntry]
    domains: dict[str, Any]
    unavailable: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _each_set_is_of_a_domain(self) -> Self:
        for name, entry in self.sets.items():
            if entry.domain not in self.domains:
                raise ValueError(f"set {name} is of the domain {entry.domain}, which has no score")
        return self


def fault(model: type[Part], document: object) -> str | None:
    """Where the document is not what the model says; None if it is."""
    try:
        model.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return None
