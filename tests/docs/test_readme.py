"""What the README says can be done as it says."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import typer

import residuals
from depthbench import probes
from depthbench.cli import app
from depthbench.model.build import build_model
from depthbench.model.decoder import LanguageModel
from residuals import registry
from tests.docs.kit import ROOT
from tests.kit import cell_config

README = (ROOT / "README.md").read_text(encoding="utf-8")
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_sections_stand_in_order() -> None:
    assert re.findall(r"^## (.*)$", README, re.MULTILINE) == [
        "Two commands",
        "Add a design in 30 lines",
        "What is compared, and how",
        "Results",
        "Limits",
        "Cite",
    ]
    before = README.partition("\n## ")[0].split("\n\n")
    assert [part[:2] for part in before] == ["# ", "Wh", "!["]


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[residuals.Design]:
    """The design of the README, registered from a file of its own for one test."""
    (source,) = blocks(README, "python")
    assert len(source.splitlines()) <= 35
    residuals.all_designs()
    monkeypatch.setattr(registry, "_designs", dict(registry._designs))
    file = tmp_path / "embedding_shortcut.py"
    file.write_text(source)
    (design,) = residuals.load_plugin(file)
    return design


def model_of(design: type[residuals.Design], **options: float) -> LanguageModel:
    reference = {"name": design.name, "version": design.version, "options": options}
    shape = {"layers": 3, "d_model": 8, "ffn": 16, "heads": 2}
    return build_model(cell_config(vocab_size=11, design=reference, shape=shape))


def test_the_example_starts_as_pre_ln_and_every_parameter_learns(
    example: type[residuals.Design],
) -> None:
    """At λ = 0 the rule is Pre-LN's; elsewhere it is not."""
    ids = torch.arange(14).remainder(11).view(2, 7)
    own, plain, moved = (
        model_of(example),
        model_of(residuals.get("pre-ln")),
        model_of(example, start=0.5),
    )
    losses = [model.summed_nll(ids[:, :-1], ids[:, 1:]) for model in (own, plain, moved)]
    assert losses[0].item() == losses[1].item() != losses[2].item()
    losses[0].backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in own.parameters())
    sizes = [sum(p.numel() for p in model.parameters()) for model in (own, plain)]
    assert sizes[0] - sizes[1] == 6  # a number for each of 2 · 3 sublayers


def test_the_commands_around_the_example_name_it(example: type[residuals.Design]) -> None:
    after = README.partition("class ")[2]
    assert f"designs=[pre-ln, {example.name}]" in after
    assert "embedding_shortcut.py" in after


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_every_command_line_is_one_that_exists(path: Path) -> None:
    for line in _command_lines(path.read_text(encoding="utf-8")):
        words = shlex.split(line, comments=True)[1:]
        command = typer.main.get_command(app)
        while getattr(command, "commands", None):
            verb = words.pop(0) if words else ""
            assert verb in command.commands, line
            command = command.commands[verb]
        known = {option for parameter in command.params for option in parameter.opts}
        if command.params:
            given = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert given - {"--help"} <= known, line


def _command_lines(text: str) -> Iterator[str]:
    for block in blocks(text, "bash"):
        whole = block.replace("\\\n", " ")
        yield from (line for line in whole.splitlines() if line.startswith("depthbench "))


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for path in TEXTS for name in re.findall(r"\bmake ([a-z]+)\b", path.read_text())}
    assert {"quickstart", "test", "docs"} <= named & targets
    commanded = re.findall(r"^make ([a-z]+)", "\n".join(blocks(README, "bash")), re.MULTILINE)
    assert commanded == ["quickstart", "test"]


def test_relative_links_lead_to_files() -> None:
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose)
    assert len(links) > 10
    missing = [link for link in links if "//" not in link and not (ROOT / link).exists()]
    assert missing == []


def test_every_probe_has_its_question_and_every_design_its_family() -> None:
    questions = re.findall(r"^\| `([a-z-]+)` \| .*\? \|$", README, re.MULTILINE)
    assert questions == probes.names()
    _, _, comparison = README.partition("## What is compared")
    families = comparison.partition("**Fixed.**")[0].lower()
    for design in residuals.all_designs():
        assert design.title.lower() in families, design.title
