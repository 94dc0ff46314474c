"""A Ray cluster of several nodes on this machine, and a process that drives it."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from depthbench.config import CellConfig
from depthbench.executors import Ended, Executor, Task

STORE_BYTES = 80 * 2**20  # about the least that Ray takes

# Runs cells through Ray the way the command line does.
PARENT = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
from depthbench import matrix
from depthbench.config import CellConfig
from depthbench.executors.ray import RayExecutor, RayOptions

out, configs, options, command = Path(sys.argv[1]), *map(json.loads, sys.argv[2:])
cells = [
    SimpleNamespace(config=CellConfig(**c), seconds=1.0, memory_bytes=1, disk_bytes=1)
    for c in configs
]
executor = RayExecutor(RayOptions(**options), command=command)
try:
    sys.exit(matrix.run(cells, out, executor=executor))
except KeyboardInterrupt:
    sys.exit(75)
"""


@contextmanager
def ray_nodes() -> Iterator[Any]:
    """The cluster of a head without cores and two nodes of one core each."""
    import ray
    from ray.cluster_utils import Cluster

    # A lost node is noticed after two seconds instead of twenty.
    health = {"health_check_period_ms": 500, "health_check_failure_threshold": 4}
    head = {"num_cpus": 0, "object_store_memory": STORE_BYTES, "_system_config": health}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(2):
            add_node(cluster)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def add_node(cluster: Any) -> None:
    cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)


def node_of(cluster: Any, pid: int) -> Any:
    """The node on which the process runs, of those that are not the head."""
    above = {parent.pid for parent in psutil.Process(pid).parents()}
    (found,) = (
        node
        for node in cluster.worker_nodes
        if above & {raylet.process.pid for raylet in node.all_processes["raylet"]}
    )
    return found


def parent(
    out: Path, configs: Sequence[CellConfig], command: Sequence[str], **options: Any
) -> subprocess.Popen[str]:
    """A process of its own that runs a matrix of these cells."""
    given = [[config.model_dump(mode="json") for config in configs], options, list(command)]
    return subprocess.Popen(
        [sys.executable, "-c", PARENT, str(out), *map(json.dumps, given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(executor: Executor, num: int = 1) -> list[Ended]:
    """Waits for the first `num`."""
    found: list[Ended] = []
    deadline = time.monotonic() + 60
    while len(found) < num:
        assert time.monotonic() < deadline, "they did not end in time"
        found += executor.poll()
        time.sleep(0.1)
    return found


def pid_of(folder: Path) -> int:
    """The process that runs a cell."""
    (found,) = (
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(folder) in (process.info["cmdline"] or [])
    )
    return found


def task(folder: Path, **needs: Any) -> Task:
    default = {"device": "cpu", "ranks": 1, "threads": 1, "memory_bytes": 1, "seconds": 1.0}
    return Task(folder, **(default | needs))
