"""Verbs for whoever adds a design: a file to begin with, and the checks it must pass."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from depthbench.console import Record, bars, print_json, print_table
from depthbench.errors import EXIT_FAILED
from depthbench.measure_verbs import AsJson, Plugins, load_plugins

if TYPE_CHECKING:
    from depthbench.conformance import Report, Subject


def new(
    name: Annotated[str, typer.Argument(help="Of the design: lowercase, with dashes.")],
    out: Annotated[
        Path | None, typer.Option(help="The file, or its folder; default: NAME.py, dashes as _.")
    ] = None,
) -> None:
    """Write the file of a new design, one that works, with comments that teach the contract."""
    from depthbench.conformance.new import write_design

    path = write_design(name, out)
    print(f"{path}\nNow: depthbench check {path}")


def check(
    design: Annotated[str, typer.Argument(help="A design's name, or the file of one.")],
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="OPTION=VALUE", help="Of the design, as in streams=2."),
    ] = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """Ask a design everything that the contract demands; exit 1 if it fails a check.

    The result is kept, for the badge in the design's rows, until its file changes. With --json one
    object is printed, or a list of them for a file of several designs.
    """
    from depthbench.conformance import examine, keep
    from depthbench.inputs import overridden

    load_plugins(plugin)
    reports = []
    for subject in _subjects(design, overridden({}, options or ())):
        with bars() as tell:
            report = examine(subject, progress=tell)
        keep(report.as_dict())
        reports.append(report)
    if as_json:
        documents = [report.as_dict() for report in reports]
        print_json(documents if len(documents) > 1 else documents[0])
    else:
        for report in reports:
            _show(report)
    if any(report.failed for report in reports):
        raise typer.Exit(EXIT_FAILED)


def _subjects(design: str, options: "Record") -> "list[Subject]":
    from depthbench.conformance import Subject

    if not design.endswith(".py") and not Path(design).is_file():
        return [Subject.named(design, options)]
    import residuals

    found = residuals.load_plugin(design)
    return [Subject.named(f"{each.name}@{each.version}", options) for each in found]


def _show(report: "Report") -> None:
    words = {True: "passed", False: "FAILED", None: "-"}
    columns = {
        "check": lambda finding: finding["name"],
        "result": lambda finding: words[finding["passed"]],
        "why": lambda finding: finding["why"],
        "where to look": lambda finding: finding["where"],
    }
    document = report.as_dict()
    print_table(f"{report.design}@{report.version}", document["checks"], columns)
    print(f"\n{report.design} {report.badge}\n")
