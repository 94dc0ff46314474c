"""The verb that prepares corpora."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from depthbench.console import bars, size
from depthbench.errors import InputError

if TYPE_CHECKING:
    from depthbench.data.hub.estimate import Estimate

data_app = typer.Typer(no_args_is_help=True)


@data_app.callback()
def _data() -> None:
    """Prepare corpora."""


@data_app.command()
def prepare(
    name: Annotated[
        str,
        typer.Argument(
            help="A known corpus, hf:owner/name, or a txt, jsonl or parquet file or folder."
        ),
    ] = "pypi-text",
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="How local text is read, as text=body, or what is taken of a hub corpus.",
        ),
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(help="Of a hub corpus, for training: 8B, 400M or a number.")
    ] = None,
    subset: Annotated[
        str | None, typer.Option(help="Of a hub corpus, as its card calls it.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Of a hub corpus; default train.")] = None,
    source: Annotated[
        Path | None,
        typer.Option(help="A folder laid out like the hub repository, to read instead."),
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="A tokenizer.json to use instead of the hub's.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="That tokenise a hub corpus; default one per core.")
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Use what is at hand.")] = False,
) -> None:
    """Fetch, tokenise and store a corpus in the cache; print its folder."""
    from depthbench import data
    from depthbench.data.hub.options import hub_corpus
    from depthbench.inputs import overridden, validated

    of_hub = {"tokens": tokens, "subset": subset, "split": split}
    of_hub = {key: value for key, value in of_hub.items() if value is not None}
    by_hand = {"--source": source, "--tokenizer": tokenizer, "--processes": processes}
    local, hub = data.LocalOptions(), data.HubOptions()
    if hub_corpus(name, hub) is not None:
        hub = validated(data.HubOptions, overridden(of_hub, overrides or ()), name)
    else:
        unused = [f"--{key}" for key in of_hub] + [
            key for key, v in by_hand.items() if v is not None
        ]
        if unused:
            raise InputError(f"{', '.join(unused)}: {name} is no corpus of the hub")
        local = validated(
            data.LocalOptions, overridden({}, overrides or ()), "how local text is read"
        )

    def announce(ahead: "Estimate") -> None:
        print(f"{name}: {said(ahead)}", file=sys.stderr)

    access = data.HubAccess(source, tokenizer, processes, announce)
    with bars() as tell:
        folder = data.prepare(
            name, offline=offline, on_progress=tell, local=local, hub=hub, access=access
        )
    print(folder)


def said(ahead: "Estimate") -> str:
    """What will be fetched, how long it takes and how much disk it needs, in a sentence."""
    from depthbench.progress import clock

    download = f"{size(ahead.download_bytes)} to download, " if ahead.download_bytes else ""
    return (
        f"{ahead.shards} shards, {download}{size(ahead.text_bytes)} of text at "
        f"{ahead.sample.bytes_per_token:.2f} bytes per token; tokenising takes about "
        f"{clock(ahead.seconds)} in {ahead.processes} processes at "
        f"{size(ahead.sample.bytes_per_second)} a second each; at most {size(ahead.disk_bytes)} of "
        "disk"
    )
