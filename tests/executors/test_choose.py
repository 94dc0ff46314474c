"""An executor by name and options."""

import subprocess
import sys
from pathlib import Path

import pytest

from depthbench.errors import EXIT_USAGE, InputError
from depthbench.executors import slurm
from depthbench.executors.choose import NAMES, choose
from depthbench.executors.local import LocalExecutor
from depthbench.executors.slurm import SlurmExecutor


def test_cells_run_on_this_machine_as_many_as_are_wanted(tmp_path: Path) -> None:
    for executor in (choose("local", ["jobs=3"]), choose("local", jobs=3)):
        assert isinstance(executor, LocalExecutor)
        assert executor.slots == 3


@pytest.mark.parametrize(
    ("name", "settings", "jobs", "said"),
    [
        ("slrum", [], None, r"unknown executor 'slrum'.*slurm"),
        ("local", ["job=3"], None, r"--executor-set of local: job = 3: .*jobs"),
        ("local", ["jobs=0"], None, r"--executor-set of local: jobs = 0: "),
        (
            "slurm",
            ["partiton=gpu"],
            None,
            r"--executor-set of slurm: partiton = 'gpu': .*partition",
        ),
        ("slurm", ["time_minutes=soon"], None, r"time_minutes = 'soon'"),
        ("slurm", ["additional_parameters.mem=[1]"], None, r"additional_parameters\.mem"),
        ("slurm", [], 2, r"--jobs 2 is of the local executor"),
        ("ray", ["retry=1"], None, r"--executor-set of ray: retry = 1: .*retries"),
        ("slurm", ["partition"], None, r"partition: write it as path=value"),
    ],
)
def test_what_cannot_be_is_said(
    name: str, settings: list[str], jobs: int | None, said: str
) -> None:
    with pytest.raises(InputError, match=f"(?s){said}") as refused:
        choose(name, settings, jobs=jobs)
    assert refused.value.exit_code == EXIT_USAGE


def test_options_and_plugins_reach_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []
    monkeypatch.setattr(slurm, "require", asked.append)
    settings = ["partition=gpu", "additional_parameters.constraint=a100", "grace_seconds=30"]
    executor = choose("slurm", settings, [Path("mine.py")])
    assert isinstance(executor, SlurmExecutor)
    assert asked == [
        {"partition": "gpu", "signal": "TERM@30", "requeue": True, "constraint": "a100"}
    ]


def test_no_engine_is_imported_before_it_is_chosen() -> None:
    code = (
        "import sys, depthbench.executors.choose as c; c.choose('local'); "
        "sys.exit(bool({'ray', 'submitit', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert NAMES == ("local", "slurm", "ray")
