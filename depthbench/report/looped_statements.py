"""Sentences that a looped part opens with, each computed from the rows."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from depthbench.report.lines import Blank, Spread, repeats
from depthbench.report.looped import Looped, scored
from depthbench.report.looped_panels import unbeaten
from depthbench.report.loops import Loops
from depthbench.report.reading import by_seeds
from depthbench.report.series import Look, Series
from depthbench.report.stacks import NO_PLAIN, Stack, Stacks, difference, differences
from depthbench.report.statements import SMALL_MODEL, lost, unlearned
from depthbench.report.towers import Tower
from depthbench.report.values import count, count_range, joined, mean_text, signed

Looks = Mapping[Series, Look]


def shows(part: Looped, looks: Looks) -> list[str]:
    """What these runs can show."""
    stacks = part.stacks
    done = [record for stack in stacks.every for record in stack.line.done]
    if not done:
        return ["No run has finished yet: there is nothing to read."]
    looped = sum(stack.is_tied and not stack.is_plain for stack in stacks.best)
    say = [
        f"{len(done)} of {len(scored(part.section.records))} runs have finished: {looped} looped "
        f"stacks and {len(stacks.best) - looped} that share no weights, models of "
        f"{count_range(record['parameters'] for record in done)} parameters, each trained on "
        f"{count_range(record['tokens'] for record in done)} tokens."
    ]
    say += _of_towers(part.towers, looks)
    say += _beside_controls(stacks)
    return say + _frontiers(stacks, looks)


def _of_towers(towers: Sequence[Tower], looks: Looks) -> Iterator[str]:
    """What the deepest loop gains over running every block once: a sentence for like towers."""
    alike: dict[tuple[str, int, int, int], list[Tower]] = {}
    for tower in towers:
        ends = (tower.shape.layers, tower.depths[-1])
        alike.setdefault((tower.layout, tower.tokens, *ends), []).append(tower)
    for (layout, tokens, first, last), members in alike.items():
        changes: dict[Series, dict[str, Spread]] = {}
        for tower in members:
            for series, change in _changes(tower).items():
                changes.setdefault(series, {})[f"d{tower.shape.d_model}"] = change
        if changes:
            parts = joined(f"{looks[s].label} by {_by_width(c)}" for s, c in changes.items())
            widths = joined(sorted({f"d{tower.shape.d_model}" for tower in members}, key=_size))
            yield (
                f"L{first} at {widths}, {layout}, {count(tokens)} tokens: executing {last} blocks "
                f"in place of {first}, with the same parameters, changed the loss of {parts} nats "
                f"({_how_sure([c for by in changes.values() for c in by.values()])})."
            )


def _changes(tower: Tower) -> dict[Series, Spread]:
    first, last = tower.shape.layers, tower.depths[-1]
    found = {
        series: difference(by_depth[last], by_depth[first], NO_PLAIN)
        for series, by_depth in tower.lines.items()
        if first in by_depth and last in by_depth
    }
    return {series: change for series, change in found.items() if isinstance(change, Spread)}


def _size(width: str) -> int:
    return int(width[1:])


def _by_width(changes: Mapping[str, Spread]) -> str:
    if len(changes) == 1:
        return mean_text(next(iter(changes.values())), sign=True)
    parts = (f"{mean_text(changes[w], sign=True)} ({w})" for w in sorted(changes, key=_size))
    return ", ".join(parts)


def _how_sure(found: Sequence[Spread]) -> str:
    least = min(spread.n for spread in found)
    if all(spread.sd is None for spread in found):
        return "one seed each: no interval" if len(found) > 1 else "one seed: no interval"
    return f"± deviation over {least} seeds or more" if least > 1 else "± where there are two seeds"


def _beside_controls(stacks: Stacks) -> list[str]:
    """On how many loops win against each kind of control."""
    kinds = {
        "plain": "a stack of the same parameters without a loop, on as many tokens",
        "equal_flops": "a stack of as many blocks without a loop, at equal FLOPs",
        "untied": "a stack of as many blocks without shared weights, on as many tokens",
    }
    found = [differences(s, stacks) for s in stacks.best if s.is_tied and not s.is_plain]
    say = []
    for kind, words in kinds.items():
        means = [d.mean for by in found if not isinstance(d := by[kind], Blank)]
        if means:
            lower = sum(mean < 0 for mean in means)
            ends = f"{signed(min(means))} to {signed(max(means))} nats"
            say.append(
                f"Beside {words}: {lower} of {len(means)} loops end at a lower loss ({ends})."
            )
    return say


def _frontiers(stacks: Stacks, looks: Looks) -> list[str]:
    """Which loops lie where no cheaper run is as good."""
    say = []
    for series in dict.fromkeys(stack.series for stack in stacks.best):
        own = [s for s in stacks.best if s.series == series and s.loss and s.flops]
        if len(own) < 2:
            continue
        kept = unbeaten(own)
        counts = Counter(stack.loops for stack in kept)
        parts = joined(f"{num} {_with(loops, looks)}" for loops, num in counts.most_common())
        say.append(f"{looks[series].label}: {len(kept)} of {len(own)} stacks, {parts}")
    if not say:
        return []
    return [f"On the frontier, where no cheaper run ends as low: {'; '.join(say)}."]


def _with(loops: Loops, looks: Looks) -> str:
    if loops.kind == "no loop":
        return "without a loop"
    return f"with (T, B) = {looks[loops].label}" if loops.kind == "loop" else looks[loops].label


def hides(part: Looped) -> list[str]:
    """What they cannot show."""
    stacks, records = part.stacks, part.section.records
    lines = [stack.line for stack in stacks.best if stack.line.done]
    done = [record for line in lines for record in line.done]
    measure = by_seeds(lines)
    say = [
        f"Judged by the spread between seeds, two means of {measure.num_seeds} "
        f"{'seed' if measure.num_seeds == 1 else 'seeds'} must differ by {measure.nats:.2g} nats: "
        "less is not evidence."
        if measure
        else "One seed: the noise between runs was not measured, and no small difference, nor the "
        "order of points that lie close, is evidence.",
        _rates(stacks.best),
        _unlike(stacks),
        "The frontier is that of these runs: sizes and budgets were chosen before, not the best "
        "for each (T, B).",
    ]
    if done and max(record["parameters"] for record in done) < SMALL_MODEL:
        say.append(
            "Loops were published for models of hundreds of millions of parameters: what they are "
            "worth here need not hold there."
        )
    if tuning := len(records) - len(scored(records)):
        say.append(f"{tuning} runs only looked for a learning rate: they are in the files of rows.")
    again = repeats(stack.line for stack in stacks.every)
    if again:
        paths = joined(str(record["path"]) for record in again)
        say.append(f"A repeat of a seed is not another seed, so not counted: {paths}.")
    return [text for text in (*say, unlearned(done), lost(records)) if text]


def _rates(best: Sequence[Stack]) -> str:
    by_series: dict[Series, set[float]] = {}
    for stack in best:
        by_series.setdefault(stack.series, set()).add(stack.line.learning_rate)
    if all(len(rates) == 1 for rates in by_series.values()):
        return (
            "A design has one learning rate at every depth: a loop, or a deep control, that wants "
            "another is under-reported."
        )
    return "Learning rates differ within a design: the Rate column has them."


def _unlike(stacks: Stacks) -> str:
    pairs = [(s, c) for s in stacks.best if s.is_tied and (c := stacks.equal_flops(s))]
    pairs = [(stack, control) for stack, control in pairs if stack is not control]
    if not pairs:
        return ""
    return (
        "A stack without a loop at equal FLOPs has more parameters and saw other tokens than the "
        "loop: the two differ in more than the loop."
    )
