"""Rows from cell folders: the one place that reads results back.

A row is one cell. What cannot be read stays a row, with status `failed` and the reason.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from pydantic import BaseModel, ValidationError

from depthbench import columns
from depthbench.config import CellConfig
from depthbench.errors import DepthbenchError, InputError
from depthbench.folder import FINISHED, CellFolder, last_training_record, read_json
from depthbench.results import DomainScores, Part, ProbeSummary, Result

Record = dict[str, Any]
M = TypeVar("M", bound=BaseModel)

COLUMNS: dict[str, str] = {name: column.dtype for name, column in columns.COLUMNS.items()}
"""Type of every column, in order."""


def cell_folders(root: Path) -> list[Path]:
    """Folders at or under `root` that hold a `config.json` or `result.json`, sorted by path.

    Raises `InputError` when `root` is not a folder.
    """
    if not root.is_dir():
        raise InputError(f"{root} is not a folder: name a result folder, such as runs/quick")
    return list(_walk(root))


def _walk(folder: Path) -> Iterator[Path]:
    if (folder / "config.json").is_file() or (folder / "result.json").is_file():
        yield folder
        return
    for child in sorted(folder.iterdir()):
        if child.is_dir() and not child.is_symlink():
            yield from _walk(child)


def rows(folders: Iterable[Path]) -> pd.DataFrame:
    """One row per cell; columns are `COLUMNS`, then `loss/<source>` for every validation source.

    Where domains were evaluated, `domains` is the hash of that evaluation, and every domain has
    `domain/<name>` (nats per token), `domain_low/<name>` and `domain_high/<name>` (95 %) and
    `domain_bpb/<name>` (bits per byte); what probes sum up is `probe/<name>/<what>`. All these are
    filled for cells that are `done`, and only for those. Folders that hold the same cell with the
    same outcome become one row that names the others in `copies`; an unfinished copy gives way to a
    finished one. Raises `InputError` when one digest has two outcomes.
    """
    records = _merged(_record(folder) for folder in _distinct(folders))
    open_ended = {key for record in records for key in record if key.startswith(columns.PREFIXES)}
    types = COLUMNS | dict.fromkeys(sorted(open_ended, key=_place), columns.REAL)
    series = {
        name: pd.Series([record.get(name) for record in records], dtype=kind)
        for name, kind in types.items()
    }
    return pd.DataFrame(series)


def _place(column: str) -> tuple[int, str]:
    kind, _, name = column.partition("/")
    return columns.PREFIXES.index(f"{kind}/"), name


def _distinct(folders: Iterable[Path]) -> list[Path]:
    first: dict[Path, Path] = {}
    for folder in folders:
        first.setdefault(folder.resolve(), folder)
    return list(first.values())


def _record(path: Path) -> Record:
    base = {"suite": path.resolve().parent.name, "cell": path.name, "path": str(path)}
    folder = CellFolder(path)
    faults: list[str] = []
    config = _read(folder.config_path, CellConfig, faults)
    written = folder.result_path.exists()
    result = _read(folder.result_path, Result, faults) if written else None
    domains_path = path / "domains.json"
    measured = domains_path.exists()
    anew = f"Run `depthbench eval {path}`"
    domains = _read(domains_path, DomainScores, faults, anew) if measured else None
    again = f"Run `depthbench probe {path}`"
    paths = sorted(folder.probes_path.glob("*.json"))
    probes = [_read(found, ProbeSummary, faults, again) for found in paths]
    if config and result and config.digest() != result.config.digest():
        faults.append(f"{folder.result_path} is of another config.json. Run the cell again")
    known = config or (result.config if result else None)
    if known:
        base |= _of_config(known)
    if faults:
        return base | {"status": "failed", "error": "; ".join(faults), "digest": None}
    if result:
        base |= _of_result(result)
    if base.get("status") == "done":
        base |= _of_domains(domains) if domains else {}
        base |= _of_probes(probes)
    return base if base.get("status") in FINISHED else base | _unfinished(folder)


def _read(
    path: Path, model: type[M], faults: list[str], remedy: str = "Run the cell again"
) -> M | None:
    """The file as a `model`, or None and a sentence in `faults`."""
    try:
        return model.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        faults.append(f"{path} is damaged: {where}: {first['msg']}. {remedy}")
    except DepthbenchError as error:
        faults.append(f"{error}. {remedy}")
    return None


def records(folders: Iterable[Path]) -> list[Record]:
    """The rows as plain values."""
    return plain(rows(folders))


def plain(frame: pd.DataFrame) -> list[Record]:
    """Rows of a table as plain values, None where there is none."""
    values = frame.astype(object)
    values = values.where(values.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in values.to_dict("records")]


def _of_config(config: CellConfig) -> Record:
    evaluated = {"tokens": config.evaluation.tokens}
    recipe = config.optimizer.model_dump(exclude={"learning_rate"}) | {"norm_eps": config.norm_eps}
    plain = ("ladder", "match", "seed", "sequence_length", "batch_size", "steps", "tokens")
    return {
        **{name: getattr(config, name) for name in plain},
        **config.shape.model_dump(),
        "suite": config.suite,
        "role": config.role,
        "rate_at_edge": config.tuned.edge if config.tuned else None,
        "tuned": config.tuned.model_dump_json() if config.tuned else None,
        "digest": config.digest(),
        "design": config.design.name,
        "design_version": config.design.version,
        "options": json.dumps(config.design.options, sort_keys=True),
        "loop": config.loop.model_dump_json() if config.loop else None,
        "T": config.loop.forward if config.loop else 1,
        "B": config.loop.backward if config.loop else 1,
        "D": config.tokens,
        "aspect_ratio": config.shape.aspect_ratio,
        "learning_rate": config.optimizer.learning_rate,
        "budget": config.budget,
        "precision": config.precision,
        "recipe": json.dumps(recipe, sort_keys=True),
        "corpus": config.corpus.name,
        "corpus_hash": config.corpus.hash,
        "tokenizer_hash": config.corpus.tokenizer_hash,
        "vocab_size": config.corpus.vocab_size,
        "evaluation": hashlib.sha256(json.dumps(evaluated).encode()).hexdigest()[:12],
        "evaluation_tokens": config.evaluation.tokens,
        "device": config.device,
        "ranks": config.ranks.num,
        "threads": config.threads,
        "config": config.model_dump_json(),
    }


def _of_result(result: Result) -> Record:
    record: Record = {
        "status": result.status,
        "step": result.step,
        "diverged_step": result.diverged_step,
        "error": result.error,
        "conformance": result.conformance,
        **_in_columns(result.times),
        **_in_columns(result.environment),
        **_in_columns(result.ledger),
    }
    if result.ledger:
        record["added_share"] = result.ledger.added_by_design_share
        record |= {"N_once": result.ledger.once, "N_rec": result.ledger.recurrent}
    if result.measures and result.status == "done":
        record |= _in_columns(result.measures)
        record |= {f"loss/{name}": loss for name, loss in result.measures.loss_by_source.items()}
    return record


def _of_probes(probes: Iterable[ProbeSummary | None]) -> Record:
    """What each probe sums up, as `probe/<name>/<what>`; the rest stays in its file."""
    return {
        f"probe/{probe.probe}/{what}": value
        for probe in probes
        if probe
        for what, value in probe.summary.items()
    }


def _of_domains(measured: DomainScores) -> Record:
    record: Record = {"domains": measured.evaluation}
    for name, domain in measured.domains.items():
        record[f"domain/{name}"] = domain.nats_per_token
        record[f"domain_low/{name}"], record[f"domain_high/{name}"] = domain.interval
        record[f"domain_bpb/{name}"] = domain.bits_per_byte
    return record


def _in_columns(part: Part | None) -> Record:
    given = part.model_dump(exclude_none=True) if part else {}
    return {name: value for name, value in given.items() if name in COLUMNS}


def _unfinished(folder: CellFolder) -> Record:
    """Status, and the step that was logged last."""
    logged = last_training_record(folder.metrics_path)
    return {"status": folder.status()} | ({"step": logged["step"]} if logged else {})


def _merged(records: Iterable[Record]) -> list[Record]:
    """One record per digest; a damaged cell has none and stays."""
    kept: dict[str, Record] = {}
    for record in records:
        key = record.get("digest") or record["path"]
        kept[key] = _same_cell(kept[key], record) if key in kept else record
    return list(kept.values())


def _same_cell(first: Record, second: Record) -> Record:
    if first["status"] in FINISHED and second["status"] in FINISHED:
        outcome = ("status", "diverged_step", "loss", "bits_per_byte")
        differing = [n for n in outcome if first.get(n) != second.get(n)]
        if differing:
            values = "; ".join(f"{n} {first.get(n)} and {second.get(n)}" for n in differing)
            raise InputError(
                f"{first['path']} and {second['path']} are one experiment "
                f"(digest {first['digest']}) with two outcomes: {values}. "
                "A repeat is not another seed: leave one of the folders out"
            )
    if second["status"] in FINISHED and first["status"] not in FINISHED:
        first, second = second, first
    measured = {k: v for k, v in second.items() if k.startswith(("domain", "probe/"))}
    first = measured | first
    copies = [c for c in (first.get("copies"), second["path"], second.get("copies")) if c]
    return first | {"copies": "; ".join(copies)}
