"""Verbs on published rows."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from depthbench.console import bars, print_json
from depthbench.errors import EXIT_FAILED, InputError
from depthbench.measure_verbs import AsJson, Plugins, load_plugins

EXIT_NOT_COMPARABLE = 3


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

    if noise is not None and not (0 < noise < float("inf")):
        raise InputError(f"--noise {noise}: give a deviation in nats above 0")
    load_plugins(plugin)
    rows = read_records(source)
    chosen = choose(rows, row)
    console = Console(stderr=as_json)

    def train(config: CellConfig, folder: Path) -> None:
        planned = planning.estimate([config])
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


def compare(
    reports: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C…]",
            help="Folders of cells, rows.csv, rows.parquet or a report's JSON, or the word paper "
            "for the published numbers. Each is compared with A.",
        ),
    ],
    fail_on: Annotated[
        Literal["regression"] | None,
        typer.Option("--fail-on", help="Exit 1 if a design is worse, or a run finishes no longer."),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="NATS",
            help="Up to which a change is no regression. Above it one without an interval, as of "
            "single seeds, counts.",
        ),
    ] = None,
    ignore_version: Annotated[
        bool, typer.Option("--ignore-version", help="Take the versions of a design for one.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page there as well.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare reports with the first: paired changes, what is new and gone, ranks that moved.

    Exit code 3, and the fields that differ, if one of them has no run that compares with A's. Runs
    that are gone are named and fail nothing: a report may be of fewer cells.
    """
    from depthbench.comparison import compare_reports, page, terminal
    from depthbench.comparison.document import document
    from depthbench.comparison.view import blocks

    target = page.writable(html, reports) if html else None
    found = compare_reports(reports, tolerance, ignore_version)
    told = document(found)
    shown = blocks(told)
    if target:
        page.write_page(target, shown)
    if as_json:
        print_json(told)
    else:
        terminal.show(shown)
        if target:
            print(target)
    if not found.comparable:
        raise typer.Exit(EXIT_NOT_COMPARABLE)
    if fail_on and found.regressed:
        raise typer.Exit(EXIT_FAILED)
