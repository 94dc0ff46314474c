"""Running a published row again, and saying whether its loss agrees."""

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
from depthbench.store import Record, records

SAME = ("cpu", "device", "threads", "platform", "python", "torch", "numpy", "depthbench")
"""What must agree for two runs to be equal bit by bit."""

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
        if wanted is None or row["digest"].startswith(wanted) or row["cell"].startswith(wanted)
    ]
    if len(found) == 1:
        return found[0]
    if wanted is not None and not found:
        from residuals import unknown  # imports torch: only once something is wrong

        raise InputError(unknown("row", wanted, [row["cell"] for row in done]))
    if not found:
        raise InputError("no row is done: only a finished run can be reproduced")
    some = ", ".join(row["cell"] for row in found[:4]) + (" …" if len(found) > 4 else "")
    raise InputError(
        f"{len(found)} finished rows are meant ({some}): choose one with --row, by the "
        "beginning of its cell or digest"
    )


def config_of(row: Record) -> CellConfig:
    """The whole experiment as the row carries it."""
    try:
        return CellConfig.model_validate_json(row.get("config") or "")
    except ValidationError as error:
        raise InputError(
            f"row {row['digest']} does not carry its configuration ({error.errors()[0]['msg']}): "
            "it was written by an older version; give the cell's folder"
        ) from None


def seed_noise(rows: Sequence[Record]) -> float | None:
    """Sample deviation of the loss between seeds (nats), pooled over all that has several."""
    groups: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for row in rows:
        if row["status"] == "done":
            key = [row[name] for name in ("design", "options", "loop", "layers", "d_model")]
            key += [row[name] for name in ("learning_rate", "tokens", "corpus_hash", "role")]
            groups[tuple(key)].append(row["loss"])
    several = [losses for losses in groups.values() if len(losses) > 1]
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

    `run` trains the cell in that folder. `noise`: deviation between seeds in nats; two runs on
    different machines agree if they are within its 95 % for a difference, 1.96·√2·noise.
    """
    config = config_of(row)
    if config.digest() != row["digest"]:
        raise InputError(
            f"row {row['digest']} carries the configuration of {config.digest()}: it was changed "
            "after it was written"
        )
    folder = out / config.folder_name()
    run(config.model_copy(update={"measures": Measures()}), folder)
    (again,) = records([folder])
    if again["status"] != "done":
        raise DepthbenchError(
            f"{folder} is {again['status']}, where the published row is done: {again['error']}"
        )
    differing = {name: (row[name], again[name]) for name in SAME if row[name] != again[name]}
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
