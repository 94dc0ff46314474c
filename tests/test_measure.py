"""Measuring at the end of a cell: what is asked for is there, and training does not notice."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from depthbench import cell, measure, probes
from depthbench.config import CellConfig
from depthbench.data import Corpus, LocalOptions, open_corpus, prepare
from depthbench.errors import InputError
from depthbench.folder import CellFolder, read_json, read_metrics
from depthbench.model.decoder import build_decoder
from depthbench.suite import load_suite
from depthbench.train import trainer
from depthbench.train.memory import activation_bytes

Make = Callable[..., CellFolder]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("text")
    words = "whether added layers compute anything is asked once the training has ended".split()
    rows = (" ".join(words[(n * k + n) % 12] for k in range(30 + n % 31)) for n in range(120))
    (folder / "rows.jsonl").write_text("".join(json.dumps({"text": r}) + "\n" for r in rows))
    options = LocalOptions(vocab_size=280, validation_share=0.2)
    return open_corpus(prepare(folder / "rows.jsonl", folder / "cache", local=options))


@pytest.fixture
def make(tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))
    monkeypatch.setattr(cell._StopRequest, "install", lambda self: None)

    def make(name: str = "cell", design: str = "pre-ln", **changes: Any) -> CellFolder:
        document = {
            "suite": "unit",
            "ladder": "inline",
            "design": {"name": design, "version": 1},
            "shape": {"layers": 2, "d_model": 8, "ffn": 16, "heads": 2},
            "corpus": corpus.ref().model_dump(),
            "sequence_length": 8,
            "batch_size": 4,
            "micro_batch_size": 4,
            "steps": 12,
            "optimizer": {"learning_rate": 1e-2},
            "evaluation": {"tokens": 64, "points": 1},
            "norm_eps": 1e-6,
            "seed": 1,
        }
        folder = CellFolder(tmp_path / name)
        folder.create(CellConfig.model_validate(document | changes))
        return folder

    return make


def test_what_is_measured_is_no_part_of_the_experiment(make) -> None:
    """Same digest, same loss to the last bit, and the folder of one is that of the other."""
    plain = make("plain")
    asked = make("asked", measures={"probes": ["angular"], "windows": 2, "statistics_every": 5})
    assert plain.config().digest() == asked.config().digest()
    plain.check(asked.config())
    assert cell.main(plain.path) == cell.main(asked.path) == 0
    losses = [read_json(f.result_path)["measures"]["loss"] for f in (plain, asked)]
    assert losses[0] == losses[1]


def test_the_probes_asked_for_lie_beside_the_result(make) -> None:
    folder = make(measures={"probes": ["pruning", "transport"], "windows": 3})
    assert cell.main(folder.path) == 0
    found = probes.read_documents(folder)
    assert set(found) == {"pruning", "transport"}
    assert found["pruning"]["sample"]["tokens"] == 3 * 8
    assert len(found["pruning"]["values"]["increase"]) == 2
    assert "one residual stream" in found["transport"]["reason"]
    assert (folder.probes_path / "pruning.png").read_bytes().startswith(b"\x89PNG")


def test_a_measure_that_fails_is_named_and_loses_neither_cell_nor_others(make, monkeypatch) -> None:
    def broken(stack: object, thresholds: object) -> object:
        raise RuntimeError("no memory left")

    angular = probes.get("angular")
    monkeypatch.setitem(
        probes.registry._probes, "angular", type(angular)(**{**vars(angular), "measure": broken})
    )
    folder = make(measures={"probes": ["angular", "pruning"], "windows": 2})
    assert cell.main(folder.path) == 0
    result = read_json(folder.result_path)
    assert result["status"] == "done"
    assert result["not_measured"] == {"probe angular": "RuntimeError: no memory left"}
    assert set(probes.read_documents(folder)) == {"pruning"}


def test_more_windows_than_there_are_is_refused_before_training(make, monkeypatch) -> None:
    monkeypatch.setattr(cell, "train", lambda *_, **__: pytest.fail("it trained"))
    folder = make(measures={"probes": ["angular"], "windows": 10_000})
    assert cell.main(folder.path) == 1
    assert "windows = 10000" in read_json(folder.result_path)["error"]


def test_stopped_while_measuring_it_goes_on_without_training_again(make, monkeypatch) -> None:
    whole = make("whole")
    cell.main(whole.path)
    folder = make("stopped", measures={"probes": ["angular", "pruning"], "windows": 2})
    real = measure.measure
    monkeypatch.setattr(cell, "measure", lambda f, c, stop: real(f, c, lambda: True))
    assert cell.main(folder.path) == 75
    assert read_json(folder.result_path)["status"] == "interrupted"
    monkeypatch.setattr(cell, "measure", real)
    monkeypatch.setattr(trainer, "_step", lambda *_: pytest.fail("it trained"))
    assert cell.main(folder.path) == 0
    assert set(probes.read_documents(folder)) == {"angular", "pruning"}
    losses = [read_json(f.result_path)["measures"]["loss"] for f in (whole, folder)]
    assert losses[0] == losses[1]


def test_layer_statistics_are_taken_every_n_steps_and_once(make, monkeypatch) -> None:
    folder = make(design="full-attnres", measures={"statistics_every": 4, "windows": 2})
    assert cell.main(folder.path) == 0
    records = read_metrics(folder.layers_path)
    assert [record["step"] for record in records] == [4, 8, 12]
    for record in records:
        for name in ("output_rms", "gradient_rms"):
            assert len(record[name]) == 4  # two blocks of two sublayers
            assert all(value > 0 for value in record[name])
        # The identity that links the four: mean square = variance + mean².
        for rms, variance, mean in zip(
            record["output_rms"], record["output_variance"], record["output_mean"], strict=True
        ):
            assert rms**2 == pytest.approx(variance + mean**2, rel=1e-9)


@pytest.mark.parametrize("design", ["pre-ln", "hc", "full-attnres", "moda"])
def test_activations_are_counted_per_sequence(make, design) -> None:
    """What every sequence keeps is the same; what they share (tables, routing) counts once."""
    config = make(design=design).config()
    model = build_decoder(config.shape, 280, config.design, 1e-6, 0)

    def counted(num: int) -> int:
        return activation_bytes(model, torch.arange(num * 9).view(num, 9) % 280, config)

    assert counted(3) - counted(2) == counted(2) - counted(1) > 8 * 8 * 4


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("measures.probes=[anguler]", "unknown probe 'anguler': did you mean 'angular'"),
        ("measures.domains=[maths]", "unknown domain 'maths': did you mean 'math'"),
        ("measures.windows=0", "greater than or equal to 1"),
        ("measures.window=4", "did you mean 'windows'"),
    ],
)
def test_a_suite_asks_only_for_what_there_is(override, said) -> None:
    with pytest.raises(InputError, match=said):
        load_suite("quick", [override])
