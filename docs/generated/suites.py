"""The schema of a suite, the suites that ship, and the ladders."""

from collections.abc import Iterator

from depthbench.config import CoreLoop, Loop
from depthbench.corpora import declared_ref
from depthbench.expand import expand
from depthbench.ledger import ledger
from depthbench.shapes import Ladder, load_ladders
from depthbench.suite import Suite, load_suite, suite_names
from depthbench.tuning import first_cells
from generated.markdown import code, sentence, table, written
from generated.schema import described

INTRO = """# Suites and ladders

A suite is a YAML file: what is compared, at which shapes, under which budget and recipe, and what
the trained cells are asked. Every design at every shape in every loop with every seed is one cell.
`depthbench plan SUITE` shows the cells with parameters, FLOPs, time and disk, and runs nothing.

A suite is a shipped name or a path that ends in `.yaml`. An unknown key is refused with its path
and the nearest name. `--set PATH=VALUE` overrides any value; items of lists are counted from 0, as
in `--set also.0.seeds=[7,8]`, and values are YAML.
"""


SCHEMA = """Paths are as `--set` takes them; `[]` stands for the number of an item. Defaults that
are *derived* come from other values.
"""


def page() -> str:
    """Shipped suites, then the schema, then the ladders."""
    parts = [INTRO, "## Shipped suites\n"]
    parts += [_suite(load_suite(name)) for name in suite_names()]
    parts += ["## Schema\n", SCHEMA, described(Suite), "## Ladders\n"]
    parts += [_ladder(ladder) for ladder in load_ladders().values()]
    return "\n".join(parts)


def _suite(suite: Suite) -> str:
    corpus = declared_ref(suite.corpus, suite.local)
    cells = expand(suite, corpus)
    tried = first_cells(suite, corpus) if suite.tune else []
    flops = sum(ledger(cell).total_flops for cell in [*cells, *tried])
    parts = suite.parts()
    facts = [
        ("cells", f"{len(cells)} scored" + (f", {len(tried)} for tuning" if tried else "")),
        ("training FLOPs", f"{flops:.3g}"),
        ("designs", ", ".join(f"[{d.name}](designs.md#{d.name})" for d in suite.designs)),
        ("shapes", "; ".join(_distinct(_shapes(part.ladder) for part in parts))),
        ("loops", "; ".join(_distinct(_loop(loop) for part in parts for loop in part.loops))),
        ("controls", ", ".join(_distinct(c for part in parts for c in part.controls)) or "none"),
        ("budgets", "; ".join(_distinct(_budget(part) for part in parts))),
        ("seeds", "; ".join(_distinct(written(part.seeds) for part in parts))),
        ("learning rates", _rates(suite)),
        ("batch", f"{suite.batch_size} × {suite.sequence_length} tokens"),
        ("corpus", code(suite.corpus)),
        ("validation", f"{suite.evaluation.tokens:,} tokens"),
        ("probes", ", ".join(f"[{p}](probes.md#{p})" for p in suite.measures.probes) or "none"),
        ("domains", ", ".join(suite.measures.domains) or "none"),
    ]
    head = f"### `{suite.name}` {{#suite-{suite.name}}}\n\n{sentence(suite.description)}\n"
    further = f"\nIt has {len(parts)} parts, which differ in the values shown.\n"
    return f"{head}{further if len(parts) > 1 else ''}\n{table(('field', 'value'), facts)}"


def _distinct(values: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _shapes(ladder: Ladder) -> str:
    return ", ".join(f"{shape.layers} × {shape.d_model}" for shape in ladder.shapes)


def _budget(part: Suite) -> str:
    given = part.budget.model_dump(exclude_none=True).items()
    return ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in given)


def _loop(loop: Loop | None) -> str:
    if loop is None:
        return "none"
    if isinstance(loop, CoreLoop):
        return f"{loop.prelude} + core × {loop.forward} (B {loop.backward}) + {loop.coda}"
    return f"whole × {loop.rounds}"


def _rates(suite: Suite) -> str:
    if suite.tune:
        depths = ", ".join(map(str, suite.tune.layers))
        rates = ", ".join(f"{rate:g}" for rate in suite.tune.rates)
        return f"tuned: {rates} at {depths} layers, on seeds {written(suite.tune.seeds)}"
    assert suite.learning_rate is not None, "a suite has one of the two"
    own = [f"{rate:g} for {name}" for name, rate in suite.learning_rate.designs.items()]
    return ", ".join([f"{suite.learning_rate.default:g}", *own])


def _ladder(ladder: Ladder) -> str:
    counted = ladder.match_on or "backbone"
    rows = [
        (
            shape.layers,
            shape.d_model,
            shape.ffn,
            shape.heads,
            shape.kv_heads,
            shape.head_dim,
            f"{shape.aspect_ratio:.1f}",
            f"{ladder.count(shape):,}",
        )
        for shape in ladder.shapes
    ]
    facts = f"Vocabulary {ladder.vocab_size:,}, norm epsilon {ladder.norm_eps:g}."
    if ladder.target and ladder.tolerance:
        facts = f"Target {ladder.target:,} ± {ladder.tolerance:.1%}. {facts}"
    names = ("layers", "d_model", "ffn", "heads", "kv_heads", "head_dim", "aspect ratio")
    head = (
        f"### `{ladder.name}` {{#ladder-{ladder.name}}}\n\n{sentence(ladder.description)} {facts}\n"
    )
    return f"{head}\n{table((*names, counted), rows)}"
