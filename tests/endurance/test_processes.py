"""Nothing outlives its parent, and cells at once do not take each other's ports."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from depthbench.config import Ranks
from depthbench.folder import CellFolder
from tests.matrix.kit import alive, wait_until

# Falls asleep for ten minutes, and says which processes have done so.
SLEEPER = """
import os, time
from pathlib import Path
from residuals import register
from residuals.pre_ln import PreLN

def sleep(where):
    if where == {where!r}:
        (Path(__file__).parent / f"asleep-{{os.getpid()}}").touch()
        time.sleep(600)

sleep("start-up")

@register
class Sleeper(PreLN):
    \"\"\"Pre-LN that may fall asleep.\"\"\"
    name, title = "sleeper", "Sleeper"

    def start(self, x):
        sleep("step")
        return super().start(x)
"""

PARENT = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
from depthbench import matrix
from depthbench.config import CellConfig
from depthbench.executors.local import LocalExecutor

out, plugin, config = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
cell = SimpleNamespace(config=CellConfig(**config), seconds=1.0, memory_bytes=1, disk_bytes=1)
matrix.run([cell], out, executor=LocalExecutor(1, [plugin]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a cell asks between steps")
@pytest.mark.parametrize(("where", "ranks"), [("start-up", 1), ("step", 1), ("step", 2)])
def test_ten_seconds_after_the_parents_death_no_cell_is_left(
    where, ranks, config, tmp_path
) -> None:
    """Though it still imports, or is in the middle of a step that would last much longer."""
    plugin = tmp_path / "sleeper.py"
    plugin.write_text(SLEEPER.format(where=where))
    design = config.design.model_copy(update={"name": "sleeper"})
    asleep = config.model_copy(update={"design": design, "ranks": Ranks(num=ranks)})
    arguments = (str(tmp_path), str(plugin), json.dumps(asleep.model_dump()))
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *arguments])
    try:
        wait_until(lambda: len(list(tmp_path.glob("asleep-*"))) == ranks, seconds=120)
    finally:
        parent.kill()
        parent.wait()
    pids = [int(path.name.rpartition("-")[2]) for path in tmp_path.glob("asleep-*")]
    try:
        wait_until(lambda: not any(alive(pid) for pid in pids), seconds=10)
    finally:
        for pid in filter(alive, pids):
            os.kill(pid, signal.SIGKILL)
    # A process counts as gone when its first thread is; what it held goes with the last one.
    folder = CellFolder(tmp_path / asleep.folder_name())
    wait_until(lambda: folder.status() != "running", seconds=5)


def test_two_cells_of_two_ranks_at_once_take_ports_of_their_own(
    config, run_matrix, tmp_path, monkeypatch
) -> None:
    """Even where the port that `torchrun` takes by default belongs to someone else."""
    monkeypatch.setenv("MASTER_PORT", "29500")
    cells = [
        config.model_copy(update={"ranks": Ranks(num=2), "seed": seed, "steps": 2})
        for seed in (1, 2)
    ]
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("", 29500))
        taken.listen()
        assert run_matrix(cells, tmp_path, jobs=2) == 0
    for cell in cells:
        result = CellFolder(tmp_path / cell.folder_name()).result()
        assert result["status"] == "done"
        assert result["environment"]["ranks"] == 2
