"""Links and names in someone else's folder lead nowhere; a terminal shows them and obeys none."""

import json
import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from depthbench import report
from depthbench.cli import app
from depthbench.console import Reporting
from depthbench.errors import InputError
from depthbench.folder import CellFolder, replacing, write_json
from depthbench.track_verbs import track
from tests.harness.kit import build_corpus, done_cell
from tests.kit import cell_config
from tests.report import cells as synthetic

MINE = "what the user keeps elsewhere"
EVIL = "\x1b]0;mine\x07\x1b[2J\u202e[red]x[/nothing]\x9b31m"


@pytest.fixture
def mine(tmp_path) -> Path:
    path = tmp_path / "home" / ".profile"
    path.parent.mkdir()
    path.write_text(MINE)
    return path


@pytest.fixture
def theirs(tmp_path) -> Path:
    config = synthetic.config("pre-ln", (4, 128, 352), 1)
    root = tmp_path / "theirs"
    return synthetic.write_cell(root, config, synthetic.result(config, 4.0))


def test_a_file_is_never_written_through_a_link(tmp_path, mine) -> None:
    for name in ("domains.json", ".domains.json.aside"):
        (tmp_path / name).symlink_to(mine)
    write_json(tmp_path / "domains.json", {"a": 1})
    assert mine.read_text() == MINE
    assert json.loads((tmp_path / "domains.json").read_text()) == {"a": 1}
    assert not (tmp_path / "domains.json").is_symlink()
    (tmp_path / ".x.aside").symlink_to(mine)
    with replacing(tmp_path / "x") as aside:
        aside.write_text("whole")
    assert (tmp_path / "x").read_text() == "whole"
    assert mine.read_text() == MINE


def test_a_lock_is_never_made_through_a_link(theirs, mine) -> None:
    target = mine.with_name("new")
    (theirs / "lock").symlink_to(target)
    with pytest.raises(OSError, match="symbolic link"), CellFolder(theirs).lock():
        pass
    assert not target.exists()


def test_a_report_goes_through_no_link(theirs, mine) -> None:
    root = theirs.parents[1]
    (root / "report").symlink_to(mine.parent)
    result = CliRunner().invoke(app, ["report", str(root)])
    assert result.exit_code == 2
    assert "is a link" in result.output
    assert [path.name for path in mine.parent.iterdir()] == [".profile"]
    with pytest.raises(InputError, match="is a link"):
        report.build([root], root / "report")
    own = mine.parent / "web"
    own.mkdir()
    (mine.parent / "link").symlink_to(own)
    report.build([root], mine.parent / "link")  # of the user's own
    assert (own / "index.html").exists()


def test_pictures_of_a_report_replace_links(theirs, mine) -> None:
    root = theirs.parents[1]
    out = root / "report"
    out.mkdir()
    for name in ("index.html", "rows.csv", "leaderboard.json", "loss_vs_aspect.svg"):
        (out / name).symlink_to(mine)
        (out / f".{name}.aside").symlink_to(mine)
    report.build([root], out)
    assert mine.read_text() == MINE
    assert "<html" in (out / "index.html").read_text()


def test_a_probe_goes_through_no_link(tmp_path, mine, monkeypatch) -> None:
    corpus = build_corpus(tmp_path)
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))
    folder = done_cell(tmp_path / "cell", corpus)
    folder.probes_path.symlink_to(mine.parent)
    result = CliRunner().invoke(app, ["probe", str(folder.path), "--windows", "2"])
    assert result.exit_code != 0
    assert "leads out of the cell's folder" in result.output
    assert [path.name for path in mine.parent.iterdir()] == [".profile"]


def test_a_tracker_is_told_through_no_link(theirs, mine) -> None:
    pytest.importorskip("tensorboard")
    root = theirs.parents[1]
    command = ["track", str(root), "--to", "tensorboard"]
    app = typer.Typer(cls=Reporting, pretty_exceptions_enable=False)
    app.command("track")(track)
    app.command("other")(lambda: None)
    place = root / "tensorboard"
    place.symlink_to(mine.parent)
    assert CliRunner().invoke(app, command).exit_code == 2
    place.unlink()
    place.mkdir()
    (place / theirs.parent.name).symlink_to(mine.parent)
    assert CliRunner().invoke(app, command).exit_code == 1
    (place / "lock").unlink()
    (place / "lock").symlink_to(mine.with_name("lock"))
    assert CliRunner().invoke(app, command).exit_code == 1
    assert [path.name for path in mine.parent.iterdir()] == [".profile"]


def test_folders_are_not_searched_through_links(theirs, tmp_path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "up").symlink_to(tmp_path)
    (other / "loop").symlink_to(other)
    assert CliRunner().invoke(app, ["status", str(other), "--json"]).stdout.strip() == "[]"
    with pytest.raises(InputError, match="no cell under"):
        report.build([other], tmp_path / "out")


@pytest.mark.parametrize("name", ["../../../home/x", "/etc/x", "a/b", "..", "a\0b", "a\nb"])
def test_a_design_name_is_no_path(name) -> None:
    config = cell_config({"name": name, "version": 1})
    folder = Path("runs") / config.folder_name()
    assert folder.parent == Path("runs")
    assert Path(os.path.normpath(folder)).parts[0] == "runs"
    assert folder.name.isprintable()


def test_folders_of_designs_are_named_as_they_are() -> None:
    config = cell_config("full-attnres")
    assert config.folder_name() == f"full-attnres-L2-d8-s1-{config.digest()[:8]}"


def test_a_terminal_obeys_no_cell(tmp_path) -> None:
    """Names of folders, designs and errors, in a table and in a message."""
    config = synthetic.config(EVIL, (4, 128, 352), 1)
    document = synthetic.result(config, None, error=f"{EVIL}\nsecond line")
    folder = synthetic.write_cell(tmp_path / "theirs", config, document)
    folder.rename(folder.with_name(f"cell {EVIL}".replace("/", "")))
    for arguments in (["status", str(tmp_path)], ["probe", str(tmp_path / f"none {EVIL}")]):
        output = CliRunner().invoke(app, arguments).output
        for control in ("\x1b", "\x07", "\x9b", "\u202e"):
            assert control not in output
        assert r"\x1b]0;mine\x07\x1b[2J\u202e[red]x[" in output


def test_a_title_of_a_table_is_text(tmp_path, monkeypatch) -> None:
    corpus = build_corpus(tmp_path)
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))
    folder = done_cell(tmp_path / "[red]a[nothing]", corpus)
    result = CliRunner().invoke(
        app, ["probe", str(folder.path), "--probe", "pruning", "--windows", "2"]
    )
    assert result.exit_code == 0, result.output
    assert "[red]a[nothing]" in result.output.replace("\n", "")
