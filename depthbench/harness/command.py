"""lm-eval's own command line, with our model and tasks known to it."""

import sys
from collections.abc import Sequence

from depthbench.assets import asset
from depthbench.errors import InputError

TASKS = "evals/tasks/depthbench-coding.yaml"


def main(arguments: Sequence[str]) -> None:
    """Runs `lm_eval ARGUMENTS`; the domain tasks are found without `--include_path`.

    Raises `InputError` if lm-eval is not installed.
    """
    try:
        from lm_eval.__main__ import cli_evaluate
    except ImportError as error:
        raise InputError(
            f"lm-eval cannot be imported ({error}): pip install 'depthbench[lm-eval]'"
        ) from error
    import depthbench.harness.lm  # noqa: F401  registers the model

    given = list(arguments)
    runs = bool(given) and given[0] not in ("ls", "validate", "-h", "--help")
    if runs and not any(each.startswith("--include_path") for each in given):
        given += ["--include_path", str(asset(TASKS).parent)]
    sys.argv = ["lm_eval", *given]
    cli_evaluate()
