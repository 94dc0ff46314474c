"""Weights & Biases: one run for each cell, under the cell's digest.

Where it goes, and whether at all, is W&B's own to decide: `WANDB_MODE=offline`, `WANDB_PROJECT` and
`WANDB_API_KEY` are passed through.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wandb

from depthbench.folder import CellFolder, write_json
from depthbench.tracking.noted import read_noted
from depthbench.tracking.points import RESULT, Point


class WandbRun:
    """What W&B has been told cannot be taken back: steps that come again are not told again."""

    def __init__(self, folder: CellFolder, place: Path) -> None:
        self.folder, self.place = folder, place
        self.noted = place / "sent.json"
        self.sent = read_noted(self.noted)
        self.run: Any = None

    def update(self, points: Sequence[Point]) -> None:
        """Tells what lies beyond the furthest step that was told under each heading."""
        new = [point for point in points if point.step > self.sent.get(point.heading, -1)]
        if not new:
            return
        self.place.mkdir(parents=True, exist_ok=True)
        if self.run is None:
            self.run = self._open()
        # Noted before it is told: a follower that dies here leaves a gap, and no number twice.
        write_json(self.noted, self.sent | {point.heading: point.step for point in new})
        try:
            for point in new:
                self._tell(point)
                self.sent[point.heading] = point.step
        except Exception:
            write_json(self.noted, self.sent)
            raise

    def close(self, done: bool) -> None:
        """W&B shows the run as finished, or as failed."""
        if self.run is not None:
            run, self.run = self.run, None
            run.finish(exit_code=0 if done else 1)

    def _tell(self, point: Point) -> None:
        if point.heading == RESULT:
            self.run.summary.update(dict(point.values))
        else:
            self.run.log({"step": point.step, **point.values})

    def _open(self) -> Any:
        config = self.folder.config()
        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "depthbench"),
            id=config.digest(),
            name=config.folder_name(),
            group=config.suite,
            config=config.model_dump(mode="json"),
            dir=str(self.place),
            # Without notes of an earlier follower, a run of that name is of another folder.
            resume="allow" if self.sent else None,
            reinit="create_new",
            settings={"console": "off", "disable_git": True, "x_disable_stats": True},
        )
        run.define_metric("step")
        run.define_metric("*", step_metric="step")
        return run
