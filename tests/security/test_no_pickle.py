"""Weights, checkpoints and results are read while unpickling is impossible."""

import pickle
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from depthbench import report
from depthbench.model.build import build_model
from depthbench.train import checkpoint
from depthbench.train.checkpoint import Progress
from depthbench.train.optimizer import build_optimizer
from depthbench.trained import open_trained
from tests.harness.kit import build_corpus, done_cell
from tests.kit import cell_config
from tests.report import cells as synthetic


@pytest.fixture
def no_pickle(monkeypatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise AssertionError("something was unpickled")

    class Refused(pickle.Unpickler):
        load = refuse

    for name in ("load", "loads"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(pickle, "Unpickler", Refused)
    monkeypatch.setattr(torch, "load", refuse)


def test_a_checkpoint(tmp_path, no_pickle) -> None:
    config = cell_config()
    model, again = build_model(config), build_model(config)
    optimizer = build_optimizer(model, config.optimizer)
    ids = torch.arange(16).reshape(2, 8) % 23
    model.summed_nll(ids, ids).backward()
    optimizer.step()
    checkpoint.save(tmp_path, model, optimizer, Progress(step=3))
    fresh = build_optimizer(again, config.optimizer)
    progress, warnings = checkpoint.load_newest(tmp_path, again, fresh)
    assert (progress.step, warnings) == (3, [])
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert file.suffix in (".safetensors", ".json"), file


def test_weights_and_a_report(tmp_path: Path, monkeypatch, no_pickle) -> None:
    corpus = build_corpus(tmp_path)
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))
    assert open_trained(done_cell(tmp_path / "cell", corpus).path).corpus.hash == corpus.hash
    config = synthetic.config("pre-ln", (4, 128, 352), 1)
    synthetic.write_cell(tmp_path / "runs", config, synthetic.result(config, 4.0))
    assert report.build([tmp_path / "runs"], tmp_path / "out").exists()
