"""What Slurm knows of this user's jobs of one name: one question for all of them."""

import getpass
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from depthbench.errors import DepthbenchError, InputError

OVER = frozenset(
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED "
    "TIMEOUT".split()
)
"""States of a job that will not run again."""
TAKEN_AWAY = frozenset("BOOT_FAIL NODE_FAIL PREEMPTED REVOKED TIMEOUT".split())
"""Those in which its node or its time was taken from it: the cell goes on from what it saved."""
NEVER = "PENDING:"
"""How the state of a job begins that no node can take; what follows is Slurm's reason."""
STARTED = frozenset("COMPLETING RUNNING SIGNALING STAGE_OUT STOPPED SUSPENDED".split())
_IMPOSSIBLE = frozenset("BadConstraints PartitionConfig PartitionTimeLimit".split())
# What sbatch says in advance also where the nodes are only down or reserved for a while.
_UNDECIDED = "node configuration is not available"
_PROGRAMS = ("sbatch", "scancel", "scontrol", "squeue", "srun")
_COMMAND_SECONDS = 60.0
_LONGEST_SILENCE = 3600.0


class Queue:
    """`squeue` and `scancel` for the jobs called `name`. They need no accounting (slurmdbd).

    Slurm forgets a job some minutes after its end (`MinJobAge`, 300 s by default).
    """

    def __init__(self, name: str) -> None:
        self._whose = (f"--user={getpass.getuser()}", f"--name={name}")
        self._answered = time.monotonic()

    def states(self) -> dict[str, str] | None:
        """State by job, `12` or of an array `12_3`; None if Slurm does not answer now.

        Raises `DepthbenchError` if it has not answered for an hour.
        """
        fields = "--Format=ArrayJobID:24,ArrayTaskID:24,State:24,Reason:40"
        asked = _call("squeue", *self._whose, "--states=all", "--array", "--noheader", fields)
        if not asked.returncode:
            self._answered = time.monotonic()
            return dict(_job(*line.strip().split(maxsplit=3)) for line in asked.stdout.splitlines())
        if time.monotonic() - self._answered > _LONGEST_SILENCE:
            raise DepthbenchError(
                f"Slurm has not answered for an hour; squeue says: {asked.stderr.strip()}. Type "
                "the same command again when it does"
            )
        return None

    def ask_to_end(self) -> None:
        """Takes back what waits, and sends SIGTERM to what runs."""
        _call("scancel", *self._whose, "--state=PENDING")
        _call("scancel", *self._whose, "--state=RUNNING", "--signal=TERM")

    def cancel(self, jobs: Sequence[str] = ()) -> None:
        """Ends them, or all: with SIGTERM, and after the cluster's `KillWait` with SIGKILL."""
        _call("scancel", *self._whose, *jobs)


def require(parameters: dict[str, object]) -> None:
    """Raises `InputError` where there is no Slurm, or with what it has against such jobs."""
    absent = [program for program in _PROGRAMS if shutil.which(program) is None]
    if absent:
        raise InputError(
            f"{', '.join(absent)} not found: the slurm executor is to be used where jobs are "
            "submitted, on a login node of a Slurm cluster"
        )
    flags = [_flag(name, value) for name, value in parameters.items()]
    tried = _call("sbatch", "--test-only", *flags, "--wrap=true")
    if tried.returncode and _UNDECIDED not in tried.stderr:
        said = " ".join(tried.stderr.split())
        raise InputError(f"Slurm refuses jobs with {' '.join(flags)}. It says: {said}")


@contextmanager
def outside_of_jobs() -> Iterator[None]:
    """Hides what a Slurm job tells of itself: what is submitted from inside it is another job.

    Hidden as well is what changes the questions asked here, as `SQUEUE_STATES`.
    """
    inside = "SLURM_JOB_ID" in os.environ
    ours = ("SQUEUE_", "SCANCEL_", *(("SLURM_", "SLURMD_", "SRUN_") if inside else ()))
    names = [name for name in os.environ if name.startswith(ours) and name != "SLURM_CONF"]
    hidden = {name: os.environ.pop(name) for name in names}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _job(job: str, task: str, state: str, reason: str) -> tuple[str, str]:
    number = job if task == "N/A" else f"{job}_{task}"
    return number, NEVER + reason if state == "PENDING" and reason in _IMPOSSIBLE else state


def _flag(name: str, value: object) -> str:
    option = f"--{name.replace('_', '-')}"
    return option if value is True else f"{option}={value}"


def _call(*command: str) -> subprocess.CompletedProcess[str]:
    with outside_of_jobs():
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            silence = f"{command[0]} did not answer within {_COMMAND_SECONDS:.0f} s"
            return subprocess.CompletedProcess(command, 1, "", silence)
