"""What a row must say about where it was made."""

import platform
import resource
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from depthbench import __version__


def environment(device: str, threads: int, ranks: int) -> dict[str, str | int | bool | None]:
    """Versions, machine and the state of the git checkout, if the package lies in one."""
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain") if commit else None
    return {
        "depthbench": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "cpu": _cpu(),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "threads": threads,
        "ranks": ranks,
        "git_commit": commit,
        "git_dirty": None if changes is None else bool(changes),
    }


def peak_memory_bytes(device: str) -> int:
    """Peak of the process: resident memory on a CPU, the allocator's on a GPU."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device)
    try:
        # Not ru_maxrss, which starts at the peak of the process that started this one.
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except OSError:  # not Linux
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _git(*arguments: str) -> str | None:
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
