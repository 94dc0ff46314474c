"""Stopped, killed or orphaned: cells save, end, and go on."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.matrix.kit import Bench, alive, planned, wait_until


def test_interrupt_lets_cells_save_and_the_next_run_goes_on(bench: Bench) -> None:
    cells = [planned("long", 0, 30), planned("long", 1, 30), planned("good", 2)]
    parent = bench.parent(*cells)
    wait_until(lambda: all(len(bench.steps(cell)) > 2 for cell in cells[:2]))
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
    output, _ = parent.communicate()
    assert parent.returncode == 75
    assert "Stopped with 0 of 3 cells finished" in output
    assert "the same command" in output
    assert not any(alive(bench.pid(cell)) for cell in cells[:2])
    states = [bench.folder(cell).status() for cell in cells]
    assert states == ["interrupted", "interrupted", "pending"]
    reached = bench.steps(cells[0])[-1]
    assert reached < 30
    assert bench.run(*cells) == 0
    assert bench.steps(cells[0]) == list(range(1, 31))
    assert f"from step {reached}" in bench.written.getvalue()


def test_a_cell_that_ignores_the_request_is_killed_after_the_grace(bench: Bench) -> None:
    stubborn = planned("stubborn", steps=10_000)
    parent = bench.parent(stubborn, grace=0.5)
    wait_until(lambda: len(bench.steps(stubborn)) > 0)
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(timeout=10) == 75
    assert not alive(bench.pid(stubborn))
    assert bench.folder(stubborn).status() == "interrupted"


def test_a_second_interrupt_does_not_wait(bench: Bench) -> None:
    stubborn = planned("stubborn", steps=10_000)
    parent = bench.parent(stubborn, grace=60.0)
    wait_until(lambda: len(bench.steps(stubborn)) > 0)
    parent.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert parent.poll() is None
    parent.send_signal(signal.SIGINT)
    assert parent.wait(timeout=10) == 75
    assert not alive(bench.pid(stubborn))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the cell itself asks")
def test_no_cell_outlives_a_killed_parent(bench: Bench) -> None:
    cell = planned("long", steps=10_000)
    parent = bench.parent(cell)
    wait_until(lambda: len(bench.steps(cell)) > 0)
    parent.kill()
    parent.wait()
    wait_until(lambda: not alive(bench.pid(cell)), seconds=10)
    assert bench.folder(cell).status() == "interrupted"


def test_a_parent_that_died_before_the_watch_is_noticed(bench: Bench) -> None:
    code = "from depthbench.executors.local import watch_parent; watch_parent()"
    environment = os.environ | {"DEPTHBENCH_PARENT": str(os.getpid())}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0
    environment["DEPTHBENCH_PARENT"] = str(os.getppid())
    done = subprocess.run([sys.executable, "-c", code], env=environment)
    assert done.returncode == -signal.SIGTERM
