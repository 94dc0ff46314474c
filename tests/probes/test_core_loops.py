"""Probes over prelude, core and coda, against the loop written out in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import residuals
from depthbench import probes
from depthbench.model.decoder import Decoder
from depthbench.model.looped import LoopedDecoder
from depthbench.probes.executed import Executed
from depthbench.probes.registry import Findings
from tests.probes.loops import make_looped
from tests.probes.reference import CASES, IDS, Order, Run, Trace, attention_residuals, norms, whole
from tests.residuals.kit import make_model, perturb, shape_of, tokens_of

E = 6  # a block, two loops of two, a block
ALL: Order = list(range(E))
OF_DEPTH = ("lns", "deepnorm", "keel", "deeploop")  # with numbers that count the visits
NAMES = ("pre-ln", *OF_DEPTH, "hc", "full-attnres", "block-attnres", "moda")
CHOSEN = [
    i
    for i, (name, options, _) in enumerate(CASES)
    if name in NAMES and options in ({}, {"group": 3})
]

LAYOUTS: list[dict[str, Any]] = [
    {"prelude": 0, "coda": 0, "forward": 3, "injection": "none"},
    {"prelude": 0, "coda": 2, "injection": "add"},
    {"prelude": 2, "coda": 1, "forward": 3},
    {"prelude": 1, "coda": 0, "forward": 3, "tied": False},
]


def executed(model: LoopedDecoder | Decoder, length: int = 4) -> Executed:
    tokens = tokens_of(2, length)
    return Executed(model, tokens[:, :-1], tokens[:, 1:])


def measured(stack: Executed, name: str, **thresholds: float) -> Findings:
    probe = probes.get(name)
    return probe.measure(stack, {**probe.thresholds, **thresholds})


def without(place: int, num: int = E) -> Order:
    return [None if p == place else p for p in range(num)]


def swapped(i: int, j: int) -> Order:
    return [{i: j, j: i}.get(p, p) for p in ALL]


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)


def relative(changed: Tensor, original: Tensor) -> float:
    return ((changed - original).norm(dim=-1) / original.norm(dim=-1)).mean().item()


class Written:
    """A model and what it does written out: as it is, and without each of its visits."""

    @torch.no_grad()
    def __init__(self, model: LoopedDecoder, run: Run) -> None:
        self.model, self.run, self.stack = model, run, executed(model)
        num = self.stack.num_places
        self.intact = self.trace(list(range(num)))
        self.without = [self.trace(without(s, num)) for s in range(num)]

    def trace(self, order: Order) -> Trace:
        return whole(self.run, self.model, self.stack.tokens_BT, order)

    def loss(self, trace: Trace) -> float:
        return trace.loss(self.model, self.stack.targets_BT)


@pytest.fixture(scope="module", params=CHOSEN, ids=[IDS[i] for i in CHOSEN])
def written(request: pytest.FixtureRequest) -> Written:
    name, options, run = CASES[request.param]
    return Written(make_looped(name, options), run)


@torch.no_grad()
def assert_traced(written: Written) -> None:
    """States, outputs and read-outs are those of the loop written out; so is the loss."""
    model, stack, trace = written.model, written.stack, written.intact
    num = model.loop.executed_blocks(4)
    assert stack.num_places == num
    assert len(stack.z) == len(stack.points) == len(trace.z) == num + 1
    for place in range(num + 1):
        close(stack.z[place], trace.z[place])
        logits = model.head(stack.read_out(place, stack.points[place]))
        close(logits, trace.logits(model, place))
    for actual, expected in zip(stack.outputs, trace.outputs, strict=True):
        close(actual, expected)
    loss = model.token_nll(stack.tokens_BT, stack.targets_BT).mean().item()
    assert stack.loss(stack.points[-1]) == pytest.approx(loss, rel=1e-12)
    assert written.loss(trace) == pytest.approx(loss, rel=1e-10)


def assert_pruned(written: Written) -> None:
    expected = [written.loss(trace) - written.loss(written.intact) for trace in written.without]
    found = measured(written.stack, "pruning").values["increase"]
    assert found == pytest.approx(expected, rel=1e-7, abs=1e-11)
    assert min(map(abs, expected)) > 1e-7


def test_every_visit_is_a_place_and_what_leaving_it_out_costs(written) -> None:
    assert [len(segment.places) for segment in written.stack.segments] == [1, 2, 2, 1]
    assert_traced(written)
    assert_pruned(written)


@pytest.mark.parametrize("loop", LAYOUTS)
@pytest.mark.parametrize(
    ("name", "run"), [("pre-ln", norms()), ("full-attnres", attention_residuals(1))]
)
def test_every_layout_and_injection(name, run, loop) -> None:
    written = Written(make_looped(name, **loop), run)
    assert_traced(written)
    assert_pruned(written)


def test_causal_score_over_executed_depth(written) -> None:
    """Across segments, too: a block of the prelude changes e, a loop changes the next ones."""
    found = measured(written.stack, "causal").values
    for s in ALL:
        trace, intact = written.without[s], written.intact
        for place in ALL:
            on_states, on_outputs = found["states"][s][place], found["outputs"][s][place]
            if place <= s:
                assert (on_states, on_outputs) == (None, None)
                continue
            changed, original = (t.z[place + 1] - t.z[place] for t in (trace, intact))
            assert on_states == pytest.approx(relative(changed, original), rel=1e-7)
            expected = relative(trace.outputs[place], intact.outputs[place])
            assert on_outputs == pytest.approx(expected, rel=1e-7)
            assert expected > 1e-6


@torch.no_grad()
def test_permutation_score_within_a_segment(written) -> None:
    stack, loss = written.stack, written.loss(written.intact)
    found = measured(stack, "permutation")
    known = {}
    for i in ALL:
        for j in ALL:
            score = found.values["score"][i][j]
            assert score == found.values["score"][j][i]
            if score is not None:
                known[i, j] = score
    assert set(known) == {(1, 2), (2, 1), (3, 4), (4, 3)}
    for i, j in ((1, 2), (3, 4)):
        changed = written.loss(written.trace(swapped(i, j)))
        assert known[i, j] == pytest.approx(abs(changed - loss) / loss, rel=1e-7, abs=1e-12)
        assert known[i, j] > 1e-6
    # Late places are 2 … 5, and of their pairs one has a score.
    late = [measured(stack, "permutation", late=known[3, 4] * f).summary["late"] for f in (0.5, 1)]
    assert late == [1, 0]


def test_parts_of_one_block_have_nothing_to_exchange() -> None:
    found = measured(executed(make_looped("pre-ln", shape=shape_of(3, 8))), "permutation")
    assert not found.values
    assert "no two blocks run on one state" in str(found.reason)
    alone = measured(executed(make_model("pre-ln", shape_of(1, 8))), "permutation")
    assert alone.values == {"score": [[None]]}


@torch.no_grad()
def test_of_a_loop_that_reads_e_alone_only_the_last_is_heard() -> None:
    """W = [I | 0]: every loop starts from e, whatever the one before it left."""
    model = make_looped("pre-ln", forward=3)
    model.cores[0].injection.weight.copy_(torch.eye(8, 16))
    stack = executed(model)
    increase = measured(stack, "pruning").values["increase"]
    assert [abs(x) > 1e-6 for x in increase] == [True, *[False] * 4, True, True, True]
    outputs = measured(stack, "causal").values["outputs"]
    assert outputs[1][3:] == [0.0] * 5  # the first loop, from the second on
    assert outputs[1][2] > 0
    assert all(value > 0 for value in outputs[0][1:])  # the prelude, through e, all of them
    # All loops are the same.
    assert torch.equal(stack.z[1], stack.z[3])
    assert measured(stack, "angular").values["distance"][1][5] == 0


@torch.no_grad()
def test_angles_lens_and_ranks_are_of_every_executed_state() -> None:
    stack = executed(make_looped("hc"))
    distance = measured(stack, "angular").values["distance"]
    assert len(distance) == E + 1
    for i in range(E + 1):
        for j in range(i + 1, E + 1):
            angle = F.cosine_similarity(stack.z[i], stack.z[j], dim=-1).arccos().mean() / torch.pi
            assert distance[i][j] == pytest.approx(angle.item(), rel=1e-9)
    lens = measured(stack, "lens").values
    assert len(lens["kl"]) == E + 1
    assert lens["kl"][-1] == pytest.approx(0, abs=1e-12)
    loss = stack.model.token_nll(stack.tokens_BT, stack.targets_BT).mean().item()
    assert lens["cross_entropy"][-1] == pytest.approx(loss, rel=1e-12)
    for place in range(E + 1):
        logits = stack.model.head(stack.read_out(place, stack.points[place]))
        entropy = F.cross_entropy(logits.flatten(0, 1), stack.targets_BT.flatten()).item()
        assert lens["cross_entropy"][place] == pytest.approx(entropy, rel=1e-12)
    assert len(measured(stack, "representation").values["stable_rank"]) == E + 1


@pytest.mark.parametrize("name", ["pre-ln", "moda", "hc", "full-attnres", "block-attnres"])
@torch.no_grad()
def test_paths_of_a_segment_make_up_its_finish(name) -> None:
    """For one token: what leaves each segment is what its read-out row weighs."""
    model = make_looped(name)
    tokens = tokens_of(1, 2)
    stack = Executed(model, tokens[:, :1], tokens[:, 1:])
    found = measured(stack, "paths")
    rows, first = found.values["weights"], 0
    heads = []
    assert len(rows) == 2 * E + 4
    for segment in stack.segments:
        num = 2 * len(segment.places)
        start = segment.design.start(_entering(model, stack, segment.first))
        source = start[0][:, :, 0] if name == "hc" else segment.design.depth_state(0, start)
        outputs = [source, *(y for _, y in stack.sublayers(segment))]
        for visit in range(num + 1):
            row = rows[first + visit]
            inside = row[first : first + 1 + visit]
            assert [x for x in row if x is not None] == inside
        read = sum(w * y for w, y in zip(inside, outputs, strict=True))
        close(read, segment.design.finish(stack.last(segment)))
        heads.append((inside[0], inside[-1]))
        first += num + 1
    assert found.summary == pytest.approx(
        {
            "embedding_in_read_out": sum(head for head, _ in heads) / 4,
            "last_in_read_out": sum(tail for _, tail in heads) / 4,
        }
    )


def _entering(model: LoopedDecoder, stack: Executed, place: int) -> Tensor:
    """What the part whose first place this is starts from, with the model's own modules."""
    seq = model.sequence(stack.tokens_BT.shape[1])
    x = model.embedding(stack.tokens_BT)
    if place == 0:
        return x
    e = s = model.prelude_norm(model.prelude(x, seq))
    for t in range(2):
        core = model.cores[0]
        u = core.injected(e, s)
        if place == 1 + 2 * t:
            return u
        s = core.norm(core(u, seq, None, t))
    return s


@torch.no_grad()
def test_transport_starts_anew_in_every_segment() -> None:
    model = make_looped("hc", {"static": True}, forward=3)
    for part, kept in ((model.cores[0], [1.0, 1.0, 0.0, 0.0]), (model.coda, [1.0] * 4)):
        for routing in part.design.routing:
            routing.static[1:-1] = torch.eye(4)
        part.design.routing[1].static[1:-1] = torch.diag(torch.tensor(kept))
    for routing in model.prelude.design.routing:
        routing.static[1:-1] = torch.eye(4)
    found = measured(executed(model), "transport")
    loop = [4.0, 2.0, 2.0, 2.0]
    assert found.values["effective_rank"] == pytest.approx([4.0] * 2 + loop * 3 + [4.0] * 2)
    assert found.summary["effective_rank"] == pytest.approx((4 + 2 + 2 + 2 + 4) / 5)
    cosine = found.values["cosine"]
    starts = [0, 2, 6, 10, 14]  # copies of one another
    assert [cosine[v] for v in starts] == pytest.approx([1.0] * 5)
    assert all(value < 1 - 1e-6 for v, value in enumerate(cosine) if v not in starts)
    ends = [cosine[v] for v in (1, 5, 9, 13, 15)]
    assert found.summary["cosine"] == pytest.approx(sum(ends) / 5)
    alone = measured(executed(make_looped("hc", {"streams": 1})), "transport")
    assert alone.summary["cosine"] is None


@torch.no_grad()
def test_dead_segments_of_every_segment_add_up() -> None:
    """At zero queries the MLP of block b gives its own group 1/(b + 2)."""
    model = make_looped("block-attnres")
    for part in (model.prelude, model.cores[0], model.coda):
        part.design.queries.zero_()
    stack = executed(model)
    found = measured(stack, "dead-segment")
    loop = [1 / 2, 1 / 3]
    assert found.values["weight"] == pytest.approx([1 / 2, *loop, *loop, 1 / 2])
    assert found.summary["blocks"] == 0
    assert measured(stack, "dead-segment", dead=0.4).summary["blocks"] == 0  # not leading ones
    assert measured(stack, "dead-segment", dead=0.51).summary["blocks"] == E
    # The loops' first blocks turn from their attention, the others are as they were.
    design = model.cores[0].design
    dead = [torch.full((2, 3), w).double() for w in (0.01, 0.9)]
    for placed in model.cores[0].placed:
        placed.running_weight = lambda visit, state: dead[visit // 2] if visit % 2 else None
    assert design is not model.cores[0].placed[0]
    assert measured(stack, "dead-segment").summary["blocks"] == 2


@pytest.mark.parametrize("injection", ["linear", "add", "none"])
@pytest.mark.parametrize("backward", [1, 2, 3])
@pytest.mark.parametrize("frozen", [True, False])
def test_statistics_have_the_gradients_of_training(injection, backward, frozen) -> None:
    model = make_looped("pre-ln", forward=3, backward=backward, injection=injection)
    num = 2 * 8
    stack = executed(model.requires_grad_(not frozen))
    found = measured(stack, "statistics").values
    nudge = torch.zeros(num, 2, 3, 8, dtype=torch.float64, requires_grad=True)
    outputs: list[Tensor] = []

    def hook(module: torch.nn.Module, inputs: Any, y: Tensor) -> Tensor:
        outputs.append(y.detach())
        return y + nudge[len(outputs) - 1]

    for part in (model.prelude, *model.cores, model.coda):
        for block in part.blocks:
            block.attention.out.register_forward_hook(hook)
            block.mlp.register_forward_hook(hook)
    logits = model.logits(stack.tokens_BT)
    loss = F.cross_entropy(logits.flatten(0, 1), stack.targets_BT.flatten())
    (gradients,) = torch.autograd.grad(loss, nudge)
    cut = [p for p in range(8) if 1 <= p < 1 + 2 * (3 - backward)]
    cut += [0] if injection == "none" and backward < 3 else []
    for visit in range(num):
        rms = outputs[visit].square().mean().sqrt().item()
        assert found["output_rms"][visit] == pytest.approx(rms, rel=1e-12)
        gradient = gradients[visit].square().mean().sqrt().item()
        assert (gradient == 0) == (visit // 2 in cut)
        if visit // 2 in cut:
            assert found["gradient_rms"][visit] is None
            assert found["gradient_mean"][visit] is None
        else:
            assert found["gradient_rms"][visit] == pytest.approx(gradient, rel=1e-9)


def agree(actual: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            agree(actual[key], expected[key])
    elif isinstance(expected, list):
        assert len(actual) == len(expected)
        for pair in zip(actual, expected, strict=True):
            agree(*pair)
    elif expected is None:
        assert actual is None
    else:
        assert actual == pytest.approx(expected, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("name", residuals.names())
@torch.no_grad()
def test_one_loop_and_nothing_else_is_the_plain_stack(name) -> None:
    """Where the two norms of the loop change nothing: unit rows, and a final norm behind."""
    shape = shape_of(3, 8)
    loop = {"prelude": 0, "coda": 0, "forward": 1, "injection": "none"}
    looped = make_looped(name, shape=shape, eps=1e-24, **loop)
    plain = make_model(name, shape)
    perturb(plain)
    plain.embedding.weight /= plain.embedding.weight.square().mean(-1, keepdim=True).sqrt()
    (core,) = looped.cores
    core.design.load_state_dict(plain.design.state_dict())
    core.blocks.load_state_dict(plain.blocks.state_dict())
    for module in ("embedding", "final_norm", "head"):
        getattr(looped, module).load_state_dict(getattr(plain, module).state_dict())
    for norm in (looped.prelude_norm, core.norm):
        norm.gain.fill_(1.0)
    stacks = executed(looped), executed(plain)
    for probe in probes.names():
        found, expected = (measured(stack, probe) for stack in stacks)
        assert found.reason == expected.reason
        agree(found.values, expected.values)
        agree(found.summary, expected.summary)
