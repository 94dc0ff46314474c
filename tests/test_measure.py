"""Measuring at the end of a cell: what is asked for is there, and training does not notice."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from depthbench import cell, measure, probes
from depthbench.cli import app
from depthbench.config import CellConfig
from depthbench.data import Corpus
from depthbench.errors import InputError
from depthbench.folder import CellFolder, read_json, read_metrics, write_json
from depthbench.model.decoder import build_decoder
from depthbench.suite import load_suite
from depthbench.train import trainer
from depthbench.train.memory import activation_bytes
from depthbench.train.objective import alone
from tests.kit import cell_document, tiny_corpus
from tests.residuals.kit import saved_bytes

Make = Callable[..., CellFolder]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    words = "whether added layers compute anything is asked once the training has ended"
    return tiny_corpus(tmp_path_factory.mktemp("text"), words)


@pytest.fixture
def make(tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))
    monkeypatch.setattr(cell._StopRequest, "install", lambda self: None)

    def make(name: str = "cell", design: str = "pre-ln", **changes: Any) -> CellFolder:
        folder = CellFolder(tmp_path / name)
        folder.create(CellConfig.model_validate(cell_document(corpus, design, **changes)))
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
        return activation_bytes(
            alone(model, config), config.model_copy(update={"micro_batch_size": num})
        )

    assert counted(3) - counted(2) == counted(2) - counted(1) > 8 * 8 * 4
    tokens = torch.zeros(2, 8, dtype=torch.int64)
    with saved_bytes(model) as total:
        model.summed_nll(tokens, tokens)
    assert counted(2) == total[0]


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


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_verb_writes_what_it_prints(make) -> None:
    folder = make()
    cell.main(folder.path)
    arguments = ("--probe", "causal", "--windows", 2, "--set", "causal.late=0.9", "--json")
    result = call("probe", folder.path.parent, *arguments)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)[str(folder.path)]["causal"]
    assert document == probes.read_documents(folder)["causal"]
    assert document["thresholds"]["late"] == 0.9
    assert document["sample"]["windows"] == 2


def test_a_cell_that_cannot_be_measured_is_refused_with_the_reason(make, tmp_path) -> None:
    """Not trained, another version, another corpus, weights gone or damaged; nothing is written."""
    pending = make("pending")
    trained = make("trained")
    cell.main(trained.path)

    def altered(name: str, **changes: Any) -> Path:
        copied = CellFolder(shutil.copytree(trained.path, tmp_path / name))
        config = read_json(copied.config_path)
        for key, value in changes.items():
            config[key] |= value
        write_json(copied.config_path, config)
        return copied.path

    gone = altered("gone")
    (gone / "model.safetensors").unlink()
    damaged = altered("damaged")
    (damaged / "model.safetensors").write_bytes(b"not tensors")
    cases = [
        (pending.path, 2, "is pending"),
        (altered("version", design={"version": 7}), 2, "pre-ln@7"),
        (altered("tokenizer", corpus={"tokenizer_hash": "another"}), 1, "needs corpus"),
        (gone, 2, "model.safetensors is missing"),
        (damaged, 1, "model.safetensors cannot be read"),
        (tmp_path / "nowhere", 2, "is not a folder"),
    ]
    for path, code, said in cases:
        for verb in ("probe", "eval"):
            arguments = ("--set", "wiki-stem") if verb == "eval" else ()
            result = call(verb, path, *arguments)
            assert (result.exit_code, said in result.stderr.replace("\n", " ")) == (code, True), (
                verb,
                result.output,
            )
        assert not (path / "probes").exists()
        assert not (path / "domains.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("probe", "--probe", "causel"), "did you mean 'causal'"),
        (("probe", "--set", "causal.lat=1"), "did you mean 'causal.late'"),
        (("probe", "--set", "causal.late=much"), "probe.threshold=number"),
        (("probe", "--windows", "99999"), "windows = 99999"),
        (("eval", "--domain", "maths"), "did you mean 'math'"),
        (("eval", "--set", "gsm9k"), "did you mean 'gsm8k'"),
        (("export", "--out", "there", "--to", "gguf"), "gguf"),
    ],
)
def test_what_does_not_exist_is_refused_before_anything_runs(
    make, tmp_path, monkeypatch, arguments, said
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = make()
    cell.main(folder.path)
    verb, *options = arguments
    result = call(verb, folder.path, *options)
    assert result.exit_code == 2
    assert said in result.stderr.replace("\n", " ")
    assert not folder.probes_path.exists()
    assert not folder.domains_path.exists()


def test_what_to_measure_may_be_corrected_until_the_cell_is_finished(make) -> None:
    folder = make(measures={"probes": ["angular"], "windows": 10_000})
    assert cell.main(folder.path) == 1
    again = make(measures={"probes": ["angular"], "windows": 2})
    assert again.config().measures.windows == 2
    assert cell.main(folder.path) == 0
    make(measures={})
    assert folder.config().measures.windows == 2  # finished: what it was measured by stays


def test_a_smaller_evaluation_does_not_replace_a_larger_one_unasked(make) -> None:
    folder = make()
    cell.main(folder.path)
    sets = {"humaneval": {}, "arc": {}}
    write_json(folder.domains_path, {"schema": 1, "limit": 5, "sets": sets, "domains": {}})
    before = folder.domains_path.read_bytes()
    for arguments, said in (
        (("--set", "arc"), "also holds humaneval"),
        (("--set", "arc", "--set", "humaneval", "--limit", 4), "limit is now 4"),
        (("--set", "arc", "--domain", "coding"), "name one of both"),
    ):
        result = call("eval", folder.path, *arguments)
        assert (result.exit_code, said in result.stderr.replace("\n", " ")) == (2, True), said
    assert folder.domains_path.read_bytes() == before


def test_a_cell_that_cannot_be_probed_does_not_stop_the_others(make, tmp_path) -> None:
    short, plain = make("a-short", evaluation={"tokens": 8, "points": 1}), make("b-plain")
    for folder in (short, plain):
        assert cell.main(folder.path) == 0
    (tmp_path / "c-damaged").mkdir()
    (tmp_path / "c-damaged" / "config.json").write_text(plain.config_path.read_text())
    (tmp_path / "c-damaged" / "result.json").write_text("{")
    result = call("probe", tmp_path, "--probe", "pruning", "--windows", 2, "--json")
    assert result.exit_code == 1
    assert list(json.loads(result.stdout)) == [str(plain.path)]
    assert "windows = 2, and the validation set of this cell has 1" in result.stderr
    assert call("probe", short.path, "--windows", 2).exit_code == 2


def test_a_device_that_is_not_there_is_refused(make) -> None:
    folder = make()
    cell.main(folder.path)
    for device in ("cuda:7", "abacus"):
        result = call("probe", folder.path, "--device", device)
        assert (result.exit_code, f"device '{device}' cannot be used" in result.stderr) == (2, True)
