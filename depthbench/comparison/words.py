"""Numbers and names as a terminal and a page write them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from depthbench.report.values import joined, signed
from depthbench.report.values import plain as rate

Document = Mapping[str, Any]
BLANK = "—"


def design_name(design: Document) -> str:
    """Name, version where it counts, and options."""
    version = design.get("design_version")
    options = design["options"]
    name = str(design["design"]) + ("" if version is None else f" v{version}")
    return name if options == "{}" else f"{name} {options}"


def shape_name(shape: Document) -> str:
    return f"L{shape['layers']} / d{shape['d_model']}"


def loss(value: float | None) -> str:
    return BLANK if value is None else f"{value:.4f}"


def change(estimate: Document) -> str:
    return BLANK if estimate["value"] is None else signed(estimate["value"], 4)


def interval(estimate: Document) -> str:
    if estimate["low"] is None:
        return BLANK
    return f"{signed(estimate['low'], 4)} to {signed(estimate['high'], 4)}"


def p_value(estimate: Document) -> str:
    p = estimate["p_holm"]
    return BLANK if p is None else "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def ranks(before: int | None, after: int | None) -> str:
    if before == after:
        return BLANK if before is None else str(before)
    return f"{BLANK if before is None else before} → {BLANK if after is None else after}"


def speed(found: Document) -> str:
    return BLANK if found["ratio"] is None else f"× {found['ratio']:#.3g}"


def rates(before: Sequence[float], after: Sequence[float]) -> str:
    """Learning rates that are not the same."""
    if before == after:
        return ""
    return f"learning rate {_rates(before)} → {_rates(after)}"


def _rates(values: Iterable[float]) -> str:
    return joined(rate(value) for value in values) or "not recorded"


def runs(keys: Sequence[Document], most: int = 20) -> str:
    """Runs by design and shape, with their seeds, as far as there is room."""
    groups: dict[tuple[str, str], list[int]] = {}
    for key in keys:
        groups.setdefault((design_name(key), shape_name(key)), []).append(key["seed"])
    found = [
        f"{design} at {shape}, seed{'s' * (len(seeds) > 1)} {joined(map(str, sorted(seeds)))}"
        for (design, shape), seeds in groups.items()
    ]
    more = [f"{len(found) - most} more cells"] if len(found) > most else []
    return "; ".join([*found[:most], *more])


def values(found: Sequence[str], most: int = 6) -> str:
    """The values of a field, as far as there is room."""
    if not found:
        return "none"
    more = [f"{len(found) - most} more"] if len(found) > most else []
    return joined([*found[:most], *more])
