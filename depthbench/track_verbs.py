"""The verb that tells a tracker what lies in result folders."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from depthbench.errors import EXIT_FAILED
from depthbench.tracking.kinds import Kind, installed


def track(
    folder: Annotated[Path, typer.Argument(help="A folder of cells, finished or running.")],
    to: Annotated[Kind, typer.Option(help="The tracker; what it keeps goes to FOLDER/<it>.")],
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Go on until Ctrl-C, or tell what is there.")
    ] = False,
    log: Annotated[Path | None, typer.Option(help="Say what there is to say in this file.")] = None,
) -> None:
    """Tell a tracker what the cells' files say. Typed again, it goes on."""
    from depthbench.tracking.follow import follow as tell
    from depthbench.tracking.follow import wait_for

    installed(to)
    stop = _until_asked() if follow else lambda: False
    if follow and not wait_for(folder, stop):
        return
    if log:
        _say_to(log)
    num, failed = tell(folder, to, once=not follow, stop=stop)
    print(f"{num - failed} of {num} cells were told to {to}; what it keeps is in {folder / to}")
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _until_asked() -> Callable[[], bool]:
    """True after Ctrl-C or the death of the parent; SIGTERM ends the process at once, as always.

    A matrix asks by SIGINT, which a shell may have switched off for what runs in the background.
    """
    from depthbench.executors.local import watch_parent

    alive = watch_parent()
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)

    signal.signal(signal.SIGINT, ask)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return lambda: bool(asked) or not alive()


def _say_to(log: Path) -> None:
    """Sends all output there, that of other libraries too."""
    log.parent.mkdir(exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(descriptor, stream.fileno())
    os.close(descriptor)
