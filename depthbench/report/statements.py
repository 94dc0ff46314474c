"""Sentences that the page opens with, each computed from the rows."""

from collections.abc import Mapping, Sequence

from depthbench.report.lines import Best, Line, repeats
from depthbench.report.reading import DepthChange, Yardstick, shapes_of, verdict
from depthbench.report.series import Look, Series
from depthbench.report.values import count_range, joined, signed
from depthbench.store import Record

SMALL_MODEL = 100e6
LEARNED = 0.5
FEW_TOKENS = 10
WITHIN = (
    "A difference whose interval holds zero is not evidence, and of many intervals one in twenty "
    "misses by chance: the ranks take account of that, single intervals do not."
)


def answer(
    changes: Sequence[DepthChange],
    best: Best,
    measure: Yardstick | None,
    looks: Mapping[Series, Look],
) -> list[str]:
    """Which designs gain from depth, and which do not."""
    shapes = shapes_of(best)
    if len(shapes) < 2:
        return ["Only one shape was run, so nothing here speaks about depth."]
    known: dict[str, list[str]] = {}
    for change in changes:
        name = looks[change.series].label
        if change.value is not None:
            name = f"{name} ({signed(change.value)})"
        known.setdefault(verdict(change, measure), []).append(name)
    span = f"From {shapes[0].label} to {shapes[-1].label}"
    judged = any(c.judged and c.judged.p_holm is not None for c in changes)
    bound = f" by more than {measure.nats:.2g} nats" if measure else ""
    bound = " beyond noise" if judged else bound
    again = " by more than that" if measure and not judged else bound
    phrases = {
        "falls": f"loss falls{bound} for",
        "no readable change": f"it changes {'within noise' if judged else 'by less than that'} for",
        "rises": f"it rises{again} for",
        "no answer": "there is no answer for",
    }
    parts = [f"{text} {joined(known[key])}" for key, text in phrases.items() if key in known]
    if "falls" not in known:
        parts.insert(0, f"loss falls{bound} for no design")
    return [f"{span}, {'; '.join(parts)}."]


def shows(records: Sequence[Record], lines: Sequence[Line], best: Best) -> list[str]:
    """What these runs can show."""
    done = [record for line in lines for record in line.done]
    if not done:
        return ["No run has finished yet: there is nothing to read."]
    seeds = {len(line.done) for line in best.values() if line.done}
    parameters = count_range(record["parameters"] for record in done)
    backbone = count_range(record["backbone"] for record in done)
    tokens = count_range(record["tokens"] for record in done)
    num_seeds = joined(str(n) for n in sorted(seeds))
    plural = "seed" if seeds == {1} else "seeds"
    shapes = len({shape for _, shape in best})
    return [
        f"{len(done)} of {len(records)} runs have finished: {len({s for s, _ in best})} designs at "
        f"{shapes} shapes with {num_seeds} {plural} a line, models of {parameters} parameters "
        f"({backbone} in the blocks), each trained on {tokens} tokens.",
        "They show how loss moves between these shapes at this size and budget, and nothing more.",
    ]


def hides(
    records: Sequence[Record],
    lines: Sequence[Line],
    best: Best,
    measure: Yardstick | None,
    looks: Mapping[Series, Look],
    judged: bool = False,
) -> list[str]:
    """What they cannot show. `judged`: whether differences have intervals."""
    done = [record for line in lines for record in line.done]
    sentences = [WITHIN if judged else _noise(measure), _rates(best), _added(done, looks, best)]
    if any(record["tokens"] < FEW_TOKENS * record["parameters"] for record in done):
        ratios = [record["tokens"] / record["parameters"] for record in done]
        sentences.append(
            f"The runs saw {min(ratios):.2g} to {max(ratios):.2g} tokens a parameter, where 20 is "
            "usual: a design that learns late is cut off."
        )
    if done and max(record["parameters"] for record in done) < SMALL_MODEL:
        sentences.append(
            "The designs were published for models of hundreds of millions of parameters: an order "
            "seen here need not hold there."
        )
    sentences.append(unlearned(done))
    sentences.append(lost(records))
    sentences += _choices(lines, best)
    return [sentence for sentence in sentences if sentence]


def _noise(measure: Yardstick | None) -> str:
    if measure is None:
        return (
            "One seed, and too few lines to judge the noise by: no difference of any size is "
            "evidence."
        )
    if measure.source == "seeds":
        return (
            f"Judged by the spread between seeds, two lines of {measure.num_seeds} "
            f"{'seed' if measure.num_seeds == 1 else 'seeds'} must differ by {measure.nats:.2g} "
            "nats: ranks within that are not evidence, and of many comparisons one in twenty "
            "passes by chance."
        )
    return (
        "One seed, so the noise between runs was not measured. Judged by how unevenly the lines "
        f"run, two losses must differ by about {measure.nats:.2g} nats: an order within that is "
        "no evidence."
    )


def _rates(best: Best) -> str:
    by_shape: dict[object, set[float]] = {}
    for (_, shape), line in best.items():
        by_shape.setdefault(shape, set()).add(line.learning_rate)
    if len({series for series, _ in best}) < 2:
        return ""
    tuned = [record for line in best.values() for record in line.records if record.get("tuned")]
    if tuned:
        return (
            "Learning rates were tuned for each design by one search, at some of the shapes and on "
            "few seeds; between these shapes they are interpolated, and a rate that was missed "
            "counts against its design."
        )
    if all(len(rates) == 1 for rates in by_shape.values()):
        return (
            "All designs ran at one learning rate, tuned for none of them: a design that wants "
            "another is under-reported."
        )
    return "Learning rates differ between designs: the Rate column has them."


def _added(done: Sequence[Record], looks: Mapping[Series, Look], best: Best) -> str:
    largest = max(done, key=lambda r: r["added_share"] or 0.0, default=None)
    if largest is None or largest["match"] != "shape" or (largest["added_share"] or 0.0) < 0.01:
        return ""
    owner = next(s for s, _ in best if s.design == largest["design"])
    return (
        f"Shapes are matched, not totals: {looks[owner].label} adds up to "
        f"{100 * largest['added_share']:.0f} % to the blocks' parameters, and what that buys is "
        "not set apart from what the rule buys."
    )


def unlearned(done: Sequence[Record]) -> str:
    """How many runs learned little beyond word frequencies."""
    known = [r for r in done if r["unigram_entropy"] is not None]
    near = [r for r in known if r["unigram_entropy"] - r["loss"] < LEARNED]
    if not near:
        return ""
    return (
        f"{len(near)} of {len(known)} finished runs end less than {LEARNED} nats below the unigram "
        "entropy of the validation text: they have learned little beyond word frequencies."
    )


def lost(records: Sequence[Record]) -> str:
    """What has no loss, and why that flatters."""
    without = [record for record in records if record["status"] != "done"]
    if not without:
        return ""
    kinds = joined(
        f"{sum(r['status'] == kind for r in without)} {kind}"
        for kind in sorted({record["status"] for record in without})
    )
    return (
        f"Without a loss: {kinds}. They are listed below, and means leave them out, which flatters "
        "a design whose runs diverge."
    )


def _choices(lines: Sequence[Line], best: Best) -> list[str]:
    sentences = []
    if len(best) < len(lines):
        sentences.append(
            "Where a design ran at several learning rates, figures and differences use the one "
            "with the lowest loss, chosen on the seeds that are shown: slightly too good."
        )
    again = repeats(lines)
    if again:
        paths = joined(str(record["path"]) for record in again)
        sentences.append(f"A repeat of a seed is not another seed, so not counted: {paths}.")
    return sentences
