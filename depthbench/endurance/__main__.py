"""The command: `python -m depthbench.endurance`. It starts itself as parent and as cell too."""

import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from depthbench.config import CellConfig
from depthbench.console import Reporting, print_table
from depthbench.endurance.trial import GRACE_SECONDS, MOMENTS, VICTIMS, Trial
from depthbench.endurance.verdict import compared
from depthbench.endurance.watch import COMMAND
from depthbench.errors import EXIT_FAILED, DepthbenchError
from depthbench.folder import read_json, write_json

app = typer.Typer(cls=Reporting, add_completion=False, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def endure(
    context: typer.Context,
    kills: Annotated[int, typer.Option(min=0, help="How many SIGKILLs.")] = 50,
    cells: Annotated[int, typer.Option(min=1, help="Cells of a round, at most.")] = 6,
    seed: Annotated[int, typer.Option(min=0, help="Of the order of kills and the pauses.")] = 0,
    every: Annotated[float, typer.Option(min=0, help="Mean seconds between kills.")] = 2.0,
    jobs: Annotated[int, typer.Option(min=1, help="Cells at once.")] = 1,
    suite: Annotated[
        str | None, typer.Option(help="A suite or its YAML file; default: small cells of its own.")
    ] = None,
    out: Annotated[Path, typer.Option(help="An empty folder.")] = Path("runs/endurance"),
) -> None:
    """Kill cells and their parent at random, and compare with a run that nobody disturbed."""
    if context.invoked_subcommand:
        return
    from depthbench.endurance.subject import prepare

    prepare(out, suite, cells)
    reference = out / "reference"
    print(f"undisturbed: {reference}", flush=True)
    arguments = (str(out / "plan.json"), str(reference), str(jobs))
    if code := subprocess.run([*COMMAND, "matrix", *arguments]).returncode:
        raise DepthbenchError(f"the undisturbed matrix ended with exit code {code}")
    say = partial(print, flush=True)
    trial = Trial(out, kills, seed=seed, every=every, jobs=jobs, say=say)
    trial.run()
    rows = compared(trial, reference)
    held = not trial.orphans and not any(row["differs"] for row in rows)
    made = [asdict(kill) for kill in trial.kills]
    document = {"held": held, "kills": made, "cells": rows, "orphans": trial.orphans}
    write_json(out / "endurance.json", document)
    _show(trial, rows)
    print(f"\n{'held' if held else 'BROKEN'}: {out / 'endurance.json'}")
    if not held:
        raise typer.Exit(EXIT_FAILED)


def _show(trial: Trial, rows: list[dict[str, Any]]) -> None:
    kinds = Counter((kill.moment, kill.victim) for kill in trial.kills)
    columns: dict[str, Callable[[Any], Any]]
    counts = [
        {"moment": moment, **{victim: kinds[moment, victim] for victim in VICTIMS}}
        for moment in MOMENTS
    ]
    columns = {name: itemgetter(name) for name in ("moment", *VICTIMS)}
    print_table("kills by moment and victim", counts, columns)
    torn = sum(bool(kill.left) for kill in trial.kills)
    print(f"{torn} of {len(trial.kills)} left a checkpoint half-written\n")
    columns = {name: itemgetter(name) for name in ("round", "cell", "kills", "status", "loss")}
    columns["as undisturbed"] = lambda row: ", ".join(row["differs"]) or "equal"
    print_table("cells", rows, columns)
    for orphan in trial.orphans:
        print(f"more than {GRACE_SECONDS:g} seconds after its parent there was still {orphan}")


@app.command(hidden=True)
def matrix(plan: Path, folder: Path, jobs: int) -> None:
    """The parent: runs the planned cells in the folder."""
    from depthbench.executors.local import LocalExecutor
    from depthbench.matrix import run

    # Not as `PlannedCell`, which imports torch: a parent is started for every kill.
    cells: list[Any] = [
        SimpleNamespace(**cell | {"config": CellConfig.model_validate(cell["config"])})
        for cell in read_json(plan)["cells"]
    ]
    executor = LocalExecutor(jobs, command=(*COMMAND, "cell"))
    if run(cells, folder, executor=executor):
        raise typer.Exit(EXIT_FAILED)


@app.command(hidden=True)
def cell(folder: Path) -> None:
    """The cell command, saving after every step."""
    from depthbench.executors.local import watch_parent

    watch_parent()  # before imports that last seconds
    from depthbench.cell import main

    raise typer.Exit(main(folder, checkpoint_seconds=0.0))


if __name__ == "__main__":
    app(prog_name="python -m depthbench.endurance")
