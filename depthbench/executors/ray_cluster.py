"""A Ray cluster: joining or starting it, and what its nodes have."""

import logging
import os
import signal
import socket
import threading
from typing import Any

from depthbench.errors import InputError
from depthbench.executors import Task

_ANSWER_SECONDS = 10.0
# Ray would report to its makers, and print the log of every lost node. It reads these on import.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": "."}


def connect(address: str | None) -> Any:
    """The module `ray`, connected; what is connected already stays so.

    Raises `InputError` if Ray is not installed or nothing answers at the address.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        message = f"Ray cannot be imported ({error}): pip install 'depthbench[ray]'"
        raise InputError(message) from error
    if ray.is_initialized():
        return ray
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        _knock(address)
        ray.init(
            address=address,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        where = f"at {address}" if address else "on this machine"
        raise InputError(
            f"there is no Ray cluster {where}: {error}. `ray status` tells what runs; without an "
            "address one is started"
        ) from error
    finally:
        if in_main:  # Ray takes SIGTERM, with which the matrix lets its cells save
            signal.signal(signal.SIGTERM, handler)
    return ray


def _knock(address: str | None) -> None:
    """Ray itself tries a dead address for minutes and then ends the process."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()


def demand(task: Task) -> dict[str, float]:
    """The bundle of a cell. The memory of an accelerator is none that Ray keeps account of."""
    if task.device == "cpu":
        return {"CPU": task.cores, "memory": task.memory_bytes}
    return {"CPU": task.cores, "GPU": task.ranks}


def room(node: dict[str, float], demand: dict[str, float]) -> int:
    """How many of them fit an empty node."""
    return min(int(node.get(name, 0) // amount) for name, amount in demand.items())


def words(resources: dict[str, float]) -> str:
    """Cores, accelerators and memory, without those of which there are none."""
    parts = [f"{resources[name]:g} {name}" for name in ("CPU", "GPU") if resources.get(name)]
    if memory := resources.get("memory"):
        parts.append(f"{memory / 2**30:.1f} GiB of memory")
    return ", ".join(parts) or "nothing"
