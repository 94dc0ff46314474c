"""What a check is, and what comes out of one."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import torch

from depthbench import __version__
from depthbench.conformance.subject import Subject

Call = Callable[[Subject], str]


class ContractError(Exception):
    """The design does not keep the contract: what was found; `mention`, a name in its file."""

    def __init__(self, why: str, mention: str = "") -> None:
        super().__init__(why)
        self.mention = mention


def fail(why: str, mention: str = "") -> NoReturn:
    """Ends a check: the design does not pass it. The full name `mention` is to be looked for."""
    raise ContractError(why, mention.rpartition(".")[2])


class NotAskedError(Exception):
    """A check that has no meaning for this design: why."""


@dataclass(frozen=True)
class Check:
    """One question to a design; `call` says what it found, calls `fail`, or raises `NotAskedError`.

    `methods` are where a fault is looked for; `needs` are checks without which this one says
    nothing. One that is not `judged` only reports.
    """

    name: str
    question: str
    methods: tuple[str, ...]
    needs: tuple[str, ...]
    judged: bool
    call: Call


@dataclass(frozen=True)
class Finding:
    """`passed` is None where nothing was judged; `where` names places to look at."""

    name: str
    passed: bool | None
    why: str
    where: str = ""


@dataclass(frozen=True)
class Report:
    """What a design was asked, and what came out."""

    design: str
    version: int
    options: dict[str, Any]
    source_hash: str
    checks: tuple[Finding, ...]

    @property
    def failed(self) -> list[str]:
        """Names of the checks that failed."""
        return [finding.name for finding in self.checks if finding.passed is False]

    @property
    def badge(self) -> str:
        """`conforms`, or `fails: ` and what."""
        return f"fails: {', '.join(self.failed)}" if self.failed else "conforms"

    def as_dict(self) -> dict[str, Any]:
        """The JSON form, with the versions that it holds for."""
        return {
            **asdict(self),
            "checks": [asdict(finding) for finding in self.checks],
            "badge": self.badge,
            "depthbench": __version__,
            "torch": torch.__version__,
        }


def check(
    name: str,
    *methods: str,
    needs: tuple[str, ...] = ("forward", "determinism"),
    judged: bool = True,
) -> Callable[[Call], Check]:
    """Decorator: makes a function a check. The first line of its docstring is the question."""

    def made(call: Call) -> Check:
        question = (call.__doc__ or "").strip().partition("\n")[0]
        return Check(name, question, methods, needs, judged, call)

    return made
