"""Rows with chosen losses, and grids of drawn ones."""

from typing import Any

import numpy as np

from depthbench.statistics.grid import Array, DesignKey, Grid, Shape

SHAPES = ((2, 128), (4, 64), (8, 32), (16, 16), (32, 8))  # log2 of the aspect ratio 6, 4, 2, 0, -2
NAMES = ("base", *(f"d{i}" for i in range(1, 20)))


def row(design: str, shape: int, seed: int, loss: float | None, **changes: Any) -> dict[str, Any]:
    """A finished run, or one with another status that `changes` name."""
    layers, d_model = SHAPES[shape]
    plain = {
        "design": design,
        "design_version": 1,
        "options": "{}",
        "layers": layers,
        "d_model": d_model,
        "budget": "tokens",
        "tokens": 1000,
        "precision": "fp32",
        "seed": seed,
        "learning_rate": 1e-3,
        "status": "done",
        "diverged_step": None,
        "error": None,
        "loss": loss,
        "path": f"runs/{design}-{shape}-{seed}",
    }
    return plain | changes


def rows_of(losses: Any, **changes: Any) -> list[dict[str, Any]]:
    """Rows of losses [designs, shapes, seeds], seeds from 1; the first design is the baseline."""
    return [
        row(NAMES[d], s, r + 1, float(loss), **changes)
        for (d, s, r), loss in np.ndenumerate(np.asarray(losses, dtype=float))
    ]


def grid(loss_DSR: Array) -> Grid:
    """A grid without the way through rows."""
    D, S, R = loss_DSR.shape
    designs = tuple(DesignKey(name, 1, "{}") for name in NAMES[:D])
    return Grid(
        designs, tuple(Shape(*shape) for shape in SHAPES[:S]), tuple(range(R)), loss_DSR, {}
    )


def drawn(seed: int, num_designs: int, num_shapes: int, num_seeds: int) -> Array:
    """Losses from one distribution, whose seeds move all designs at a shape by five deviations."""
    generator = np.random.default_rng(seed)
    noise = generator.normal(size=(num_designs, num_shapes, num_seeds))
    return 6 + 0.01 * (noise + 5 * generator.normal(size=(1, num_shapes, num_seeds)))
