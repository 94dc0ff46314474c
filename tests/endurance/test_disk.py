"""A disk that is full, and a checkpoint that lost its end: the cell goes on to the same loss."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from depthbench.folder import CellFolder
from tests.endurance.kit import (
    SAVING_EVERY_MINUTE,
    newest_checkpoint,
    size_on_disk,
    start_cell,
    steps_saved,
)
from tests.matrix.kit import wait_until

TENSORS_KEPT = 3  # the weights and two moments of each


@pytest.fixture
def small_disk(undisturbed: CellFolder, tmp_path: Path) -> Iterator[Path]:
    """Room for two checkpoints and a half: the third is the first that does not fit."""
    place = tmp_path / "disk"
    place.mkdir()
    room = int(2.5 * size_on_disk(newest_checkpoint(undisturbed)))
    command = ["mount", "-t", "tmpfs", "-o", f"size={room}", "none", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_costs_no_checkpoint_and_no_digit(
    config, undisturbed, small_disk, run_matrix
) -> None:
    folder = CellFolder(small_disk / config.folder_name())
    assert run_matrix([config], small_disk) == 1
    result = folder.result()
    assert result["status"] == "failed"
    numbers = [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]+", result["error"])]
    parameters = undisturbed.result()["ledger"]["parameters"]
    needed = [n for n in numbers if 0 <= n - 4 * TENSORS_KEPT * parameters < 4096]
    # Beside what a checkpoint takes some pages are taken by config, metrics and log.
    free = [n for n in numbers if needed[0] / 4 < n < needed[0]]
    assert (len(needed), len(free)) == (1, 1), result["error"]
    assert steps_saved(folder) == [1, 2]
    assert not list(folder.path.rglob(".*"))
    first, second, *_ = folder.metrics_path.read_bytes().splitlines()

    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert run_matrix([config], small_disk) == 0
    assert folder.result()["measures"] == undisturbed.result()["measures"]
    # Times are in these lines too: the first two steps were not run again.
    assert folder.metrics_path.read_bytes().splitlines()[:2] == [first, second]


def test_a_truncated_checkpoint_is_named_and_costs_one_step(
    config, undisturbed, run_matrix, tmp_path
) -> None:
    """What was cut off in writing is gone in the end, though nothing more had to be saved."""
    folder = CellFolder(tmp_path / config.folder_name())
    folder.create(config)
    with start_cell(folder) as process:
        wait_until(lambda: steps_saved(folder)[-1:] >= [3], seconds=120)
        process.kill()
    newest, step = newest_checkpoint(folder), steps_saved(folder)[-1]
    file = max((p for p in (newest, *newest.rglob("*")) if p.is_file()), key=size_on_disk)
    file.write_bytes(file.read_bytes()[:-100])
    (folder.checkpoints_path / f".{newest.name}.aside").write_bytes(b"cut off")
    before = folder.metrics_path.read_bytes().splitlines()[: step - 1]
    assert len(before) == step - 1

    assert run_matrix([config], tmp_path, command=SAVING_EVERY_MINUTE) == 0
    (line,) = [line for line in folder.log_path.read_text().splitlines() if newest.name in line]
    assert "damaged" in line
    assert folder.result()["measures"] == undisturbed.result()["measures"]
    # Times are in these lines too: what the checkpoint before had was not run again.
    assert folder.metrics_path.read_bytes().splitlines()[: step - 1] == before
    assert not list(folder.path.rglob(".*"))
