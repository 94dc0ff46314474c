"""What a law says one should do with a compute budget.

With f = N_rec / (N_once + N_rec) fixed, N parameters are worth `N_eff = N·m` with
m = 1 − f + f·g(T, B), and a token costs `6·N·k` FLOPs with k = 1 − f + f·(T + 2B)/3.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import get_args

from scipy.optimize import LinearConstraint, minimize

from depthbench.errors import InputError
from depthbench.scaling.forms import Array
from depthbench.scaling.law import Law, Quantity

MAX_LOOPS = 16
Pair = tuple[float, float]


@dataclass(frozen=True)
class Choice:
    """One way to spend a budget: loops, parameters without embeddings, tokens, and the loss."""

    T: float
    B: float
    N: float
    D: float
    N_eff: float
    compute: float
    loss: float


@dataclass(frozen=True)
class Fixed:
    """What a plan may not choose."""

    N: float | None = None
    D: float | None = None
    T: float | None = None
    B: float | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not (math.isfinite(value) and value >= 1):
                raise InputError(f"{name} = {value:g} cannot be: it is at least 1")
        if self.T is not None and self.B is not None and self.B > self.T:
            raise InputError(
                f"B = {self.B:g} exceeds T = {self.T:g}: gradients pass at most the loops that ran"
            )


class Planner:
    """A law for models of one recurrent share, with T up to `max_loops`.

    `share` defaults to the law's own; a law without one needs it (`InputError`).
    """

    def __init__(self, law: Law, share: float | None = None, max_loops: float = MAX_LOOPS) -> None:
        share = law.recurrent_share if share is None else share
        if share is None:
            raise InputError(f"{law.name} knows no recurrent share: give it with --share")
        if not 0 < share <= 1:
            raise InputError(f"--share {share:g}: N_rec / (N_once + N_rec) lies above 0, at most 1")
        self.law, self.share, self.max_loops = law, share, max_loops
        self._worths: dict[Pair, float] = {}

    def worth(self, T: float, B: float) -> float:
        """m: effective parameters of a parameter."""
        if (T, B) not in self._worths:
            self._worths[T, B] = 1 - self.share + self.share * float(self.law.g_at(T, B))
        return self._worths[T, B]

    def cost(self, T: float, B: float) -> float:
        """k: FLOPs of a token and parameter, relative to a model without loops."""
        return 1 - self.share + self.share * (T + 2 * B) / 3

    def relative_compute(self, pair: Pair, other: Pair) -> float:
        """Compute of `pair` over that of `other` at equal loss, each with its best N and D.

        N_eff and D are then equal, so that compute goes as k/m, whatever A, E, α, B_D and β.
        """
        return self.cost(*pair) / self.worth(*pair) * self.worth(*other) / self.cost(*other)

    def pairs(self, T: float | None = None, B: float | None = None) -> list[Pair]:
        """All (T, B) that the law says something about: whole ones, but for what is given."""
        covers = self.law.shape_of_g.covers
        all_T = [T] if T is not None else list(range(1, int(self.max_loops) + 1))
        return [
            (t, b)
            for t in all_T
            for b in ([B] if B is not None else range(1, int(t) + 1))
            if b <= t and covers(t, b)
        ]

    def allocate(self, compute: float, T: float, B: float, fixed: Fixed) -> Choice | None:
        """The best N and D at (T, B); what is fixed stays. None if the budget cannot pay it.

        Only with N and D both fixed may the choice cost less than the budget.
        """
        law, m, k = self.law, self.worth(T, B), self.cost(T, B)
        N, D = fixed.N, fixed.D
        if N is None and D is None:
            # dLoss/dN = 0 on C = 6·k·N·D
            ratio = law.alpha * law.A / (law.beta * law.B_D * m**law.alpha)
            N = (ratio * (compute / (6 * k)) ** law.beta) ** (1 / (law.alpha + law.beta))
        if N is None:
            assert D is not None
            N = compute / (6 * k * D)
        if D is None:
            D = compute / (6 * k * N)
        used = 6 * k * N * D
        if used > compute * (1 + 1e-9):
            return None
        return Choice(T, B, N, D, N * m, used, float(law.loss_of(N * m, D)))

    def best(self, compute: float, fixed: Fixed, whole: bool = True) -> Choice:
        """The choice with the least loss; T and B whole, or any real numbers from 1 on."""
        if not (math.isfinite(compute) and compute > 0):
            raise InputError(f"a compute budget of {compute:g} FLOPs cannot be spent")
        pairs = self.pairs(fixed.T, fixed.B)
        found = [self.allocate(compute, T, B, fixed) for T, B in pairs]
        paid = [choice for choice in found if choice is not None]
        if not paid:
            raise InputError(
                f"nothing that {self.law.name} covers up to T = {self.max_loops:g} fits "
                f"{compute:.4g} FLOPs with {_shown(fixed)}: raise the budget or fix less"
            )
        best = min(paid, key=lambda choice: choice.loss)
        return best if whole else self._refined(compute, fixed, best)

    def _refined(self, compute: float, fixed: Fixed, start: Choice) -> Choice:
        """The optimum over real T and B around `start`, the best of the whole ones."""
        if fixed.N is not None and fixed.D is not None:
            raise InputError("with N and D both fixed only whole T and B can be planned")
        covers = self.law.shape_of_g.covers
        only_diagonal = not covers(2.5, 1.5)
        num_fixed = (fixed.T is not None) + (fixed.B is not None)
        if not covers(1.5, 1.5) or num_fixed == 2 or (only_diagonal and num_fixed):
            return start

        def at(point: Array) -> Choice:
            """`point`: ln B and ln T/B, so that B ≤ T is a bound that differences respect."""
            B = fixed.B or math.exp(point[0])
            choice = self.allocate(compute, fixed.T or B * math.exp(point[1]), B, fixed)
            assert choice is not None, "a budget pays any loops while N or D is free"
            return choice

        top = math.log(max(self.max_loops, start.T))
        least_T = math.log(fixed.T) if fixed.T is not None else 0.0
        most_T = least_T if fixed.T is not None else top
        by_B = (0.0, top) if fixed.B is None else (math.log(fixed.B),) * 2
        end = minimize(
            lambda point: math.log(at(point).loss - self.law.E),
            [math.log(start.B), math.log(start.T / start.B)],
            method="SLSQP",
            bounds=[by_B, (0.0, 0.0 if only_diagonal else top)],
            constraints=LinearConstraint([[1.0, 1.0]], least_T, most_T),
            options={"ftol": 1e-14, "maxiter": 500},
        )
        return min(at(end.x), start, key=lambda choice: choice.loss)

    def extrapolated(self, choice: Choice) -> list[str]:
        """What of the choice lies outside the runs that the law rests on, one sentence each."""
        sentences, unknown = [], []
        for name in get_args(Quantity):
            value = float(getattr(choice, name))
            known = self.law.fitted_range.get(name)
            if known is None:
                unknown.append(name)
            elif not known[0] * (1 - 1e-9) <= value <= known[1] * (1 + 1e-9):
                side = "below" if value < known[0] else "above"
                sentences.append(
                    f"{name} = {value:.4g} lies {side} what was run, {known[0]:.4g} to "
                    f"{known[1]:.4g}"
                )
        if unknown:
            sentences.append(f"the range of what was run is not known for {', '.join(unknown)}")
        return sentences


def _shown(fixed: Fixed) -> str:
    given: Mapping[str, float | None] = asdict(fixed)
    return ", ".join(f"{k} = {v:.4g}" for k, v in given.items() if v is not None) or "nothing fixed"
