"""The losses of one matrix as an array, and what is not in it, with the reason."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, order=True)
class DesignKey:
    """One design as it was run. `options` is JSON."""

    design: str
    version: int
    options: str


@dataclass(frozen=True)
class Shape:
    """Blocks and width. The MLP width is left out: matching totals changes it by design."""

    layers: int
    d_model: int

    @property
    def aspect_ratio(self) -> float:
        return self.d_model / self.layers

    def __str__(self) -> str:
        return f"L{self.layers}/d{self.d_model}"


@dataclass(frozen=True)
class Diverged:
    """A run that diverged, and the step at which it did."""

    seed: int
    step: int | None


@dataclass(frozen=True)
class Missing:
    """A run without a loss, and why."""

    seed: int | None
    reason: str


@dataclass(frozen=True)
class Cell:
    """The runs of one design at one shape, of the learning rate that did best of `num_rates`."""

    learning_rate: float | None = None
    num_rates: int = 0
    diverged: tuple[Diverged, ...] = ()
    missing: tuple[Missing, ...] = ()


@dataclass(frozen=True)
class Grid:
    """Losses [designs, shapes, seeds] of finished runs, NaN elsewhere; shallow shapes first.

    `unplaced`: why rows without a readable design, shape or seed are not in it.
    """

    designs: tuple[DesignKey, ...]
    shapes: tuple[Shape, ...]
    seeds: tuple[int, ...]
    loss_DSR: Array
    cells: Mapping[tuple[int, int], Cell]
    unplaced: tuple[Missing, ...] = ()

    def find(self, name: str) -> int | None:
        """Index of the newest version of design `name` without options, None if it was not run."""
        plain = [k for k in self.designs if k.design == name and k.options == "{}"]
        return self.designs.index(max(plain)) if plain else None

    def cell(self, design: int, shape: int) -> Cell:
        return self.cells.get((design, shape), Cell())

    def num_finished(self, design: int, shape: int) -> int:
        return int(np.isfinite(self.loss_DSR[design, shape]).sum())

    def ladder(self) -> list[int]:
        """Shapes to which more than half of the designs came, by finishing or by diverging.

        What is said over all shapes is said over these, for every design: a shape that few have
        run neither enters their means nor keeps the others from having one.
        """
        came = np.asarray(np.isfinite(self.loss_DSR).any(-1))
        for place, cell in self.cells.items():
            came[place] |= bool(cell.diverged)
        return [int(s) for s in np.flatnonzero(2 * came.sum(0) > len(self.designs))]

    def why_empty(self, design: int, shape: int) -> str:
        """Why no run of a design at a shape has a loss."""
        cell, where = self.cell(design, shape), self.shapes[shape]
        reasons = [f"seed {d.seed} diverged at step {d.step}" for d in cell.diverged]
        reasons += [
            m.reason if m.seed is None else f"seed {m.seed} {m.reason}" for m in cell.missing
        ]
        return f"{where}: {', '.join(reasons) if reasons else 'not run'}"
