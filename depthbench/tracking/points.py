"""What a tracker is told of a cell: the numbers in its files, by name and step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from depthbench.folder import FINISHED, CellFolder, read_metrics

RESULT = "result"


@dataclass(frozen=True)
class Point:
    """The numbers under one heading after `step`, when `elapsed` seconds had been trained."""

    heading: str
    step: int
    elapsed: float
    values: Mapping[str, float]


def read_points(folder: CellFolder) -> list[Point]:
    """All numbers of `metrics.jsonl`, `layers.jsonl` and a final `result.json`, by step.

    Under a heading every step comes once. What is None, a text or a truth is left out. Raises
    `DepthbenchError` for a damaged file.
    """
    # Layers first: what is written while the others are read is then ahead, and never missing.
    layers = [_point("layers", record, record) for record in read_metrics(folder.layers_path)]
    found = [
        _point("evaluation", record, record["evaluation"])
        if "evaluation" in record
        else _point("train", record, record)
        for record in read_metrics(folder.metrics_path)
    ]
    found = sorted([*found, *layers], key=lambda point: point.step)
    result = folder.result()
    if result is not None and result["status"] in FINISHED:
        found.append(_point(RESULT, result, _final(result)))
    return list(_with_time(found))


def _point(heading: str, record: Mapping[str, Any], content: Any) -> Point:
    own = content.items() if isinstance(content, Mapping) else ()
    values = dict(_numbers({name: value for name, value in own if name != "step"}, heading))
    return Point(heading, record["step"], _number(record.get("elapsed")) or 0.0, values)


def _final(result: Mapping[str, Any]) -> dict[str, Any]:
    """The measures, without the history that was told as it came, and what they cost."""
    measures = dict(result.get("measures") or {})
    measures.pop("history", None)
    return {**measures, "ledger": result.get("ledger")}


def _numbers(value: object, name: str) -> Iterator[tuple[str, float]]:
    number = _number(value)
    if number is not None:
        yield name, number
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _numbers(inner, f"{name}/{key}")
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, inner in enumerate(value):
            yield from _numbers(inner, f"{name}/{index}")


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _with_time(points: Sequence[Point]) -> Iterator[Point]:
    """Only training records say how long it took; the others come right after one."""
    elapsed = 0.0
    for point in points:
        elapsed = max(elapsed, point.elapsed)
        yield replace(point, elapsed=elapsed)
