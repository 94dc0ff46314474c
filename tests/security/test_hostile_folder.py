"""A folder of results from someone else is read, compared, rendered and measured; never run."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import depthbench
from depthbench import matrix
from depthbench.config import CellConfig
from depthbench.executors import Task
from depthbench.executors.local import LocalExecutor
from depthbench.folder import CellFolder
from tests.harness.kit import build_corpus, done_cell
from tests.matrix.kit import wait_until
from tests.report import cells as synthetic
from tests.report.kit import domains_document, probe_document, square, write_measures
from tests.security.kit import TRICKS, booby_trap, pickled

ROOT = str(Path(depthbench.__file__).parents[1])

# As the installed command: what it imports first lies in the folder of this script.
COMMAND = """
import json, sys
from typer.testing import CliRunner
from depthbench.cli import app

told = []
for arguments in json.loads(sys.argv[1]):
    result = CliRunner().invoke(app, arguments)
    told.append([result.exit_code, result.output, repr(result.exception)])
print(json.dumps(told))
"""


@pytest.fixture
def canary(tmp_path) -> Path:
    return tmp_path / "canary"


@pytest.fixture
def hostile(tmp_path, canary) -> Path:
    """One folder with sound cells whose every text is a trick, and with what is no cell at all."""
    root = tmp_path / "theirs"
    for trick in TRICKS:
        config = synthetic.config("pre-ln", (4, 128, 352), 1, ladder=trick)
        environment = {"host": trick, "cpu": trick, "device": trick}
        document = synthetic.result(config, 4.0, environment=environment, conformance=trick)
        document["not_measured"] = {f"probe {trick}": trick}
        folder = synthetic.write_cell(root, config, document)
        domains = domains_document({"coding": 2.0}, unavailable={trick: trick})
        probes = [probe_document("angular", {"distance": square(5)}, title=trick, unit=trick)]
        write_measures(folder, probes, domains)
        (folder / "probes" / "evil.json").write_text(json.dumps(probes[0] | {"probe": trick}))
        booby_trap(folder, canary)
    other = synthetic.config("__import__('os')", (8, 96, 256), 1)
    failed = synthetic.result(other, None, error="\n".join(TRICKS))
    synthetic.write_cell(root, other, failed)
    for file in ("config.json", "result.json", "domains.json", "metrics.jsonl"):
        broken = root / f"pickled-{file}"
        broken.mkdir()
        for name in ("config.json", "result.json"):
            (broken / name).write_bytes((folder / name).read_bytes())
        (broken / file).write_bytes(pickled(canary))
    booby_trap(root, canary)
    return root


def commands(place: Path, cwd: Path, *arguments: list[str]) -> list[Any]:
    """Exit code, output and exception of each command, typed in the folder `cwd`."""
    script = place / "bin" / "run"
    script.parent.mkdir(exist_ok=True)
    script.write_text(COMMAND)
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(arguments)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_it_is_shown_reported_and_compared_and_nothing_of_it_is_run(
    hostile, tmp_path, canary
) -> None:
    out = tmp_path / "report"
    told = commands(
        tmp_path,
        hostile,
        ["status", "."],
        ["report", ".", "--out", str(out)],
        ["compare", ".", str(out)],
        ["compare", str(out), "paper", "--html", str(tmp_path / "page.html")],
        ["list", "designs"],
    )
    assert not canary.exists()
    assert [code for code, *_ in told] == [0, 0, 0, 3, 0], told
    page = (out / "index.html").read_text()
    assert "{{ &#39;&#39;.__class__.__mro__[1].__subclasses__() }}" in page
    assert "&lt;class" not in page
    assert "mappingproxy" not in page
    assert "evil" not in told[4][1]


def test_its_cells_are_measured_and_nothing_of_them_is_run(tmp_path, canary, monkeypatch) -> None:
    corpus = build_corpus(tmp_path)
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))
    sound = done_cell(tmp_path / "theirs" / "sound", corpus)
    broken = done_cell(tmp_path / "theirs" / "broken", corpus, seed=2)
    unknown = done_cell(tmp_path / "theirs" / "unknown", corpus, seed=3)
    broken.model_path.write_bytes(pickled(canary))
    config = json.loads(unknown.config_path.read_text())
    config["design"]["name"] = "plugin"
    unknown.config_path.write_text(json.dumps(config))
    for folder in (sound, broken, unknown):
        booby_trap(folder.path, canary)
        checkpoint = folder.checkpoints_path / "step-000000012"
        checkpoint.mkdir(parents=True)
        for name in (".metadata", "__0_0.distcp", "model.pt"):
            (checkpoint / name).write_bytes(pickled(canary))
    told = commands(
        tmp_path,
        sound.path,
        ["probe", ".", "--probe", "pruning", "--windows", "2"],
        ["export", ".", "--out", str(tmp_path / "model")],
        *([verb, str(broken.path)] for verb in ("probe", "eval")),
        *([verb, str(unknown.path)] for verb in ("probe", "eval")),
    )
    assert not canary.exists()
    assert [code for code, *_ in told] == [0, 0, 1, 1, 2, 2], told
    assert "cannot be read" in told[2][1]
    assert "here is no such design" in told[4][1]
    assert (sound.probes_path / "pruning.json").exists()


def test_a_cell_that_names_a_plugin_is_damaged(tmp_path, canary) -> None:
    config = synthetic.config("pre-ln", (4, 128, 352), 1)
    folder = synthetic.write_cell(tmp_path, config, None)
    (folder / "plugin.py").write_text(f"open({str(canary)!r}, 'w')")
    document = json.loads((folder / "config.json").read_text())
    for key, value in (("plugin", "plugin.py"), ("plugins", ["plugin.py"])):
        (folder / "config.json").write_text(json.dumps(document | {key: value}))
        [line] = matrix.status(tmp_path)
        assert line["status"] == "failed"
        assert "Extra inputs are not permitted" in line["error"]
    assert not canary.exists()


def test_a_cell_is_started_from_any_folder_with_the_installed_modules(
    tmp_path, canary, monkeypatch
) -> None:
    """`python -m` would look for `depthbench` in the folder where the command was typed."""
    booby_trap(tmp_path, canary)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ROOT)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    folder = CellFolder(tmp_path / "cell")
    folder.create(CellConfig.model_validate(synthetic.config("pre-ln", (4, 128, 352), 1)))
    executor = LocalExecutor(cores=1, memory_bytes=100)
    executor.submit([Task(folder.path, "cpu", 1, 1, 1, 1.0)])
    executor.poll()
    ended = []
    wait_until(lambda: bool(ended.extend(executor.poll()) or ended), seconds=120)
    assert not canary.exists()
    assert "the cell needs corpus" in folder.log_path.read_text()


def test_what_the_command_starts_imports_nothing_from_there(tmp_path, monkeypatch) -> None:
    from depthbench import cli

    (tmp_path / "beside.py").write_text("print('imported')")
    monkeypatch.setattr(cli, "app", lambda prog_name: None)
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    child = [sys.executable, "-c", "import beside"]
    assert subprocess.run(child, cwd=tmp_path, capture_output=True).returncode == 0
    cli.main()
    assert subprocess.run(child, cwd=tmp_path, capture_output=True).returncode == 1
