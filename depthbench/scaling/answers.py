"""The questions that a law is asked about a budget, and the document that answers them."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from depthbench.errors import InputError
from depthbench.scaling.exponents import growth_at_fixed_size
from depthbench.scaling.planner import Choice, Fixed, Planner
from depthbench.scaling.statements import Verdict, judge

SCHEMA = 1
_PRESCRIBED_T = 8.0  # at which truncation is asked about, unless T is fixed
_SMALLER = 4  # a model without loops this far below its best size asks for loops, unless N is fixed


@dataclass(frozen=True)
class Ask:
    """What is planned: a planner, a budget in FLOPs, what is fixed, and whether T, B are whole."""

    planner: Planner
    compute: float
    fixed: Fixed = field(default_factory=Fixed)
    whole: bool = True

    def best(self, fixed: Fixed) -> Choice:
        return self.planner.best(self.compute, fixed, self.whole)


@dataclass(frozen=True)
class Answer:
    """`numbers` are ratios, shares and exponents by name; `choice` spends the whole budget."""

    text: str
    choice: Choice | None = None
    numbers: dict[str, float] = field(default_factory=dict)


def plan(ask: Ask) -> dict[str, Any]:
    """All that the law says about the budget, as JSON.

    `best` respects what is fixed; `answers` are the five questions; `extrapolated` says what of
    `best` lies outside the runs behind the law; `statements` what was published, beside the law.
    Raises `InputError` where nothing that is covered fits the budget.
    """
    planner, law = ask.planner, ask.planner.law
    best = ask.best(ask.fixed)
    return {
        "schema": SCHEMA,
        "law": law.model_dump(mode="json"),
        "compute": ask.compute,
        "recurrent_share": planner.share,
        "max_loops": planner.max_loops,
        "fixed": {name: value for name, value in asdict(ask.fixed).items() if value is not None},
        "whole": ask.whole,
        "best": asdict(best),
        "extrapolated": planner.extrapolated(best),
        "answers": [_record(question, answer, ask) for question, answer in QUESTIONS.items()],
        "statements": verdict_records(judge(law, law.recurrent_share or planner.share)),
    }


def verdict_records(verdicts: list[Verdict]) -> list[dict[str, Any]]:
    """One JSON object a statement."""
    return [
        {
            **each.statement.model_dump(include={"measure", "paper", "text", "published"}),
            "law": each.value,
            "verdict": each.verdict,
            "calibrated_to": each.used,
            "reason": each.reason,
        }
        for each in verdicts
    ]


def _record(question: str, answer: Callable[[Ask], Answer], ask: Ask) -> dict[str, Any]:
    try:
        found = answer(ask)
    except InputError as error:  # the law is silent there; the other questions stand
        found = Answer(str(error))
    return {"question": question, **asdict(found)}


def _size_and_tokens(ask: Ask) -> Answer:
    chosen = ask.best(ask.fixed)
    best = ask.best(Fixed(T=ask.fixed.T or chosen.T, B=ask.fixed.B or chosen.B))
    return Answer(f"{_loops(best)}: {_spent(best)}", best)


def _everything(ask: Ask) -> Answer:
    best = ask.best(Fixed())
    return Answer(f"{_loops(best)}: {_spent(best)}", best)


def _loops_at_size(ask: Ask) -> Answer:
    size = ask.fixed.N or ask.best(Fixed(T=1, B=1)).N / _SMALLER
    best = ask.best(Fixed(N=size))
    text = f"{_loops(best)}: {_spent(best)}"
    if ask.fixed.N is None:
        text = f"for a model {_SMALLER} times smaller than the best one without loops: {text}"
    if ask.planner.max_loops <= best.T:
        text += "; more loops than that were not considered"
    try:
        growth = growth_at_fixed_size(ask.planner)
    except InputError as error:
        return Answer(f"{text}. {error}", best)
    text += f". With B = T, T grows as C^{growth.loops:.2f} and D as C^{growth.tokens:.2f}"
    return Answer(text, best, {"loop_exponent": growth.loops, "token_exponent": growth.tokens})


def _truncation(ask: Ask) -> Answer:
    planner, T = ask.planner, ask.fixed.T or _PRESCRIBED_T
    pairs = planner.pairs(T, ask.fixed.B)
    if not any(b < T for _, b in pairs):
        planner.law.g_at(T, max(1.0, T - 1))  # raises where the law is silent
        return Answer(f"at T = {T:g} no B below T is allowed")
    pair = min(pairs, key=lambda each: planner.relative_compute(each, (T, T)))
    saved = 1 - planner.relative_compute(pair, (T, T))
    if saved <= 0:
        return Answer(f"at T = {T:g} no B below T saves compute", numbers={"saving": saved})
    text = f"at T = {T:g}, B = {pair[1]:g} saves {saved:.1%} of compute against B = T"
    return Answer(text, numbers={"T": T, "B": pair[1], "saving": saved})


def _two_loops(ask: Ask) -> Answer:
    planner = ask.planner
    saved = 1 - planner.worth(1, 1) / planner.worth(2, 2)
    ratio = planner.relative_compute((2, 2), (1, 1))
    text = f"(2, 2) needs {saved:.1%} fewer parameters and {ratio:.3f} times the compute"
    return Answer(text, numbers={"parameter_saving": saved, "relative_compute": ratio})


def _loops(choice: Choice) -> str:
    return f"T = {choice.T:.4g}, B = {choice.B:.4g}"


def _spent(choice: Choice) -> str:
    return f"N = {choice.N:.4g}, D = {choice.D:.4g}, loss {choice.loss:.4f}"


QUESTIONS: dict[str, Callable[[Ask], Answer]] = {
    "best N and D at fixed T and B": _size_and_tokens,
    "best T, B, N and D together": _everything,
    "best T at fixed N": _loops_at_size,
    "compute saved by B < T at equal optimised loss": _truncation,
    "(2, 2) against no loop at equal optimised loss": _two_loops,
}
"""The five questions of every plan."""
