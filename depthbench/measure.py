"""What the suite asks of a cell once it is trained: layer probes and domain sets."""

import traceback
from collections.abc import Callable, Iterator
from functools import partial

from depthbench import domains, probes
from depthbench.config import CellConfig
from depthbench.data import Corpus
from depthbench.errors import DepthbenchError
from depthbench.folder import CellFolder
from depthbench.probes.run import probe_windows
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
