"""An executor by its name and the options that are given for it on the command line."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from depthbench.config import Frozen
from depthbench.errors import InputError
from depthbench.executors import Executor
from depthbench.executors.local import LocalExecutor
from depthbench.inputs import overridden, validated

NAMES = ("local", "slurm", "ray")
Options = TypeVar("Options", bound=Frozen)


class LocalOptions(Frozen):
    """How cells run on this machine."""

    jobs: int | None = Field(None, ge=1, description="cells at once; as cores allow by default")


def choose(
    name: str, settings: Sequence[str] = (), plugins: Sequence[Path] = (), jobs: int | None = None
) -> Executor:
    """The executor called `name`; `settings` are `key=value` of its options.

    Raises `InputError` if there is none of that name, if an option is unknown or wrong, or if the
    engine is not to be had here.
    """
    if jobs is not None:
        if name != "local":
            raise InputError(
                f"--jobs {jobs} is of the local executor: how many cells run at once under {name} "
                "is said by its own options, with --executor-set"
            )
        settings = (*settings, f"jobs={jobs}")
    if name == "local":
        return LocalExecutor(_options(LocalOptions, name, settings).jobs, plugins)
    if name == "slurm":
        from depthbench.executors.slurm import SlurmExecutor, SlurmOptions

        return SlurmExecutor(_options(SlurmOptions, name, settings), plugins)
    if name == "ray":
        from depthbench.executors.ray import RayExecutor, RayOptions

        return RayExecutor(_options(RayOptions, name, settings), plugins)
    from residuals.errors import unknown  # imports torch: only once something is wrong

    raise InputError(f"{unknown('executor', name, NAMES)} Known: {', '.join(NAMES)}.")


def _options(model: type[Options], name: str, settings: Sequence[str]) -> Options:
    given = overridden({}, settings, "--executor-set")
    return validated(model, given, f"--executor-set of {name}")
