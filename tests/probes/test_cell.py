"""Probing a cell: its files, the sample, and what is refused before anything is written."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch

import residuals
from depthbench import cell, probes
from depthbench.data import Corpus
from depthbench.errors import DepthbenchError, InputError
from depthbench.folder import CellFolder
from depthbench.model.decoder import build_decoder
from depthbench.probes.run import probe_windows
from depthbench.train.evaluate import evaluate
from depthbench.train.objective import alone
from depthbench.trained import TrainedCell, open_trained
from tests.residuals.kit import perturb

NAMES = [
    *("angular", "causal", "permutation", "pruning", "lens", "paths"),
    *("transport", "dead-segment", "representation", "statistics"),
    "alignment",
]
PNG = b"\x89PNG\r\n\x1a\n"
DRAWN = {"mhc", "block-attnres"}  # between them they answer every probe; a picture takes long
NOT_ANSWERED = {
    "alignment": set(residuals.names()),  # no loop here
    "transport": {d for d in residuals.names() if d not in ("hc", "mhc", "mhc-lite")},
    "dead-segment": {d for d in residuals.names() if d != "block-attnres"},
    "paths": {"post-ln", "deepnorm", "keel", "deeploop", "layerscale", "hybridnorm"},
}


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} in a document")


def untrained(folder: CellFolder, corpus: Corpus) -> TrainedCell:
    """The cell with random weights: what a probe writes does not depend on the training."""
    config = folder.config()
    sizes = (config.shape, config.corpus.vocab_size, config.design, config.norm_eps, config.seed)
    model = build_decoder(*sizes)
    perturb(model, 0.1)
    return TrainedCell(folder, config, model.eval().requires_grad_(False), corpus)


def files(folder: CellFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.probes_path.iterdir())}


def test_the_probes_there_are() -> None:
    assert probes.names() == NAMES


@pytest.mark.parametrize("design", residuals.names())
def test_every_probe_of_every_design_is_written(design, make_folder, corpus, monkeypatch) -> None:
    folder = make_folder(design)
    steps: list[tuple[str, int, int]] = []
    trained = untrained(folder, corpus)
    if design not in DRAWN:
        monkeypatch.setattr("depthbench.probes.pictures.draw", lambda probe, values: PNG)
    documents = probes.probe_cell(trained, windows=3, progress=lambda *step: steps.append(step))
    assert steps == [(design, done, len(NAMES)) for done in range(len(NAMES) + 1)]
    assert list(documents) == NAMES
    written = files(folder)
    for name, document in documents.items():
        assert json.loads(written.pop(f"{name}.json"), parse_constant=refuse) == document
        probe = probes.get(name)
        assert document["definition"] == probe.definition
        assert (document["unit"], document["title"]) == (probe.unit, probe.title)
        assert document["thresholds"] == probe.thresholds
        assert document["sample"] == {
            "corpus": corpus.name,
            "corpus_hash": corpus.hash,
            "windows": 3,
            "tokens": 24,
            "sequence_length": 8,
        }
        assert document["design"]["name"] == design
        if design in NOT_ANSWERED.get(name, ()):
            assert document["values"] == {}
            assert document["reason"]
        else:
            assert document["reason"] is None
            assert written.pop(f"{name}.png").startswith(PNG)
    assert written == {}
    assert probes.read_documents(folder) == documents


@pytest.fixture
def handlers() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_a_trained_cell_is_probed_on_the_weights_it_ended_with(
    make_folder, corpus, handlers, monkeypatch
) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))
    folder = make_folder("block-attnres", measures={"probes": ["pruning"], "windows": 2})
    assert cell.main(folder.path) == 0
    assert list(files(folder)) == ["pruning.json", "pruning.png"]  # at the end, as it was asked
    assert json.loads(files(folder)["pruning.json"])["sample"]["windows"] == 2
    trained = open_trained(folder.path)
    documents = probes.probe_cell(trained, ["lens"], windows=8)  # all that evaluation sees
    loss = evaluate(alone(trained.model, trained.config), corpus, trained.config)["loss"]
    assert documents["lens"]["values"]["cross_entropy"][-1] == pytest.approx(loss, rel=1e-6)


def test_again_gives_the_same_bytes(make_folder, corpus) -> None:
    folder = make_folder("hc")
    trained = untrained(folder, corpus)
    names = ["causal", "pruning"]
    probes.probe_cell(trained, names, windows=2)
    first = files(folder)
    probes.probe_cell(trained, names, windows=2)
    assert files(folder) == first
    # One asked for alone sees what it saw among the others.
    probes.probe_cell(untrained(folder, corpus), ["causal"], windows=2)
    assert files(folder) == first


def test_thresholds_are_recorded_and_counted_with(make_folder, corpus) -> None:
    folder = make_folder(shape={"layers": 4, "d_model": 8, "ffn": 16, "heads": 2})
    trained = untrained(folder, corpus)
    for late, fraction in ((0.0, 1.0), (1e9, 0.0)):
        documents = probes.probe_cell(trained, ["causal"], 2, {"causal.late": late})
        assert documents["causal"]["thresholds"] == {"late": late, "copy": 0.0}
        assert documents["causal"]["summary"]["late_outputs"] == fraction


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"names": ["angular", "casual"]}, ["casual", "causal"]),
        ({"thresholds": {"causal.lat": 0.5}}, ["causal.lat", "causal.late"]),
        ({"windows": 10**6}, ["windows = 1000000"]),
        ({"windows": 0}, ["windows = 0"]),
        ({"windows": -1}, ["windows = -1"]),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    arguments: dict[str, Any], words: list[str], make_folder, corpus
) -> None:
    folder = make_folder()
    with pytest.raises(InputError) as refusal:
        probes.probe_cell(untrained(folder, corpus), **arguments)
    assert all(word in str(refusal.value) for word in words)
    assert not folder.probes_path.exists()


def test_windows_are_validation_text_spread_over_all_of_it(make_folder, corpus) -> None:
    config = make_folder().config()
    (stream,) = corpus.validation.values()
    every = probe_windows(corpus, config, 8)
    assert np.array_equal(every, np.stack([stream[8 * n : 8 * n + 9] for n in range(8)]))
    assert np.array_equal(probe_windows(corpus, config, 1), every[:1])
    first, middle, last = probe_windows(corpus, config, 3)
    assert np.array_equal(first, every[0])
    assert np.array_equal(last, every[7])
    assert any(np.array_equal(middle, window) for window in every[3:5])


@pytest.mark.parametrize("design", residuals.names())
def test_blocks_that_do_nothing_leave_valid_documents(
    design, make_folder, corpus, monkeypatch
) -> None:
    monkeypatch.setattr("depthbench.probes.pictures.draw", lambda probe, values: PNG)
    folder = make_folder(design)
    trained = untrained(folder, corpus)
    for block in trained.model.blocks:
        torch.nn.init.zeros_(block.attention.out.weight)
        torch.nn.init.zeros_(block.mlp.down.weight)
    documents = probes.probe_cell(trained, windows=2)
    for name in NAMES:
        text = (folder.probes_path / f"{name}.json").read_text()
        assert json.loads(text, parse_constant=refuse) == documents[name]
    if design == "pre-ln":
        assert documents["angular"]["values"]["across"] == [0.0, 0.0]
        assert documents["causal"]["values"]["states"][0][1] == 0
        assert documents["permutation"]["values"]["score"][0][1] == 0
        assert documents["pruning"]["values"]["increase"] == [0.0, 0.0]


def test_a_model_that_is_not_a_number_is_not_taken_for_a_still_one(make_folder, corpus) -> None:
    folder = make_folder()
    trained = untrained(folder, corpus)
    torch.nn.init.constant_(trained.model.blocks[0].mlp.down.weight, float("nan"))
    documents = probes.probe_cell(trained, ["causal", "pruning", "permutation"], windows=2)
    assert documents["causal"]["values"]["states"][0][1] is None
    assert documents["permutation"]["values"]["score"][0][1] is None
    assert documents["pruning"]["values"]["increase"] == [None, None]


def test_a_damaged_document_is_named(make_folder, corpus, tmp_path: Path) -> None:
    folder = make_folder()
    probes.probe_cell(untrained(folder, corpus), ["angular"], windows=2)
    (folder.probes_path / "angular.json").write_text("{")
    with pytest.raises(DepthbenchError, match=r"angular\.json"):
        probes.read_documents(folder)
