"""The design under examination, in the small models that checks are made on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

import residuals
from depthbench.config import CellConfig, DesignRef, Loop, Shape
from depthbench.conformance.tiny import EXACT_EPS, VOCAB, fill, move, shape_of
from depthbench.designs import stack_of
from depthbench.model.build import build_model
from depthbench.model.decoder import Decoder, LanguageModel
from residuals import Design, DesignError

BASELINE = residuals.BENCHMARK[0]


@dataclass(frozen=True)
class Subject:
    """A registered design, by name and version, under these options."""

    design: type[Design]
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def named(cls, identifier: str, options: Mapping[str, Any] | None = None) -> "Subject":
        """`name` or `name@version` under options. Raises `DesignError` for what is unknown."""
        design = residuals.get(identifier)
        known = design.option_defaults()
        for option in options or ():
            if option not in known:
                raise DesignError(residuals.unknown(f"option of {design.name!r}", option, known))
        return cls(design, dict(options or {}))

    @property
    def identifier(self) -> str:
        return f"{self.design.name}@{self.design.version}"

    def built(
        self, shape: Shape, eps: float = EXACT_EPS, rounds: int = 1, **options: Any
    ) -> Design:
        """The design alone, without values."""
        chosen = {**self.options, **options}
        return residuals.build(self.identifier, stack_of(shape, eps, rounds), **chosen)

    def decoder(
        self,
        shape: Shape | None = None,
        *,
        eps: float = EXACT_EPS,
        rounds: int = 1,
        seed: int = 0,
        dtype: torch.dtype = torch.float64,
        **options: Any,
    ) -> Decoder:
        """An initialised decoder."""
        shape = shape or shape_of()
        model = Decoder(shape, VOCAB, self.built(shape, eps, rounds, **options))
        fill(model, seed)
        return model.to(dtype)

    def moved(self, shape: Shape | None = None, scale: float = 0.3, **settings: Any) -> Decoder:
        """The same with no parameter at its initial value: nothing is zero or one by chance."""
        model = self.decoder(shape, **settings)
        move(model, scale)
        return model

    def single(self, shape: Shape | None = None, **settings: Any) -> Decoder:
        """In fp32 and with an eps as in training."""
        return self.decoder(shape, eps=1e-6, dtype=torch.float32, **settings)

    def baseline(self) -> "Subject":
        """What designs are compared with."""
        return Subject.named(BASELINE)

    def variants(self) -> list[dict[str, Any]]:
        """The options as chosen, and with each switch turned over."""
        chosen = {**self.design.option_defaults(), **self.options}
        switches = [name for name, value in chosen.items() if isinstance(value, bool)]
        return [chosen, *({**chosen, name: not chosen[name]} for name in switches)]

    def cell(
        self, shape: Shape | None = None, loop: Loop | None = None, **changes: Any
    ) -> CellConfig:
        """A cell of it that takes milliseconds a step."""
        reference = DesignRef(
            name=self.design.name, version=self.design.version, options=self.options
        )
        corpus = {"name": "none", "hash": "0", "tokenizer_hash": "0", "vocab_size": VOCAB}
        document: dict[str, Any] = {
            "suite": "check",
            "ladder": "inline",
            "design": reference.model_dump(),
            "shape": (shape or shape_of()).model_dump(),
            "loop": loop.model_dump() if loop else None,
            "corpus": corpus,
            "sequence_length": 8,
            "batch_size": 4,
            "micro_batch_size": 4,
            "steps": 4,
            "optimizer": {"learning_rate": 1e-2},
            "evaluation": {"tokens": 32},
            "norm_eps": 1e-6,
            "threads": torch.get_num_threads(),
            "seed": 0,
        }
        return CellConfig.model_validate(document | changes)

    def looped(self, loop: Loop, layers: int = 4) -> LanguageModel:
        """An initialised looped model in float64."""
        return build_model(self.cell(shape_of(layers), loop, norm_eps=EXACT_EPS)).double()
