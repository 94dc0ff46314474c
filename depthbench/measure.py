"""What the suite asks of a cell once it is trained: layer probes and domain sets."""

import traceback
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch

from depthbench import domains, probes
from depthbench.config import CellConfig
from depthbench.data import Corpus
from depthbench.errors import DepthbenchError
from depthbench.folder import CellFolder, Metrics, truncate_metrics
from depthbench.model.decoder import LanguageModel
from depthbench.probes.executed import Executed
from depthbench.probes.run import finite, probe_windows
from depthbench.trained import TrainedCell, load_trained


class StoppedError(Exception):
    """Asked to stop between two measures."""


def check(corpus: Corpus, config: CellConfig) -> None:
    """Raises, before anything is trained, what would keep the cell from being measured."""
    asked = config.measures
    if asked.probes:
        probe_windows(corpus, config, asked.windows)
    if asked.domains:
        domains.prepare(True, asked.domains)


def layer_statistics(
    folder: CellFolder, corpus: Corpus, config: CellConfig
) -> Callable[[int, LanguageModel], None]:
    """What the trainer calls after every step: appends to `layers.jsonl` as often as asked.

    One forward and backward pass of the probes' windows; weights and gradients stay as they are.
    """
    every = config.measures.statistics_every
    if every is None:
        return lambda step, model: None
    windows = probe_windows(corpus, config, config.measures.windows)
    ids = torch.from_numpy(windows.astype(np.int64)).to(config.device)
    statistics = probes.get("statistics")

    def observe(step: int, model: LanguageModel) -> None:
        if step % every == 0:
            found = statistics.measure(Executed(model, ids[:, :-1], ids[:, 1:]), {})
            # Whoever resumed runs some steps again; theirs are the same numbers.
            truncate_metrics(folder.layers_path, step - 1)
            with Metrics(folder.layers_path) as records:
                records.append({"step": step, **finite(found.values)})

    return observe


def measure(
    folder: CellFolder, corpus: Corpus, stop: Callable[[], bool] = lambda: False
) -> dict[str, str]:
    """Measures the trained cell and writes the results into its folder.

    Returns the reason for each measure that failed: a trained cell is not lost for it. Raises
    `StoppedError` when `stop` says so.
    """
    asked = folder.config().measures
    missing: dict[str, str] = {}
    if not (asked.probes or asked.domains):
        return missing
    trained = load_trained(folder, corpus)
    for name, work in _tasks(trained):
        if stop():
            raise StoppedError
        try:
            work()
        except Exception as error:
            expected = isinstance(error, DepthbenchError)
            if not expected:
                traceback.print_exc()
            missing[name] = str(error) if expected else f"{type(error).__name__}: {error}"
            print(f"{name} not measured: {missing[name]}")
    return missing


def _tasks(trained: TrainedCell) -> Iterator[tuple[str, Callable[[], object]]]:
    asked = trained.config.measures
    if asked.probes:
        probing = probes.Probing.of(trained, asked.windows)
        for name in asked.probes:
            yield f"probe {name}", partial(probing.ask, name)
    if asked.domains:
        yield "domains", partial(_score, trained)


def _score(trained: TrainedCell) -> None:
    asked = trained.config.measures
    document = domains.evaluate(trained, domains=asked.domains, limit=asked.limit)
    domains.write(trained.folder, document)
