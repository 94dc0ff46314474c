"""`new` writes a file that passes; `check` says what passed, what failed, why and where to look."""

import json
from pathlib import Path

import pytest
import torch

import residuals
from depthbench import __version__
from depthbench.conformance import CHECKS, Subject, badge, examine
from tests.conformance.kit import call

PLANTED = Path(__file__).parent / "planted"
CONTRACT = (
    *("start", "read", "attend", "write", "finish", "init_gain", "declare", "NORM_GAIN", "version"),
    *("num_extra_params", "routing_flops", "skip", "exchange", "depth_state", "read_out", "visit"),
    *("positional", "path_weights", "can_loop", "keyword-only", "mixing", "streams_of", "family"),
)


def test_a_fresh_file_passes_whole(tmp_path: Path) -> None:
    file = tmp_path / "my_scale.py"
    written = call("new", "my-scale", "--out", file)
    assert written.exit_code == 0
    assert written.output == f"{file}\nNow: depthbench check {file}\n"
    checked = call("check", file, "--json")
    assert checked.exit_code == 0
    document = json.loads(checked.stdout)
    assert list(document) == [
        *("design", "version", "options", "source_hash", "checks", "badge", "depthbench", "torch")
    ]
    assert (document["design"], document["version"], document["options"]) == ("my-scale", 1, {})
    assert (document["badge"], document["depthbench"]) == ("conforms", __version__)
    assert document["torch"] == torch.__version__
    found = {each["name"]: each["passed"] for each in document["checks"]}
    assert list(found) == list(CHECKS)
    assert {name for name, passed in found.items() if passed is None} == {"memory", "speed"}
    assert set(found.values()) == {True, None}
    # The record is what rows take their badge from, until the file changes.
    design = residuals.get("my-scale")
    assert badge(design) == document
    assert badge(design, {"start": 2.0}) is None
    (record,) = (tmp_path / "cache" / "conformance").iterdir()
    record.write_text("{")
    assert badge(design) is None
    record.write_text(json.dumps(document))
    file.write_text(file.read_text() + "\n")
    assert badge(design) is None


def test_the_fresh_file_teaches_the_contract_and_starts_as_pre_ln(tmp_path: Path) -> None:
    call("new", "my-scale", "--out", tmp_path)
    text = (tmp_path / "my_scale.py").read_text()
    assert [word for word in CONTRACT if word not in text] == []
    assert "$" not in text
    residuals.load_plugin(tmp_path / "my_scale.py")
    tokens = torch.arange(9).unsqueeze(0)
    ours, theirs = (Subject.named(name).decoder().logits(tokens) for name in ("my-scale", "pre-ln"))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    half = Subject.named("my-scale", {"start": 0.5}).decoder().logits(tokens)
    assert not torch.allclose(half, theirs, rtol=1e-3)


@pytest.mark.parametrize("name", ["none", "state", "a2-b3", "x"])
def test_any_allowed_name_gives_a_file_that_loads(tmp_path: Path, name: str) -> None:
    assert call("new", name, "--out", tmp_path / "file.py").exit_code == 0
    (design,) = residuals.load_plugin(tmp_path / "file.py")
    assert design.name == name
    assert Subject(design).decoder().logits(torch.zeros(1, 3, dtype=torch.long)).isfinite().all()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pre-ln", "exists already"),
        ("Mine", "lowercase"),
        ("my_design", "lowercase"),
        ("my--design", "lowercase"),
        ("-mine", "lowercase"),
        ("2nd", "lowercase"),
        ("mine\n", "lowercase"),
        ("", "lowercase"),
    ],
)
def test_a_name_that_cannot_be_is_refused(tmp_path: Path, name: str, said: str) -> None:
    result = call("new", "--out", tmp_path / "file.py", "--", name)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "file.py").exists()


def test_nothing_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_own.py").write_text("mine")
    for out in ([], ["--out", "."], ["--out", "my_own.py"]):
        result = call("new", "my-own", *out)
        assert result.exit_code == 2
        assert "my_own.py exists" in result.stderr
    assert (tmp_path / "my_own.py").read_text() == "mine"
    for out, said in (("gone/mine.py", "cannot be written"), ("mine.txt", "ends in .py")):
        result = call("new", "my-own", "--out", out)
        assert result.exit_code == 2
        assert said in result.stderr


@pytest.fixture
def few_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verbs with quick checks only."""
    for name in ("compile", "speed", "resume", "core-loop", "truncation"):
        monkeypatch.delitem(CHECKS, name)


@pytest.mark.usefixtures("few_checks")
def test_a_fault_is_shown_with_its_place_and_ends_with_1() -> None:
    result = call("check", PLANTED / "kept_state.py")
    assert result.exit_code == 1
    assert "planted-kept-state fails: module-state" in result.output
    (line,) = (line for line in result.output.splitlines() if line.startswith("module-state"))
    assert "FAILED" in line
    assert "design.last_size" in line
    assert "kept_state.py:21" in line
    failing = badge(residuals.get("planted-kept-state"))
    assert failing is not None
    assert failing["badge"] == "fails: module-state"


@pytest.mark.usefixtures("few_checks")
def test_options_and_plugins(tmp_path: Path) -> None:
    result = call("check", "hc", "--set", "streams=2", "--set", "static=true", "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["options"] == {"streams": 2, "static": True}
    assert badge(residuals.get("hc")) is None
    assert badge(residuals.get("hc"), {"static": True, "streams": 2}) == document
    plugin = ("--plugin", PLANTED / "wrong_paths.py")
    assert call("check", "planted-wrong-paths@1", *plugin).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["hcc"], "did you mean 'hc'"),
        (["gone.py"], "gone.py"),
        (["hc", "--set", "stream=2"], "'streams'"),
        (["hc@9"], "hc@1"),
        (["hc", "--plugin", "gone.py"], "gone.py"),
    ],
)
def test_what_cannot_be_checked_is_refused(tmp_path: Path, arguments, said: str) -> None:
    result = call("check", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "cache").exists()


def test_a_file_of_two_designs_gives_two_reports(tmp_path: Path, monkeypatch) -> None:
    for name in CHECKS.keys() - {"forward", "roles"}:
        monkeypatch.delitem(CHECKS, name)
    text = "from residuals import register\nfrom residuals.pre_ln import PreLN\n"
    for name in ("one", "two"):
        text += (
            f'\n\n@register\nclass {name.title()}(PreLN):\n    """Doc."""\n    name = "{name}"\n'
        )
    (tmp_path / "both.py").write_text(text)
    found = json.loads(call("check", tmp_path / "both.py", "--json").stdout)
    assert [(each["design"], each["badge"]) for each in found] == [
        ("one", "conforms"),
        ("two", "conforms"),
    ]


def test_a_crash_everywhere_is_one_failed_check(tmp_path: Path) -> None:
    text = (PLANTED / "read_raises.py").read_text().replace("== 1:", "> 0:")
    (tmp_path / "crash.py").write_text(text)
    (design,) = residuals.load_plugin(tmp_path / "crash.py")
    report = examine(Subject(design), CHECKS.keys() - {"speed", "compile"})
    assert report.failed == ["forward"]
    found = {finding.name: finding for finding in report.checks}
    assert found["forward"].why == "ValueError: one token is too few"
    assert found["forward"].where == "crash.py:21 read"
    assert found["causality"].why == "not asked, since forward failed"
    assert found["parameter-formula"].passed
    assert found["memory"].passed is None


def test_a_design_that_cannot_loop_is_not_asked(tmp_path: Path) -> None:
    text = (PLANTED / "round_only.py").read_text()
    (tmp_path / "once.py").write_text(
        text.replace('paper = "none"', 'paper = "none"\n    can_loop = False')
    )
    (design,) = residuals.load_plugin(tmp_path / "once.py")
    report = examine(Subject(design), CHECKS.keys() - {"speed", "compile"})
    assert report.badge == "conforms"
    found = {finding.name: finding for finding in report.checks}
    for name in ("whole-loop", "core-loop", "truncation"):
        assert found[name].passed is None
        assert "can_loop = False" in found[name].why


def test_the_caller_keeps_its_generators_and_threads() -> None:
    torch.manual_seed(5)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    examine(Subject.named("pre-ln"), CHECKS.keys() - {"speed", "compile"})
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_cost_is_reported_beside_pre_ln() -> None:
    """HC keeps four streams: more is saved for its backward; Pre-LN keeps what Pre-LN keeps."""
    ours, base = (
        {f.name: f for f in examine(Subject.named(name), {"memory", "speed"}).checks}
        for name in ("hc", "pre-ln")
    )
    assert base["memory"].why.startswith("1.00 × ")
    assert float(ours["memory"].why.partition(" ")[0]) > 1.3
    assert float(ours["speed"].why.partition(" ")[0]) > 0
    assert all(finding.passed is None for finding in (*ours.values(), *base.values()))
