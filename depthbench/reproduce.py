"""Running a published row again, and saying whether its loss agrees."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import variance
from typing import Literal

from pydantic import ValidationError

from depthbench.config import CellConfig, Measures
from depthbench.errors import DepthbenchError, InputError
from depthbench.folder import FINISHED, CellFolder
from depthbench.store import Record, records

SAME = ("cpu", "device", "ranks", "threads", "platform", "python", "torch", "numpy", "depthbench")
"""What must agree for two runs to be equal bit by bit."""
HOW_IT_RAN = ("threads", "ranks", "activation_checkpointing", "deterministic", "tuned", "measures")
"""What of a configuration changes no loss beyond rounding."""

Verdict = Literal["bitwise", "within noise", "differs", "unknown"]


@dataclass(frozen=True)
class Reproduction:
    """`differing`: fields of the environment, with the value then and now."""

    digest: str
    published: float
    loss: float
    verdict: Verdict
    text: str
    noise: float | None
    differing: dict[str, tuple[str | None, str | None]]

    @property
    def agrees(self) -> bool:
        return self.verdict in ("bitwise", "within noise")


def choose(rows: Sequence[Record], wanted: str | None) -> Record:
    """The finished row whose digest or cell begins with `wanted`; of one row, that.

    Raises `InputError` if none or several are meant.
    """
    done = [row for row in rows if row["status"] == "done"]
    found = [
        row
        for row in done
        if wanted is None or any(name.startswith(wanted) for name in _names(row))
    ]
    if len(found) == 1:
        return found[0]
    if wanted is not None and not found:
        from residuals import unknown  # imports torch: only once something is wrong

        raise InputError(unknown("row", wanted, [_names(row)[0] for row in done]))
    if not found:
        raise InputError("no row is done: only a finished run can be reproduced")
    some = ", ".join(_names(row)[0] for row in found[:4]) + (" …" if len(found) > 4 else "")
    raise InputError(
        f"{len(found)} finished rows are meant ({some}): choose one with --row, by the "
        "beginning of its cell or digest"
    )


def _names(row: Record) -> tuple[str, str]:
    return str(row.get("cell") or row.get("digest") or ""), str(row.get("digest") or "")


def config_of(row: Record) -> CellConfig:
    """The whole experiment as the row carries it, whose loss can be one.

    Raises `InputError` if there is none, or if row and configuration do not belong together.
    """
    name, digest = _names(row)
    try:
        config = CellConfig.model_validate_json(row.get("config") or "")
    except ValidationError as error:
        raise InputError(
            f"row {name} does not carry its configuration ({error.errors()[0]['msg']}): it was "
            "written by an older version; give the cell's folder"
        ) from None
    if config.digest() != digest:
        raise InputError(
            f"row {name} has the digest {digest!r} and carries the configuration of "
            f"{config.digest()}: it was changed after it was written"
        )
    loss = row["loss"]
    if not isinstance(loss, float | int) or not math.isfinite(loss) or loss < 0:
        raise InputError(f"row {name} has the loss {loss!r}, which no finished run has")
    return config


def seed_noise(rows: Sequence[Record]) -> float | None:
    """Sample deviation of the loss between seeds in nats, pooled over all that has several.

    Alike are rows whose whole configuration is, but for the seed.
    """
    groups: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        if row["status"] == "done":
            try:
                config = config_of(row)
            except InputError:  # of an older version, or damaged: it tells nothing of noise
                continue
            alike = config.model_dump(exclude={"seed", *HOW_IT_RAN})
            groups[json.dumps(alike, sort_keys=True)].setdefault(config.seed, row["loss"])
    several = [list(losses.values()) for losses in groups.values() if len(losses) > 1]
    freedom = sum(len(losses) - 1 for losses in several)
    if not freedom:
        return None
    return math.sqrt(sum((len(x) - 1) * variance(x) for x in several) / freedom)


def reproduce(
    row: Record,
    out: Path,
    run: Callable[[CellConfig, Path], object],
    noise: float | None = None,
) -> Reproduction:
    """Trains the row's cell in a folder under `out`, without its measures, and compares the losses.

    `run` trains the cell in that folder, which is refused if a finished run lies there. `noise`:
    deviation between seeds in nats; two runs on different machines agree if they are within its
    95 % for a difference, 1.96·√2·noise.
    """
    config = config_of(row)
    folder = out / config.folder_name()
    if CellFolder(folder).status() in FINISHED:
        raise InputError(
            f"{folder} holds a finished run already, and a run that is not made anew proves "
            "nothing: move it away, or choose another --out"
        )
    run(config.model_copy(update={"measures": Measures()}), folder)
    (again,) = records([folder])
    if again["status"] != "done":
        raise DepthbenchError(
            f"{folder} is {again['status']}, where the published row is done: {again['error']}"
        )
    now = {name: again[name] for name in SAME}
    then = {name: row.get(name) for name in SAME}
    then["ranks"] = then["ranks"] or 1  # rows of before there were several do not say so
    differing = {name: (then[name], now[name]) for name in SAME if then[name] != now[name]}
    return judged(row["digest"], row["loss"], again["loss"], differing, noise)


def judged(
    digest: str,
    published: float,
    loss: float,
    differing: dict[str, tuple[str | None, str | None]],
    noise: float | None,
) -> Reproduction:
    """The verdict on two losses."""
    gap = abs(loss - published)
    verdict: Verdict
    if gap == 0:
        verdict, text = "bitwise", f"the loss is {loss!r} again, bit for bit"
    elif not differing:
        verdict = "differs"
        text = (
            f"the loss is {loss!r} and was {published!r}, {gap:.2g} nats apart, though machine and "
            "versions are the same: the run depends on something that its row does not record"
        )
    else:
        where = ", ".join(differing)
        text = f"{gap:.2g} nats apart, on another {where}"
        if noise is None:
            verdict = "unknown"
            text += ": without repeated seeds there is no noise to compare with; give --noise"
        else:
            reach = 1.96 * math.sqrt(2) * noise
            verdict = "within noise" if gap <= reach else "differs"
            text += f"; two seeds differ by up to {reach:.2g} in 95 % of cases"
    return Reproduction(digest, published, loss, verdict, text, noise, differing)
