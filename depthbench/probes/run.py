"""Probing a trained cell: the sample, the pass, and the files beside its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from depthbench.config import CellConfig
from depthbench.data import Corpus
from depthbench.data.progress import Progress, silent
from depthbench.errors import InputError
from depthbench.folder import CellFolder, read_json, replacing, write_json
from depthbench.probes import registry
from depthbench.probes.executed import Executed
from depthbench.train.evaluate import windows_by_source
from depthbench.trained import TrainedCell
from residuals import unknown

SCHEMA = 1


@dataclass(frozen=True)
class Probing:
    """A trained cell, run once on its sample, to which probes can be put."""

    trained: TrainedCell
    stack: Executed
    num_windows: int

    @classmethod
    def of(cls, trained: TrainedCell, windows: int) -> "Probing":
        """Runs `windows` held-out windows. Raises `InputError` if there are not as many."""
        sample = probe_windows(trained.corpus, trained.config, windows)
        ids = torch.from_numpy(sample.astype(np.int64)).to(trained.model.embedding.weight.device)
        return cls(trained, Executed(trained.model, ids[:, :-1], ids[:, 1:]), windows)

    def ask(self, name: str, thresholds: Mapping[str, float] | None = None) -> dict[str, Any]:
        """The document of one probe, also written to `probes/<name>.json`, with its picture."""
        probe = registry.get(name)
        limits = probe.thresholds | dict(thresholds or {})
        findings = probe.measure(self.stack, limits)
        corpus, config = self.trained.corpus, self.trained.config
        document = {
            "schema": SCHEMA,
            "probe": probe.name,
            "title": probe.title,
            "definition": probe.definition,
            "unit": probe.unit,
            "axes": list(probe.axes),
            "scale": list(probe.scale) if probe.scale else None,
            "thresholds": limits,
            "sample": {
                "corpus": corpus.name,
                "corpus_hash": corpus.hash,
                "windows": self.num_windows,
                "tokens": self.stack.targets_BT.numel(),
                "sequence_length": config.sequence_length,
            },
            "design": config.design.model_dump(),
            "reason": findings.reason,
            "summary": finite(findings.summary),
            "values": finite(findings.values),
        }
        _write(self.trained.folder, probe, document)
        return document


def probe_cell(
    trained: TrainedCell,
    names: Sequence[str] = (),
    windows: int = 8,
    thresholds: Mapping[str, float] | None = None,
    progress: Progress = silent,
) -> dict[str, dict[str, Any]]:
    """Puts the probes, all by default, to the cell; their documents by name.

    `thresholds` overrides by `<probe>.<threshold>`. The model's weights are not touched. Raises
    `InputError` for an unknown name or threshold, before anything runs.
    """
    asked = [registry.get(name).name for name in names or registry.names()]
    limits = _by_probe(asked, thresholds or {})
    probing = Probing.of(trained, windows)
    documents, label = {}, trained.folder.path.name
    for done, name in enumerate(asked):
        progress(label, done, len(asked))
        documents[name] = probing.ask(name, limits[name])
    progress(label, len(asked), len(asked))
    return documents


def probe_windows(corpus: Corpus, config: CellConfig, num: int) -> NDArray[Any]:
    """`num` validation windows (num, T + 1) of all sources, the same for every cell."""
    windows = np.concatenate(list(windows_by_source(corpus, config).values()))
    if not 1 <= num <= len(windows):
        raise InputError(
            f"windows = {num}, and the validation set of this cell has {len(windows)}: "
            "ask for at least 1 and no more than that"
        )
    chosen: NDArray[Any] = windows[np.linspace(0, len(windows) - 1, num).round().astype(int)]
    return chosen


def read_documents(folder: CellFolder) -> dict[str, dict[str, Any]]:
    """What was found in the cell so far, by probe. Raises `DepthbenchError` for a damaged file."""
    paths = sorted(folder.probes_path.glob("*.json"))
    return {path.stem: read_json(path) for path in paths}


def _by_probe(names: Sequence[str], given: Mapping[str, float]) -> dict[str, dict[str, float]]:
    limits: dict[str, dict[str, float]] = {name: {} for name in names}
    known = [f"{name}.{threshold}" for name in names for threshold in registry.get(name).thresholds]
    for path, value in given.items():
        if path not in known:
            raise InputError(unknown("threshold", path, known))
        if not isfinite(value):
            raise InputError(f"threshold {path} = {value}: give a finite number")
        name, _, threshold = path.partition(".")
        limits[name][threshold] = float(value)
    return limits


def finite(value: Any) -> Any:
    """The value with None for what is not a finite number: a ratio to nothing has no value."""
    if isinstance(value, dict):
        return {name: finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _write(folder: CellFolder, probe: registry.Probe, document: dict[str, Any]) -> None:
    if folder.probes_path.is_symlink():
        raise InputError(f"{folder.probes_path} leads out of the cell's folder: remove the link")
    folder.probes_path.mkdir(exist_ok=True)
    if document["values"]:
        from depthbench.probes.pictures import draw  # matplotlib: not for a list of names

        with replacing(folder.probes_path / f"{probe.name}.png") as path:
            path.write_bytes(draw(probe, document["values"]))
    write_json(folder.probes_path / f"{probe.name}.json", document)
