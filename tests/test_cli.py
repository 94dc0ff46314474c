"""The command line: speed, exit codes, messages, and that bad input writes nothing."""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import residuals
from depthbench import __version__, matrix
from depthbench.cli import app
from depthbench.shapes import load_ladders, total_parameters

ROOT = Path(__file__).parents[1]
VERBS = [
    *([], ["list"], ["plan"], ["run"], ["cell"], ["status"], ["report"], ["doctor"]),
    *(["probe"], ["eval"], ["export"], ["scaling", "fit"], ["scaling", "plan"]),
    *(["data", "prepare"], ["shapes", "solve"], ["new"], ["check"], ["reproduce"], ["compare"]),
    *(["smoke"], ["track"]),
]
PLUGIN = """
from residuals import register
from residuals.pre_ln import PreLN

@register
class Twin(PreLN):
    \"\"\"The plain residual stream under another name.\"\"\"
    name, title, version = "twin", "Twin", 3
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty working directory, and an empty cache beside it."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "cache"))
    return work


def call(*arguments: str):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def written(place: Path) -> list[str]:
    return sorted(str(path) for path in place.parent.rglob("*") if path.is_file())


def test_help_of_every_verb_needs_no_heavy_import() -> None:
    script = (
        "import sys; from typer.testing import CliRunner; from depthbench.cli import app\n"
        f"for verb in {VERBS!r}:\n"
        "    result = CliRunner().invoke(app, [*verb, '--help'])\n"
        "    assert result.exit_code == 0 and 'Usage' in result.output, (verb, result.output)\n"
        "heavy = {'torch', 'pandas', 'matplotlib', 'transformers', 'datasets', 'numpy', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert found.stdout.strip() == "[]", found.stderr


def test_what_reads_results_does_not_import_what_spreads_a_model_over_ranks() -> None:
    script = (
        "import sys; import depthbench.report, depthbench.measure, depthbench.trained\n"
        "print(sorted(m for m in sys.modules if m.startswith('torch.distributed.') and\n"
        "             m.split('.')[2] in ('tensor', 'fsdp', 'checkpoint')))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert found.stdout.strip() == "[]", found.stderr


def test_version() -> None:
    assert call("--version").output.strip() == __version__


def test_list_names_everything_a_suite_can_name(place) -> None:
    found = json.loads(call("list", "--json").output)
    assert list(found) == ["designs", "ladders", "suites", "corpora"]
    assert {"pre-ln", "hc", "full-attnres"} <= {design["name"] for design in found["designs"]}
    quick = next(ladder for ladder in found["ladders"] if ladder["name"] == "quick")
    assert [shape["count"] for shape in quick["shapes"]] == [445_536, 443_136, 442_560]
    cells = {suite["name"]: suite["cells"] for suite in found["suites"]}
    assert cells == {
        "quick": 10 * 3 * 1,
        "looped-quick": 3 * 1 * 3,
        "looped": 5 * 4 * 3 + 5 * 2 + 8,
        "laptop": 10 * 4 * 2 + 3,
        "gpu-smoke": 10 * 2,
        # Designs x shapes x seeds as published, and the baseline's further seeds at one shape.
        "paper-400m": (10 * 5 + 2 * 2) * 2 + 3,
        "paper-300m-backbone": (3 * 4 + 2 + 1) * 2 + 3,
        "paper-ladder": 3 * (3 + 3 + 3 + 3) * 2 + 3,
        "paper-1600m": 3 * 3 * 2,
    }
    unprepared = [("pypi-text", False), ("fineweb-edu", False)]
    assert [(c["name"], c["prepared"]) for c in found["corpora"]] == unprepared
    assert json.loads(call("list", "suites", "--json").output) == found["suites"]
    assert written(place) == []


def test_list_as_a_table() -> None:
    output = call("list", "designs").output
    assert "mhc" in output
    assert "2512.24880" in output
    assert "residual_mixing=sinkhorn" in output


@pytest.mark.parametrize("verb", ["plan", "run"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["quikc"], "unknown suite 'quikc': did you mean 'quick'"),
        (["gone.yaml"], "cannot read gone.yaml"),
        (["quick", "--set", "lader=quick"], "lader = 'quick': unknown key 'lader': did you mean"),
        (["quick", "--set", "ladder=quik"], "unknown ladder 'quik': did you mean 'quick'"),
        (["quick", "--set", "designs=[hcc]"], "unknown design 'hcc': did you mean 'hc'"),
        (["quick", "--set", "corpus=pypi-tekst"], "unknown corpus 'pypi-tekst': did you mean"),
        (["quick", "--set", "budget.tokens=0"], "budget.tokens = 0"),
        (["quick", "--set", "seeds=[1,1]"], "seed 1 stands more than once"),
        (["quick", "--plugin", "gone.py"], "gone.py"),
        (["quick", "--set", "designs=[{name: mhc, options: {init: flet}}]"], "flet"),
    ],
)
def test_bad_input_is_one_message_and_writes_nothing(place, verb, arguments, message) -> None:
    result = call(verb, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("depthbench: ")
    assert "Traceback" not in result.output
    assert result.stdout == ""
    assert written(place) == []


def test_a_traceback_only_for_those_who_ask(monkeypatch) -> None:
    assert "Traceback" not in call("plan", "quikc").stderr
    monkeypatch.setenv("DEPTHBENCH_DEBUG", "1")
    result = call("plan", "quikc")
    assert "Traceback" in result.stderr
    assert result.exit_code == 2


def test_a_fault_of_the_program_keeps_its_traceback(monkeypatch) -> None:
    monkeypatch.setattr(matrix, "status", lambda root: 1 / 0)
    assert isinstance(call("status", ".").exception, ZeroDivisionError)


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch) -> None:
    """Whichever verb meets it. Root may write everywhere, so a file stands in the way here."""
    (tmp_path / "file").write_text("")
    (tmp_path / "cell").mkdir()
    (tmp_path / "cell" / "config.json").write_text("{}")
    result = call("report", tmp_path, "--out", tmp_path / "file" / "deeper")
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert f"Not a directory: '{tmp_path / 'file' / 'deeper'}'" in result.stderr.replace("\n", "")


def test_a_plugin_is_listed_and_planned(place, tmp_path, monkeypatch) -> None:
    residuals.names()  # so that the copy, which goes with this test, holds them all
    monkeypatch.setattr(residuals.registry, "_designs", dict(residuals.registry._designs))
    (tmp_path / "twin.py").write_text(PLUGIN)
    plugin = ["--plugin", str(tmp_path / "twin.py")]
    listed = json.loads(call("list", "designs", "--json", *plugin).output)
    assert ("twin", 3) in {(design["name"], design["version"]) for design in listed}
    planned = call("plan", "quick", "--set", "designs=[twin]", "--json", *plugin)
    assert {cell["design"] for cell in json.loads(planned.output)["cells"]} == {"twin"}


def test_plan_tells_cells_for_tuning_apart(place) -> None:
    """Three rates for ten designs at two shapes, beside the 83 that are scored."""
    cells = json.loads(call("plan", "laptop", "--json").output)["cells"]
    assert Counter(cell["role"] for cell in cells) == {"tuning": 3 * 10 * 2, "scored": 83}
    assert {c["learning_rate"] for c in cells if c["role"] == "tuning"} == {1.5e-3, 3e-3, 6e-3}
    assert "60 of them look for learning rates" in call("plan", "laptop").output.replace("\n", " ")
    assert written(place) == []


def test_plan_shows_every_cell_and_writes_nothing(place) -> None:
    arguments = ("plan", "quick", "--set", "budget.tokens=1e5", "--set", "seeds=[3,4]")
    found = json.loads(call(*arguments, "--json").output)
    assert len(found["cells"]) == 10 * 3 * 2
    shapes = load_ladders()["quick"].shapes
    baseline = [cell for cell in found["cells"] if (cell["design"], cell["seed"]) == ("pre-ln", 3)]
    assert [c["parameters"] for c in baseline] == [total_parameters(s, 4096) for s in shapes]
    assert {cell["tokens"] for cell in found["cells"]} == {100_000 // 256 * 256}
    total = found["total"]
    assert total["total_flops"] == sum(cell["total_flops"] for cell in found["cells"])
    seconds = [cell["seconds"] for cell in found["cells"]]
    assert max(seconds) <= total["seconds"] <= sum(seconds)
    table = call(*arguments).output
    assert "60 cells" in table
    assert "not prepared yet" in table
    assert written(place) == []


def test_solved_shapes_can_be_pasted_into_a_file(tmp_path) -> None:
    result = call("shapes", "solve", "--target", "1.5M", "--depths", "4,8", "--vocab", "512")
    path = tmp_path / "shapes.yaml"
    path.write_text(result.output)
    ladder = load_ladders(path)["solved"]
    assert (ladder.target, ladder.match_on) == (1_500_000, "total")
    assert [shape.layers for shape in ladder.shapes] == [4, 8]
    for shape in ladder.shapes:
        assert f"total {total_parameters(shape, 512):,}" in result.output


@pytest.mark.parametrize("target", ["", "M", "-4M", "0", "1.5", "nan", "infM", "four"])
def test_a_target_that_is_no_number_is_refused(target) -> None:
    result = call("shapes", "solve", f"--target={target}", "--depths=4")
    assert result.exit_code == 2
    assert "positive whole number" in result.stderr


@pytest.mark.parametrize("verb", ["status", "report"])
def test_a_folder_that_is_not_there_is_refused(place, verb) -> None:
    result = call(verb, "runs/gone")
    assert result.exit_code == 2
    assert "gone" in result.stderr
    assert written(place) == []


@pytest.fixture
def suite(place, tmp_path) -> Path:
    """A suite of one cell of a few steps on a text of one's own."""
    words = random.Random(0)
    lines = [
        " ".join(words.choices(["a", "bird", "sings", "the", "tune"], k=60)) for _ in range(200)
    ]
    text = tmp_path / "birds.jsonl"
    text.write_text("".join(json.dumps({"body": line}) + "\n" for line in lines))
    shape = {"layers": 1, "d_model": 8, "ffn": 30, "heads": 2}
    ladder = {"match_on": "backbone", "target": 1000, "tolerance": 0.03, "vocab_size": 300}
    document = {
        "name": "mine",
        "designs": ["pre-ln"],
        "ladder": ladder | {"norm_eps": 1e-10, "shapes": [shape]},
        "corpus": str(text),
        "local": {"text": "body", "vocab_size": 300},
        "sequence_length": 16,
        "batch_size": 2,
        "budget": {"tokens": 96},
        "learning_rate": {"default": 1e-3},
        "seeds": [0],
        "evaluation": {"tokens": 64},
    }
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def test_from_a_text_of_ones_own_to_a_page(place, suite) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def shell(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "depthbench", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    first = shell("run", suite, "--jobs", 1)
    assert first.returncode == 0, first.stderr + first.stdout
    (row,) = json.loads(call("status", "--json").output)
    assert (row["status"], row["step"], row["steps"]) == ("done", 3, 3)
    again = shell("run", suite)
    assert "1 of 1 cells are finished already" in again.stdout
    page = Path(call("report", "runs/mine").output.strip())
    assert page == Path("runs/mine/report/index.html")
    assert page.is_file()


@pytest.mark.parametrize(
    ("outcome", "code"),
    [(lambda: 0, 0), (lambda: 3, 1), (lambda: exec("raise KeyboardInterrupt"), 75)],
)
def test_the_exit_code_says_how_the_matrix_ended(suite, monkeypatch, outcome, code) -> None:
    monkeypatch.setattr(matrix, "run", lambda *_: outcome())
    assert call("run", suite).exit_code == code
