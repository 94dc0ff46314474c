"""Running a suite from beginning to end: corpus, tuning where it is asked for, then its cells."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from depthbench import corpora, domains, matrix, tuning
from depthbench import plan as planning
from depthbench.config import CellConfig
from depthbench.console import bars
from depthbench.errors import DepthbenchError
from depthbench.executors import Executor
from depthbench.store import Record, records
from depthbench.suite import Suite

TUNING = "tuning"


def run_suite(
    suite: Suite,
    out: Path,
    jobs: int | None = None,
    plugins: Sequence[Path] = (),
    console: Console | None = None,
    executor: Executor | None = None,
) -> int:
    """Runs what is not finished, in folders under `out`; returns how many cells still are not.

    Cells for tuning lie under `out/tuning`; `executor`, if given, starts both in place of `jobs`
    and `plugins`. What cannot work is refused before anything is written.
    Raises `DepthbenchError` if a cell for tuning fails: without it there is no fair learning rate.
    """
    console = console or Console()
    text = (suite.corpus, suite.local, suite.hub)
    known = corpora.prepared_ref(*text) or corpora.declared_ref(*text)
    planned = planning.plan(suite, known)
    corpora.check_enough(suite.corpus, suite.hub, max(cell.config.tokens for cell in planned))
    with bars() as tell:
        corpus = corpora.prepare_ref(suite.corpus, suite.local, tell, suite.hub)
        if suite.measures.domains:
            domains.prepare(False, suite.measures.domains, progress=tell)

    def tried(cells: Sequence[CellConfig]) -> list[Record]:
        folder = out / TUNING
        if left := matrix.run(planning.estimate(cells), folder, jobs, plugins, console, executor):
            raise DepthbenchError(
                f"{left} of {len(cells)} cells for tuning under {folder} are not finished, and "
                "without them no learning rate is chosen: `depthbench status` names them; mend the "
                "cause and run the suite again"
            )
        return records([folder / cell.folder_name() for cell in cells])

    if suite.tune is not None:
        console.print(f"tuning learning rates of {len(suite.designs)} designs")
        rates = tuning.search(suite, corpus, tried)
        planned = planning.plan(suite, corpus, rates.at)
    elif corpus != known:
        planned = planning.plan(suite, corpus)
    return matrix.run(planned, out, jobs, plugins, console, executor)
