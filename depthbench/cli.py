"""The command line. Heavy imports stay inside the verbs, so that help is there at once."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from depthbench import __version__
from depthbench.console import Reporting, print_json, print_table
from depthbench.data_verbs import data_app
from depthbench.design_verbs import check, new
from depthbench.errors import EXIT_FAILED, InputError
from depthbench.listings import COLUMNS, KINDS, Kind
from depthbench.measure_verbs import (
    AsJson,
    Plugins,
    evaluate,
    export,
    lm_eval,
    load_plugins,
    probe,
)
from depthbench.plan_verbs import Jobs, Overrides, SuiteName, plan
from depthbench.row_verbs import compare, reproduce
from depthbench.scaling_verbs import scaling_app
from depthbench.smoke_verbs import smoke
from depthbench.track_verbs import track
from depthbench.tracking.kinds import Kind as Tracker

app = typer.Typer(
    cls=Reporting,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Which residual designs turn extra layers into extra computation?",
)
shapes_app = typer.Typer(no_args_is_help=True)
app.add_typer(shapes_app, name="shapes")
app.add_typer(data_app, name="data")
app.add_typer(scaling_app, name="scaling")
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
app.command()(plan)
app.command()(probe)
app.command("eval")(evaluate)
app.command()(export)
app.command()(new)
app.command()(check)
app.command()(compare)
app.command()(reproduce)
app.command()(smoke)
app.command()(track)
app.command("lm-eval", context_settings=PASSED_ON)(lm_eval)


def main() -> None:
    """Entry point of the `depthbench` command."""
    # What it starts imports nothing from the folder it stands in, which may be someone else's.
    os.environ["PYTHONSAFEPATH"] = "1"
    app(prog_name="depthbench")


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command("list")
def list_(
    kind: Annotated[Kind | None, typer.Argument(help="Default: all of them.")] = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """Show designs, ladders, suites and corpora."""
    from depthbench import listings

    load_plugins(plugin)
    found = {each: listings.records(each) for each in (KINDS if kind is None else (kind,))}
    if as_json:
        print_json(found if kind is None else found[kind])
        return
    for each, records in found.items():
        print_table(each, records, COLUMNS[each])
        print()


@app.command()
def run(
    suite: SuiteName,
    overrides: Overrides = None,
    plugin: Plugins = None,
    jobs: Jobs = None,
    out: Annotated[Path, typer.Option(help="Results go to OUT/<suite>.")] = Path("runs"),
    executor: Annotated[
        str, typer.Option(metavar="NAME", help="What starts cells: local, slurm or ray.")
    ] = "local",
    settings: Annotated[
        list[str] | None,
        typer.Option("--executor-set", metavar="KEY=VALUE", help="An option of the executor."),
    ] = None,
    tracker: Annotated[
        Tracker | None, typer.Option("--track", help="A tracker to tell while cells run.")
    ] = None,
) -> None:
    """Run the cells of a suite that are not finished. Typed again, it goes on."""
    from depthbench.executors.choose import choose
    from depthbench.run import run_suite
    from depthbench.suite import load_suite
    from depthbench.tracking.beside import beside

    load_plugins(plugin)
    loaded = load_suite(suite, overrides or ())
    console, folder = Console(), out / loaded.name
    chosen = choose(executor, settings or (), plugin or (), jobs)
    with beside(folder, tracker, console):
        left = run_suite(loaded, folder, console=console, executor=chosen)
    if left:
        raise typer.Exit(EXIT_FAILED)


@app.command()
def cell(
    folder: Annotated[Path, typer.Argument(help="The cell's folder, with its config.json.")],
    plugin: Plugins = None,
) -> None:
    """Run or continue one cell: what `run` and schedulers start."""
    from depthbench.executors.local import watch_parent

    watch_parent()  # before imports and plugins, which take their time
    from depthbench.cell import main as run_cell

    load_plugins(plugin)
    raise typer.Exit(run_cell(folder, plugin or ()))


@app.command()
def status(
    folder: Annotated[Path, typer.Argument(help="A folder of cells.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Show how far every cell under a folder is."""
    from depthbench import matrix

    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: name a result folder, such as runs/quick")
    found = matrix.status(folder)
    if as_json:
        print_json(found)
    else:
        print_table(f"cells under {folder}", found, COLUMNS["status"])


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Result folders, shown together.")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write; default: report/ in the first folder.")
    ] = None,
    against: Annotated[
        Literal["paper"] | None, typer.Option(help="Lay the published numbers beside ours.")
    ] = None,
) -> None:
    """Write the page, figures and tables on all cells under the folders; print the page's path."""
    from depthbench.report import build

    print(build(folders, out or folders[0] / "report", against))


@app.command()
def doctor(
    network: Annotated[bool, typer.Option("--network", help="Ask the package index too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what is installed and works, and what is missing for what."""
    from dataclasses import asdict

    from depthbench.doctor import examine

    checks = [asdict(check) for check in examine(network=network)]
    if as_json:
        print_json(checks)
    else:
        print_table("this installation", checks, COLUMNS["doctor"])


@shapes_app.callback()
def _shapes() -> None:
    """Propose ladders of shapes."""


@shapes_app.command()
def solve(
    target: Annotated[str, typer.Option(help="Parameters: 400M, 1.6B, 450k or a number.")],
    depths: Annotated[str, typer.Option(help="Numbers of layers, as in 16,24,32.")],
    vocab: Annotated[int, typer.Option(min=2, help="Vocabulary size.")] = 50280,
    heads: Annotated[int | None, typer.Option(help="Of every shape; default 16.")] = None,
    head_dim: Annotated[int | None, typer.Option(help="Instead of heads.")] = None,
    match_on: Annotated[
        Literal["total", "backbone"], typer.Option(help="What the target counts.")
    ] = "total",
    tolerance: Annotated[float, typer.Option(help="Allowed deviation from the target.")] = 0.03,
    kv_ratio: Annotated[int, typer.Option(min=1, help="Query heads per key-value head.")] = 1,
    norm_eps: Annotated[float, typer.Option(help="Epsilon that suites will use.")] = 1e-6,
    name: Annotated[str, typer.Option(help="Name of the ladder.")] = "solved",
) -> None:
    """Print a ladder of shapes with one parameter budget, as YAML for shapes.yaml or a suite."""
    from depthbench.inputs import count, counts
    from depthbench.shapes import solve_ladder, to_yaml

    ladder = solve_ladder(
        count(target, "--target"),
        counts(depths, "--depths"),
        vocab,
        heads=16 if heads is None and head_dim is None else heads,
        head_dim=head_dim,
        match_on=match_on,
        tolerance=tolerance,
        kv_ratio=kv_ratio,
        norm_eps=norm_eps,
        name=name,
    )
    print(to_yaml(ladder), end="")
