"""What stands before a leaderboard: what is averaged, what the noise lets it see, who is out."""

from collections.abc import Mapping

from depthbench.report.lines import ShapeKey
from depthbench.report.series import Look, Series
from depthbench.report.standings import Board
from depthbench.report.tables import interval
from depthbench.report.values import joined, shortened, signed
from depthbench.statistics import NoiseReport


def board_statements(board: Board, looks: Mapping[Series, Look]) -> list[str]:
    """One sentence or two each, the most important first."""
    found = [
        *_ranked(board),
        _ladder(board),
        _noise(board, looks),
        _null_check(board),
        *_edges(board, looks),
        _bootstrap(board),
    ]
    return [sentence for sentence in found if sentence]


def _ladder(board: Board) -> str:
    if not board.ladder:
        return "No shape was finished by more than half of the designs, so nothing is averaged."
    shapes = [ShapeKey(shape.layers, shape.d_model) for shape in board.analysis.shapes]
    apart = [shape.label for shape in shapes if shape not in board.ladder]
    text = f"Means are over {joined(shape.label for shape in board.ladder)}, each counted alike"
    if apart:
        what = "shapes" if len(apart) > 1 else "shape"
        text += (
            f"; the {what} {joined(apart)}, which half of the designs or fewer came to, is left out"
        )
    return f"{text}."


def _ranked(board: Board) -> list[str]:
    if not board.has_intervals:
        return [
            "There are no ranks and no intervals: no design has two seeds at one shape, or they "
            "do not differ, so the noise is not known. The order is that of the mean difference to "
            "Pre-LN, and no place in it is evidence."
        ]
    ranks = {standing.rank for standing in board.standings if standing.rank is not None}
    if len(ranks) == 1 and len(board.standings) > 1:
        return ["All designs that have a rank share it: the noise tells none of them apart."]
    return []


def _noise(board: Board, looks: Mapping[Series, Look]) -> str:
    report = board.analysis.noise
    run, paired = report.run, report.paired
    if run is None:
        return ""
    text = (
        f"Runs that differ in the seed alone scatter with a deviation of {run.sd:.2g} nats (judged "
        f"by {run.source}, {run.dof:.3g} degrees of freedom). The smallest difference of two "
        f"designs at one shape that {_seeds(run.num_seeds)} can detect is {run.detectable:.2g} nats"
    )
    if paired:
        text += f", or {paired.detectable:.2g} nats paired by seed"
    text += " (found four times in five, at 5 %)."
    return text + _apart(report, looks)


def _seeds(num: int) -> str:
    return f"{num} {'seed' if num == 1 else 'seeds'}"


def _apart(report: NoiseReport, looks: Mapping[Series, Look]) -> str:
    names = [looks[Series(d.design, d.version, d.options)].label for d in report.designs_apart]
    places = [ShapeKey(shape.layers, shape.d_model).label for shape in report.shapes_apart]
    if not names and not places:
        return ""
    several = len(names) + len(places) > 1
    what = "scatter more and are" if several else "scatters more and is"
    return (
        f" {joined([*names, *places])} {what} judged by {'their' if several else 'its'} own runs."
    )


def _null_check(board: Board) -> str:
    check = board.analysis.null_check
    if check.value is None or check.low is None or check.high is None:
        return (
            f"Pre-LN was not compared with itself: {check.reason}." if board.has_intervals else ""
        )
    text = (
        f"Pre-LN against itself, seed against seed, differs by {signed(check.value)} nats "
        f"({interval(check.low, check.high)})"
    )
    if check.low <= 0 <= check.high:
        return f"{text}: no difference, as it must be."
    return (
        f"{text}: a difference where there is none, which happens once in twenty suites. Read "
        "every interval with that in mind."
    )


def _edges(board: Board, looks: Mapping[Series, Look]) -> list[str]:
    found = [s for s in board.standings if s.at_edge]
    sentences = [
        shortened(f"{looks[s.series].label} is not ranked: {s.why_unranked}.", 400) for s in found
    ]
    if any(standing.series.is_baseline for standing in found):
        sentences.append(
            "That holds for the baseline too: every difference is to a Pre-LN that may do better."
        )
    return sentences


def _bootstrap(board: Board) -> str:
    if not board.has_intervals:
        return ""
    analysis = board.analysis
    return (
        f"Intervals of slope and change come from {analysis.num_resamples:,} bootstrap resamples, "
        f"generator seed {analysis.seed}."
    )
