"""One, two and three ranks, replicated and sharded, are the same run."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import residuals
from depthbench.config import CellConfig
from depthbench.data import Corpus
from depthbench.folder import CellFolder, read_metrics
from depthbench.model.build import build_model
from depthbench.train.evaluate import evaluate
from depthbench.train.objective import alone as of_one
from depthbench.train.ranks import World
from depthbench.train.trainer import micro_batches, train
from depthbench.train.weights import load_weights
from tests.train.conftest import MakeConfig
from tests.train.ranks import START

LOOPS = {
    "truncated": {
        "layout": "prelude-core-coda",
        "prelude": 1,
        "coda": 1,
        "forward": 3,
        "backward": 2,
    },
    "whole": {"layout": "whole", "rounds": 2},
}
SHAPE = {"layers": 3, "d_model": 16, "ffn": 24, "heads": 2}
WAYS = [(2, "ddp"), (3, "ddp"), (2, "fsdp"), (3, "fsdp")]
STEPS = 3


@pytest.fixture(scope="module")
def configs(make_config: MakeConfig) -> dict[str, CellConfig]:
    """Every design, and two loops.

    Four sequences one by one leave three ranks two, one and one of them.
    """
    changes: dict[str, Any] = {
        "shape": SHAPE,
        "steps": STEPS,
        "micro_batch_size": 1,
        "evaluation": {"tokens": 64, "points": STEPS},
        "learning_rate": 1e-3,
    }
    found = {design.name: make_config(design.name, **changes) for design in residuals.all_designs()}
    return found | {name: make_config("hc", **changes, loop=loop) for name, loop in LOOPS.items()}


@pytest.fixture(scope="module")
def alone(configs, corpus, tmp_path_factory) -> dict[str, CellFolder]:
    """The same in one process."""
    return run_alone(configs, corpus, tmp_path_factory.mktemp("alone"))


def run_alone(configs: dict[str, CellConfig], corpus: Corpus, root: Path) -> dict[str, CellFolder]:
    folders = create(root, configs)
    for folder in folders.values():
        train(folder.config(), folder, corpus, checkpoint_seconds=1e9)
    return folders


def create(root: Path, configs: dict[str, CellConfig], **changes: Any) -> dict[str, CellFolder]:
    folders = {name: CellFolder(root / name) for name in configs}
    for name, folder in folders.items():
        config = configs[name].model_dump() | changes
        folder.create(CellConfig.model_validate(config))
    return folders


def torchrun(cache: Path, num: int, root: Path, *stop_after: str) -> str:
    """As the documentation says to start ranks by hand; what they print."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(num)]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    command += ["-m", "tests.train.ranks", str(root), *stop_after]
    environment = os.environ | {"DEPTHBENCH_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    environment |= {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def losses(folder: CellFolder) -> list[float]:
    return [record["loss"] for record in read_metrics(folder.metrics_path) if "loss" in record]


def norms(folder: CellFolder) -> list[float]:
    return [record["grad_norm"] for record in read_metrics(folder.metrics_path) if "loss" in record]


def evaluation(folder: CellFolder) -> dict[str, Any]:
    """The last; each step has one, so that checkpoints are written right after it."""
    found = [r["evaluation"] for r in read_metrics(folder.metrics_path) if "evaluation" in r]
    assert len(found) == STEPS
    return dict(found[-1])


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: f"{way[0]}-{way[1]}")
def together(request, configs, cache, tmp_path_factory) -> dict[str, CellFolder]:
    num, mode = request.param
    root = tmp_path_factory.mktemp("together")
    folders = create(root, configs, ranks={"num": num, "mode": mode})
    torchrun(cache, num, root)
    return folders


def test_losses_are_those_of_one_process(together, alone) -> None:
    for name, folder in together.items():
        assert len(losses(folder)) == STEPS, name
        assert losses(folder) == pytest.approx(losses(alone[name]), rel=1e-6), name
        # AdamW hides the scale of gradients from losses.
        assert norms(folder) == pytest.approx(norms(alone[name]), rel=1e-4), name


def test_every_token_is_evaluated_once(together, alone) -> None:
    for name, folder in together.items():
        found, expected = evaluation(folder), evaluation(alone[name])
        assert found["tokens"] == expected["tokens"], name
        assert found["bytes"] == expected["bytes"], name
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-6), name


def test_initial_values_do_not_depend_on_ranks(together, configs) -> None:
    for name, folder in together.items():
        expected = {n: p.detach() for n, p in build_model(configs[name]).named_parameters()}
        assert_equal(load_file(folder.path / START), expected)


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, values in found.items():
        assert torch.equal(values, expected[name]), name


def test_final_weights_are_whole(together, corpus) -> None:
    """One process that loads them finds the loss that the ranks found."""
    for name, folder in together.items():
        config = folder.config()
        model = build_model(config)
        load_weights(folder.model_path, model)
        found = evaluate(of_one(model, config), corpus, config)
        assert found["loss"] == pytest.approx(evaluation(folder)["loss"], rel=1e-6), name


def test_a_cell_goes_on_under_any_other_number_of_ranks(
    configs, alone, corpus, cache, tmp_path
) -> None:
    """Three sharded, two replicated, and one: each from what the one before saved."""
    some = {name: configs[name] for name in ("hc", "full-attnres", "truncated")}
    for step, (num, mode) in enumerate([(3, "fsdp"), (2, "ddp")], 1):
        create(tmp_path, some, ranks={"num": num, "mode": mode})
        torchrun(cache, num, tmp_path, "1")
        for name in some:
            newest = max((tmp_path / name / "checkpoints").iterdir())
            assert newest.name == f"step-{step:09d}"
    for name, folder in run_alone(some, corpus, tmp_path).items():
        assert losses(folder) == pytest.approx(losses(alone[name]), rel=1e-6), name
        found, expected = evaluation(folder), evaluation(alone[name])
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-6)


def test_a_damaged_shard_is_noticed_by_all_ranks(configs, alone, cache, tmp_path) -> None:
    (folder,) = create(tmp_path, {"hc": configs["hc"]}, ranks={"num": 2, "mode": "fsdp"}).values()
    torchrun(cache, 2, tmp_path, "2")
    older, newest = sorted(folder.checkpoints_path.iterdir())
    assert [older.name, newest.name] == ["step-000000001", "step-000000002"]
    first, last = sorted(newest.glob("*.safetensors"))
    assert first != last
    last.write_bytes(last.read_bytes()[:-4])
    said = torchrun(cache, 2, tmp_path)
    assert f"{newest} is damaged ({last.name} does not match its hash)" in said
    assert losses(folder) == pytest.approx(losses(alone["hc"]), rel=1e-6)


@pytest.mark.parametrize("num", range(1, 9))
def test_a_batch_is_shared_out_whole(num) -> None:
    """Every sequence has weight one once, and all ranks call the model equally often."""
    ids = torch.arange(7)[:, None].expand(7, 3)
    for size in (1, 2, 3, 7):
        shares = [micro_batches(ids, size, World(rank, num)) for rank in range(num)]
        assert len({len(share) for share in shares}) == 1
        counted = [int(row) for share in shares for part, w in share if w for row in part[:, 0]]
        assert sorted(counted) == list(range(7))
        assert all(0 < len(part) <= size for share in shares for part, _ in share)


@pytest.mark.parametrize("changes", [{"activation_checkpointing": True}, {"micro_batch_size": 4}])
def test_what_saves_memory_changes_no_loss(changes, configs, alone, corpus, tmp_path) -> None:
    for name, folder in create(tmp_path, configs, **changes).items():
        train(folder.config(), folder, corpus, checkpoint_seconds=1e9)
        assert losses(folder) == pytest.approx(losses(alone[name]), rel=1e-6), name


def test_ranks_are_no_part_of_what_an_experiment_is(make_config) -> None:
    plain = make_config()
    spread = make_config(ranks={"num": 3, "mode": "fsdp"}, activation_checkpointing=True)
    assert spread.digest() == plain.digest()
    assert make_config(precision="paper_bf16").digest() != plain.digest()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ranks": {"num": 5}}, "ranks.num = 5 is more than batch_size = 4"),
        ({"ranks": {"num": 2}, "compile": True}, "Use compile = blocks"),
        ({"ranks": {"num": 2}, "device": "cuda:1"}, "Use device = cuda"),
        ({"ranks": {"num": 0}}, "greater than or equal to 1"),
        ({"ranks": {"mode": "fsdp"}, "measures": {"statistics_every": 1}}, "Use ddp"),
    ],
)
def test_what_ranks_cannot_do_is_refused(changes, said, make_config) -> None:
    with pytest.raises(ValueError, match=said):
        make_config(**changes)
