"""Designs by name, version and file."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import residuals
from depthbench.config import DesignRef
from depthbench.model.decoder import build_decoder
from residuals import registry
from tests.residuals.kit import VOCAB, shape_of, stack_of, tokens_of

DESIGN = '''
"""A design in a file of its own."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from residuals import State, register
from residuals.pre_ln import PreLN

SCALE = 0.5


@dataclass(frozen=True)
class Settings:
    scale: float = SCALE


def scaled(x: Tensor) -> Tensor:
    return x * Settings().scale


@register
class Half(PreLN):
    """`x ← x + F(N(x))/2`."""

    name = "half"
    title = "Half"
    version = {version}
    family = "norm"
    paper = "none"

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + scaled(y_BTD),)
'''


@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [
        ("name", "../../evil", "it names folders"),
        ("name", "Half Way", "lowercase words"),
        ("version", "x", "give a whole number from 1 on"),
        ("version", 0, "give a whole number from 1 on"),
        ("version", True, "give a whole number from 1 on"),
    ],
)
def test_a_name_or_version_that_cannot_name_a_folder_is_refused(attribute, value, said) -> None:
    known = residuals.get("pre-ln")
    body = {"__doc__": "A twin.", "name": "twin", "version": 1, attribute: value}
    with pytest.raises(residuals.DesignError, match=said):
        residuals.register(type("Twin", (known,), body))


def test_a_file_that_ends_the_process_when_imported_is_refused(tmp_path) -> None:
    file = tmp_path / "leaves.py"
    file.write_text("raise SystemExit(0)")
    with pytest.raises(residuals.DesignError, match="fails when imported: SystemExit: 0"):
        residuals.load_plugin(file)


@pytest.fixture(autouse=True)
def _own_registry() -> Iterator[None]:
    """What a test registers is gone after it."""
    residuals.names()
    before = dict(registry._designs)
    yield
    registry._designs.clear()
    registry._designs.update(before)


def write(path: Path, version: int = 1) -> Path:
    path.write_text(DESIGN.replace("{version}", str(version)))
    return path


def test_the_ten_and_the_controls_are_found() -> None:
    assert len(residuals.BENCHMARK) == 10
    assert set(residuals.BENCHMARK) | {"post-ln", "deeploop"} <= set(residuals.names())
    assert residuals.names()[0] == "pre-ln"  # the baseline leads every listing
    families = [residuals.get(name).family for name in residuals.names()]
    assert families == sorted(families, key=families.index)  # each family in one piece
    assert residuals.names("streams") == ["hc", "mhc", "mhc-lite"]
    assert residuals.names("no family") == []


def test_names_and_versions() -> None:
    hc = residuals.get("hc")
    assert residuals.get("hc@1") is hc
    assert (hc.name, hc.title, hc.paper, hc.family) == ("hc", "HC", "2409.19606", "streams")
    with pytest.raises(residuals.DesignError, match=r"version '7' .*hc@1"):
        residuals.get("hc@7")
    with pytest.raises(residuals.DesignError, match="version 'new'"):
        residuals.get("hc@new")


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("prelin", "pre-ln"),
        ("full-atnres", "full-attnres"),
        ("MHC", "mhc"),
        ("sandwich", "sandwich-ln"),
    ],
)
def test_unknown_name_gets_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(residuals.DesignError, match=f"{wrong}.*{near}"):
        residuals.get(wrong)


def test_name_unlike_any_gets_the_whole_list() -> None:
    with pytest.raises(residuals.DesignError, match=r"zzzzzz.*block-attnres.*pre-ln"):
        residuals.get("zzzzzz")


def test_unknown_option_gets_the_nearest() -> None:
    with pytest.raises(residuals.DesignError, match=r"'stream'.*'streams'"):
        residuals.build("hc", stack_of(shape_of()), stream=2)
    assert residuals.get("hc").option_defaults() == {
        "streams": 4,
        "static": False,
        "tanh": True,
        "rescale_output": False,
    }
    assert residuals.get("pre-ln").option_defaults() == {}


def test_design_from_a_file_trains_like_any_other(tmp_path: Path) -> None:
    """Postponed annotations and dataclasses, too, need the module to be importable."""
    assert residuals.load_plugin(write(tmp_path / "half.py")) == [residuals.get("half@1")]
    assert "half" in residuals.names("norm")
    ref = DesignRef(name="half", version=1)
    model = build_decoder(shape_of(), VOCAB, ref, 1e-6, seed=0)
    base = build_decoder(shape_of(), VOCAB, DesignRef(name="pre-ln", version=1), 1e-6, seed=0)
    logits = model.logits(tokens_of())
    assert logits.isfinite().all()
    assert not torch.allclose(logits, base.logits(tokens_of()), rtol=1e-3)


def test_design_from_a_file_compiles(tmp_path: Path) -> None:
    torch._dynamo.reset()
    path = write(tmp_path / "half.py")
    path.write_text(path.read_text().replace("from __future__ import annotations\n", ""))
    residuals.load_plugin(path)
    model = build_decoder(shape_of(1), VOCAB, DesignRef(name="half", version=1), 1e-6, seed=0)
    compiled = torch.compile(model.logits, backend="eager", dynamic=False)
    torch.testing.assert_close(compiled(tokens_of()), model.logits(tokens_of()))


def test_newest_version_is_the_default(tmp_path: Path) -> None:
    path = write(tmp_path / "one.py", 1)
    path.write_text(path.read_text().replace("from __future__ import annotations\n", ""))
    newer = write(tmp_path / "two.py", 12)
    newer.write_text(newer.read_text().replace("from __future__ import annotations\n", ""))
    for file in (newer, path):
        residuals.load_plugin(file)
    assert residuals.get("half").version == 12
    assert residuals.get("half@1").version == 1
    assert residuals.names().count("half") == 1
    with pytest.raises(residuals.DesignError, match=r"half@1, half@12"):
        residuals.get("half@2")


def load(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plugin.py"
    path.write_text(text)
    residuals.load_plugin(path)


HEAD = "from residuals import register\nfrom residuals.pre_ln import PreLN\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / 0\n", "ZeroDivisionError"),
        ("def broken(:\n", "SyntaxError"),
        ("import no_such_module_anywhere\n", "no_such_module_anywhere"),
        ("", "registers no design"),
        ("x = 1\n", "registers no design"),
        (
            HEAD + 'class A(PreLN):\n    """Doc."""\n    name = "undecorated"\n',
            "registers no design",
        ),
        (HEAD + '@register\nclass A(PreLN):\n    """Doc."""\n    name = "hc"\n', "hc@1.*twice"),
        (HEAD + '@register\nclass A(PreLN):\n    """Doc."""\n', "pre-ln@1.*twice"),
        (HEAD + '@register\nclass A(PreLN):\n    name = "undocumented"\n', "no docstring"),
        (
            "from residuals import Design, register\n"
            '@register\nclass A(Design):\n    """Doc."""\n'
            '    name, title, version, family, paper = "a", "A", 1, "norm", "none"\n',
            "lacks.*read",
        ),
        (
            "from residuals import Design, register\n"
            '@register\nclass A(Design):\n    """Doc."""\n    name, version = "a", 1\n',
            "title",
        ),
    ],
)
def test_bad_file_is_named_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    before = residuals.names()
    with pytest.raises(residuals.DesignError, match=f"(?s){message}"):
        load(tmp_path, text)
    assert residuals.names() == before


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(residuals.DesignError, match=r"absent\.py"):
        residuals.load_plugin(tmp_path / "absent.py")
    (tmp_path / "text.txt").write_text("hello")
    with pytest.raises(residuals.DesignError, match=r"text\.txt"):
        residuals.load_plugin(tmp_path / "text.txt")


def test_file_that_fails_half_way_leaves_nothing_behind(tmp_path: Path) -> None:
    text = HEAD + '@register\nclass A(PreLN):\n    """Doc."""\n    name = "early"\n1 / 0\n'
    with pytest.raises(residuals.DesignError, match="ZeroDivisionError"):
        load(tmp_path, text)
    assert "early" not in residuals.names()


@pytest.mark.parametrize("second", ["A", "B"])
def test_name_taken_twice_in_one_file_is_refused(tmp_path: Path, second: str) -> None:
    one = '@register\nclass {0}(PreLN):\n    """Doc."""\n    name = "same"\n'
    with pytest.raises(residuals.DesignError, match="same@1"):
        load(tmp_path, HEAD + one.format("A") + one.format(second))


def test_what_a_file_no_longer_registers_is_gone(tmp_path: Path) -> None:
    one = '@register\nclass {0}(PreLN):\n    """Doc."""\n    name = "{1}"\n'
    load(tmp_path, HEAD + one.format("A", "kept") + one.format("B", "dropped"))
    load(tmp_path, HEAD + one.format("A", "kept"))
    assert "kept" in residuals.names()
    assert "dropped" not in residuals.names()


def test_a_file_that_became_faulty_keeps_what_it_had_registered(tmp_path: Path) -> None:
    text = HEAD + '@register\nclass A(PreLN):\n    """Doc."""\n    name = "survivor"\n'
    load(tmp_path, text)
    with pytest.raises(residuals.DesignError, match="ZeroDivisionError"):
        load(tmp_path, text + "1 / 0\n")
    assert "survivor" in residuals.names()


def test_loading_a_file_again_replaces_its_own_design(tmp_path: Path) -> None:
    text = (
        HEAD + '@register\nclass A(PreLN):\n    """Doc."""\n    name = "again"\n    title = "{0}"\n'
    )
    for title in ("First", "Second"):
        load(tmp_path, text.format(title))
        assert residuals.get("again").title == title
    other = tmp_path / "other.py"
    other.write_text(text.format("Third"))
    with pytest.raises(residuals.DesignError, match="twice"):
        residuals.load_plugin(other)


class Announced:
    """An entry point as `importlib.metadata` gives it."""

    def __init__(self, package: str, load: Callable[[], object]) -> None:
        self.module = self.value = package.replace("-", "_")
        self.dist = SimpleNamespace(name=package)
        self.load = load


def test_a_broken_package_is_named_and_stops_no_other(tmp_path, monkeypatch) -> None:
    """Found anew, as in a process of its own: what it registered before it broke is gone."""

    def breaks() -> None:
        residuals.load_plugin(write(tmp_path / "half.py"))
        raise RuntimeError("half way")

    def sound() -> None:
        namespace = {"__name__": "sound_design"}
        exec(HEAD + '@register\nclass A(PreLN):\n    """Doc."""\n    name = "sound"\n', namespace)

    announced = [Announced("bad-design", breaks), Announced("sound-design", sound)]
    monkeypatch.setattr(registry, "entry_points", lambda group: announced)
    monkeypatch.setattr(registry, "_broken", {})
    discover = registry._discover.__wrapped__
    monkeypatch.setattr(registry, "_discover", lambda: None)
    with pytest.warns(UserWarning, match="'bad-design'.*RuntimeError: half way.*uninstall"):
        discover()
    assert list(registry.broken_packages()) == ["bad-design"]
    assert "sound" in residuals.names()
    assert "half" not in residuals.names()
    with pytest.raises(residuals.DesignError, match=r"(?s)unknown design 'half'.*'bad-design'"):
        residuals.get("half")
