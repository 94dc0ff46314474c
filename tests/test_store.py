"""Rows from cell folders: what is read, what is damaged, and what is one cell twice."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from depthbench.config import CellConfig
from depthbench.errors import InputError
from depthbench.folder import CellFolder
from depthbench.store import COLUMNS, cell_folders, rows

CONFIG: dict[str, Any] = {
    "suite": "quick",
    "ladder": "quick",
    "design": {"name": "hc", "version": 2, "options": {"rescale_output": True}},
    "shape": {"layers": 8, "d_model": 96, "ffn": 256, "heads": 4, "kv_heads": 4},
    "match": "shape",
    "corpus": {"name": "tiny", "hash": "c0", "tokenizer_hash": "t0", "vocab_size": 300},
    "sequence_length": 32,
    "batch_size": 4,
    "micro_batch_size": 2,
    "steps": 10,
    "optimizer": {"learning_rate": 0.01},
    "evaluation": {"tokens": 640},
    "norm_eps": 1e-10,
    "seed": 3,
}
MEASURES = {
    "loss": 3.5,
    "bits_per_byte": 1.75,
    "loss_by_source": {"prose": 3.0, "code": 4.0},
    "bits_per_byte_by_source": {"prose": 1.5, "code": 2.0},
    "tokens": 640,
    "bytes": 1847,
    "train_loss": 3.25,
    "unigram_entropy": 5.0,
    "history": [[1280, 3.5]],
}
LEDGER = {
    "parameters": 900_000,
    "backbone": 800_000,
    "added": 50_000,
    "added_by_design_share": 0.0625,
    "train_flops_per_token": 5_400_000,
    "prefill_flops": 10**10,
    "kv_cache_bytes": 4096,
    "peak_memory_bytes": None,
    "tokens_per_second": 640.0,
    "step_seconds": 0.2,
    "total_flops": 3 * 10**20,
}


def result(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "status": "done",
        "config": config,
        "step": 10,
        "diverged_step": None,
        "error": None,
        "measures": MEASURES,
        "ledger": LEDGER,
        "environment": {"host": "a", "torch": "2.13.0", "git_dirty": True, "new": {"key": 1}},
        "times": {"started": "x", "finished": "y", "seconds": 2.5},
    } | changes


def write(folder: Path, config: object = CONFIG, document: object = None) -> Path:
    """Writes what is given; a string as it stands."""
    folder.mkdir(parents=True)
    for name, value in (("config.json", config), ("result.json", document)):
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            (folder / name).write_text(text)
    return folder


def only(frame: pd.DataFrame) -> Any:
    assert len(frame) == 1
    return frame.iloc[0]


def test_a_finished_cell_is_one_flat_row(tmp_path: Path) -> None:
    folder = write(tmp_path / "quick" / "cell", document=result(CONFIG))
    row = only(rows([folder]))
    expected = {
        "suite": "quick",
        "cell": "cell",
        "design": "hc",
        "design_version": 2,
        "options": '{"rescale_output": true}',
        "aspect_ratio": 12.0,
        "tokens": 10 * 4 * 32,
        "learning_rate": 0.01,
        "status": "done",
        "loss": 3.5,
        "bits_per_byte": 1.75,
        "loss/prose": 3.0,
        "loss/code": 4.0,
        "unigram_entropy": 5.0,
        "added_share": 0.0625,
        "total_flops": 3e20,
        "seconds": 2.5,
        "host": "a",
        "device": "cpu",
        "git_dirty": True,
        "digest": CellConfig.model_validate(CONFIG).digest(),
    }
    assert {name: row[name] for name in expected} == expected
    assert pd.isna(row["peak_memory_bytes"])
    assert json.loads(row["recipe"])["weight_decay"] == 0.1


def test_the_evaluation_hash_follows_the_tokens_that_are_evaluated(tmp_path: Path) -> None:
    more_points = CONFIG | {"evaluation": {"tokens": 640, "points": 5}}
    more_tokens = CONFIG | {"evaluation": {"tokens": 641}}
    folders = [
        write(tmp_path / str(i), config)
        for i, config in enumerate((CONFIG, more_points, more_tokens))
    ]
    first, second, third = rows(folders)["evaluation"]
    assert first == second != third


DOMAINS = {
    "schema": 1,
    "evaluation": "0123456789abcdef",
    "limit": None,
    "sets": {"gsm8k": {"nats_per_token": 6.0}},
    "domains": {
        "math": {"nats_per_token": 6.0, "bits_per_byte": 3.25, "interval": [5.75, 6.5]},
        "coding": {"nats_per_token": 7.0, "bits_per_byte": 4.0, "interval": [6.5, 7.5]},
    },
    "unavailable": {},
}


def with_domains(folder: Path, document: object = DOMAINS) -> Path:
    text = document if isinstance(document, str) else json.dumps(document)
    (folder / "domains.json").write_text(text)
    return folder


def test_evaluated_domains_are_columns(tmp_path: Path) -> None:
    evaluated = with_domains(write(tmp_path / "a", document=result(CONFIG)))
    other = CONFIG | {"seed": 4}
    frame = rows([evaluated, write(tmp_path / "b", other, result(other))])
    expected = {
        "domains": "0123456789abcdef",
        "domain/math": 6.0,
        "domain_low/math": 5.75,
        "domain_high/math": 6.5,
        "domain_bpb/math": 3.25,
        "domain/coding": 7.0,
        "domain_low/coding": 6.5,
        "domain_high/coding": 7.5,
        "domain_bpb/coding": 4.0,
    }
    assert {name: frame.iloc[0][name] for name in expected} == expected
    assert frame.iloc[1][list(expected)].isna().all()
    names = [name for name in frame.columns if name.startswith(("loss/", "domain"))]
    assert names[1:] == [
        *("loss/code", "loss/prose"),
        *(
            f"domain{part}/{d}"
            for part in ("", "_low", "_high", "_bpb")
            for d in ("coding", "math")
        ),
    ]


def test_only_a_done_cell_has_domains(tmp_path: Path) -> None:
    diverged = result(CONFIG, status="diverged", diverged_step=7)
    row = only(rows([with_domains(write(tmp_path / "cell", document=diverged))]))
    assert pd.isna(row["domains"])


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("{", "cannot be read"),
        (DOMAINS | {"schema": 2}, "schema"),
        (DOMAINS | {"domains": {"math": {"nats_per_token": 6.0}}}, "domains.math.bits_per_byte"),
        (json.dumps(DOMAINS).replace("3.25", "NaN"), "NaN"),
    ],
)
def test_damaged_domains_are_named(tmp_path: Path, document: object, reason: str) -> None:
    folder = with_domains(write(tmp_path / "cell", document=result(CONFIG)), document)
    row = only(rows([folder]))
    assert row["status"] == "failed"
    assert reason in row["error"]
    assert f"Run `depthbench eval {folder}`" in row["error"]


@pytest.mark.parametrize("evaluated", [0, 1])
def test_a_copy_that_was_evaluated_lends_its_domains(tmp_path: Path, evaluated: int) -> None:
    folders = [write(tmp_path / name, document=result(CONFIG)) for name in ("a", "b")]
    with_domains(folders[evaluated])
    row = only(rows(folders))
    assert (row["path"], row["domain/math"]) == (str(folders[0]), 6.0)


def test_no_folder_gives_no_row_but_every_column() -> None:
    frame = rows([])
    assert len(frame) == 0
    assert list(frame.columns) == list(COLUMNS)


def test_a_diverged_cell_has_its_step_and_no_loss(tmp_path: Path) -> None:
    document = result(CONFIG, status="diverged", diverged_step=7)
    row = only(rows([write(tmp_path / "cell", document=document)]))
    assert (row["status"], row["diverged_step"]) == ("diverged", 7)
    assert pd.isna(row["loss"])
    assert row["parameters"] == 900_000


def test_a_cell_that_was_killed_has_neither_ledger_nor_environment(tmp_path: Path) -> None:
    lost = dict.fromkeys(("measures", "ledger", "environment", "times"))
    document = result(CONFIG, status="failed", error="ended by SIGKILL", **lost)
    row = only(rows([write(tmp_path / "cell", document=document)]))
    assert (row["status"], row["error"]) == ("failed", "ended by SIGKILL")


def test_cells_without_a_result(tmp_path: Path) -> None:
    log = '{"step": 4, "loss": 5.0}\n{"step": 6, "lo'
    pending = write(tmp_path / "pending")
    begun = write(tmp_path / "begun", CONFIG | {"seed": 4})
    running = write(tmp_path / "running", CONFIG | {"seed": 5})
    for folder in (begun, running):
        (folder / "metrics.jsonl").write_text(log)
    with CellFolder(running).lock():
        frame = rows([pending, begun, running])
    assert list(frame["status"]) == ["pending", "interrupted", "running"]
    assert list(frame["step"].isna()) == [True, False, False]
    assert set(frame["step"].dropna()) == {4}


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        (json.dumps(result(CONFIG)).replace("3.5", "NaN"), "NaN"),
        (result(CONFIG, measures=None), "measures"),
        (result(CONFIG, schema=9), "schema"),
        (result(CONFIG, status="fine"), "status"),
        (result(CONFIG | {"seed": 99}), "another config.json"),
        (result(CONFIG, measures=MEASURES | {"loss": "low"}), "measures.loss"),
        (result(CONFIG, environment={"host": 3}), "environment.host"),
    ],
)
def test_a_damaged_result_is_named_and_stays(tmp_path: Path, document: object, reason: str) -> None:
    row = only(rows([write(tmp_path / "cell", document=document)]))
    assert row["status"] == "failed"
    assert "result.json" in row["error"]
    assert reason in row["error"]
    assert row["design"] == "hc"
    assert pd.isna(row["loss"])


@pytest.mark.parametrize("config", ["{", None, {"suite": "quick"}])
def test_a_damaged_config_is_named_and_stays(tmp_path: Path, config: object) -> None:
    bare = write(tmp_path / "bare", config, None)
    known = write(tmp_path / "known", config, result(CONFIG))
    frame = rows([bare, known])
    assert list(frame["status"]) == ["failed", "failed"]
    assert all("config.json" in error for error in frame["error"])
    assert pd.isna(frame["design"][0])
    assert frame["design"][1] == "hc"


def test_copies_of_one_cell_merge(tmp_path: Path) -> None:
    folders = [write(tmp_path / name, document=result(CONFIG)) for name in ("a", "b", "c")]
    row = only(rows([*folders, folders[0], tmp_path / "b" / ".." / "a"]))
    assert row["path"] == str(folders[0])
    assert row["copies"] == f"{folders[1]}; {folders[2]}"


@pytest.mark.parametrize("first", ["finished", "unfinished"])
def test_an_unfinished_copy_gives_way(tmp_path: Path, first: str) -> None:
    finished = write(tmp_path / "done", document=result(CONFIG))
    failed = write(tmp_path / "failed", document=result(CONFIG, status="failed", measures=None))
    order = [finished, failed] if first == "finished" else [failed, finished]
    row = only(rows(order))
    assert (row["status"], row["path"], row["copies"]) == ("done", str(finished), str(failed))


def test_a_damaged_copy_does_not_vanish(tmp_path: Path) -> None:
    finished = write(tmp_path / "done", document=result(CONFIG))
    damaged = write(tmp_path / "damaged", document="{")
    assert list(rows([finished, damaged])["status"]) == ["done", "failed"]


@pytest.mark.parametrize(
    "change",
    [
        {"measures": MEASURES | {"loss": 3.5000001}},
        {"status": "diverged", "diverged_step": 5, "measures": None},
    ],
)
def test_two_outcomes_of_one_cell_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    first = write(tmp_path / "first", document=result(CONFIG))
    second = write(tmp_path / "second", document=result(CONFIG, **change))
    with pytest.raises(InputError, match="two outcomes") as caught:
        rows([first, second])
    assert str(first) in str(caught.value)
    assert str(second) in str(caught.value)
    assert "3.5" in str(caught.value)


def test_cells_are_found_at_any_depth_and_not_inside_each_other(tmp_path: Path) -> None:
    cells = [write(tmp_path / "quick" / "b"), write(tmp_path / "quick" / "a", None, "{")]
    write(cells[0] / "checkpoints")
    (tmp_path / "quick" / "empty").mkdir()
    assert cell_folders(tmp_path) == [cells[1], cells[0]]
    assert cell_folders(cells[0]) == [cells[0]]


def test_a_root_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing is not a folder"):
        cell_folders(tmp_path / "missing")
