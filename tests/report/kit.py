"""What a measured cell has in its folder: probe documents and domain sets, with chosen values."""

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

DOMAINS = ("coding", "stem", "math")


def probe_document(
    name: str,
    values: Mapping[str, Any] | None = None,
    summary: Mapping[str, float | None] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """A probe's document; without values the design cannot answer."""
    document = {
        "schema": 1,
        "probe": name,
        "title": name.capitalize(),
        "definition": f"how {name} is defined",
        "unit": "share",
        "axes": ["first", "second"],
        "scale": [0.0, 1.0],
        "thresholds": {"late": 0.45},
        "sample": {"corpus": "pypi-text", "windows": 4, "tokens": 512},
        "reason": None if values else f"{name} has no answer",
        "summary": dict(summary or {}),
        "values": dict(values or {}),
    }
    return document | changes


def square(size: int, value: float = 0.5) -> list[list[float | None]]:
    """`value` above the diagonal, nothing on and below it."""
    return [[value if j > i else None for j in range(size)] for i in range(size)]


def domains_document(
    nats: Mapping[str, float], evaluation: str = "e" * 16, **changes: Any
) -> dict[str, Any]:
    """One set a domain, whose interval is 0.1 below to 0.2 above, and half as many bits a byte."""
    sets = {
        f"{name}-set": {
            "title": f"The {name} set",
            "domain": name,
            "nats_per_token": value,
            "bits_per_byte": value / 2,
            "items": 1234,
            "tokens": 56789,
            "bytes": 98765,
            "interval": [value - 0.1, value + 0.2],
            "truncated_prompts": 7,
            "truncated_targets": 3,
        }
        for name, value in nats.items()
    }
    kept = ("nats_per_token", "bits_per_byte", "interval")
    document = {
        "schema": 1,
        "evaluation": evaluation,
        "limit": None,
        "sets": sets,
        "domains": {e["domain"]: {k: e[k] for k in kept} for e in sets.values()},
        "unavailable": {},
    }
    return document | changes


def write_measures(
    folder: Path,
    probes: Iterable[Mapping[str, Any]] = (),
    domains: Mapping[str, Any] | None = None,
) -> Path:
    """Puts the documents where a cell keeps them."""
    (folder / "probes").mkdir(exist_ok=True)
    for document in probes:
        (folder / "probes" / f"{document['probe']}.json").write_text(json.dumps(document))
    if domains:
        (folder / "domains.json").write_text(json.dumps(domains))
    return folder


def noisy_probes(blocks: int) -> list[dict[str, Any]]:
    """All probes of a stack, with values that no image format can make small."""
    draw = random.Random(blocks)

    def matrix(size: int, low: float = 0.0) -> list[list[float]]:
        return [[draw.uniform(low, 1.0) for _ in range(size)] for _ in range(size)]

    def line(size: int) -> list[float]:
        return [draw.random() for _ in range(size)]

    late = {"late_states": 0.2, "late_outputs": 0.3}
    paths = matrix(2 * blocks + 1, -1.0)
    signed = {"scale": [-1.0, 1.0]}
    return [
        probe_document("angular", {"distance": matrix(blocks + 1), "across": line(blocks)}),
        probe_document("causal", {"states": matrix(blocks), "outputs": matrix(blocks)}, late),
        probe_document("permutation", {"score": matrix(blocks)}, {"late": 0.1}),
        probe_document("pruning", {"increase": line(blocks)}, {"least": 0.0, "most": 1.0}),
        probe_document("lens", {n: line(blocks + 1) for n in ("cross_entropy", "kl", "top5")}),
        probe_document("paths", {"weights": paths}, **signed),
        probe_document("transport", {n: line(2 * blocks) for n in ("effective_rank", "cosine")}),
        probe_document("dead-segment", {"weight": line(blocks)}, {"blocks": 1.0}),
        probe_document("representation", {n: line(blocks + 1) for n in ("effective", "stable")}),
    ]
