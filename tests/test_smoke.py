"""Trying a device: the same cells there and on the CPU, and what counts as agreement."""

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

import residuals
from depthbench import cell as cells
from depthbench import matrix, smoke
from depthbench.config import CellConfig
from depthbench.console import Reporting
from depthbench.data import Corpus
from depthbench.errors import InputError
from depthbench.expand import expand
from depthbench.folder import CellFolder, Metrics, read_metrics, write_json
from depthbench.smoke import VARIANTS, Tolerance, Variant
from depthbench.smoke_verbs import smoke as verb
from depthbench.suite import Suite, load_suite
from tests.kit import cell_config, tiny_corpus, write_rows

WORDS = "a device computes what another one does or it is of no use to anybody"
SMALL = (
    "device=cpu",
    "sequence_length=16",
    "budget.tokens=128",
    "evaluation.tokens=64",
    "ladder={match_on: backbone, target: 5_000, tolerance: 0.5, vocab_size: 280, norm_eps: 1e-10, "
    "shapes: [{layers: 2, d_model: 16, ffn: 24, heads: 2},"
    "{layers: 4, d_model: 8, ffn: 24, heads: 2, kv_heads: 1}]}",
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return tiny_corpus(tmp_path_factory.mktemp("text"), WORDS)


@pytest.fixture
def here(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> Iterator[smoke.Train]:
    """Runs cells as their command does, but in this process."""
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    threads = torch.get_num_threads()

    def train(configs: Sequence[CellConfig], out: Path, alone: bool) -> None:
        for config in configs:
            folder = CellFolder(out / config.folder_name())
            folder.create(config)
            cells.main(folder.path)

    yield train
    torch.set_num_threads(threads)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def small(*overrides: str) -> Suite:
    return load_suite("gpu-smoke", (*SMALL, *overrides))


def test_the_suite_holds_ten_designs_at_a_shallow_and_a_deep_shape() -> None:
    suite = load_suite("gpu-smoke")
    assert [design.name for design in suite.designs] == list(residuals.BENCHMARK)
    assert (suite.device, suite.precision, suite.corpus) == ("cuda", "bf16", "pypi-text")
    shallow, deep = suite.ladder.shapes
    assert deep.layers >= 4 * shallow.layers
    assert deep.kv_heads < deep.heads
    assert deep.head_dim & (deep.head_dim - 1) != 0  # no power of two
    reference = load_suite("quick").corpus
    assert reference == suite.corpus
    found = expand(suite, cell_config(vocab_size=4096).corpus)
    assert (len(found), {config.steps for config in found}) == (20, {20})


def test_what_is_trained_where() -> None:
    calls: list[tuple[str, bool, list[CellConfig]]] = []

    def note(configs: Sequence[CellConfig], out: Path, alone: bool) -> None:
        calls.append((out.name, alone, list(configs)))

    suite = small("designs=[pre-ln, hc]", "precision=bf16", "ranks.num=2", "compile=blocks")
    given = expand(suite, cell_config(vocab_size=280).corpus)
    rows = smoke.smoke(given, Path("nowhere"), note)
    assert [(name, alone, len(run)) for name, alone, run in calls] == [
        ("reference", False, 4),
        ("bf16", True, 4),
        ("fp32", False, 2),
        ("checkpointing", False, 2),
        ("compiled", False, 2),
    ]

    def ways(name: str) -> set[tuple[Any, ...]]:
        run = next(run for called, _, run in calls if called == name)
        keys = ("precision", "compile", "activation_checkpointing", "deterministic")
        return {(c.ranks.num, *(getattr(c, key) for key in keys)) for c in run}

    assert ways("reference") == {(1, "fp32", False, False, False)}
    assert ways("bf16") == {(2, "bf16", "blocks", False, False)}
    assert ways("fp32") == {(2, "fp32", "blocks", False, True)}
    assert ways("checkpointing") == {(2, "bf16", "blocks", True, False)}
    assert ways("compiled") == {(2, "bf16", "blocks", False, False)}
    same = ("seed", "corpus", "steps", "batch_size", "optimizer", "shape", "design", "loop")
    for _, _, run in calls:
        for config, base in zip(run, given, strict=False):
            assert all(getattr(config, key) == getattr(base, key) for key in same)
    assert {row.error for row in rows} == {"the cell is not run"}
    assert not any(row.agrees for row in rows)


def test_the_reference_is_on_the_cpu_wherever_the_cells_are(monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    devices = []
    given = expand(small("device=cuda:1", "designs=[pre-ln]"), cell_config(vocab_size=280).corpus)
    smoke.smoke(
        given,
        Path("nowhere"),
        lambda run, out, alone: devices.append((out.name, {c.device for c in run})),
        ["bf16"],
    )
    assert devices == [("reference", {"cpu"}), ("bf16", {"cuda:1"})]


def test_every_design_agrees_with_itself(tmp_path: Path, corpus: Corpus, here: smoke.Train) -> None:
    shape = "ladder.shapes=[{layers: 3, d_model: 16, ffn: 24, heads: 2, kv_heads: 1}]"
    given = expand(small(shape), corpus.ref())
    rows = smoke.smoke(given, tmp_path, here, ["bf16", "fp32", "checkpointing"])
    assert [row.error for row in rows] == [None] * 30
    assert all(row.agrees for row in rows)
    by_way = {way: [row for row in rows if row.variant == way] for way in VARIANTS}
    assert [len(found) for found in by_way.values()] == [10, 10, 10, 0]
    for row in by_way["fp32"]:  # the same device and kernels: the same bits
        assert (row.difference, row.gradient) == (0.0, 0.0)
    for way in ("bf16", "checkpointing"):  # rounded otherwise than the reference
        assert all(row.difference and row.gradient for row in by_way[way])
    for row in rows:
        assert row.tokens_per_second is not None
        assert row.tokens_per_second > 0
        assert row.peak_memory_bytes is not None
        assert row.peak_memory_bytes > 2**20


LOSSES, NORMS = (5.0, 4.5, 4.25, 4.0), (2.0, 1.5, 1.0, 0.5)


def write(
    folder: Path,
    config: CellConfig,
    losses: Sequence[float] = LOSSES,
    norms: Sequence[float] = NORMS,
    end: float | None = 3.5,
    **result: Any,
) -> None:
    """A cell that ended so; a step of 100 tokens takes 3 s, the first two 10."""
    cell = CellFolder(folder / config.folder_name())
    cell.create(config)
    elapsed = (10.0, 20.0, 23.0, 26.0)
    with Metrics(cell.metrics_path) as metrics:
        for n, (loss, norm) in enumerate(zip(losses, norms, strict=True)):
            record = {"loss": loss, "grad_norm": norm, "elapsed": elapsed[n]}
            metrics.append({"step": n + 1, "tokens": 100 * (n + 1)} | record)
        if end is not None:
            metrics.append({"step": len(losses), "tokens": 400, "evaluation": {"loss": end}})
    measures = None if end is None else {"loss": end}
    ended = {"schema": 1, "status": "done", "measures": measures}
    ended |= {"ledger": {"peak_memory_bytes": 77}, "environment": {"device": "NVIDIA X"}}
    write_json(cell.result_path, ended | result)


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., smoke.Row]:
    """The row of a cell that ended as is said, beside the reference of `LOSSES` and `NORMS`."""
    way = Variant({"precision": "bf16"}, Tolerance(loss=0.125, gradient=0.25), everywhere=True)
    monkeypatch.setitem(VARIANTS, "bf16", way)

    def compare(reference: bool = True, **ending: Any) -> smoke.Row:
        def train(configs: Sequence[CellConfig], out: Path, alone: bool) -> None:
            if out.name != "reference":
                write(out, configs[0], **ending)
            elif reference:
                write(out, configs[0])

        return smoke.smoke([cell_config()], tmp_path, train, ["bf16"])[0]

    return compare


def test_equal_runs_agree(compared: Callable[..., smoke.Row]) -> None:
    row = compared()
    assert (row.variant, row.design, row.shape) == ("bf16", "pre-ln", "L2 d8")
    assert (row.loss, row.cpu_loss, row.difference, row.gradient) == (3.5, 3.5, 0.0, 0.0)
    assert row.tokens_per_second == 200 / 6  # the last two steps
    assert (row.peak_memory_bytes, row.hardware, row.agrees) == (77, "NVIDIA X", True)


def test_the_largest_difference_at_any_step_counts(compared: Callable[..., smoke.Row]) -> None:
    row = compared(losses=(5.0, 4.375, 4.3125, 4.0), end=3.5625)
    assert (row.difference, row.agrees) == (0.125, True)  # as much as is allowed
    assert row.loss == 3.5625


@pytest.mark.parametrize(
    ("ending", "difference", "gradient"),
    [
        ({"losses": (5.0, 4.25, 4.25, 4.0)}, 0.25, 0.0),
        ({"end": 3.0}, 0.5, 0.0),
        ({"norms": (3.0, 1.5, 1.0, 0.5)}, 0.0, 0.5),
        ({"norms": (1.0, 1.5, 1.0, 0.5)}, 0.0, 0.5),
        ({"losses": LOSSES[:3], "norms": NORMS[:3]}, None, 0.0),
        ({"norms": (None, 1.5, 1.0, 0.5)}, 0.0, None),
    ],
    ids=["a step", "the end", "too long", "too short", "a step is missing", "no norm"],
)
def test_what_does_not_agree(
    ending: dict[str, Any],
    difference: float | None,
    gradient: float | None,
    compared: Callable[..., smoke.Row],
) -> None:
    row = compared(**ending)
    assert (row.difference, row.gradient, row.error) == (difference, gradient, None)
    assert not row.agrees


def test_a_cell_that_failed_says_why(compared: Callable[..., smoke.Row]) -> None:
    row = compared(end=None, status="failed", error="no kernel for this")
    assert (row.error, row.difference, row.agrees) == ("no kernel for this", None, False)
    assert row.cpu_loss == 3.5


def test_a_cell_that_diverged_does_not_agree(compared: Callable[..., smoke.Row]) -> None:
    row = compared(end=None, status="diverged")
    assert (row.error, row.agrees) == ("the cell is diverged", False)


def test_a_reference_that_is_missing_is_named(compared: Callable[..., smoke.Row]) -> None:
    row = compared(reference=False)
    assert (row.error, row.agrees) == ("the reference: the cell is not run", False)


def test_an_unknown_variant_or_device_is_refused() -> None:
    with pytest.raises(InputError, match=r"'fp23'.*'fp32'"):
        smoke.check("cpu", ["bf16", "fp23"])
    smoke.check("cpu", list(VARIANTS))


app = typer.Typer(cls=Reporting)
app.command()(verb)
app.callback()(lambda: None)


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    corpus = (f"corpus={write_rows(tmp_path, WORDS)}", "local={vocab_size: 280}")
    validation = "local.validation_share=0.2"
    given = [part for one in (*SMALL, *corpus, validation) for part in ("--set", one)]

    def call(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["smoke", *given, *arguments])

    return call


def test_the_verb_runs_cells_as_processes(call: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "kept"
    shape = "ladder.shapes=[{layers: 3, d_model: 16, ffn: 24, heads: 2}]"
    asked = ("--set", "designs=[moda]", "--set", shape, "--variant", "fp32")
    done = call(*asked, "--out", str(out), "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["device"], found["hardware"], found["agrees"]) == ("cpu", "cpu", True)
    (row,) = found["cells"]
    assert (row["design"], row["shape"], row["variant"]) == ("moda", "L3 d16", "fp32")
    assert row["tolerance"] == {"loss": 1e-4, "gradient": 1e-4}
    (folder,) = (path.parent for path in (out / "fp32").glob("*/result.json"))
    records = read_metrics(folder / "metrics.jsonl")
    assert [r["step"] for r in records if "loss" in r] == [1, 2, 3, 4]
    assert row["loss"] == records[-1]["evaluation"]["loss"]
    assert len(list((out / "reference").glob("*/result.json"))) == 1


def test_disagreement_is_exit_code_1_and_nothing_is_left(
    call: Callable[..., Any],
    here: smoke.Train,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = []

    def run(planned: Any, out: Path, at_once: int | None, *_: object) -> None:
        jobs.append(at_once)
        here([cell.config for cell in planned], out, False)

    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(matrix, "run", run)
    strict = Variant({"precision": "bf16"}, Tolerance(loss=0.0, gradient=1.0))
    monkeypatch.setitem(VARIANTS, "bf16", strict)
    done = call("--set", "designs=[pre-ln]", "--variant", "bf16", "--jobs", "3")
    assert done.exit_code == 1
    assert "bf16, pre-ln L2 d16: does not agree" in done.stdout
    assert "0 of 1 cells agree with the CPU" in done.stdout
    assert jobs == [3, 3]
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_device_that_is_not_there_is_exit_code_2(
    call: Callable[..., Any], tmp_path: Path
) -> None:
    done = call("--device", "cuda", "--out", str(tmp_path / "kept"))
    assert done.exit_code == 2
    assert "device 'cuda' is not there" in done.stderr
    assert not (tmp_path / "kept").exists()
    assert not (tmp_path / "cache").exists()
