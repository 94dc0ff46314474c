"""The scaling law of looped stacks, and what training one costs.

`Loss = E + A / N_eff^α + B_D / D^β` with `N_eff = N_once + g(T, B)·N_rec`: N_once parameters used
once and N_rec in the recurrent block, both without embeddings; D training tokens; loss in nats per
token.
"""

from functools import cached_property
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, field_validator, model_validator

from depthbench.config import Frozen
from depthbench.errors import InputError
from depthbench.scaling.forms import Array, Form, FormKind, form_named

Quantity = Literal["compute", "N", "D", "T", "B"]
BASE = ("E", "A", "alpha", "B_D", "beta")


def compute(N_once: ArrayLike, N_rec: ArrayLike, T: ArrayLike, B: ArrayLike, D: ArrayLike) -> Array:
    """Training FLOPs of the matrix products, `D·(6·N_once + (2T + 4B)·N_rec)` (looped stacks)."""
    once, rec, forward, backward = (np.asarray(x, dtype=float) for x in (N_once, N_rec, T, B))
    per_token = 6 * once + (2 * forward + 4 * backward) * rec
    return np.asarray(np.asarray(D, dtype=float) * per_token)


class Law(Frozen):
    """One set of constants. `origin` says of each where it comes from if they differ in that."""

    name: str
    title: str
    kind: Literal["published", "calibrated", "fitted"]
    source: str
    E: float = Field(ge=0)
    A: float = Field(gt=0)
    alpha: float = Field(gt=0)
    B_D: float = Field(gt=0)
    beta: float = Field(gt=0)
    form: FormKind
    g: dict[str, float]
    recurrent_share: float | None = Field(None, gt=0, le=1, description="N_rec / (N_once + N_rec)")
    fitted_range: dict[Quantity, tuple[float, float]] = Field(default_factory=dict)
    origin: dict[str, str] = Field(default_factory=dict)
    calibrated_to: tuple[str, ...] = Field((), description="measures of published statements")
    notes: tuple[str, ...] = ()

    @field_validator("source", "title", mode="after")
    @classmethod
    def _one_line(cls, text: str) -> str:
        return " ".join(text.split())

    @model_validator(mode="after")
    def _complete(self) -> Self:
        try:
            _ = self.shape_of_g
        except InputError as error:
            raise ValueError(str(error)) from None
        return self

    @cached_property
    def shape_of_g(self) -> Form:
        return form_named(self.form, tuple(self.g))

    @property
    def constants(self) -> dict[str, float]:
        """All constants by name: E, A, alpha, B_D, beta and those of g."""
        return {name: float(getattr(self, name)) for name in BASE} | self.g

    def g_at(self, T: ArrayLike, B: ArrayLike) -> Array:
        """g at T and B, which broadcast. Raises `InputError` where the form says nothing."""
        Ts, Bs = np.broadcast_arrays(np.asarray(T, dtype=float), np.asarray(B, dtype=float))
        form = self.shape_of_g
        for pair in {(float(t), float(b)) for t, b in zip(Ts.flat, Bs.flat, strict=True)}:
            if not form.covers(*pair):
                raise InputError(
                    f"{self.name} says nothing about T = {pair[0]:g}, B = {pair[1]:g}: its g is of "
                    f"the form {self.form}"
                )
        return np.exp(form.log_g(np.array([self.g[name] for name in form.names]), Ts, Bs)[0])

    def loss_of(self, N_eff: ArrayLike, D: ArrayLike) -> Array:
        """Nats per token at effective parameters and tokens."""
        terms = self.A / np.asarray(N_eff) ** self.alpha, self.B_D / np.asarray(D) ** self.beta
        return np.asarray(self.E + terms[0] + terms[1])

    def loss(
        self, N_once: ArrayLike, N_rec: ArrayLike, T: ArrayLike, B: ArrayLike, D: ArrayLike
    ) -> Array:
        """Nats per token; the arguments broadcast."""
        return self.loss_of(np.asarray(N_once) + self.g_at(T, B) * np.asarray(N_rec), D)
