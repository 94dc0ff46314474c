"""What is made of a job's last state and of what its cell left. No Slurm is needed."""

import subprocess
import time
from pathlib import Path

import pytest

from depthbench.errors import DepthbenchError, InputError
from depthbench.executors import Task
from depthbench.executors.slurm import SlurmExecutor, SlurmOptions
from depthbench.executors.slurm_job import Job, needs
from depthbench.executors.slurm_queue import Queue
from depthbench.folder import write_json


def job(folder: Path, status: str | None, memory_bytes: int = 1) -> Job:
    if status:
        write_json(folder / "result.json", {"schema": 1, "status": status})
    task = Task(folder, "cpu", 1, 1, memory_bytes, 1.0)
    return Job(task, "12_3", folder / "12_3_0_log.out", time.time())


@pytest.mark.parametrize(
    ("state", "status", "code", "said"),
    [
        ("COMPLETED", "done", 0, None),
        ("COMPLETED", "diverged", 0, None),
        (None, "done", 0, None),
        ("CANCELLED", "done", 0, None),
        ("FAILED", "interrupted", 75, None),
        (None, "interrupted", 75, None),
        ("TIMEOUT", None, 75, None),
        ("PREEMPTED", None, 75, None),
        ("NODE_FAIL", None, 75, None),
        ("PREEMPTED", "interrupted", 75, None),
        ("CANCELLED", "interrupted", 1, "job 12_3 was cancelled, though not by depthbench"),
        ("CANCELLED", None, 1, "was cancelled"),
        ("FAILED", None, 1, "ended as FAILED, and the cell left no result"),
        ("COMPLETED", None, 1, "ended as COMPLETED, and the cell left no result"),
        (None, None, 1, "12_3 is not known to Slurm any more"),
        ("PENDING:BadConstraints", None, 1, "can start on no node: BadConstraints"),
        ("PENDING:BadConstraints", "interrupted", 1, "can start on no node"),
        ("OUT_OF_MEMORY", None, 1, "Planned for it were 7,654,321 bytes"),
    ],
)
def test_the_folder_is_believed_first(
    tmp_path: Path, state: str | None, status: str | None, code: int, said: str | None
) -> None:
    given = job(tmp_path, status, memory_bytes=7_654_321)
    assert given.ended(late=0.0) is None
    given.see(state)
    ended = given.ended(late=0.0)
    assert ended is not None
    assert ended.returncode == code
    if said is None:
        assert ended.reason == ""
    else:
        assert said in ended.reason
        assert str(tmp_path / "12_3_0_log.out") in ended.reason


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED"])
def test_what_may_yet_run_has_not_ended(tmp_path: Path, state: str) -> None:
    given = job(tmp_path, "interrupted")
    given.see(state)
    assert given.ended(late=0.0) is None


def test_a_result_may_come_to_light_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written by another node, it can be hidden for as long as a network disk's cache lasts."""
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    given = job(tmp_path, None)
    given.see("RUNNING")
    now[0] = 1100.0
    given.see("COMPLETED")
    assert given.ended(late=60.0) is None
    now[0] = 1159.0
    assert given.ended(late=60.0) is None
    late = given.ended(late=59.0)
    assert late is not None
    assert (late.returncode, late.started) == (1, 1000.0)
    write_json(tmp_path / "result.json", {"schema": 1, "status": "done"})
    found = given.ended(late=60.0)
    assert found is not None
    assert found.returncode == 0


def test_a_job_that_no_node_can_take_waits_a_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    given = job(tmp_path, "interrupted")
    given.see("PENDING:PartitionConfig")
    now[0] = 1050.0
    given.see("PENDING")
    given.see("PENDING:PartitionConfig")
    now[0] = 1109.0
    assert given.ended(late=60.0) is None
    now[0] = 1110.0
    assert given.ended(late=60.0) is not None


@pytest.mark.parametrize(
    ("mebibytes", "asked"), [(0.001, 1), (1, 1), (1.5, 2), (100, 128), (128, 128), (129, 256)]
)
def test_memory_is_rounded_up_to_a_power_of_two(mebibytes: float, asked: int) -> None:
    told = needs(Task(Path("cell"), "cpu", 2, 3, int(mebibytes * 2**20), 1.0))
    assert told == {"nodes": 1, "ntasks_per_node": 1, "cpus_per_task": 6, "mem": f"{asked}M"}


def test_options_are_told_to_sbatch_and_those_given_replace_the_derived() -> None:
    options = SlurmOptions(
        partition="gpu",
        account="a1",
        qos="low",
        time_minutes=90,
        grace_seconds=30,
        additional_parameters={"gpus-per-node": "a100:4", "signal": "USR1@9", "exclusive": True},
    )
    assert options.parameters() == {
        "partition": "gpu",
        "account": "a1",
        "qos": "low",
        "time": 90,
        "signal": "USR1@9",
        "requeue": True,
        "gpus_per_node": "a100:4",
        "exclusive": True,
    }


def test_a_silent_slurm_is_borne_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    answer = subprocess.CompletedProcess("squeue", 1, "", "Unable to contact slurm controller\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    queue = Queue("depthbench-1")
    now[0] = 3599.0
    assert queue.states() is None
    lines = ("12 0 RUNNING None", "12 1 PENDING Resources, and more", "9 N/A FAILED NonZeroExit")
    answer.returncode, answer.stdout = 0, "\n".join([*lines, "7  N/A  PENDING  BadConstraints  "])
    states = {"12_0": "RUNNING", "12_1": "PENDING", "9": "FAILED", "7": "PENDING:BadConstraints"}
    assert queue.states() == states
    answer.returncode = 1
    now[0] = 3599.0 + 3599.0
    assert queue.states() is None
    now[0] = 3599.0 + 3601.0
    with pytest.raises(DepthbenchError, match="for an hour; squeue says: Unable to contact"):
        queue.states()


def test_without_slurm_the_executor_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="sbatch, scancel, scontrol, squeue, srun not found"):
        SlurmExecutor(SlurmOptions())
