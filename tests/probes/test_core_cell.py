"""A trained cell with a core loop, through every probe: after its training, and by the verb."""

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner

from depthbench import cell, probes
from depthbench.cli import app
from depthbench.folder import CellFolder, read_json, read_metrics

LOOP = {"layout": "prelude-core-coda", "prelude": 1, "coda": 1, "forward": 3, "backward": 2}
SHAPE = {"layers": 4, "d_model": 8, "ffn": 16, "heads": 2}
E = 8  # a block, three loops of two, a block
LENGTHS = {
    "angular": E + 1,
    "causal": E,
    "permutation": E,
    "pruning": E,
    "lens": E + 1,
    "paths": 2 * E + 5,  # a row more for the finish of each of the five runs
    "transport": 2 * E,
    "dead-segment": E,
    "representation": E + 1,
    "statistics": 2 * E,
    "alignment": 4,
}
DRAWN = "block-attnres"  # a picture takes long
PNG = b"\x89PNG\r\n\x1a\n"
# With a core of two blocks and groups of whole blocks between them they answer every probe.
ANSWERS = {
    "block-attnres": set(probes.names()) - {"transport"},
    "hc": set(probes.names()) - {"dead-segment"},
    "deeploop": set(probes.names()) - {"transport", "dead-segment", "paths"},
}


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} in a document")


@pytest.fixture
def trained(make_folder, corpus, monkeypatch, request) -> CellFolder:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))
    monkeypatch.setattr(cell._StopRequest, "install", lambda self: None)
    if request.param != DRAWN:
        monkeypatch.setattr("depthbench.probes.pictures.draw", lambda probe, values: PNG)
    measures = {"probes": probes.names(), "windows": 2, "statistics_every": 2}
    folder: CellFolder = make_folder(request.param, loop=LOOP, shape=SHAPE, measures=measures)
    assert cell.main(folder.path) == 0
    return folder


@pytest.mark.parametrize("trained", ANSWERS, indirect=True)
def test_every_probe_is_asked_and_lengths_follow_executed_depth(trained: CellFolder) -> None:
    assert not read_json(trained.result_path).get("not_measured")
    found = probes.read_documents(trained)
    assert set(found) == set(probes.names())
    answered = {name for name, document in found.items() if document["values"]}
    assert answered == ANSWERS[trained.config().design.name]
    for name in found:
        document = json.loads(_text(trained.probes_path / f"{name}.json"), parse_constant=refuse)
        assert (trained.probes_path / f"{name}.png").exists() == (name in answered)
        assert bool(document["reason"]) == (name not in answered)
        for kind, values in document["values"].items():
            assert len(values) == LENGTHS[name] - (kind == "across")
    kappa = found["alignment"]["values"]["kappa"]
    assert kappa[0] is kappa[3] is None
    assert all(0 <= value <= 2 for value in kappa[1:3])
    assert found["alignment"]["summary"]["mean"] == pytest.approx(sum(kappa[1:3]) / 2)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("trained", ["full-attnres"], indirect=True)
def test_statistics_are_followed_through_the_training(trained: CellFolder) -> None:
    records: list[dict[str, Any]] = read_metrics(trained.layers_path)
    assert [record["step"] for record in records] == [2, 4]
    for record in records:
        assert all(value > 0 for value in record["output_rms"])
        carrying = [value is not None for value in record["gradient_rms"]]
        assert carrying == [True] * 2 + [False] * 4 + [True] * 10  # the first loop is cut


@pytest.mark.parametrize("trained", ["pre-ln"], indirect=True)
def test_the_verb_writes_the_same_again(trained: CellFolder) -> None:
    before = {path.name: path.read_bytes() for path in trained.probes_path.iterdir()}
    arguments = ["probe", str(trained.path), "--windows", "2", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    documents = json.loads(result.stdout)[str(trained.path)]
    assert documents == probes.read_documents(trained)
    assert {path.name: path.read_bytes() for path in trained.probes_path.iterdir()} == before
    shown = CliRunner().invoke(app, arguments[:-1])
    assert shown.exit_code == 0
    assert "permutation" in shown.output
