"""What is huge, endless, nested without end or no text at all is refused in a sentence."""

import gzip
import json
import os
from contextlib import suppress
from pathlib import Path
from zipfile import ZipFile

import pytest
from typer.testing import CliRunner

from depthbench import archives, matrix, report
from depthbench.cli import app
from depthbench.data import wheels
from depthbench.errors import DataError, DepthbenchError, InputError
from depthbench.folder import CellFolder, read_json
from depthbench.inputs import parse_yaml
from tests.report import cells as synthetic
from tests.security.kit import within

FILES = ("config.json", "result.json", "metrics.jsonl", "lock", "domains.json", "probes/x.json")


@pytest.fixture
def folder(tmp_path) -> Path:
    config = synthetic.config("pre-ln", (4, 128, 352), 1)
    folder = synthetic.write_cell(tmp_path / "theirs", config, synthetic.result(config, 4.0))
    (folder / "probes").mkdir()
    return folder


def replaced(folder: Path, name: str) -> Path:
    (folder / name).unlink(missing_ok=True)
    if name in ("lock", "metrics.jsonl"):
        (folder / "result.json").unlink()
    return folder / name


def shown(folder: Path) -> None:
    """Status and report come to an end: with a table, or with a refusal."""
    root = folder.parents[1]
    with within(60):
        matrix.status(root)
        with suppress(DepthbenchError):
            report.build([root], root / "out")


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_that_nobody_writes_to(folder, name) -> None:
    os.mkfifo(replaced(folder, name))
    shown(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_link_to_what_never_ends(folder, name) -> None:
    replaced(folder, name).symlink_to("/dev/zero")
    shown(folder)


@pytest.mark.parametrize("name", [name for name in FILES if name != "lock"])
def test_nesting_without_end(folder, name) -> None:
    replaced(folder, name).write_text('{"step": ' * 100_000)
    shown(folder)


def test_more_than_any_result_has(folder) -> None:
    path = replaced(folder, "result.json")
    with open(path, "wb") as file:
        file.truncate(2**30)  # a hole: it takes no disk
    with pytest.raises(DepthbenchError, match="no file of at most 268,435,456 bytes"):
        read_json(path)
    shown(folder)


def test_such_files_are_damage_of_one_cell_alone(folder) -> None:
    other = synthetic.config("pre-ln", (4, 128, 352), 2)
    synthetic.write_cell(folder.parents[1], other, synthetic.result(other, 4.0))
    os.mkfifo(replaced(folder, "result.json"))
    states = [line["status"] for line in matrix.status(folder.parents[1])]
    assert sorted(states) == ["done", "failed"]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 100_000, '{"a": 1', "\0"])
def test_a_damaged_file_is_named(tmp_path, text) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(DepthbenchError, match=r"x\.json cannot be read"):
        read_json(path)
    (tmp_path / "config.json").write_text(text)
    result = CliRunner().invoke(app, ["status", str(tmp_path)])
    assert result.exit_code == 0
    assert "failed" in result.output


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['touch canary']",
        "!!python/name:os.system",
        "!!python/object/new:subprocess.Popen [[touch, canary]]",
        "a: !!python/module:os",
    ],
)
def test_yaml_makes_no_objects(tmp_path, monkeypatch, text) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="could not determine a constructor"):
        parse_yaml(text, "x.yaml")
    suite = tmp_path / "x.yaml"
    suite.write_text(text)
    assert CliRunner().invoke(app, ["plan", str(suite)]).exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["x.yaml"]


def test_a_member_that_unpacks_to_too_much(tmp_path, monkeypatch) -> None:
    path = tmp_path / "bomb.whl"
    packed = tmp_path / "zeros.gz"
    packed.write_bytes(gzip.compress(bytes(2_000_000)))
    with ZipFile(path, "w") as archive:
        archive.writestr("big.txt", "x" * 2_000_000, compress_type=8)
        archive.writestr("small.txt", "x" * 1000)
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(archives, "MOST_BYTES", 1_000_000)
    assert list(wheels.members(path, ["small.*"], [])) == [("small.txt", "x" * 1000)]
    with pytest.raises(DataError, match=r"big\.txt has 2,000,000 bytes"):
        list(wheels.members(path, ["*"], []))
    with pytest.raises(DataError, match="zeros has more than 1,000,000 bytes once unpacked"):
        archives.gunzipped(packed.read_bytes(), "zeros")
    small = gzip.compress(bytes(1_000_000))
    assert archives.gunzipped(small, "zeros") == bytes(1_000_000)


def test_a_member_is_read_by_name_and_written_nowhere(tmp_path, monkeypatch) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    names = ["../../up.txt", "/tmp/depthbench-canary.txt", "plain.txt"]
    with ZipFile(inside / "x.whl", "w") as archive:
        for name in names:
            archive.writestr(name, name)
    found = dict(wheels.members(inside / "x.whl", ["*.txt"], []))
    assert found == {name: name for name in names}
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == ["x.whl"]
    assert not Path("/tmp/depthbench-canary.txt").exists()


def test_numbers_that_are_none(folder) -> None:
    document = json.loads((folder / "result.json").read_text())
    for loss in ("1e999", "NaN", "-Infinity", '"4"' * 2, "9" * 5000):
        text = json.dumps(document).replace('"loss": 4.0', f'"loss": {loss}')
        (folder / "result.json").write_text(text)
        shown(folder)
    assert CellFolder(folder).config_path.exists()
