"""What someone could put into a folder of results so that it does more than be read."""

import os
import pickle
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHADOWS = ("depthbench", "residuals", "torch", "pandas", "json", "numpy", "matplotlib", "jinja2")
TRICKS = (
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{0.__class__.__init__.__globals__}",
    "__import__('os').system('touch canary')",
    "%(name)s%n",
    "$(touch canary)",
    "`touch canary`; touch canary",
    '=HYPERLINK("http://x")',
)


class Bomb:
    """Leaves a canary when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch '{self.canary}'",)


def pickled(canary: Path) -> bytes:
    return pickle.dumps(Bomb(canary))


def code(canary: Path) -> str:
    """Of a module that leaves a canary when it is imported."""
    return f"open({str(canary)!r}, 'w').close()\n"


def booby_trap(folder: Path, canary: Path) -> None:
    """Modules that shadow ours and others, a plugin, and what Python and tools load unasked."""
    for name in SHADOWS:
        (folder / f"{name}.py").write_text(code(canary))
    for name in ("sitecustomize", "usercustomize", "conftest", "plugin", "modeling_depthbench"):
        (folder / f"{name}.py").write_text(code(canary))
    (folder / "x.pth").write_text(f"import os; os.system('touch {canary}')\n")
    (folder / "page.html.j2").write_text("{{ ''.__class__.__mro__[1].__subclasses__() }}")


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """What waits for ever, as for the other end of a pipe, fails here."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    began = time.monotonic()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < seconds
