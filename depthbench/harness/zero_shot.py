"""The seven zero-shot tasks of the protocol, by lm-eval, from the hub or its local cache."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from depthbench.data.progress import Progress, silent
from depthbench.errors import InputError
from depthbench.trained import TrainedCell

TASKS = (
    "openbookqa",
    "winogrande",
    "arc_easy",
    "arc_challenge",
    "hellaswag",
    "social_iqa",
    "piqa",
)
FOLDERS = ("arc", "hellaswag", "openbookqa", "piqa", "siqa", "winogrande")
"""Of lm-eval's tasks: to index all of them takes half a minute."""
PATIENCE = 3.0
SCHEMA = 1


def zero_shot(
    trained: TrainedCell, limit: int | None = None, progress: Progress = silent
) -> dict[str, Any]:
    """Accuracy on each task whose data can be had, and one line on each other.

    `{"schema", "lm_eval", "limit", "tasks": {name: {"accuracy", "standard_error", "normalised",
    "items", "version"}}, "unavailable": {name: reason}}`. `normalised` divides likelihoods by the
    length of the answer, None where a task has no such number. `limit` takes that many items of
    each. Raises `InputError` if lm-eval is not installed, or for a limit below 1.
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit = {limit}: give the number of items of each task, 1 or more")
    try:
        from lm_eval import simple_evaluate
        from lm_eval.tasks import TaskManager

        from depthbench.harness.lm import CellLM
    except ImportError as error:
        raise InputError(
            f"lm-eval cannot be imported ({error}): pip install 'depthbench[lm-eval]'"
        ) from error
    import lm_eval.tasks

    root = Path(lm_eval.tasks.__file__).parent
    folders = [root / folder for folder in FOLDERS]
    manager = TaskManager(include_path=folders, include_defaults=False)
    found, unavailable = {}, {}
    with _patience():
        for done, name in enumerate(TASKS):
            progress("zero-shot data", done, len(TASKS))
            try:
                found[name] = manager.load([name])["tasks"][name]
            except Exception as error:  # whatever the network and file layers below it raise
                reason = (str(error).strip() or "no reason given").splitlines()[0]
                unavailable[name] = f"{type(error).__name__}: {reason}"
    progress("zero-shot data", len(TASKS), len(TASKS))
    results: dict[str, Any] = {}
    if found:
        results = simple_evaluate(
            CellLM(trained),
            tasks=list(found.values()),
            task_manager=manager,
            limit=limit,
            log_samples=False,
            bootstrap_iters=1,  # any number above 0 asks for the closed form
        )
    return {
        "schema": SCHEMA,
        "lm_eval": version("lm_eval"),
        "limit": limit,
        "tasks": {name: _entry(results, name) for name in found},
        "unavailable": unavailable,
    }


def _entry(results: dict[str, Any], name: str) -> dict[str, Any]:
    result = results["results"][name]
    error = result["acc_stderr,none"]
    return {
        "accuracy": float(result["acc,none"]),
        "standard_error": None if error == "N/A" else float(error),
        "normalised": float(result["acc_norm,none"]) if "acc_norm,none" in result else None,
        "items": int(result["sample_len"]),
        "version": str(results["versions"][name]),
    }


@contextmanager
def _patience() -> Iterator[None]:
    """Where the hub does not answer at once, only its local cache is used.

    Its own clients would try every file of every task again and again, half a minute for each.
    """
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _answers(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _answers(address: str) -> bool:
    try:
        urlopen(Request(address, method="HEAD"), timeout=PATIENCE).close()
    except HTTPError:
        return True
    except OSError:
        return False
    return True
