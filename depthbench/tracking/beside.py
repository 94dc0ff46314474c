"""A follower beside a matrix: a process of its own, which the matrix never waits for."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console

from depthbench.executors.local import guarded
from depthbench.progress import say
from depthbench.tracking.kinds import Kind, installed

GRACE = 10.0


@contextmanager
def beside(
    out: Path, kind: Kind | None, console: Console | None = None, *, grace: float = GRACE
) -> Iterator[None]:
    """As long as the block runs, another process tells the tracker what lies under `out`.

    Afterwards it has `grace` seconds to tell the rest. Whatever becomes of it is one line on the
    console. It writes nothing before `out` is there, then its log. With no `kind` nothing happens.
    Raises `InputError` if the tracker is not installed.
    """
    if kind is None:
        yield
        return
    console = console or Console()
    process = _started(out, installed(kind), console)
    try:
        yield
    finally:
        if process is not None:
            _finish(process, out, kind, console, grace)


def log_path(out: Path, kind: Kind) -> Path:
    """Where a follower beside a matrix writes what it has to say."""
    return out / kind / "log.txt"


def _started(out: Path, kind: Kind, console: Console) -> "subprocess.Popen[bytes] | None":
    # -P: the folder one stands in is no place to import modules from.
    command = [sys.executable, "-P", "-m", "depthbench", "track", str(out.resolve()), "--to", kind]
    environment = os.environ | guarded() | {"OMP_NUM_THREADS": "1"}
    command += ["--follow", "--log", str(log_path(out.resolve(), kind))]
    # Held back until the child is ready to be asked: it lets the signal through itself.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        say(console, f"{kind} is told nothing, its process could not be started: {error}")
        return None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _finish(
    process: "subprocess.Popen[bytes]", out: Path, kind: Kind, console: Console, grace: float
) -> None:
    """Asks the follower to tell the rest, waits, and ends it and all that it has started."""
    fault = None
    try:
        process.send_signal(signal.SIGINT)
        code = process.wait(grace)
        fault = f"its process ended with exit code {code}" if code else None
    except subprocess.TimeoutExpired:
        fault = f"its process did not end within {grace:g} s and was ended"
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if fault:
        say(
            console,
            f"{kind} was not told everything, {fault}: see {log_path(out, kind)}; "
            f"`depthbench track {out} --to {kind}` tells the rest",
        )
