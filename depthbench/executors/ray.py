"""Cells as tasks of Ray core, each in a placement group of its own.

Ray finds a node with room, and starts a cell again elsewhere when its node is lost. The package
`ray` is imported only where an executor is made.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from depthbench.config import Frozen
from depthbench.executors import Ended, Task
from depthbench.executors.ray_cluster import connect, demand, room, words
from depthbench.executors.ray_worker import Start, run_cell

_LOOK_SECONDS = 1.0
_MARGIN_SECONDS = 5.0
# Otherwise a worker that loses its node kills its cell before that is asked to save.
_LET_SAVE = {"RAY_kill_child_processes_on_worker_exit": "false"}


class RayOptions(Frozen):
    """How cells run on Ray."""

    address: str | None = Field(
        None,
        description="host:port or ray://host:port of a cluster, auto for the one of this machine, "
        "local for a new one; by default that of RAY_ADDRESS or auto, and if there is none, local",
    )
    retries: int = Field(3, ge=0, description="how often a cell starts again when its node is lost")
    grace_seconds: float = Field(60.0, ge=0, description="what a stopped cell has to save")
    node_wait_seconds: float = Field(
        60.0, ge=0, description="how long a cell waits while no node is large enough for it"
    )
    environment: dict[str, Annotated[str, Field(coerce_numbers_to_str=True)]] = Field(
        default_factory=dict, description="variables for cells, besides those of DEPTHBENCH_*"
    )


@dataclass
class _Cell:
    task: Task
    group: Any  # PlacementGroup
    ref: Any  # ObjectRef[int]
    started: float
    placed: bool = False
    unmet_since: float | None = None


class RayExecutor:
    """Folders of cells and `plugins` lie at the same paths on every node.

    `command` replaces the cell command of a node's own Python. Raises `InputError` if Ray is not
    installed or no cluster answers.
    """

    def __init__(
        self,
        options: RayOptions,
        plugins: Sequence[Path] = (),
        *,
        command: Sequence[str] = (),
    ) -> None:
        own = {key: value for key, value in os.environ.items() if key.startswith("DEPTHBENCH_")}
        self._environment = _LET_SAVE | own | options.environment
        paths = tuple(path.resolve() for path in plugins)
        self._start = Start(tuple(command), paths, options.grace_seconds)
        self._options = options
        self._ray = connect(options.address)
        self._run = self._ray.remote(run_cell)
        self._cells: list[_Cell] = []
        self._nodes: list[dict[str, float]] = []
        self._looked = -_LOOK_SECONDS

    @property
    def slots(self) -> int:
        if not self._cells:
            return 1
        largest = demand(max((cell.task for cell in self._cells), key=lambda task: task.cores))
        return max(1, sum(room(node, largest) for node in self._nodes))

    def submit(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self._cells.append(self._submitted(task))

    def poll(self) -> list[Ended]:
        over = self._over(seconds=0)
        ended = [self._ended(cell) for cell in over]
        self._drop(over)
        if self._cells and time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._look()
            ended += self._give_up()
            self._looked = time.monotonic()
        return ended

    def running(self) -> list[Task]:
        return [cell.task for cell in self._cells if cell.placed]

    def stop(self) -> None:
        self._cancel(self._cells)
        try:
            self._over(self._options.grace_seconds + _MARGIN_SECONDS)
        finally:
            self._drop(list(self._cells))  # a worker that is still saving is ended with its cell

    def _submitted(self, task: Task) -> _Cell:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        bundle = demand(task)
        group = self._ray.util.placement_group([bundle], strategy="STRICT_PACK")
        remote = self._run.options(
            name=task.folder.name,
            num_cpus=bundle["CPU"],
            num_gpus=bundle.get("GPU", 0),
            memory=bundle.get("memory"),
            max_retries=self._options.retries,
            runtime_env={"env_vars": self._environment},
            scheduling_strategy=PlacementGroupSchedulingStrategy(group),
        )
        ref = remote.remote(replace(task, folder=task.folder.resolve()), self._start)
        return _Cell(task, group, ref, time.time())

    def _over(self, seconds: float) -> list[_Cell]:
        """The cells that have ended, once all have or after `seconds`."""
        refs = [cell.ref for cell in self._cells]
        if not refs:
            return []
        ready, _ = self._ray.wait(refs, num_returns=len(refs), timeout=seconds)
        over = set(ready)
        return [cell for cell in self._cells if cell.ref in over]

    def _cancel(self, cells: Sequence[_Cell]) -> None:
        for cell in cells:
            self._ray.cancel(cell.ref)

    def _drop(self, cells: Sequence[_Cell]) -> None:
        for cell in cells:
            self._cells.remove(cell)
            self._ray.util.remove_placement_group(cell.group)

    def _ended(self, cell: _Cell) -> Ended:
        try:
            return Ended(cell.task, self._ray.get(cell.ref), cell.started)
        except self._ray.exceptions.RayTaskError as error:
            folder = cell.task.folder.resolve()
            reason = f"{error.cause}. Every node has to see {folder}, and run this depthbench"
        except self._ray.exceptions.RayError as error:
            reason = f"Ray lost the cell: {str(error).strip() or type(error).__name__}"
        return Ended(cell.task, os.EX_UNAVAILABLE, cell.started, reason)

    def _look(self) -> None:
        """Finds which cells have their place, and which ask for more than any node has."""
        self._nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        groups = self._ray.util.placement_group_table()
        for cell in self._cells:
            placed = groups[cell.group.id.hex()]["state"] == "CREATED"
            if placed and not cell.placed:
                cell.started = time.time()
            cell.placed = placed
            if any(room(node, demand(cell.task)) for node in self._nodes):
                cell.unmet_since = None
            elif cell.unmet_since is None:
                cell.unmet_since = time.monotonic()

    def _give_up(self) -> list[Ended]:
        since = time.monotonic() - self._options.node_wait_seconds
        unmet = [c for c in self._cells if c.unmet_since is not None and c.unmet_since <= since]
        self._cancel(unmet)
        self._drop(unmet)
        most = {
            name: max((node.get(name, 0) for node in self._nodes), default=0)
            for name in ("CPU", "GPU", "memory")
        }
        return [
            Ended(
                cell.task,
                os.EX_UNAVAILABLE,
                cell.started,
                f"no node of the Ray cluster has {words(demand(cell.task))}, which the cell "
                f"needs. The most that one has: {words(most)}. Add such a node, or set fewer "
                "ranks or threads or a smaller micro_batch_size",
            )
            for cell in unmet
        ]
