"""The short form of the trial, and that the trial would notice what it looks for."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from typer.testing import CliRunner

import residuals
from depthbench.config import CellConfig
from depthbench.endurance import __main__ as command
from depthbench.endurance import subject, trial, watch
from depthbench.endurance.subject import prepare
from depthbench.endurance.trial import MOMENTS, VICTIMS, Trial
from depthbench.endurance.verdict import differences
from depthbench.endurance.watch import RunningCell
from depthbench.errors import DepthbenchError, InputError
from depthbench.folder import CellFolder, find_cells, read_metrics, write_json

KILLS, SEED = 6, 24  # a seed with every victim and every moment among the first six


def test_a_matrix_that_is_killed_again_and_again_ends_with_the_same_losses(tmp_path) -> None:
    out = tmp_path / "trial"
    options = {"kills": KILLS, "cells": 2, "seed": SEED, "every": 0.2, "out": out}
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    done = subprocess.run(
        [sys.executable, "-m", "depthbench.endurance", *arguments],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((out / "endurance.json").read_text())
    assert len(found["kills"]) == KILLS
    assert {kill["victim"] for kill in found["kills"]} == set(VICTIMS)
    assert {kill["moment"] for kill in found["kills"]} == set(MOMENTS)
    assert found["orphans"] == []

    whole = {cell.path.name: cell for cell in find_cells(out / "reference")}
    rounds = sorted(out.glob("round-*/"))
    assert (len(whole), len(rounds)) == (2, max(kill["round"] for kill in found["kills"]))
    for place in rounds:
        cells = {cell.path.name: cell for cell in find_cells(place)}
        assert cells.keys() == whole.keys()
        for name, cell in cells.items():
            assert cell.status() == "done"
            assert losses(cell) == losses(whole[name])
            assert not list(cell.path.rglob(".*"))
    assert len(losses(next(iter(whole.values())))) == 30 + 3 + 1  # steps, evaluations, the result's
    running = [" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])]
    assert not [line for line in running if str(out) in line]


def losses(cell: CellFolder) -> list[float]:
    records = read_metrics(cell.metrics_path)
    seen = [record.get("evaluation", record)["loss"] for record in records]
    return [*seen, cell.result()["measures"]["loss"]]


def test_every_victim_is_due_at_every_moment() -> None:
    kinds = list(islice(trial._kinds(np.random.default_rng(0)), 45))
    assert set(Counter(kinds[:15]).values()) == {1}
    assert set(kinds[:15]) == {(victim, moment) for victim in VICTIMS for moment in MOMENTS}
    assert set(Counter(kinds).values()) == {3}
    assert kinds[:15] != kinds[15:30]


@pytest.fixture
def running(config, tmp_path) -> RunningCell:
    """As if this process ran the cell of ten steps, with two evaluations, since just now."""
    folder = CellFolder(tmp_path / "cell")
    folder.checkpoints_path.mkdir(parents=True)
    points = config.evaluation.model_copy(update={"points": 2})
    config = config.model_copy(update={"evaluation": points, "steps": 10})
    return RunningCell(psutil.Process(), folder, config, time.time() - 60)


def append(folder: CellFolder, **record: Any) -> None:
    with open(folder.metrics_path, "a") as file:
        file.write(json.dumps(record) + "\n")


def test_what_a_cell_is_at_is_read_off_the_disk(running) -> None:
    folder, seen = running.folder, []

    def see() -> None:
        seen.append(running.moment())

    see()
    append(folder, step=4, loss=1.0)
    see()
    append(folder, step=5, loss=1.0)
    see()
    append(folder, step=5, evaluation={})
    see()
    aside = folder.checkpoints_path / ".step-000000005.aside"
    aside.mkdir()
    see()
    aside.rename(folder.checkpoints_path / "step-000000005")
    see()
    append(folder, step=10, loss=1.0)
    see()
    append(folder, step=10, evaluation={})
    see()
    assert seen == [
        *("start-up", "training", "evaluation", "training", "checkpoint", "training"),
        *("evaluation", "end"),
    ]


def test_what_an_earlier_process_left_says_nothing_of_this_one(running) -> None:
    append(running.folder, step=10, evaluation={})
    aside = running.folder.checkpoints_path / ".step-000000007.aside"
    aside.touch()
    long_ago = running.since - 1
    for path in (running.folder.metrics_path, aside):
        os.utime(path, (long_ago, long_ago))
    assert running.moment() == "start-up"
    append(running.folder, step=7, loss=1.0)
    assert (running.moment(), running.half_written()) == ("training", [])


def test_a_departure_of_one_bit_is_found(undisturbed, tmp_path) -> None:
    cell = CellFolder(tmp_path / "cell")
    shutil.copytree(undisturbed.path, cell.path)
    assert differences(undisturbed, cell) == []
    result = cell.result()
    write_json(cell.result_path, result | {"times": {}, "ledger": None})
    assert differences(undisturbed, cell) == []

    loss = result["measures"]["loss"]
    measures = result["measures"] | {"loss": np.nextafter(loss, 9.0).item()}
    write_json(cell.result_path, result | {"measures": measures})
    assert differences(undisturbed, cell) == ["result.json: measures"]
    write_json(cell.result_path, result)

    records = read_metrics(cell.metrics_path)
    records[3]["grad_norm"] = np.nextafter(records[3]["grad_norm"], 9.0).item()
    whole = cell.metrics_path.read_bytes()
    cell.metrics_path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert differences(undisturbed, cell) == ["metrics.jsonl"]
    cell.metrics_path.write_bytes(whole)

    weights = bytearray(cell.model_path.read_bytes())
    weights[-1] ^= 1
    cell.model_path.write_bytes(weights)
    cell.layers_path.touch()
    (cell.path / ".result.json.aside").touch()
    assert differences(undisturbed, cell) == [
        *("model.safetensors", "layers.jsonl", "left: .result.json.aside"),
    ]
    cell.result_path.unlink()
    assert "result.json: status" in differences(undisturbed, cell)


def as_parent(monkeypatch: pytest.MonkeyPatch, path: Path, script: str) -> None:
    """Runs the script, with the arguments `matrix`, plan, folder and jobs, in a parent's place."""
    (path / "parent.py").write_text(f"import os, subprocess, sys, time\n{script}")
    replaced = (sys.executable, str(path / "parent.py"))
    for module in (watch, command):
        monkeypatch.setattr(module, "COMMAND", replaced)


def test_what_outlives_its_parent_is_found(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(trial, "GRACE_SECONDS", 0.5)
    sleeper = "import time; time.sleep(30)"
    as_parent(
        monkeypatch,
        tmp_path,
        f"child = subprocess.Popen([sys.executable, '-c', {sleeper!r}], start_new_session=True)\n"
        "print(child.pid)\n",
    )
    found = Trial(tmp_path, 0)
    found.run()
    pid = int((tmp_path / "round-1.log").read_text())
    psutil.Process(pid).kill()
    assert [orphan.split()[0] for orphan in found.orphans] == [str(pid)]


def test_a_failure_that_nobody_caused_is_not_run_again(monkeypatch, tmp_path) -> None:
    as_parent(monkeypatch, tmp_path, "sys.exit(1)")
    with pytest.raises(DepthbenchError, match=r"exit code 1: see .*round-1\.log"):
        Trial(tmp_path, 3).run()


def test_a_moment_that_never_comes_ends_the_trial(monkeypatch, tmp_path) -> None:
    as_parent(monkeypatch, tmp_path, "")  # every cell is finished at once, and none was ever seen
    kind = iter([("cell", "checkpoint")])
    monkeypatch.setattr(trial, "_kinds", lambda draw: kind)
    with pytest.raises(DepthbenchError, match="no checkpoint at which to kill"):
        Trial(tmp_path, 1, every=0.0).run()
    assert len(list(tmp_path.glob("round-*.log"))) == 3


@pytest.mark.parametrize("departure", [0.0, 2.3e-16])
def test_the_command_says_by_its_exit_code_whether_it_held(
    departure, config, undisturbed, monkeypatch, tmp_path
) -> None:
    """The departure is relative, of one loss of the round."""
    out = tmp_path / "out"
    as_parent(
        monkeypatch,
        tmp_path,
        "import json, shutil\nfrom pathlib import Path\n"
        "place = Path(sys.argv[3])\n"
        f"shutil.copytree({str(undisturbed.path)!r}, place / 'cell')\n"
        "path = place / 'cell' / 'result.json'\n"
        "result = json.loads(path.read_text())\n"
        f"result['measures']['loss'] *= 1 + {departure} * (place.name == 'round-1')\n"
        "path.write_text(json.dumps(result))\n",
    )
    monkeypatch.setattr("depthbench.endurance.subject.prepare", lambda out, *_: out.mkdir())
    shown = CliRunner().invoke(command.app, ["--kills", "0", "--out", str(out)])
    document = json.loads((out / "endurance.json").read_text())
    (row,) = document["cells"]
    assert (shown.exit_code, document["held"]) == ((1, False) if departure else (0, True))
    assert row["differs"] == (["result.json: measures"] if departure else [])
    assert ("BROKEN" if departure else "equal") in shown.output


def test_a_folder_that_was_used_is_refused(tmp_path) -> None:
    (tmp_path / "plan.json").touch()
    with pytest.raises(InputError, match="not empty"):
        prepare(tmp_path, None, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_suite_that_tunes_is_refused_before_anything_is_written(tmp_path) -> None:
    with pytest.raises(InputError, match="tunes first"):
        prepare(tmp_path / "out", "laptop", 2)
    assert not (tmp_path / "out").exists()


def test_a_suite_is_cut_to_so_many_cells(endurance_corpus, tmp_path) -> None:
    text = endurance_corpus.path.parents[2] / "rows.jsonl"
    shapes = [{"layers": 1, "d_model": 8, "ffn": 8, "heads": 2}]
    ladder = {"match_on": None, "vocab_size": 280, "norm_eps": 1e-6, "shapes": shapes}
    suite = {
        "name": "three",
        "designs": ["pre-ln", "keel", "hc"],
        "ladder": ladder,
        "seeds": [1],
        "corpus": str(text),
        "local": {"vocab_size": 280, "validation_share": 0.2},
        "sequence_length": 8,
        "batch_size": 2,
        "budget": {"tokens": 64},
        "learning_rate": {"default": 0.01},
        "evaluation": {"tokens": 64},
    }
    (tmp_path / "three.yaml").write_text(json.dumps(suite))
    prepare(tmp_path / "out", str(tmp_path / "three.yaml"), 2)
    planned = json.loads((tmp_path / "out" / "plan.json").read_text())["cells"]
    assert [cell["config"]["design"]["name"] for cell in planned] == ["pre-ln", "keel"]
    assert [CellConfig.model_validate(cell["config"]).steps for cell in planned] == [4, 4]


@pytest.mark.parametrize("cells", [1, 4, 25])
def test_its_own_cells_are_enough_and_different(cells, tmp_path) -> None:
    suite = subject._own(tmp_path, cells)
    assert len(suite.designs) * len(suite.seeds) >= cells
    assert len(suite.designs) >= min(cells, len(residuals.names()))
    assert Path(os.environ["DEPTHBENCH_CACHE"]).is_relative_to(tmp_path)
