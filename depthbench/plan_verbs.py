"""`depthbench plan`: what a suite will cost, here or on accelerators of a named kind."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from depthbench.console import print_json, print_table, size
from depthbench.errors import InputError
from depthbench.listings import COLUMNS
from depthbench.measure_verbs import AsJson, Plugins, load_plugins

if TYPE_CHECKING:
    from depthbench.plan import Machine

SuiteName = Annotated[str, typer.Argument(help="A shipped suite, or the path of a YAML file.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Override a value, as in seeds=[1,2]."),
]
Jobs = Annotated[int | None, typer.Option(min=1, help="Cells at once; default: as cores allow.")]


def plan(
    suite: SuiteName,
    overrides: Overrides = None,
    plugin: Plugins = None,
    jobs: Jobs = None,
    on: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A kind of accelerator, as h100; default: this machine."),
    ] = None,
    utilisation: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Of the accelerator's peak, reached by the FLOPs counted here; default: 0.4.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the cells of a suite with parameters, FLOPs, time and disk. Runs nothing.

    With --on also device-hours, and whether each cell's memory fits. All of it are estimates.
    """
    from depthbench import corpora, listings, tuning
    from depthbench import plan as planning
    from depthbench.suite import load_suite

    machine = _machine(on, utilisation)
    load_plugins(plugin)
    loaded = load_suite(suite, overrides or ())
    prepared = corpora.prepared_ref(loaded.corpus, loaded.local, loaded.hub)
    known = prepared or corpora.declared_ref(loaded.corpus, loaded.local, loaded.hub)
    tried = tuning.first_cells(loaded, known) if loaded.tune else []
    planned = [*planning.estimate(tried, machine), *planning.plan(loaded, known, on=machine)]
    corpora.check_enough(loaded.corpus, loaded.hub, max(c.config.tokens for c in planned))
    cells = listings.cells(planned)
    total = listings.total(cells, jobs)
    if as_json:
        on_record = None if machine is None else asdict(machine)
        print_json({"suite": loaded.name, "on": on_record, "cells": cells, "total": total})
        return
    print_table(f"suite {loaded.name}", cells, COLUMNS["cells" if machine is None else "cells-on"])
    print(f"\n{_sentence(cells, total, machine, jobs)}")
    if tried:
        print(
            f"{len(tried)} of them look for learning rates, and more where the best is the "
            "outermost; the others will have what these find."
        )
    if prepared is None:
        print(
            f"Corpus {loaded.corpus} is not prepared yet. The longest cell reads "
            f"{total['largest_tokens']:,} tokens."
        )


def _machine(on: str | None, utilisation: float | None) -> "Machine | None":
    from depthbench.accelerators import UTILISATION, accelerator
    from depthbench.plan import Machine

    if on is not None:
        return Machine(accelerator(on), UTILISATION if utilisation is None else utilisation)
    if utilisation is not None:
        raise InputError("--utilisation is of a named accelerator: name it, as in --on h100")
    return None


def _sentence(
    cells: list[dict[str, Any]],
    total: dict[str, Any],
    machine: "Machine | None",
    jobs: int | None,
) -> str:
    """What the whole suite costs."""
    from depthbench.progress import clock

    begin = f"{len(cells)} cells, {total['total_flops']:.3g} FLOPs, "
    disk = f"at most {size(total['disk_bytes'])} of disk"
    if machine is None:
        return (
            f"{begin}about {clock(total['seconds'])} on this machine, {disk}, and "
            f"{size(total['largest_memory_bytes'])} of memory for the largest cell"
        )
    accelerator = machine.accelerator
    room, largest = accelerator.memory_bytes / 1e9, total["largest_rank_bytes"] / 1e9
    changed = sum(bool(cell["needs"]) for cell in cells)
    without = sum(cell["needs"] is None for cell in cells)
    at_once = "one cell after another" if jobs is None else f"{jobs} cells at once"
    precisions = " and ".join(sorted({cell["precision"] for cell in cells}))
    peaks = sorted({accelerator.peak(cell["precision"]) / 1e12 for cell in cells})
    return (
        f"{begin}about {total['device_hours']:,.0f} device-hours and {disk}\n"
        f"on {accelerator.title}, if training reaches {machine.utilisation:.0%} of its peak in "
        f"{precisions} ({', '.join(f'{peak:,.0f}' for peak in peaks)} TFLOP/s): an assumption, set "
        f"it with --utilisation. With {at_once} that takes {total['seconds'] / 86400:,.1f} days.\n"
        f"A rank needs at most {largest:.1f} GB of the {room:.0f} GB: {changed} cells fit only "
        f"with what is said beside them, {without} do not. Memory is estimated."
    )
