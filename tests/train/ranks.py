"""What each rank of a test runs: `torchrun … -m tests.train.ranks FOLDER [stop after STEP]`.

Every cell in the folder is trained, one after another, in one process group.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from depthbench.data.pinned import open_pinned
from depthbench.folder import CellFolder, find_cells
from depthbench.train.parallel import trainee
from depthbench.train.ranks import World, end, joined
from depthbench.train.trainer import train
from depthbench.train.weights import save_weights

START = "start.safetensors"


def stopping_after(step: int) -> Callable[[], bool]:
    asked = iter(range(step + 1))
    return lambda: next(asked, step) == step


def run(folder: CellFolder, world: World, stop_after: int | None) -> None:
    config = folder.config()
    save_weights(folder.path / START, trainee(config, world).model, world)
    # Only one rank wishes to stop, and all have to.
    wishes = stop_after is not None and world.rank == world.num - 1
    stop = stopping_after(stop_after or 0) if wishes else lambda: False
    corpus = open_pinned(config.corpus)
    train(config, folder, corpus, stop, checkpoint_seconds=0, world=world)


if __name__ == "__main__":
    root, *stop_after = sys.argv[1:]
    with joined("cpu") as world:
        for cell in find_cells(Path(root)):
            run(cell, world, int(stop_after[0]) if stop_after else None)
    end(0)
