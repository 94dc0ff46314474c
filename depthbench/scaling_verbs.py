"""Verbs that fit scaling laws of looped stacks and plan with them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from depthbench.console import Record, bars, print_json, print_table
from depthbench.errors import InputError

scaling_app = typer.Typer(no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@scaling_app.callback()
def _scaling() -> None:
    """Fit scaling laws of looped stacks, and plan with them."""


@scaling_app.command("fit")
def fit_law(
    rows: Annotated[
        Path,
        typer.Argument(
            help="A folder of cells, or CSV or parquet with N_once, N_rec, T, B, D, loss, maybe "
            "seed."
        ),
    ],
    form: Annotated[
        Literal["exponential", "iso-depth", "free"], typer.Option(help="The form of g(T, B).")
    ] = "exponential",
    design: Annotated[
        str | None, typer.Option(help="Of rows of several designs, this one.")
    ] = None,
    starts: Annotated[int, typer.Option(min=1, help="Starts of the optimiser.")] = 500,
    resamples: Annotated[int, typer.Option(min=0, help="Of the bootstrap; 0: no intervals.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of starts and resamples.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Write law.json, fit.json, residuals.svg, index.html there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit Loss = E + A / (N_once + g(T,B)·N_rec)^α + B_D / D^β to runs."""
    from depthbench.scaling import documents, fit, read_runs

    runs, left_out = read_runs(rows, design)
    source = f"{len(runs)} runs of {rows.name}" + (f", {design}" if design else "")
    name = rows.stem if design is None else f"{rows.stem}/{design}"
    with bars() as tell:
        found = fit(runs, form, starts, resamples, seed, name, source, tell)
    document = documents.fit_document(found)
    page = documents.write_fit(found, out) if out else None
    if as_json:
        print_json(document)
        return
    print_table(f"{form} law of {source}", document["constants"], _CONSTANTS)
    print()
    print_table("what loops are worth", document["g"], _WORTHS)
    print()
    for reason, num in left_out.items():
        print(f"left out: {num} rows, {reason}")
    for warning in found.warnings:
        print(f"warning: {warning}")
    print(f"noise {found.noise:.2%}; {found.num_agreeing} of {starts} starts agree")
    if page:
        print(page)


@scaling_app.command("plan")
def plan_budget(
    law: Annotated[str, typer.Option(help="A shipped law, a file of one, or a fit's folder.")],
    compute: Annotated[float, typer.Option(help="Training FLOPs, as in 1e18.")],
    fix: Annotated[
        list[str] | None, typer.Option("--fix", metavar="N|T|B|D=VALUE", help="As in T=8, N=350M.")
    ] = None,
    share: Annotated[
        float | None, typer.Option(help="N_rec / (N_once + N_rec); default: the law's.")
    ] = None,
    max_loops: Annotated[int, typer.Option(min=1, help="The largest T to consider.")] = 16,
    continuous: Annotated[bool, typer.Option("--continuous", help="T and B need not be whole.")] = (
        False
    ),
    out: Annotated[Path | None, typer.Option(help="Write plan.json and plan.svg there.")] = None,
    as_json: AsJson = False,
) -> None:
    """Ask a law how a compute budget is best spent on loops, parameters and tokens."""
    from depthbench.scaling import Ask, Planner, documents, open_law, plan

    planner = Planner(open_law(law), share, max_loops)
    ask = Ask(planner, compute, _fixed(fix or ()), not continuous)
    document = plan(ask)
    picture = documents.write_plan(ask, document, out) if out else None
    if as_json:
        print_json(document)
        return
    kind = {"calibrated": "calibrated, not published"}.get(planner.law.kind, planner.law.kind)
    print(f"{planner.law.title} ({kind}; {planner.law.source})\n")
    print_table(f"the plan for {compute:.4g} FLOPs", [document["best"]], _CHOICE)
    print()
    print_table("what the law answers", document["answers"], _ANSWERS)
    print()
    print_table("what was published, and what the law gives", document["statements"], _STATEMENTS)
    print()
    for sentence in document["extrapolated"]:
        print(f"extrapolated: {sentence}")
    for note in planner.law.notes:
        print(f"note: {note}")
    if picture:
        print(picture)


@scaling_app.command("laws")
def list_laws(as_json: AsJson = False) -> None:
    """Show the laws that ship, with the origin of every constant."""
    from depthbench.scaling import named_laws

    laws = named_laws()
    if as_json:
        print_json({name: law.model_dump(mode="json") for name, law in laws.items()})
        return
    for name, law in laws.items():
        origins = {"recurrent_share": law.recurrent_share, **law.constants}
        records = [
            {"name": constant, "value": value, "origin": law.origin.get(constant, law.kind)}
            for constant, value in origins.items()
        ]
        print_table(f"{name}: {law.title} ({law.kind}; {law.source})", records, _ORIGINS)
        print()


def _fixed(given: Sequence[str]) -> Any:
    """`N=350M` and the like as what a plan may not choose."""
    from depthbench.inputs import count
    from depthbench.scaling import Fixed

    values: dict[str, float] = {}
    for assignment in given:
        name, _, text = assignment.partition("=")
        where = f"--fix {name}"
        if name not in ("N", "D", "T", "B") or not text:
            raise InputError(f"--fix {assignment}: write N, D, T or B = value, as in T=8 or N=350M")
        if name in values:
            raise InputError(f"--fix {name} is given twice: leave one out")
        try:
            values[name] = float(text)
        except ValueError:
            values[name] = count(text, where)
    return Fixed(**values)


def _field(name: str) -> Callable[[Record], Any]:
    return lambda record: record.get(name)


def _interval(record: Record) -> str | None:
    return "{:.4g} to {:.4g}".format(*record["interval"]) if record["interval"] else None


def _deviation(record: Record) -> str:
    value = record["relative_deviation"]
    return "not determined" if value is None else f"{value:.1%}"


_CONSTANTS = {
    "constant": _field("name"),
    "value": _field("value"),
    "95 %": _interval,
    "predicted deviation": _deviation,
}
_WORTHS = {"T": _field("T"), "B": _field("B"), "g": _field("g"), "95 %": _interval}
_CHOICE = {name: _field(name) for name in ("T", "B", "N", "D", "N_eff", "compute", "loss")}
_ANSWERS = {"question": _field("question"), "answer": _field("text")}
_STATEMENTS = {
    "arXiv": _field("paper"),
    "statement": _field("text"),
    "published": _field("published"),
    "law": _field("law"),
    "": _field("verdict"),
    "calibrated to it": _field("calibrated_to"),
}
_ORIGINS = {name: _field(name) for name in ("name", "value", "origin")}
