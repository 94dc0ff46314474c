"""What one cell is: everything a training run depends on, resolved and complete.

A `CellConfig` is written as `config.json` into the cell's folder and is all that the cell command
reads. Two cells with equal configs are the same experiment.
"""

import hashlib
import json
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Precision = Literal["fp32", "bf16", "paper_bf16"]
"""`bf16`: autocast over fp32 weights. `paper_bf16`: weights, gradients and moments are bf16."""
Match = Literal["shape", "total"]
Compile = bool | Literal["blocks"]
"""`blocks`: norms and MLPs one by one, whose code all blocks share."""


class Frozen(BaseModel):
    """Immutable; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Shape(Frozen):
    """One decoder shape. `ffn` is the SwiGLU inner width."""

    layers: int = Field(ge=1)
    d_model: int = Field(ge=2)
    ffn: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)

    @model_validator(mode="before")
    @classmethod
    def _plain_attention_by_default(cls, data: Any) -> Any:
        if isinstance(data, dict) and "heads" in data:
            data = {"kv_heads": data["heads"], **data}
        return data

    @model_validator(mode="after")
    def _divides(self) -> "Shape":
        if self.d_model % self.heads:
            raise ValueError(
                f"heads = {self.heads} does not divide d_model = {self.d_model}: choose a divisor"
            )
        if self.head_dim % 2:
            raise ValueError(
                f"head_dim = d_model / heads = {self.head_dim} is odd, and rotary position needs "
                "pairs: choose heads so that it is even"
            )
        if self.heads % self.kv_heads:
            raise ValueError(
                f"kv_heads = {self.kv_heads} does not divide heads = {self.heads}: choose a divisor"
            )
        return self

    @property
    def head_dim(self) -> int:
        return self.d_model // self.heads

    @property
    def aspect_ratio(self) -> float:
        return self.d_model / self.layers


class DesignRef(Frozen):
    """A registered design: canonical name, version, and the options that are not its defaults."""

    name: str
    version: int = Field(ge=1)
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)


class CorpusRef(Frozen):
    """A prepared corpus, pinned by the hashes in its header."""

    name: str
    hash: str
    tokenizer_hash: str
    vocab_size: int = Field(ge=2)


class OptimizerRecipe(Frozen):
    """AdamW with warm-up and cosine decay: everything but the peak learning rate."""

    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.95, ge=0, lt=1)
    eps: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.1, ge=0)
    clip: float = Field(1.0, gt=0)
    warmup_fraction: float = Field(0.1, ge=0, lt=1)
    final_fraction: float = Field(0.1, ge=0, le=1)
    decay: Literal["by-role", "all-but-static-routing"] = Field(
        "by-role", description="what weight decay reaches; the second is DepthBench's rule"
    )


class Optimizer(OptimizerRecipe):
    """The recipe and the design's own peak learning rate."""

    learning_rate: float = Field(gt=0)


class Evaluation(Frozen):
    """Validation: how many tokens of the held-out streams, and how often besides the end."""

    tokens: int = Field(ge=1)
    points: int = Field(1, ge=1, description="evenly spaced in tokens; the last is the end")


MOST_LOOPS = 256  # every visit of a block is a node of the graph, and the published most is 16


class WholeLoop(Frozen):
    """The whole stack is run `rounds` times (DeepLoop, arXiv 2607.13491)."""

    layout: Literal["whole"] = "whole"
    rounds: int = Field(ge=1, le=MOST_LOOPS)

    @property
    def forward(self) -> int:
        """T: how often a recurrent block is run."""
        return self.rounds

    @property
    def backward(self) -> int:
        """B: through how many of these gradients flow."""
        return self.rounds

    def executed_blocks(self, layers: int) -> int:
        """Blocks run in one forward pass of a stack of `layers`."""
        return layers * self.rounds


class CoreLoop(Frozen):
    """Prelude and coda run once, the core between them `forward` times (arXiv 2610.26030).

    Gradients flow through the last `backward` of these. The core are the blocks that are neither.
    Not `tied`, every loop has a core of its own: a control without shared weights.
    """

    layout: Literal["prelude-core-coda"] = "prelude-core-coda"
    prelude: int = Field(ge=0)
    coda: int = Field(ge=0)
    forward: int = Field(ge=1, le=MOST_LOOPS)
    backward: int = Field(default_factory=lambda data: data["forward"], ge=1)
    injection: Literal["linear", "add", "none"] = "linear"
    tied: bool = True

    @model_validator(mode="after")
    def _no_more_back_than_forth(self) -> "CoreLoop":
        if self.backward > self.forward:
            raise ValueError(
                f"backward = {self.backward} is more than forward = {self.forward}: gradients can "
                "flow through no more loops than are run"
            )
        if not self.tied and self.num_cut:
            raise ValueError(
                f"tied = false with backward = {self.backward} below forward = {self.forward}: "
                "the first cores would never learn. Leave backward out"
            )
        return self

    @property
    def num_cut(self) -> int:
        """Loops without gradients, the first ones."""
        return self.forward - self.backward

    @property
    def num_cores(self) -> int:
        """Cores with weights of their own."""
        return 1 if self.tied else self.forward

    @property
    def core_names(self) -> list[str]:
        """What the parts of the cores are called: `core`, or `core0`, `core1` and on."""
        return ["core"] if self.tied else [f"core{t}" for t in range(self.forward)]

    def core(self, layers: int) -> int:
        """Blocks of the core in a stack of `layers`."""
        return layers - self.prelude - self.coda

    def executed_blocks(self, layers: int) -> int:
        """Blocks run in one forward pass of a stack of `layers`."""
        return self.prelude + self.core(layers) * self.forward + self.coda


Loop = Annotated[WholeLoop | CoreLoop, Field(discriminator="layout")]


class Measures(Frozen):
    """What is asked of a cell once it is trained. It changes nothing of the training."""

    probes: tuple[str, ...] = Field((), description="layer probes, by name")
    windows: int = Field(8, ge=1, description="held-out windows that probes see")
    domains: tuple[str, ...] = Field((), description="domains whose sets are scored, by name")
    limit: int | None = Field(None, ge=1, description="items of a set at most; all by default")
    statistics_every: int | None = Field(
        None, ge=1, description="steps between layer statistics during training; none by default"
    )


class Ranks(Frozen):
    """How many processes of one machine train a cell, and what each of them holds.

    `ddp`: the whole model. `fsdp`: a shard of it, and whole blocks only while they run.
    """

    num: int = Field(1, ge=1)
    mode: Literal["ddp", "fsdp"] = "ddp"


class Tuned(Frozen):
    """Where a learning rate comes from: the rates that were tried, on seeds that are not scored.

    `edge`: the best of them was the outermost. `interpolated`: between the shapes that were tuned.
    """

    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    edge: bool
    interpolated: bool


class CellConfig(Frozen):
    """One training run. `steps * batch_size * sequence_length` tokens are seen."""

    suite: str
    ladder: str
    role: Literal["scored", "tuning"] = "scored"
    design: DesignRef
    shape: Shape
    match: Match = "shape"
    loop: Loop | None = None
    corpus: CorpusRef
    sequence_length: int = Field(ge=2)
    batch_size: int = Field(ge=1, description="sequences per optimiser step")
    micro_batch_size: int = Field(ge=1, description="sequences per forward; divides batch_size")
    steps: int = Field(ge=1)
    budget: Literal["tokens", "flops"] = "tokens"
    optimizer: Optimizer
    tuned: Tuned | None = None
    evaluation: Evaluation
    measures: Measures = Measures()
    norm_eps: float = Field(gt=0)
    precision: Precision = "fp32"
    device: str = "cpu"
    compile: Compile = False
    threads: int = Field(1, ge=1)
    ranks: Ranks = Ranks()
    activation_checkpointing: bool = False
    deterministic: bool = False
    seed: int = Field(ge=0)

    @model_validator(mode="after")
    def _fits(self) -> "CellConfig":
        if self.batch_size % self.micro_batch_size:
            raise ValueError(
                f"micro_batch_size = {self.micro_batch_size} does not divide "
                f"batch_size = {self.batch_size}"
            )
        if self.ranks.num > self.batch_size:
            raise ValueError(
                f"ranks.num = {self.ranks.num} is more than batch_size = {self.batch_size}: every "
                "rank needs a sequence of each batch"
            )
        if self.ranks.num > 1 and ":" in self.device:
            raise ValueError(
                f"device = {self.device} with ranks.num = {self.ranks.num}: every rank has a "
                f"device of its own. Use device = {self.device.partition(':')[0]}"
            )
        if self.compile is True and self.ranks.num > 1:
            raise ValueError(
                f"compile = true with ranks.num = {self.ranks.num}: a whole graph hides the blocks "
                "that ranks share out. Use compile = blocks"
            )
        if self.measures.statistics_every and self.ranks.mode == "fsdp":
            raise ValueError(
                "measures.statistics_every with ranks.mode = fsdp: one rank alone cannot run a "
                "sharded model. Use ddp, or leave the statistics out"
            )
        if isinstance(self.loop, CoreLoop) and self.loop.core(self.shape.layers) < 1:
            raise ValueError(
                f"prelude = {self.loop.prelude} and coda = {self.loop.coda} leave no block of "
                f"{self.shape.layers} to the core: a loop needs at least one"
            )
        return self

    @property
    def tokens_per_step(self) -> int:
        return self.batch_size * self.sequence_length

    @property
    def tokens(self) -> int:
        return self.steps * self.tokens_per_step

    def digest(self) -> str:
        """16 hex digits that name this experiment.

        Left out is what is measured, how it was tuned, and how it is run where that changes no loss
        beyond rounding: a cell may go on with more ranks than it began with.
        """
        absent = {"measures", "tuned", "ranks", "activation_checkpointing", "deterministic"}
        absent |= {"loop"} if self.loop is None else set()
        absent |= {"role"} if self.role == "scored" else set()
        training = self.model_dump(exclude=absent)
        canonical = json.dumps(training, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def folder_name(self) -> str:
        """Readable and unique: `<design>-L<layers>-d<d_model>-s<seed>-<digest>`."""
        s = self.shape
        name = re.sub("[^A-Za-z0-9.-]", "_", self.design.name)  # no path, whoever wrote the config
        return f"{name}-L{s.layers}-d{s.d_model}-s{self.seed}-{self.digest()[:8]}"
