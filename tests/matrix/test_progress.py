"""What the terminal shows while the matrix runs."""

import io
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from depthbench import matrix, progress
from depthbench.executors.local import LocalExecutor
from depthbench.folder import CellFolder
from tests.matrix.kit import Bench, planned


def test_a_terminal_shows_running_cells_and_the_matrix(bench: Bench) -> None:
    console = Console(file=bench.written, width=120, force_terminal=True, color_system=None)
    executor = LocalExecutor(command=[sys.executable, str(bench.cell)], cores=2)
    assert (
        matrix.run([planned("long", steps=14)], bench.out, console=console, executor=executor) == 0
    )
    text = bench.written.getvalue()
    assert "fake L2 d8 seed 0" in text
    assert "loss" in text
    assert "2.5k tok/s" in text
    assert "matrix 0/1 finished, 0 failed, 1 running" in text


@pytest.mark.parametrize(
    ("running", "waiting", "slots", "expected"),
    [
        ([], [], 2, 0.0),
        ([5.0, 1.0], [], 2, 5.0),
        ([5.0, 1.0], [3.0, 2.0], 2, 6.0),
        ([], [4.0, 3.0, 3.0], 2, 6.0),
        ([], [4.0, 3.0, 3.0], 1, 10.0),
        ([2.0, 9.0], [1.0], 1, 9.0),
    ],
)
def test_time_left_fills_free_slots_in_order(
    running: list[float], waiting: list[float], slots: int, expected: float
) -> None:
    assert progress.time_left(running, waiting, slots) == expected


def test_time_left_follows_the_measured_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell planned at 1000 s that takes 1000 s for its first half is half as fast as planned."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "_PRIOR_SECONDS", 0.001)
    first, second = planned("good", 0, steps=100), planned("good", 1, steps=100)
    tracks = {
        tmp_path / name: progress.Track(CellFolder(tmp_path / name), cell.config, 1000.0, name)
        for name, cell in (("first", first), ("second", second))
    }
    for path in tracks:
        path.mkdir()
    written = io.StringIO()
    with progress.Progress(Console(file=written, width=200), tracks) as shown:
        shown.refresh([tmp_path / "first"], 1)
        (tmp_path / "first/metrics.jsonl").write_text('{"step": 50, "loss": 1.0}\n')
        now[0] = 1000.0
        shown.refresh([tmp_path / "first"], 1)
    # 500 planned seconds of the first cell and 1000 of the second, each taking two.
    assert "elapsed 16:40, about 50:00 left" in written.getvalue()


def test_labels_are_short_and_never_shared() -> None:
    one, two, other = planned("a").config, planned("b").config, planned("a", seed=1).config
    assert progress.labels([one, two, other]) == [
        one.folder_name(),
        two.folder_name(),
        "fake L2 d8 seed 1",
    ]
    assert [progress.clock(s) for s in (0.4, 59.6, 3599.0, 3661.0)] == [
        "0:00",
        "1:00",
        "59:59",
        "1:01:01",
    ]
    assert [progress.rate(r) for r in (None, 312.4, 15_260.0)] == [
        "- tok/s",
        "312 tok/s",
        "15.3k tok/s",
    ]
