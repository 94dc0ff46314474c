"""Probing a trained cell: the sample, the pass, and the files beside its result."""

import json
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from depthbench.config import CellConfig
from depthbench.data import Corpus
from depthbench.errors import InputError
from depthbench.folder import CellFolder, read_json, replacing, write_json
from depthbench.probes import registry
from depthbench.probes.executed import Executed
from depthbench.probes.pictures import draw
from depthbench.train.evaluate import windows_by_source
from depthbench.trained import TrainedCell
from residuals import unknown

SCHEMA = 1


def probe_cell(
    trained: TrainedCell,
    names: Sequence[str] = (),
    windows: int = 8,
    thresholds: Mapping[str, float] | None = None,
    on_progress: Callable[[str], None] = lambda name: None,
) -> dict[str, dict[str, Any]]:
    """Runs the probes, all by default, and writes `probes/<name>.json` and `.png`; by name.

    `thresholds` overrides by `<probe>.<threshold>`. The model's weights are not touched. Raises
    `InputError` for an unknown name or threshold, before anything runs.
    """
    asked = [registry.get(name) for name in names or registry.names()]
    limits = {probe.name: _thresholds(probe, thresholds or {}) for probe in asked}
    _check(thresholds or {}, limits)
    sample = probe_windows(trained.corpus, trained.config, windows)
    ids = torch.from_numpy(sample.astype(np.int64)).to(trained.model.embedding.weight.device)
    stack = Executed(trained.model, ids[:, :-1], ids[:, 1:])
    documents = {}
    for probe in asked:
        on_progress(probe.name)
        findings = probe.measure(stack, limits[probe.name])
        document = {
            "schema": SCHEMA,
            "probe": probe.name,
            "title": probe.title,
            "definition": probe.definition,
            "unit": probe.unit,
            "thresholds": limits[probe.name],
            "sample": {
                "corpus": trained.corpus.name,
                "corpus_hash": trained.corpus.hash,
                "windows": len(sample),
                "tokens": int(ids[:, 1:].numel()),
                "sequence_length": trained.config.sequence_length,
            },
            "design": trained.config.design.model_dump(),
            "reason": findings.reason,
            "summary": _finite(findings.summary),
            "values": _finite(findings.values),
        }
        _write(trained.folder, probe, document)
        documents[probe.name] = document
    return documents


def probe_windows(corpus: Corpus, config: CellConfig, num: int) -> NDArray[Any]:
    """`num` validation windows (num, T + 1) of all sources, the same for every cell."""
    windows = np.concatenate(list(windows_by_source(corpus, config).values()))
    if num > len(windows):
        raise InputError(
            f"windows = {num}, and the validation set of this cell has {len(windows)}: ask for less"
        )
    chosen: NDArray[Any] = windows[np.linspace(0, len(windows) - 1, num).round().astype(int)]
    return chosen


def read_documents(folder: CellFolder) -> dict[str, dict[str, Any]]:
    """What was found in the cell so far, by probe. Raises `DepthbenchError` for a damaged file."""
    paths = sorted(folder.probes_path.glob("*.json"))
    return {path.stem: read_json(path) for path in paths}


def _thresholds(probe: registry.Probe, given: Mapping[str, float]) -> dict[str, float]:
    return {
        name: float(given.get(f"{probe.name}.{name}", default))
        for name, default in probe.thresholds.items()
    }


def _check(given: Mapping[str, float], limits: Mapping[str, Mapping[str, float]]) -> None:
    known = [f"{probe}.{name}" for probe, names in limits.items() for name in names]
    for path in given:
        if path not in known:
            raise InputError(unknown("threshold", path, known))


def _finite(value: Any) -> Any:
    """Plain values with None for what is not a finite number: a ratio to nothing has no value."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _write(folder: CellFolder, probe: registry.Probe, document: dict[str, Any]) -> None:
    folder.probes_path.mkdir(exist_ok=True)
    if document["values"]:
        with replacing(folder.probes_path / f"{probe.name}.png") as path:
            path.write_bytes(draw(probe, document["values"]))
    write_json(folder.probes_path / f"{probe.name}.json", json.loads(json.dumps(document)))
