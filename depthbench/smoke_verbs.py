"""The verb that tries a device."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from depthbench.console import Record, bars, print_json, print_table, size
from depthbench.errors import EXIT_FAILED
from depthbench.measure_verbs import AsJson, Plugins, load_plugins

if TYPE_CHECKING:
    from depthbench.config import CellConfig
    from depthbench.smoke import Row

_AT_ONCE = 8  # cells that share a device, as cores allow, where their speed does not count


def smoke(
    suite: Annotated[str, typer.Argument(help="A suite, whose cells are short.")] = "gpu-smoke",
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="As in designs=[pre-ln]."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="As in cuda:1 or cpu; default: the suite's.")
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="bf16, fp32, checkpointing or compiled; default: all."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Cells at once where speeds are not compared.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Keep the cells there; what is finished there is not run again."),
    ] = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """Try a device: train every design for some steps on it, and compare with the CPU.

    Exit code 1 if a design does not agree, or does not run.
    """
    from depthbench import corpora, matrix
    from depthbench import plan as planning
    from depthbench import smoke as trial
    from depthbench.executors.local import available_cores
    from depthbench.expand import expand
    from depthbench.suite import load_suite

    load_plugins(plugin)
    started = time.monotonic()
    loaded = load_suite(suite, [*(overrides or ()), *([f"device={device}"] if device else ())])
    trial.check(loaded.device, variant or ())
    with bars() as tell:
        corpus = corpora.prepare_ref(loaded.corpus, loaded.local, tell, loaded.hub)
    console = Console(stderr=as_json)

    def train(cells: "Sequence[CellConfig]", folder: Path, alone: bool) -> None:
        console.print(folder.name)
        at_once = jobs
        if cells[0].device != "cpu":
            at_once = None if alone else jobs or min(_AT_ONCE, available_cores())
        matrix.run(planning.estimate(cells), folder, at_once, plugin or (), console)

    with _folder(out) as root:
        rows = trial.smoke(expand(loaded, corpus), root, train, variant or ())
    agrees = all(row.agrees for row in rows)
    seconds = time.monotonic() - started
    if as_json:
        cells = [row.as_dict() for row in rows]
        found = {"device": loaded.device, "hardware": rows[0].hardware, "seconds": seconds}
        print_json(found | {"agrees": agrees, "cells": cells})
    else:
        _show(rows, loaded.device, seconds)
    if not agrees:
        raise typer.Exit(EXIT_FAILED)


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    if out is not None:
        yield out
        return
    with TemporaryDirectory(prefix="depthbench-smoke-") as made:
        yield Path(made)


def _show(rows: "Sequence[Row]", device: str, seconds: float) -> None:
    from depthbench.progress import clock

    for name in dict.fromkeys(row.variant for row in rows):
        here = [row for row in rows if row.variant == name]
        allowed, hardware = here[0].tolerance, here[0].hardware
        title = (
            f"{name} on {hardware or device}: within {allowed.loss} nats, and "
            f"{allowed.gradient:.1%} of the gradient norm"
        )
        print_table(title, [row.as_dict() for row in here], _COLUMNS)
        print()
    failed = [row for row in rows if not row.agrees]
    for row in failed:
        print(f"{row.variant}, {row.design} {row.shape}: {row.error or 'does not agree'}")
    print(f"{len(rows) - len(failed)} of {len(rows)} cells agree with the CPU; {clock(seconds)}")


def _field(name: str) -> Callable[[Record], Any]:
    return lambda record: record[name]


def _memory(record: Record) -> str | None:
    return None if record["peak_memory_bytes"] is None else size(record["peak_memory_bytes"])


_COLUMNS = {
    "design": _field("design"),
    "shape": _field("shape"),
    "loss": _field("loss"),
    "CPU fp32": _field("cpu_loss"),
    "largest difference": _field("difference"),
    "gradient": _field("gradient"),
    "agrees": _field("agrees"),
    "tokens/s": _field("tokens_per_second"),
    "peak memory": _memory,
}
