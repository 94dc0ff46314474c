"""g(T, B): what T forward and B backward loops make one recurrent parameter worth.

Every form has g(1, 1) = 1. T is the number of forward loops of the recurrent block and B ≤ T the
number of those that gradients pass.
"""

import re
from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from depthbench.errors import InputError

FormKind = Literal["exponential", "iso-depth", "free"]
Array = NDArray[np.float64]
Bounds = tuple[tuple[float, float], ...]
_CELL = re.compile(r"g\((\d+),(\d+)\)")


class Form(Protocol):
    """`names`: its constants; `bounds`: what a fit allows; `box`: where the starts of a fit lie."""

    kind: ClassVar[FormKind]
    names: tuple[str, ...]
    bounds: Bounds
    box: Bounds

    def log_g(self, values: Array, T: Array, B: Array) -> tuple[Array, Array]:
        """ln g at T and B, all [n], and its derivatives by the constants, [n, len(names)]."""

    def covers(self, T: float, B: float) -> bool:
        """Whether the form says anything about (T, B)."""


class Exponential:
    """`g = exp[c·(1 − T^(−p)·B^(−q))]` (Truncate or Not?, arXiv 2610.26030).

    c may be negative: small untuned loops can be worth less than none.
    """

    kind: ClassVar[FormKind] = "exponential"
    names: tuple[str, ...] = ("p", "q", "c")
    bounds: Bounds = ((0.0, 6.0), (0.0, 6.0), (-3.0, 6.0))
    box: Bounds = ((0.05, 2.0), (0.05, 2.0), (-0.5, 2.0))

    def log_g(self, values: Array, T: Array, B: Array) -> tuple[Array, Array]:
        p, q, c = values
        log_T, log_B = np.log(T), np.log(B)
        gained = -np.expm1(-p * log_T - q * log_B)
        slopes = np.empty((*gained.shape, 3))
        slopes[..., 0] = c * (1.0 - gained) * log_T
        slopes[..., 1] = c * (1.0 - gained) * log_B
        slopes[..., 2] = gained
        return c * gained, slopes

    def covers(self, T: float, B: float) -> bool:
        return True


class IsoDepth:
    """`g = r^φ` at B = T = r (iso-depth scaling laws, arXiv 2604.21106). Silent about B < T."""

    kind: ClassVar[FormKind] = "iso-depth"
    names: tuple[str, ...] = ("phi",)
    bounds: Bounds = ((-2.0, 3.0),)
    box: Bounds = ((-0.2, 1.2),)

    def log_g(self, values: Array, T: Array, B: Array) -> tuple[Array, Array]:
        log_T = np.log(T)
        return values[0] * log_T, log_T[..., None]

    def covers(self, T: float, B: float) -> bool:
        return T == B


class Free:
    """One value of g for every (T, B) but (1, 1); silent about every other pair."""

    kind: ClassVar[FormKind] = "free"

    def __init__(self, cells: Iterable[tuple[int, int]]) -> None:
        self.cells = sorted(set(cells) - {(1, 1)})
        self.names = tuple(f"g({T},{B})" for T, B in self.cells)
        self.bounds: Bounds = ((1e-2, 1e2),) * len(self.cells)
        self.box: Bounds = ((0.5, 4.0),) * len(self.cells)

    def _members(self, T: Array, B: Array) -> Array:
        """1 where a row is of a cell, [n, cells]."""
        of_cell = [np.equal(T, t) & np.equal(B, b) for t, b in self.cells]
        return np.stack(of_cell, axis=-1).astype(float) if of_cell else np.zeros((*T.shape, 0))

    def log_g(self, values: Array, T: Array, B: Array) -> tuple[Array, Array]:
        members = self._members(T, B)
        return members @ np.log(values), members / values

    def covers(self, T: float, B: float) -> bool:
        return (T, B) == (1, 1) or (T, B) in self.cells


def form_over(kind: FormKind, cells: Iterable[tuple[int, int]]) -> Form:
    """The form of that kind for data at these (T, B)."""
    if kind == "exponential":
        return Exponential()
    return IsoDepth() if kind == "iso-depth" else Free(cells)


def form_named(kind: str, names: Sequence[str]) -> Form:
    """The form of that kind with constants of these names, or an `InputError`."""
    if kind not in get_args(FormKind):
        from residuals import unknown  # imports torch: only once something is wrong

        raise InputError(unknown("form of g", kind, get_args(FormKind)))
    cells = [_CELL.fullmatch(name) for name in names]
    form = form_over(kind, [(int(cell[1]), int(cell[2])) for cell in cells if cell])  # type: ignore[arg-type]
    if set(form.names) != set(names):
        wanted = ", ".join(form.names) or "g(T,B), one for each cell"
        raise InputError(f"g of form {kind} has the constants {wanted}; given: {', '.join(names)}")
    return form
