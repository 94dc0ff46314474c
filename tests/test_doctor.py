"""Findings: what works is shown to work, what is broken is one line."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from depthbench import doctor
from depthbench.cli import app


@pytest.fixture
def checks(tmp_path, monkeypatch):
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path))
    return lambda: {check.name: check for check in doctor.examine()}


def fake_flash_attn(folder: Path, code: str) -> None:
    (folder / "flash_attn").mkdir()
    (folder / "flash_attn" / "__init__.py").write_text(code)
    (folder / "flash_attn-9.9.dist-info").mkdir()
    (folder / "flash_attn-9.9.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: flash-attn\nVersion: 9.9\n"
    )


def test_what_the_tests_run_on_is_found(checks) -> None:
    found = checks()
    for name in ("python", "torch", "pandas", "device cpu", "attention sdpa", "cores", "memory"):
        assert found[name].state == "ok", found[name]
        assert found[name].found
    assert found["corpus pypi-text"].state == "missing"
    assert found["corpus pypi-text"].remedy == "depthbench data prepare pypi-text"
    assert found["domain sets"].state == "missing"
    assert "package index" not in found


def test_every_fault_says_what_to_do(checks) -> None:
    assert [c for c in checks().values() if c.state != "ok" and not c.remedy] == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ImportError('undefined symbol: _ZN3c10')", "undefined symbol"),
        ("raise OSError('libcudart.so.12: cannot open')", "libcudart"),
    ],
)
def test_a_broken_flash_attn_is_a_line_and_not_the_end(
    checks, tmp_path, monkeypatch, code, said
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    fake_flash_attn(site, code)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "flash_attn", raising=False)
    found = checks()
    for name in ("flash-attn", "attention flash"):
        assert found[name].state == "broken"
        assert said in found[name].found
    assert found["attention sdpa"].state == "ok"


def test_attention_that_computes_something_else_is_broken(checks, monkeypatch) -> None:
    from depthbench.model import attention

    right = attention.causal
    monkeypatch.setattr(
        attention,
        "causal",
        lambda q, k, v, rotary, backend: (
            right(q, k, v, rotary, backend) * (1 + (backend == "sdpa"))
        ),
    )
    found = checks()
    assert found["attention sdpa"].state == "broken"
    assert found["attention plain"].state == "ok"


def test_a_missing_compiler_is_said(checks, monkeypatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    assert checks()["compiler"].state == "missing"


def test_the_verb(checks) -> None:
    printed = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).output)
    assert {"name", "state", "found", "needed_for", "remedy"} == set(printed[0])
    assert "attention sdpa" in CliRunner().invoke(app, ["doctor"]).output
