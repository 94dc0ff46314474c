"""What rows take from the files of a cell, checked as it is read."""

from pydantic import BaseModel, ConfigDict, Field, model_validator

from depthbench.config import CellConfig
from depthbench.folder import SCHEMA, Ending


class Part(BaseModel):
    """A part of `result.json`: what rows need is checked, the rest is ignored."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class Measures(Part):
    loss: float
    bits_per_byte: float
    loss_by_source: dict[str, float] = Field(default_factory=dict)
    train_loss: float | None = None
    unigram_entropy: float | None = None


class Ledger(Part):
    parameters: int
    backbone: int
    added: int
    added_by_design_share: float
    once: int | None = None
    recurrent: int | None = None
    train_flops_per_token: int
    prefill_flops: int | None = None
    kv_cache_bytes: int | None = None
    peak_memory_bytes: int | None = None
    activation_bytes: int | None = None
    device_hours: float | None = None
    tokens_per_second: float | None = None
    step_seconds: float | None = None
    total_flops: float | None = None


class Environment(Part):
    host: str | None = None
    cpu: str | None = None
    device: str | None = None
    platform: str | None = None
    python: str | None = None
    torch: str | None = None
    numpy: str | None = None
    depthbench: str | None = None
    ranks: int = 1
    git_commit: str | None = None
    git_dirty: bool | None = None


class Times(Part):
    seconds: float | None = None


class Result(Part):
    schema_: int = Field(alias="schema", ge=SCHEMA, le=SCHEMA)
    status: Ending
    config: CellConfig
    step: int | None = None
    diverged_step: int | None = None
    error: str | None = None
    conformance: str | None = None
    measures: Measures | None = None
    ledger: Ledger | None = None
    environment: Environment | None = None
    times: Times | None = None

    @model_validator(mode="after")
    def _done_is_measured(self) -> "Result":
        if self.status == "done" and (self.measures is None or self.ledger is None):
            raise ValueError("status is done, but measures or ledger are missing")
        return self


class ProbeSummary(Part):
    probe: str
    summary: dict[str, float | None]


class DomainScore(Part):
    nats_per_token: float
    bits_per_byte: float
    interval: tuple[float, float]


class DomainScores(Part):
    schema_: int = Field(alias="schema", ge=SCHEMA, le=SCHEMA)
    evaluation: str
    domains: dict[str, DomainScore]
