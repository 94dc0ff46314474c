"""Every layer probe: what it is, and which designs cannot answer it."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch

import residuals
from depthbench import probes
from depthbench.config import CellConfig
from depthbench.model.build import build_model
from depthbench.probes.executed import Executed
from generated.markdown import code, prose, table

Loop = dict[str, Any] | None
Answers = dict[str, probes.Findings]
ROUNDS: Loop = {"layout": "whole", "rounds": 2}
LAYOUTS: dict[str, Loop] = {
    "without a loop": None,
    "in a loop over a core of one block, between a prelude and a coda of one": {
        "layout": "prelude-core-coda",
        "prelude": 1,
        "coda": 1,
        "forward": 2,
    },
}

INTRO = """# Probes

A probe asks a trained cell whether its depth is used. All of them run on a fixed batch of held-out
windows, in fp32 and without compilation, in a pass of their own: they change nothing of the
training. What comes before a change is not run again. Each writes `probes/<name>.json` into the
cell's folder, with definition, sample, thresholds and unit, and a picture on a scale that all
designs share. What it sums up goes into the [rows](rows.md) as `probe/<name>/<what>`.

`z_l` is the state before block l, `z_0` the state after the start; a forward pass executes E
blocks, loops counted. The design says what its state is: for one stream its value, for several
streams all of them side by side, for attention residuals what the next reader would read. It also
says what it means to leave a block out and to exchange two; the answers of a plain stream stand in
`residuals/probing.py`. Late pairs are those with both blocks in the last three quarters of the
depth.

`depthbench probe CELL --set causal.late=0.5` changes a threshold.
"""


def page() -> str:
    """All probes in the order of a report."""
    found = {name: probes.get(name) for name in probes.names()}
    asked = _asked()
    rows = [(f"[{p.title}](#{name})", code(name), p.unit) for name, p in found.items()]
    parts = [INTRO, table(("probe", "name", "unit"), rows)]
    parts += [_probe(probe, asked[name]) for name, probe in found.items()]
    return "\n".join(parts)


def _probe(probe: probes.Probe, answers: Answers) -> str:
    summed = {what for findings in answers.values() for what in findings.summary}
    limits = ", ".join(code(f"{probe.name}.{k} = {v:g}") for k, v in probe.thresholds.items())
    kind = "pairs" if probe.picture == "pairs" else "one value a place"
    facts = [
        ("unit", probe.unit),
        ("values", f"{kind}: {', '.join(filter(None, probe.axes))}"),
        ("scale of pictures", "{:g} to {:g}".format(*probe.scale) if probe.scale else "its own"),
        ("thresholds", limits or "none"),
        ("in rows", ", ".join(code(f"probe/{probe.name}/{w}") for w in sorted(summed)) or "none"),
    ]
    parts = [f"## {probe.title} {{#{probe.name}}}\n", f"**Definition.** {probe.definition}.\n"]
    parts += [prose(probe.measure.__doc__), "", table(("field", "value"), facts)]
    return "\n".join([*parts, *_silent(answers), *_silent_layouts(probe)])


def _silent(answers: Answers) -> Iterator[str]:
    """Who cannot answer, by reason; where most cannot, who can."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for design, findings in answers.items():
        if findings.reason:
            reasons[findings.reason].append(design)
    for why, silent in reasons.items():
        others = [design for design in answers if design not in silent]
        most = len(silent) > len(others)
        names = ", ".join(f"[{d}](designs.md#{d})" for d in (others if most else silent))
        who = f"all designs but {names}" if most else names
        yield f"**No answer** from {who}: {why}.\n"


def _silent_layouts(probe: probes.Probe) -> Iterator[str]:
    """In which layouts even the baseline cannot answer what it can answer in another."""
    design = residuals.get(residuals.BENCHMARK[0])
    for layout, loop in LAYOUTS.items():
        reason = probe.measure(_executed(_tiny(design, loop)), probe.thresholds).reason
        looped = probe.measure(_executed(_tiny(design, ROUNDS)), probe.thresholds).reason
        if reason and reason != looped:
            yield f"**No answer** {layout}: {reason}.\n"


def _asked() -> dict[str, Answers]:
    """What every probe finds in a tiny stack of every design, in rounds where it can loop."""
    found: dict[str, Answers] = defaultdict(dict)
    for design in residuals.all_designs():
        stack = _executed(_tiny(design, ROUNDS if design.can_loop else None))
        for name in probes.names():
            probe = probes.get(name)
            found[name][design.name] = probe.measure(stack, probe.thresholds)
    return found


def _executed(config: CellConfig) -> Executed:
    with torch.random.fork_rng(devices=[]):
        model = build_model(config)
    tokens = torch.arange(10).remainder(7)[None]
    return Executed(model, tokens[:, :-1], tokens[:, 1:])


def _tiny(design: type[residuals.Design], loop: Loop) -> CellConfig:
    """Blocks of width 8."""
    return CellConfig.model_validate(
        {
            "suite": "docs",
            "ladder": "inline",
            "design": {"name": design.name, "version": design.version},
            "shape": {
                "layers": 3 if loop and "prelude" in loop else 2,
                "d_model": 8,
                "ffn": 8,
                "heads": 2,
            },
            "loop": loop,
            "corpus": {"name": "none", "hash": "0", "tokenizer_hash": "0", "vocab_size": 7},
            "sequence_length": 9,
            "batch_size": 1,
            "micro_batch_size": 1,
            "steps": 1,
            "optimizer": {"learning_rate": 1e-3},
            "evaluation": {"tokens": 9},
            "norm_eps": 1e-6,
            "seed": 0,
        }
    )
