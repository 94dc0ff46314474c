"""Verbs on published rows."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from depthbench.console import bars, print_json
from depthbench.errors import EXIT_FAILED, InputError
from depthbench.measure_verbs import AsJson, Plugins, load_plugins


def reproduce(
    source: Annotated[
        Path,
        typer.Argument(help="A cell's folder, or a folder of cells or a report's file with --row."),
    ],
    row: Annotated[
        str | None, typer.Option(help="The beginning of the row's cell or digest.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The run goes to OUT/<cell>.")] = Path(
        "runs/reproduced"
    ),
    noise: Annotated[
        float | None,
        typer.Option(help="Deviation between seeds in nats; default: from SOURCE's seeds."),
    ] = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """Run a row again, and say whether its loss agrees. Exit code 1 if it does not."""
    from dataclasses import asdict

    from depthbench import corpora, matrix
    from depthbench import plan as planning
    from depthbench.config import CellConfig
    from depthbench.reproduce import choose, seed_noise
    from depthbench.reproduce import reproduce as again
    from depthbench.tables import read_records

    if noise is not None and not noise > 0:
        raise InputError(f"--noise {noise}: give a deviation in nats above 0")
    load_plugins(plugin)
    rows = read_records(source)
    chosen = choose(rows, row)
    console = Console(stderr=as_json)

    def train(config: CellConfig, folder: Path) -> None:
        planned = planning.estimate([config]).cells
        corpora.prepare_pinned(config.corpus, bars)
        matrix.run(planned, folder.parent, 1, plugin or (), console)

    found = again(chosen, out, train, seed_noise(rows) if noise is None else noise)
    if as_json:
        print_json(asdict(found) | {"agrees": found.agrees})
    else:
        print(f"{chosen['cell']}: {found.verdict}: {found.text}")
        for name, (then, now) in found.differing.items():
            print(f"  {name}: {then} then, {now} now")
    if not found.agrees:
        raise typer.Exit(EXIT_FAILED)
