"""Verbs that measure trained cells again, or otherwise than their suite asked."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from depthbench.console import Record, bars, print_json, print_table
from depthbench.errors import EXIT_FAILED, DepthbenchError, InputError
from depthbench.printable import printable

if TYPE_CHECKING:
    from depthbench.folder import CellFolder

Cells = Annotated[
    list[Path], typer.Argument(help="Done cells, or folders of cells, of which the done ones.")
]
Plugins = Annotated[
    list[Path] | None,
    typer.Option("--plugin", metavar="FILE", help="A Python file that registers designs."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Device = Annotated[str | None, typer.Option(help="Default: the one it was trained on.")]


def probe(
    cells: Cells,
    names: Annotated[
        list[str] | None, typer.Option("--probe", metavar="NAME", help="Default: all of them.")
    ] = None,
    windows: Annotated[int, typer.Option(min=1, help="Held-out windows to run.")] = 8,
    thresholds: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PROBE.THRESHOLD=VALUE", help="As in causal.late=0.5."),
    ] = None,
    device: Device = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """Put layer probes to trained cells; results go into each cell's probes/ folder."""
    load_plugins(plugin)
    from depthbench import probes
    from depthbench.trained import open_trained

    limits = _numbers(thresholds or ())
    for name in names or ():
        probes.get(name)
    documents, failed, paths = {}, dict[str, str](), _done(cells)
    with bars() as tell:
        for path in paths:
            try:
                trained = open_trained(path, device)
                with trained.folder.lock():
                    found = probes.probe_cell(trained, names or (), windows, limits, tell)
                documents[str(path)] = found
            except DepthbenchError as error:
                if len(paths) == 1:
                    raise
                failed[str(path)] = str(error)
    if as_json:
        print_json(documents)
    else:
        for cell, found in documents.items():
            print_table(cell, _summaries(found), _SUMMARY)
            print()
    for cell, reason in failed.items():
        print(printable(f"{cell} was not probed: {reason}"), file=sys.stderr)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def evaluate(
    cells: Cells,
    domain: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="coding, stem or math; default: all.")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME", help="Only this evaluation set.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Items of a set at most.")] = None,
    hub: Annotated[bool, typer.Option("--hub", help="The hub's sets too.")] = False,
    zero_shot: Annotated[
        bool, typer.Option("--zero-shot", help="lm-eval's seven zero-shot tasks too.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Even what was scored on more sets or items.")
    ] = False,
    device: Device = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """Score trained cells on the coding, STEM and math sets; results go to domains.json."""
    load_plugins(plugin)
    from depthbench import domains
    from depthbench.domains.definitions import chosen, definitions
    from depthbench.folder import write_json
    from depthbench.trained import open_trained

    documents: dict[str, Any] = {}
    paths = _done(cells)
    wanted = {each.name for each in chosen(definitions(), domain or (), sets or (), hub)}
    for path in () if replace else paths:
        _keep_larger(path, wanted, limit)
    with bars() as tell:
        domains.prepare(False, domain or (), sets or (), tell)
        for path in paths:
            trained = open_trained(path, device)
            document = domains.evaluate(trained, domain or (), sets or (), limit, hub, tell)
            with trained.folder.lock():
                domains.write(trained.folder, document)
            documents[str(path)] = document
            if zero_shot:
                from depthbench.harness.zero_shot import zero_shot as seven_tasks

                document["zero_shot"] = seven_tasks(trained, limit, tell)
                write_json(trained.folder.path / "zero_shot.json", document["zero_shot"])
    if as_json:
        print_json(documents)
        return
    for cell, document in documents.items():
        print_table(cell, _scores(document), _SCORES)
        absent = document["unavailable"] | document.get("zero_shot", {}).get("unavailable", {})
        for name, reason in absent.items():
            print(printable(f"{name} is not there: {reason}"))
        print()


def export(
    cell: Annotated[Path, typer.Argument(help="The folder of a done cell.")],
    out: Annotated[Path, typer.Option(help="A new folder for the checkpoint.")],
    to: Annotated[str, typer.Option(help="The format; hf is that of transformers.")] = "hf",
    plugin: Plugins = None,
) -> None:
    """Write a trained cell as a transformers checkpoint with tokenizer and model card."""
    load_plugins(plugin)
    from depthbench import export as exporting

    exporting.export(cell, to, out)
    print(out)


def lm_eval(context: typer.Context) -> None:
    """Run lm-eval's own command line, in which `--model depthbench` and the domain tasks exist."""
    from depthbench.harness.command import main

    main(context.args)


def load_plugins(plugins: Sequence[Path] | None) -> None:
    """Registers the designs of these files."""
    if plugins:
        import residuals

        for path in plugins:
            residuals.load_plugin(path)


def _keep_larger(cell: Path, wanted: set[str], limit: int | None) -> None:
    """An `InputError` if the cell's `domains.json` holds what a new one would lose."""
    from depthbench.folder import CellFolder, read_json

    path = CellFolder(cell).domains_path
    try:
        there = read_json(path)
        lost, before = set(there["sets"]) - wanted, there["limit"]
    except (DepthbenchError, KeyError, TypeError):  # none, or damaged: nothing to keep
        return
    if lost:
        raise InputError(
            f"{path} also holds {', '.join(sorted(lost))}, which would be lost: name them too, or "
            "give --replace"
        )
    if limit is not None and (before is None or before > limit):
        raise InputError(
            f"{path} was made with {f'a limit of {before}' if before else 'all items'}, and the "
            f"limit is now {limit}: give --replace to put less in its place"
        )


def _done(paths: Sequence[Path]) -> list[Path]:
    """The cells that are meant, all of them fit to be opened, or an `InputError`."""
    from depthbench.folder import CellFolder, find_cells
    from depthbench.trained import checked

    folders: list[Path] = []
    for path in paths:
        if not path.is_dir():
            raise InputError(f"{path} is not a folder: name a cell, or a folder of cells")
        if CellFolder(path).config_path.is_file():
            folders.append(path)
            continue
        done = [cell.path for cell in find_cells(path) if _is_done(cell)]
        if not done:
            raise InputError(f"there is no done cell under {path}: run a suite first")
        folders += done
    return [checked(path).path for path in dict.fromkeys(folders)]


def _is_done(cell: "CellFolder") -> bool:
    try:
        return cell.status() == "done"
    except DepthbenchError:  # damaged: `status` and `report` show it
        return False


def _numbers(given: Sequence[str]) -> dict[str, float]:
    numbers = {}
    for assignment in given:
        path, _, value = assignment.partition("=")
        try:
            numbers[path] = float(value)
        except ValueError:
            raise InputError(
                f"--set {assignment}: write it as probe.threshold=number, as in causal.late=0.5"
            ) from None
    return numbers


def _summaries(documents: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    records = []
    for name, document in documents.items():
        if document["reason"]:
            records.append({"probe": name, "what": f"no answer: {document['reason']}"})
        elif not document["summary"]:
            records.append({"probe": name, "what": "see its JSON and picture"})
        for what, value in document["summary"].items():
            records.append({"probe": name, "what": what.replace("_", " "), "value": value})
    return records


def _scores(document: dict[str, Any]) -> list[dict[str, Any]]:
    sets = [entry | {"of": name} for name, entry in document["sets"].items()]
    means = [entry | {"of": f"{name}, mean of sets"} for name, entry in document["domains"].items()]
    tasks = document.get("zero_shot", {}).get("tasks", {})
    return [*sets, *means, *(entry | {"of": name} for name, entry in tasks.items())]


def _field(name: str) -> Callable[[Record], Any]:
    return lambda record: record.get(name)


def _interval(record: Record) -> str | None:
    return "{:.3f} to {:.3f}".format(*record["interval"]) if "interval" in record else None


_SUMMARY = {name: _field(name) for name in ("probe", "what", "value")}
_SCORES = {
    "set": _field("of"),
    "nats per token": _field("nats_per_token"),
    "95 %": _interval,
    "bits per byte": _field("bits_per_byte"),
    "items": _field("items"),
    "tokens": _field("tokens"),
    "cut prompts": _field("truncated_prompts"),
    "long targets": _field("truncated_targets"),
    "accuracy": _field("accuracy"),
}
