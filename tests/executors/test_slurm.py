"""Cells under a real Slurm of one node: what it is told, and what becomes of the cells."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from depthbench.errors import InputError
from depthbench.executors import Ended, Task
from depthbench.executors.slurm import SlurmExecutor, SlurmOptions
from depthbench.folder import read_result
from tests.executors.kit import PARENT, queue, run_beside, slurm
from tests.matrix.kit import Bench, planned, wait_until

pytestmark = pytest.mark.usefixtures("in_slurm", "own_cache")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "cache"))


def ended(executor: SlurmExecutor, num: int = 1) -> list[Ended]:
    """Waits for the first `num`."""
    found: list[Ended] = []

    def enough() -> bool:
        found.extend(executor.poll())
        return len(found) >= num

    wait_until(enough, seconds=60)
    return found


def test_failures_stay_in_their_cells_and_say_where_to_look(bench: Bench) -> None:
    good, diverging, raising = planned("good"), planned("diverges"), planned("raises")
    executor = slurm(bench)
    left, text = run_beside([good, diverging, raising], bench.out, executor, lambda: None)
    assert left == 1
    states = [bench.folder(cell).status() for cell in (good, diverging, raising)]
    assert states == ["done", "diverged", "failed"]
    error = read_result(bench.folder(raising).result_path)["error"]
    assert "ended as FAILED, and the cell left no result" in error
    assert "RuntimeError: boom of the cell" in error
    assert "1 of 3 cells done, 1 diverged, 1 not finished" in text
    log = bench.folder(good).log_path.read_text()
    assert log.count("cell starts as Slurm job") == 1
    assert queue(executor) == {}


def test_a_cell_gets_what_its_task_needs(bench: Bench, tmp_path: Path) -> None:
    """Two ranks of two threads with a GPU each."""
    script = 'env > "$1/env"; shift; echo "$@" > "$0"'
    folder = tmp_path / "task"
    folder.mkdir()
    executor = SlurmExecutor(
        SlurmOptions(additional_parameters={"comment": "a note", "time-min": 1}, time_minutes=7),
        [tmp_path / "mine.py"],
        command=("/bin/sh", "-c", script, str(tmp_path / "arguments")),
        every=0.3,
        late=0.0,
    )
    executor.submit([Task(folder, "cuda", 2, 2, 100 * 2**20, 1.0)])
    (number,) = queue(executor)
    shown = subprocess.run(
        ["scontrol", "show", "job", number], capture_output=True, text=True, check=True
    ).stdout
    for told in ("NumNodes=1", "NumCPUs=4", "NumTasks=1", "Requeue=1", "=a note"):
        assert told in shown, told
    assert "TimeLimit=00:07:00 TimeMin=00:01:00" in shown
    ended(executor)
    given = dict(line.partition("=")[::2] for line in (folder / "env").read_text().splitlines())
    assert given["OMP_NUM_THREADS"] == given["MKL_NUM_THREADS"] == "2"
    assert given["SLURM_GPUS_ON_NODE"] == "2"
    (script,) = (tmp_path / "cache/slurm").glob("*/*_submission.sh")
    (srun,) = (line for line in script.read_text().splitlines() if line.startswith("srun"))
    assert "--cpus-per-task=4" in srun  # else it is bound to one of them where there are bindings
    assert (tmp_path / "arguments").read_text() == f"--plugin {tmp_path}/mine.py\n"
    executor.stop()


def test_no_more_run_at_once_than_the_array_allows(bench: Bench) -> None:
    cells = [planned("long", seed, steps=15) for seed in range(4)]
    executor = slurm(bench, array_parallelism=2)
    seen: list[list[str]] = []

    def watch() -> None:
        while not all(bench.folder(cell).result_path.exists() for cell in cells):
            seen.append(list(queue(executor).values()))
            time.sleep(0.2)

    left, _ = run_beside(cells, bench.out, executor, watch)
    assert left == 0
    assert max(states.count("RUNNING") for states in seen) == 2
    assert all(len(states) <= 4 for states in seen)


@pytest.mark.parametrize("requeues", [10, 0])
def test_an_interrupted_cell_goes_on_and_no_other(bench: Bench, requeues: int) -> None:
    """Slurm queues it again itself; where that is forbidden, the matrix submits it again."""
    cells = [planned("long", seed, steps=40) for seed in (0, 1)]
    executor = slurm(bench, requeues=requeues)

    def interrupt() -> None:
        wait_until(lambda: all(len(bench.steps(cell)) > 2 for cell in cells), seconds=60)
        last = max(queue(executor))
        assert last.endswith("_1")
        subprocess.run(["scancel", "--signal=TERM", last], check=True)

    left, text = run_beside(cells, bench.out, executor, interrupt)
    assert left == 0
    assert all(bench.steps(cell) == list(range(1, 41)) for cell in cells)
    quiet, disturbed = (bench.folder(cell).log_path.read_text() for cell in cells)
    assert quiet.count("begins after step") == 1
    assert disturbed.count("begins after step") == 2
    assert disturbed.count("begins after step 0\n") == 1
    assert len(set(_job_numbers(disturbed))) == (1 if requeues else 2)
    assert ("to be started again" in text) == (requeues == 0)


def _job_numbers(log: str) -> list[str]:
    return [line.split("Slurm job ")[1] for line in log.splitlines() if "Slurm job " in line]


def test_a_cell_makes_way_for_a_more_urgent_job_and_comes_back(bench: Bench) -> None:
    cell = planned("long", steps=40)
    executor = slurm(bench)

    def preempt() -> None:
        wait_until(lambda: len(bench.steps(cell)) > 2, seconds=60)
        urgent = ["sbatch", "--wait", "--partition=urgent", "--cpus-per-task=4", "--wrap=true"]
        subprocess.run([*urgent, f"--output={bench.path}/urgent"], check=True)
        assert bench.folder(cell).status() != "done"

    left, _ = run_beside([cell], bench.out, executor, preempt)
    assert left == 0
    assert bench.steps(cell) == list(range(1, 41))
    assert bench.folder(cell).log_path.read_text().count("begins after step") == 2


def test_stop_lets_cells_save_and_the_executor_serves_again(bench: Bench) -> None:
    running, waiting = planned("long", 0, steps=30), planned("long", 1, steps=30)
    tasks = []
    for cell in (running, waiting):
        bench.folder(cell).create(cell.config)
        tasks.append(Task(bench.folder(cell).path, "cpu", 1, 1, 1, 1.0))
    executor = slurm(bench, array_parallelism=1)
    executor.submit(tasks)
    wait_until(lambda: len(bench.steps(running)) > 2 and not executor.poll(), seconds=60)
    assert executor.running() == [tasks[0]]
    executor.stop()
    assert queue(executor) == {}
    assert [bench.folder(cell).status() for cell in (running, waiting)] == [
        "interrupted",
        "pending",
    ]
    executor.submit(tasks)
    assert {end.returncode for end in ended(executor, 2)} == {0}
    assert bench.steps(running) == list(range(1, 31))
    executor.stop()
    assert not list((bench.path / "cache/slurm").iterdir())


def test_a_cell_that_does_not_save_in_time_is_ended(bench: Bench) -> None:
    stubborn = planned("stubborn", steps=10_000)
    bench.folder(stubborn).create(stubborn.config)
    executor = slurm(bench, grace_seconds=1)
    executor.submit([Task(bench.folder(stubborn).path, "cpu", 1, 1, 1, 1.0)])
    wait_until(lambda: len(bench.steps(stubborn)) > 0, seconds=60)
    executor.stop()
    assert queue(executor) == {}
    assert bench.folder(stubborn).status() == "interrupted"


def test_a_cell_that_is_cancelled_by_hand_is_left_alone(bench: Bench) -> None:
    cell = planned("long", steps=10_000)
    executor = slurm(bench)

    def cancel() -> None:
        wait_until(lambda: len(bench.steps(cell)) > 0, seconds=60)
        subprocess.run(["scancel", f"--name={executor.name}"], check=True)

    left, text = run_beside([cell], bench.out, executor, cancel)
    assert left == 1
    assert bench.folder(cell).log_path.read_text().count("begins") == 1
    assert "was cancelled, though not by depthbench" in text


def test_jobs_outlive_a_killed_parent_and_the_same_command_waits_for_them(bench: Bench) -> None:
    cell = planned("long", steps=100)
    script = bench.path / "parent.py"
    script.write_text(PARENT)
    configs = json.dumps([cell.config.model_dump()])
    parent = subprocess.Popen([sys.executable, script, bench.out, bench.cell, configs])
    wait_until(lambda: len(bench.steps(cell)) > 2, seconds=60)
    parent.kill()
    parent.wait()
    executor = slurm(bench)
    left, _ = run_beside([cell], bench.out, executor, lambda: None)
    assert left == 0
    assert bench.steps(cell) == list(range(1, 101))
    assert bench.folder(cell).log_path.read_text().count("begins") == 1


def test_what_sbatch_refuses_is_said_before_anything_is_submitted() -> None:
    with pytest.raises(InputError, match=r"--partition=nowhere.* invalid partition specified"):
        SlurmExecutor(SlurmOptions(partition="nowhere"))
    with pytest.raises(InputError, match="--no-such-option"):
        SlurmExecutor(SlurmOptions(additional_parameters={"no_such_option": 1}))
    wait_until(lambda: queue() == {})


def test_a_cell_that_fits_no_node_is_contained(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    executor = slurm(bench)
    executor.submit([Task(tmp_path / "large", "cpu", 3, 3, 1, 1.0)])  # waits for nine CPUs
    [end] = ended(executor)
    assert end.returncode == 1
    assert "can start on no node: PartitionConfig" in end.reason
    assert queue(executor) == {}
    executor.submit([Task(tmp_path / "large", "cpu", 1, 1, 2**40, 1.0)])
    [end] = executor.poll()
    assert end.returncode == 1
    assert "Memory specification can not be satisfied" in end.reason
    executor.stop()


def test_jobs_may_wait_for_nodes_that_are_down(bench: Bench) -> None:
    good = planned("good")
    node = ["scontrol", "update", "nodename=one"]
    subprocess.run([*node, "state=drain", "reason=test"], check=True)
    try:
        executor = slurm(bench)
    finally:
        subprocess.run([*node, "state=resume"], check=True)
    left, _ = run_beside([good], bench.out, executor, lambda: None)
    assert left == 0


def test_from_inside_a_job_another_is_submitted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a job tells of itself would ask srun for memory twice, in ways that exclude each other.

    A person's own format for squeue changes nothing either.
    """
    for name, value in {
        "SLURM_JOB_ID": "1",
        "SLURM_MEM_PER_CPU": "4000",
        "SLURM_CPUS_PER_TASK": "3",
        "SLURM_NTASKS": "9",
        "SQUEUE_STATES": "PENDING",
    }.items():
        monkeypatch.setenv(name, value)
    left, _ = run_beside([planned("good")], bench.out, slurm(bench), lambda: None)
    assert left == 0
    assert os.environ["SLURM_NTASKS"] == "9"
