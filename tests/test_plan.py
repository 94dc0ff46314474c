"""Budgets, matching, refusals and estimates of a plan, by closed forms."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

import residuals
from depthbench import memory
from depthbench import plan as planning
from depthbench.accelerators import accelerator
from depthbench.config import CorpusRef, Shape
from depthbench.console import Reporting
from depthbench.designs import lay_out
from depthbench.errors import InputError
from depthbench.expand import matched_shape
from depthbench.ledger import forward_flops_per_token
from depthbench.model.decoder import Decoder
from depthbench.plan import Machine, PlannedCell, matmul_rate, plan
from depthbench.plan_verbs import plan as plan_verb
from depthbench.suite import Suite

TOKENS_A_STEP = 4 * 64
CORPUS = CorpusRef(name="none", hash="aa", tokenizer_hash="bb", vocab_size=500)
SHAPES = [
    {"layers": 2, "d_model": 64, "ffn": 176, "heads": 2},
    {"layers": 6, "d_model": 40, "ffn": 100, "heads": 2},
]
TEN = list(residuals.BENCHMARK)


def ladder(**changes: Any) -> dict[str, Any]:
    body = {"match_on": "backbone", "target": 106_000, "tolerance": 0.06, "vocab_size": 500}
    return body | {"norm_eps": 1e-10, "shapes": SHAPES} | changes


def suite(**changes: Any) -> Suite:
    document = {
        "name": "unit",
        "designs": ["pre-ln"],
        "ladder": ladder(),
        "corpus": "none",
        "sequence_length": 64,
        "batch_size": 4,
        "budget": {"tokens": 25_700},
        "learning_rate": {"default": 1e-3},
        "seeds": [0],
    }
    return Suite.model_validate(document | changes)


def built(cell: PlannedCell) -> int:
    """Parameters of the model that the cell would train, counted one by one."""
    config = cell.config
    with torch.device("meta"):
        design = lay_out(config.design, config.shape, config.norm_eps)
        model = Decoder(config.shape, config.corpus.vocab_size, design)
    return sum(p.numel() for p in model.parameters())


def test_every_design_at_every_shape_with_every_seed_is_one_cell() -> None:
    cells = plan(suite(designs=["hc", "keel", "lns"], seeds=[4, 2]), CORPUS)
    found = [(c.config.shape.layers, c.config.design.name, c.config.seed) for c in cells]
    assert found == [
        (layers, design, seed)
        for layers in (2, 6)
        for design in ("hc", "keel", "lns")
        for seed in (4, 2)
    ]
    assert len({c.config.folder_name() for c in cells}) == 12


def test_the_cells_carry_what_the_suite_says() -> None:
    given = suite(
        designs=["keel", "pre-ln"],
        learning_rate={"default": 1e-3, "designs": {"keel": 2e-3}},
        micro_batch_size=2,
        precision="bf16",
        threads=3,
        optimizer={"weight_decay": 0.2},
        evaluation={"tokens": 512, "points": 3},
    )
    keel, pre_ln = (c.config for c in plan(given, CORPUS)[:2])
    assert (keel.optimizer.learning_rate, pre_ln.optimizer.learning_rate) == (2e-3, 1e-3)
    for config in (keel, pre_ln):
        assert (config.suite, config.ladder, config.corpus) == ("unit", "inline", CORPUS)
        assert (config.batch_size, config.micro_batch_size, config.sequence_length) == (4, 2, 64)
        assert (config.precision, config.threads, config.norm_eps) == ("bf16", 3, 1e-10)
        assert config.optimizer.weight_decay == 0.2
        assert (config.evaluation.tokens, config.evaluation.points) == (512, 3)
        assert config.shape.model_dump() == SHAPES[0] | {"kv_heads": 2}


def test_a_budget_of_tokens_is_whole_steps_within_it() -> None:
    for tokens, steps in ((25_700, 100), (25_600, 100), (25_599, 99), (256, 1)):
        for cell in plan(suite(budget={"tokens": tokens}, designs=["hc", "lns"]), CORPUS):
            assert cell.config.steps == steps
            assert cell.config.budget == "tokens"


def test_a_budget_by_parameters_counts_the_baselines_total() -> None:
    """20 tokens for each parameter of Pre-LN, whatever the design adds."""
    budget = {"tokens_per_parameter": 20}
    corpus = CORPUS.model_copy(update={"vocab_size": 800})
    cells = plan(suite(budget=budget, designs=["pre-ln", "moda"]), corpus)
    for pre_ln, moda in zip(cells[::2], cells[1::2], strict=True):
        steps = 20 * built(pre_ln) // TOKENS_A_STEP
        assert pre_ln.config.steps == moda.config.steps == steps
        assert pre_ln.config.budget == "tokens"
    assert cells[0].config.steps != cells[2].config.steps


def test_a_budget_of_flops_buys_a_costlier_design_fewer_tokens() -> None:
    flops = 3e11
    for match in ("shape", "total"):
        given = suite(budget={"flops": flops}, designs=TEN, match=match)
        cells = plan(given, CORPUS)
        for cell in cells:
            config = cell.config
            design = lay_out(config.design, config.shape, 1e-10)
            each = 3 * forward_flops_per_token(config.shape, 500, 64, design) * TOKENS_A_STEP
            assert config.steps == int(flops / each)
            assert config.budget == "flops"
            assert cell.ledger["total_flops"] == config.steps * each <= flops
            assert cell.ledger["total_flops"] + each > flops
    steps = {c.config.design.name: c.config.steps for c in plan_shape(flops)}
    assert steps["lns"] == steps["keel"] == steps["pre-ln"]  # norms are not counted
    for design in ("hc", "mhc", "full-attnres", "block-attnres", "moda"):
        assert steps[design] < steps["pre-ln"]
    assert steps["full-attnres"] <= steps["block-attnres"]


def plan_shape(flops: float) -> list[PlannedCell]:
    """All ten designs at the deepest shape, unmatched."""
    given = suite(budget={"flops": flops}, designs=TEN, ladder=ladder(shapes=SHAPES[1:]))
    return plan(given, CORPUS)


@pytest.mark.parametrize("vocab", [500, 4096])
def test_matching_the_total_narrows_the_mlp_alone(vocab) -> None:
    corpus = CORPUS.model_copy(update={"vocab_size": vocab})
    given = suite(match="total", designs=TEN)
    plain = {c.config.shape.layers: c for c in plan(suite(), corpus)}
    for cell in plan(given, corpus):
        shape, reference = cell.config.shape, plain[cell.config.shape.layers]
        before = reference.config.shape
        assert abs(built(cell) / built(reference) - 1) <= 0.005, cell.config.design.name
        assert cell.ledger["parameters"] == built(cell)
        assert shape.ffn <= before.ffn
        assert shape == before.model_copy(update={"ffn": shape.ffn})
        assert cell.config.match == "total"
    narrowed = {c.config.design.name for c in plan(given, corpus) if c.config.shape.ffn < 176}
    assert {"mhc", "moda"} <= narrowed


def test_the_nearest_width_is_taken() -> None:
    """mHC: 96·d + 27 a sublayer against 3·d a column: 64 + 18/d columns, 64.3 and 64.6."""
    design = suite(designs=["mhc"]).designs[0]
    for d, narrower in ((64, 176 - 64), (32, 176 - 65)):
        shape = Shape(layers=2, d_model=d, ffn=176, heads=2)
        matched = matched_shape(design, shape, 500, 1e-10)
        assert matched == shape.model_copy(update={"ffn": narrower})


def test_matching_the_shape_keeps_it_and_the_design_rides_on_top() -> None:
    cells = plan(suite(designs=["mhc"]), CORPUS)
    assert [c.config.shape.ffn for c in cells] == [176, 100]
    for cell in cells:
        assert cell.ledger["parameters"] == built(cell)


def test_a_design_larger_than_the_mlp_is_refused() -> None:
    shapes = [{"layers": 4, "d_model": 32, "ffn": 16, "heads": 2}]
    tiny = ladder(shapes=shapes, target=23_000, tolerance=0.3)
    with pytest.raises(InputError, match=r"mhc adds 24,792 .* L4 d32, more than its MLP has.*use"):
        plan(suite(match="total", designs=["mhc"], ladder=tiny), CORPUS)


def test_a_column_too_coarse_to_match_is_refused() -> None:
    """One column of 60 MLPs of width 2 is above 1 %, so half a percent cannot be met."""
    shapes = [{"layers": 60, "d_model": 2, "ffn": 4, "heads": 1}]
    coarse = ladder(shapes=shapes, target=2_640, tolerance=0.3)
    corpus = CORPUS.model_copy(update={"vocab_size": 2})
    with pytest.raises(InputError, match=r"sandwich-ln at L60 d2 misses .* by [+-]\d"):
        plan(suite(match="total", designs=["sandwich-ln"], ladder=coarse), corpus)


def test_a_ladder_of_totals_is_refused_with_another_vocabulary() -> None:
    """The 400m ladder is matched with 50,280 types; 4,096 leave the widest shape 21 % short."""
    given = suite(ladder="400m", budget={"tokens_per_parameter": 1})
    with pytest.raises(InputError, match=r"400m.*50,280.*L16.*3\.0% is allowed"):
        plan(given, CORPUS.model_copy(update={"vocab_size": 4096}))
    assert plan(given, CORPUS.model_copy(update={"vocab_size": 50_280}))
    near = plan(given, CORPUS.model_copy(update={"vocab_size": 50_257}))
    assert len(near) == 7


def test_a_ladder_of_backbones_takes_any_vocabulary() -> None:
    for vocab in (2, 50_000):
        assert plan(suite(), CORPUS.model_copy(update={"vocab_size": vocab}))


@pytest.mark.parametrize("budget", [{"flops": 1e6}, {"tokens_per_parameter": 1e-3}])
def test_less_than_a_step_is_refused(budget) -> None:
    with pytest.raises(InputError, match=r"tokens for pre-ln at L2, less than one step of 256"):
        plan(suite(budget=budget), CORPUS)


def test_estimates_are_positive_and_grow_with_the_work() -> None:
    short = plan(suite(), CORPUS)[1]
    long = plan(suite(budget={"tokens": 257_000}), CORPUS)[1]
    assert 0 < short.seconds < long.seconds
    assert long.seconds == pytest.approx(short.seconds * long.config.steps / short.config.steps)
    assert short.memory_bytes > 0
    assert short.disk_bytes > 12 * built(short)
    routed = plan(suite(designs=["full-attnres"]), CORPUS)[1]
    assert routed.seconds > short.seconds


def test_a_device_that_is_not_here_can_be_planned_for() -> None:
    if torch.cuda.is_available():
        pytest.skip("the device is here")
    assert matmul_rate("cuda", 1) == matmul_rate("cpu", 1) > 0


def test_a_plan_writes_nothing_and_leaves_the_threads(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    plan(suite(threads=threads + 1), CORPUS)
    assert torch.get_num_threads() == threads
    assert list(Path(tmp_path).iterdir()) == []


def test_on_a_named_accelerator_time_is_flops_over_what_it_is_assumed_to_reach() -> None:
    """Whatever the design, and whatever this machine can do."""
    given = suite(designs=TEN, precision="bf16", ranks={"num": 4}, device="cuda")
    for cell in plan(given, CORPUS, on=Machine(accelerator("a100"), 0.25)):
        seconds = cell.ledger["total_flops"] / (0.25 * 312e12)
        assert cell.device_hours == pytest.approx(seconds / 3600)
        assert cell.seconds == pytest.approx(seconds / 4)
        assert cell.needs == ()


def test_a_cpu_suite_is_planned_on_an_accelerator_as_if_it_ran_there(monkeypatch) -> None:
    monkeypatch.setattr(planning, "matmul_rate", lambda *_: pytest.fail("nothing is measured"))
    (cell,) = plan(suite(ladder=ladder(shapes=SHAPES[:1])), CORPUS, on=Machine(accelerator("h100")))
    assert cell.config.device == "cuda"
    assert cell.seconds == pytest.approx(cell.ledger["total_flops"] / (0.4 * 66.9e12))  # fp32


def test_without_a_name_nothing_is_said_of_what_fits(monkeypatch) -> None:
    monkeypatch.setattr(planning, "matmul_rate", lambda device, threads: 1e9)
    one, two = (plan(suite(ranks={"num": num}), CORPUS)[0] for num in (1, 2))
    assert one.needs is None
    assert one.seconds == pytest.approx(one.ledger["total_flops"] / (0.35 * 1e9))
    assert two.seconds == pytest.approx(one.seconds / 2)
    assert two.device_hours == pytest.approx(one.device_hours)
    assert two.memory_bytes == 2 * two.rank_bytes


def call(*arguments: str) -> Any:
    """The verb alone, with the messages of the command line."""
    app = typer.Typer(cls=Reporting)
    app.command()(plan_verb)
    app.callback()(lambda: None)
    return CliRunner().invoke(app, ["plan", *arguments])


def test_the_verb_prints_hours_memory_disk_and_its_assumption(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path))
    small = ("looped-quick", "--set", "loops=[null]", "--set", "designs=[pre-ln]")
    output = call(*small, "--on", "a100-40gb", "--utilisation", "0.3").output
    for part in ("device-hours", "memory of a rank", "fits", "yes", "NVIDIA A100 SXM 40 GB"):
        assert part in output
    assert "30% of its peak in fp32 (20 TFLOP/s): an assumption" in output
    assert "0 cells fit only with what is said beside them, 0 do not" in output
    found = json.loads(call(*small, "--on", "h100", "--json").output)
    (cell,), total = found["cells"], found["total"]
    assert found["on"]["accelerator"]["bf16_flops"] == 989.4e12
    assert found["on"]["utilisation"] == 0.4
    assert total["device_hours"] == cell["device_hours"] == cell["seconds"] / 3600
    assert (total["largest_tokens"], cell["needs"]) == (cell["tokens"], [])
    assert "on this machine" in call(*small).output
    assert json.loads(call(*small, "--json").output)["on"] is None


def test_the_verb_says_which_cells_do_not_fit(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path))
    sizes = {"seen": 0}

    def needed(*_: object) -> tuple[str, ...] | None:
        sizes["seen"] += 1
        return {1: ("activation_checkpointing=true",), 2: None}.get(sizes["seen"], ())

    monkeypatch.setattr(memory, "needed", needed)
    output = call("quick", "--set", "designs=[pre-ln]", "--on", "h100").output
    assert "with activation_checkpointing=true" in output
    assert "1 cells fit only with what is said beside them, 1 do not" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--on", "h10"), "unknown accelerator 'h10': did you mean 'h100'"),
        (("--on", "h100", "--utilisation", "40"), "utilisation = 40.0: give the share"),
        (("--utilisation", "0.4"), "name it, as in --on h100"),
    ],
)
def test_the_verb_refuses_what_it_cannot_plan(arguments, message) -> None:
    result = call("quick", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
