"""The domain sets as lm-eval tasks: every road to a number gives the same number."""

import re
from functools import partial
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

from depthbench.data import Corpus
from depthbench.domains import items, measure
from depthbench.domains.definitions import DOMAINS, DomainSet, StreamSource, definitions
from depthbench.errors import DataError, DepthbenchError, InputError
from depthbench.export import export
from depthbench.harness import tasks
from depthbench.harness.command import main
from depthbench.trained import TrainedCell
from tests.harness.kit import LENGTH, WORDS

SHIPPED = Path(__file__).parents[2] / "evals" / "tasks"
Known = dict[str, DomainSet]


def made_up(name: str, target: str) -> DomainSet:
    return DomainSet(
        name=name,
        title=name,
        domain="coding",
        licence="none",
        source=StreamSource(held_out="made-up"),
        prompt="Question: {{ question }}\nAnswer:",
        target=target,
    )


@pytest.fixture
def known(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> Known:
    """Two sets of seven items with short and long prompts; targets of one to many tokens."""
    docs = [
        {"question": " ".join(WORDS[: 3 * n % 17 + 1]), "answer": " ".join(WORDS[n : 2 * n + 1])}
        for n in range(7)
    ]
    monkeypatch.setattr(items, "documents", lambda *_: iter(docs))
    known = {
        "short": made_up("short", " {{ answer.split()[0] }}"),
        "long": made_up("long", "\n{{ answer }}"),
    }
    monkeypatch.setattr(tasks, "definitions", lambda: known)
    return known


@pytest.fixture
def folder(known: Known, tmp_path: Path) -> Path:
    """Tasks of these sets, made of the same shared file as the shipped ones."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    shared = f"include: {SHIPPED / '_set'}\n"
    for name in known:
        text = f"task: depthbench-{name}\ndataset_kwargs:\n  set_name: {name}\n"
        (folder / f"{name}.yaml").write_text(shared + text)
    group = (SHIPPED / "depthbench-coding.yaml").read_text()
    for shipped, ours in (("humaneval", "short"), ("mbpp", "long")):
        group = group.replace(f"- depthbench-{shipped}\n", f"- depthbench-{ours}\n")
    (folder / "group.yaml").write_text(group)
    return folder


def run(model: str, arguments: dict[str, Any], folder: Path, *names: str, **options: Any) -> Any:
    manager = TaskManager(include_path=folder, include_defaults=False, metadata=arguments)
    found = simple_evaluate(
        model, arguments, tasks=list(names), task_manager=manager, device="cpu", **options
    )
    assert found is not None
    return found["results"]


@pytest.mark.parametrize("limit", [None, 3])
def test_eval_and_lm_eval_agree(
    trained: TrainedCell, known: Known, folder: Path, limit: int | None
) -> None:
    ours = measure.evaluate(trained, limit=limit, known=known)
    arguments = {"cell": str(trained.folder.path)}
    theirs = run("depthbench", arguments, folder, "depthbench-coding", limit=limit)
    assert ours["sets"]["long"]["items"] == (limit or 7)
    for name, entry in ours["sets"].items():
        for metric in ("nats_per_token", "bits_per_byte"):
            assert theirs[f"depthbench-{name}"][f"{metric},none"] == pytest.approx(
                entry[metric], abs=1e-5
            )
    for metric in ("nats_per_token", "bits_per_byte"):
        average = theirs["depthbench-coding"][f"{metric},none"]
        assert average == pytest.approx(ours["domains"]["coding"][metric], abs=1e-5)


def test_the_exported_llama_agrees(
    trained: TrainedCell, known: Known, folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("accelerate", reason="lm-eval's hf model imports it")
    export(trained.folder.path, "hf", tmp_path / "llama")
    ours = measure.evaluate(trained, sets=["short"], known=known)["sets"]["short"]
    assert ours["truncated_prompts"] > 0
    arguments = {"pretrained": str(tmp_path / "llama")}
    theirs = run("hf", arguments, folder, "depthbench-short", batch_size=3)["depthbench-short"]
    for metric in ("nats_per_token", "bits_per_byte"):
        assert theirs[f"{metric},none"] == pytest.approx(ours[metric], abs=1e-4)


def test_the_number_is_nats_over_tokens_of_the_rendered_items(
    trained: TrainedCell, known: Known, folder: Path
) -> None:
    """From the texts alone, without the code that scores."""
    tokenizer, nats, num_tokens, num_bytes = trained.corpus.tokenizer(), 0.0, 0, 0
    for n in range(7):
        prompt = f"Question: {' '.join(WORDS[: 3 * n % 17 + 1])}\nAnswer:"
        target = tokenizer.encode(f" {WORDS[n]}").ids
        ids = torch.tensor([0, *tokenizer.encode(prompt).ids, *target][-(LENGTH + 1) :])
        with torch.no_grad():
            p = trained.model.logits(ids[None, :-1])[0].double().log_softmax(-1)
        nats -= p[range(-len(target), 0), target].sum().item()
        num_tokens += len(target)
        num_bytes += len(f" {WORDS[n]}".encode())
    arguments = {"cell": str(trained.folder.path)}
    found = run("depthbench", arguments, folder, "depthbench-short")["depthbench-short"]
    assert found["nats_per_token,none"] == pytest.approx(nats / num_tokens, abs=1e-5)
    assert found["bits_per_byte,none"] == pytest.approx(nats / log(2) / num_bytes, abs=1e-5)


def test_long_targets_are_sums_over_sums() -> None:
    first = tasks.process_results({"target_tokens": 1, "target_bytes": 2}, [(-4.0, False)])
    second = tasks.process_results({"target_tokens": 3, "target_bytes": 8}, [(-2.0, True)])
    pairs = {metric: [first[metric], second[metric]] for metric in first}
    assert tasks.sum_over_sum(pairs["nats_per_token"]) == 1.5
    assert tasks.sum_over_sum(pairs["bits_per_byte"]) == pytest.approx(0.6 / log(2))


def test_targets_beyond_the_context_are_told_to_users_of_other_models(
    cell: Path, known: Known, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    export(cell, "hf", tmp_path / "llama")
    known["long"] = made_up("long", " {{ (answer + ' ') * 40 }}")
    tasks.documents("long", pretrained=str(tmp_path / "llama"))
    assert "7 of 7 targets of long are longer than the model's context of 24" in caplog.text
    caplog.clear()
    tasks.documents("long", pretrained=str(tmp_path / "llama"), max_length=4096)
    tasks.documents("long", cell=str(cell))
    assert caplog.text == ""


def test_what_a_task_needs_is_said(
    cell: Path, corpus: Corpus, known: Known, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="cell=FOLDER"):
        tasks.documents("short")
    with pytest.raises(InputError, match=r"cell\.json is missing"):
        tasks.documents("short", pretrained=str(tmp_path))
    with pytest.raises(DepthbenchError, match=r"config\.json"):
        tasks.documents("short", cell=str(tmp_path))
    monkeypatch.undo()
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))
    with pytest.raises(InputError, match="wiki-stem"):
        tasks.documents("wiki-sten", cell=str(cell))
    with pytest.raises(DataError, match="no held-out stream stem"):
        tasks.documents("wiki-stem", cell=str(cell))


def test_every_set_has_a_task_and_every_domain_a_group() -> None:
    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor("!function", lambda loader, node: node.value)
    documents = {path.name: yaml.load(path.read_text(), Loader) for path in SHIPPED.glob("*.yaml")}
    groups = {f"depthbench-{domain}.yaml" for domain in DOMAINS}
    of_sets = {f"depthbench-{name}.yaml" for name in definitions()}
    assert set(documents) == groups | of_sets
    for name, definition in definitions().items():
        assert documents[f"depthbench-{name}.yaml"] == {
            "include": "_set",
            "task": f"depthbench-{definition.name}",
            "dataset_kwargs": {"set_name": name},
        }
    for domain in DOMAINS:
        group = documents[f"depthbench-{domain}.yaml"]
        default = [s.name for s in definitions().values() if s.default and s.domain == domain]
        assert group["group"] == f"depthbench-{domain}"
        assert group["task"] == [f"depthbench-{name}" for name in default]
        assert not any(metric["weight_by_size"] for metric in group["aggregate_metric_list"])


def test_the_command_line_of_lm_eval_knows_model_and_tasks(
    trained: TrainedCell,
    known: Known,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # lm-eval would read the thousands of tasks it ships with.
    few = partial(TaskManager, include_defaults=False)
    monkeypatch.setattr("lm_eval.tasks.TaskManager", few)
    monkeypatch.setattr("depthbench.harness.command.asset", lambda _: folder / "group.yaml")
    arguments = f"--model depthbench --model_args cell={trained.folder.path} --device cpu"
    main([*arguments.split(), "--tasks", "depthbench-coding"])
    printed = capsys.readouterr().out
    ours = measure.evaluate(trained, known=known)
    numbers = [float(number) for number in re.findall(r"\d+\.\d+", printed)]
    for value in (
        *(entry["nats_per_token"] for entry in ours["sets"].values()),
        ours["domains"]["coding"]["bits_per_byte"],
    ):
        assert min(abs(value - number) for number in numbers) < 1e-3
