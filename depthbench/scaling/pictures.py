"""Pictures of fits and plans, as SVG; the same picture for the same numbers."""

import math
from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from depthbench.errors import InputError
from depthbench.scaling.answers import Ask
from depthbench.scaling.fitting import Fit
from depthbench.scaling.forms import Array
from depthbench.scaling.planner import Choice, Fixed

_RC: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "depthbench",
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
}
_SIZE = (10.0, 4.2)  # inches
_MARKERS = "os^vD<>PX*"
_DECADES = 2.0  # of compute on either side of a budget
_FINE = 48


def residual_plot(fit: Fit) -> bytes:
    """Residuals against predicted loss by (T, B), and g as fitted with its intervals."""
    runs = fit.runs
    predicted = runs.loss * np.exp(fit.residuals)
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=_SIZE, layout="constrained")
        left, right = figure.subplots(1, 2)
        for place, (T, B) in enumerate(runs.pairs):
            of_pair = (runs.T == T) & (runs.B == B)
            marker = _MARKERS[place % len(_MARKERS)]
            style: dict[str, Any] = {"linestyle": "none", "marker": marker, "markersize": 4}
            error = -100 * fit.residuals[of_pair]
            left.plot(predicted[of_pair], error, label=f"({T}, {B})", **style)
        left.axhline(0, color="0.4", linewidth=0.8)
        for side in (-1, 1):
            left.axhline(side * 100 * fit.noise, color="0.6", linewidth=0.8, linestyle="--")
        left.set_title("observed minus predicted loss, %")
        left.set_xlabel("predicted loss, nats per token; dashed: one standard deviation")
        low, high = left.get_ylim()
        left.set_ylim(low, high + 0.25 * (high - low))  # the legend's place
        left.legend(title="(T, B)", fontsize=7, title_fontsize=7, ncols=5, loc="upper left")
        _draw_worths(right, fit)
        return _svg(figure)


def _draw_worths(axes: Axes, fit: Fit) -> None:
    labels = [f"({worth.T}, {worth.B})" for worth in fit.worths]
    for place, worth in enumerate(fit.worths):
        axes.plot([place], [worth.g], marker="o", color="C0")
        if worth.interval:
            axes.plot([place, place], worth.interval, color="C0", marker="_")
    axes.axhline(1, color="0.4", linewidth=0.8)
    axes.set_xticks(range(len(labels)), labels, rotation=45)
    axes.set_title("g(T, B) as fitted; bars: central 95 % of the bootstrap")
    axes.set_xlabel("(T, B)")


def plan_picture(ask: Ask, best: Choice) -> bytes:
    """Loss over T and B at the budget, and the frontier of loss against compute."""
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=_SIZE, layout="constrained")
        left, right = figure.subplots(1, 2)
        if ask.planner.law.shape_of_g.covers(2.5, 1.5) and ask.planner.max_loops >= 2:
            _draw_iso_loss(left, ask, best)
        else:
            _draw_covered(left, ask)
        _draw_frontier(right, ask, best)
        return _svg(figure)


def _loss(ask: Ask, compute: float, T: float, B: float) -> float:
    """NaN, which leaves a gap, where the budget does not pay what is fixed."""
    fixed = Fixed(N=ask.fixed.N, D=ask.fixed.D)
    choice = ask.planner.allocate(compute, T, B, fixed)
    return math.nan if choice is None else choice.loss


def _draw_iso_loss(axes: Axes, ask: Ask, best: Choice) -> None:
    loops = np.geomspace(1, ask.planner.max_loops, _FINE)
    loss = np.array([[_loss(ask, ask.compute, t, b) for t in loops] for b in loops])
    allowed = loss[loops[:, None] <= loops]
    levels = np.linspace(np.nanmin(allowed), np.nanmax(allowed), 15)
    loss[loops[:, None] > 1.15 * loops] = math.nan
    drawn = axes.contour(loops, loops, loss, levels=levels, cmap="viridis")
    axes.clabel(drawn, fontsize=7, fmt="%.3f", zorder=2)
    # Drawn over, so that contours end where B = T and not at the last point of the grid below it.
    axes.fill_between(loops, loops, loops[-1], color="0.93", zorder=3, linewidth=0)
    axes.plot(
        [best.T],
        [best.B],
        zorder=4,
        clip_on=False,
        marker="*",
        markersize=12,
        color="C3",
        linestyle="none",
    )
    axes.set_title(f"loss at {ask.compute:.3g} FLOPs; star: the plan")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.set_xlabel("forward loops T")
    axes.set_ylabel("backward loops B")


def _draw_covered(axes: Axes, ask: Ask) -> None:
    """One point for every (T, B) that the law covers: a law without a surface over T and B."""
    pairs = ask.planner.pairs()
    losses = [_loss(ask, ask.compute, T, B) for T, B in pairs]
    axes.plot(range(len(pairs)), losses, marker="o")
    step = max(1, len(pairs) // 8)
    labels = [f"({T:g}, {B:g})" for T, B in pairs]
    axes.set_xticks(range(0, len(pairs), step), labels[::step])
    axes.set_title(f"loss at {ask.compute:.3g} FLOPs, where the law speaks")
    axes.set_xlabel("(T, B)")


def _draw_frontier(axes: Axes, ask: Ask, best: Choice) -> None:
    budgets = ask.compute * np.logspace(-_DECADES, _DECADES, 2 * _FINE + 1)
    fixed = Fixed(N=ask.fixed.N, D=ask.fixed.D)
    lines: dict[str, Array] = {}
    for T, B in dict.fromkeys([(1.0, 1.0), (float(best.T), float(best.B))]):
        label = "no loop" if (T, B) == (1, 1) else f"T = {T:.3g}, B = {B:.3g}"
        lines[label] = np.array([_loss(ask, budget, T, B) for budget in budgets])
    lines["best T and B"] = np.array([_best_loss(ask, budget, fixed) for budget in budgets])
    known = ask.planner.law.fitted_range.get("compute", (math.inf, -math.inf))
    inside = (budgets >= known[0]) & (budgets <= known[1])
    for place, (label, loss) in enumerate(lines.items()):
        style: dict[str, Any] = {"color": f"C{place}", "linewidth": 3.5 - place}
        axes.plot(budgets, loss, linestyle=":", **style)
        axes.plot(budgets, np.where(inside, loss, math.nan), label=label, **style)
    axes.plot([best.compute], [best.loss], marker="*", markersize=12, color="C3", linestyle="none")
    axes.set_xscale("log")
    axes.set_title("frontier; dotted: outside the runs behind the law")
    axes.set_xlabel("training compute, FLOPs")
    axes.set_ylabel("loss, nats per token")
    axes.legend(fontsize=7)


def _best_loss(ask: Ask, budget: float, fixed: Fixed) -> float:
    try:
        return ask.planner.best(budget, fixed).loss
    except InputError:
        return math.nan


def _svg(figure: Figure) -> bytes:
    file = BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
    return file.getvalue()
