"""Every design for a few steps on a device, held against the same cells in fp32 on the CPU.

What differs between a cell and its reference is the device and how it is run there, so that a
difference beyond rounding is a fault of a kernel, a driver or this program.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from depthbench.config import CellConfig, Ranks
from depthbench.errors import DepthbenchError, InputError
from depthbench.folder import CellFolder, read_metrics
from residuals import unknown

REFERENCE = "reference"
_ON_CPU = {
    "device": "cpu",
    "precision": "fp32",
    "compile": False,
    "activation_checkpointing": False,
    "deterministic": False,
    "ranks": Ranks(),
}


@dataclass(frozen=True)
class Tolerance:
    """`loss`: nats, at any step and on held-out text. `gradient`: of the first step's norm."""

    loss: float
    gradient: float


# bf16: five times what a CPU shows between the two. fp32: far above what another kernel does there
# (1e-6), and below what attention without rotation (7e-4) or scale (1.5e-3) would.
_ROUNDED = Tolerance(loss=0.01, gradient=0.02)
_EXACT = Tolerance(loss=1e-4, gradient=1e-4)


@dataclass(frozen=True)
class Variant:
    """One way to run the cells on the device.

    `everywhere`: at every shape, one cell at a time, so that speeds can be compared; else at the
    first shape, several at once.
    """

    changes: Mapping[str, Any]
    tolerance: Tolerance
    everywhere: bool = False


VARIANTS = {
    "bf16": Variant({"precision": "bf16"}, _ROUNDED, everywhere=True),
    "fp32": Variant({"precision": "fp32", "deterministic": True}, _EXACT),
    "checkpointing": Variant({"precision": "bf16", "activation_checkpointing": True}, _ROUNDED),
    "compiled": Variant({"precision": "bf16", "compile": "blocks"}, _ROUNDED),
}


@dataclass(frozen=True)
class Row:
    """A cell on the device beside its reference; losses of held-out text in nats per token.

    `difference` is the largest between losses of the two, at any step or at the end; `gradient` is
    that of the first step's gradient norm, relative. None: not both cells got there.
    """

    variant: str
    design: str
    shape: str
    loss: float | None
    cpu_loss: float | None
    difference: float | None
    gradient: float | None
    tolerance: Tolerance
    tokens_per_second: float | None
    peak_memory_bytes: int | None
    hardware: str | None
    error: str | None

    @property
    def agrees(self) -> bool:
        """Whether the cells are the same function up to rounding."""
        if self.error or self.difference is None or self.gradient is None:
            return False
        return self.difference <= self.tolerance.loss and self.gradient <= self.tolerance.gradient

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"agrees": self.agrees}


Train = Callable[[Sequence[CellConfig], Path, bool], object]
"""Trains cells in folders under a path; true: only one at a time on the device."""


def smoke(
    cells: Sequence[CellConfig], out: Path, train: Train, variants: Sequence[str] = ()
) -> list[Row]:
    """Trains `cells` as references and in the variants (default: all), and compares.

    Of the cells `device` counts, and what a variant does not set. A cell that fails or diverges is
    a row that does not agree. Raises what `check` raises.
    """
    check(cells[0].device, variants)
    train([_as_reference(cell) for cell in cells], out / REFERENCE, False)
    rows = []
    for name in variants or VARIANTS:
        variant = VARIANTS[name]
        asked = [c for c in cells if variant.everywhere or c.shape == cells[0].shape]
        run = [cell.model_copy(update=dict(variant.changes)) for cell in asked]
        train(run, out / name, variant.everywhere)
        rows += [_row(name, variant.tolerance, cell, out) for cell in run]
    return rows


def check(device: str, variants: Sequence[str]) -> None:
    """Raises `InputError` for an unknown variant, or a device that torch cannot use here."""
    for name in variants:
        if name not in VARIANTS:
            raise InputError(unknown("variant", name, VARIANTS))
    if device != "cpu" and not torch.get_device_module(torch.device(device)).is_available():
        raise InputError(
            f"device {device!r} is not there, or this build of torch is not for it: "
            "`depthbench doctor` says what is; choose another with --device"
        )


def _as_reference(cell: CellConfig) -> CellConfig:
    return cell.model_copy(update=_ON_CPU)


@dataclass(frozen=True)
class _Run:
    """What a cell's folder says: losses and tokens by step, and the result."""

    records: list[dict[str, Any]]
    result: dict[str, Any]

    @classmethod
    def of(cls, cell: CellConfig, folder: Path) -> "_Run":
        path = CellFolder(folder / cell.folder_name())
        try:
            records = [r for r in read_metrics(path.metrics_path) if "loss" in r]
            return cls(records, path.result() or {"status": "not run"})
        except DepthbenchError as error:
            return cls([], {"status": "failed", "error": str(error)})

    @property
    def loss(self) -> float | None:
        """On held-out text, at the end."""
        return (self.result.get("measures") or {}).get("loss")

    @property
    def error(self) -> str | None:
        """Why there is no loss."""
        if self.loss is not None:
            return None
        return self.result.get("error") or f"the cell is {self.result['status']}"

    @property
    def tokens_per_second(self) -> float | None:
        """Over the second half of the steps: the first ones compile kernels and find memory."""
        if len(self.records) < 2:
            return None
        middle, last = self.records[(len(self.records) - 1) // 2], self.records[-1]
        seconds = last["elapsed"] - middle["elapsed"]
        return (last["tokens"] - middle["tokens"]) / seconds if seconds > 0 else None


def _row(name: str, tolerance: Tolerance, cell: CellConfig, out: Path) -> Row:
    here = _Run.of(cell, out / name)
    there = _Run.of(_as_reference(cell), out / REFERENCE)
    error = here.error or (there.error and f"the reference: {there.error}")
    ledger = here.result.get("ledger") or {}
    return Row(
        variant=name,
        design=cell.design.name,
        shape=f"L{cell.shape.layers} d{cell.shape.d_model}",
        loss=here.loss,
        cpu_loss=there.loss,
        difference=None if error else _difference(here, there),
        gradient=None if error else _gradient(here, there),
        tolerance=tolerance,
        tokens_per_second=here.tokens_per_second,
        peak_memory_bytes=ledger.get("peak_memory_bytes"),
        hardware=(here.result.get("environment") or {}).get("device"),
        error=error,
    )


def _difference(here: _Run, there: _Run) -> float | None:
    """Largest of all steps and the end; None if the two did not log the same steps."""
    if [r["step"] for r in here.records] != [r["step"] for r in there.records]:
        return None
    pairs = [(a["loss"], b["loss"]) for a, b in zip(here.records, there.records, strict=True)]
    pairs.append((here.loss, there.loss))
    return float(max(abs(a - b) for a, b in pairs))


def _gradient(here: _Run, there: _Run) -> float | None:
    """AdamW hides the scale of gradients from losses, so it is looked at by itself."""
    if not (here.records and there.records):
        return None
    norm, reference = (run.records[0]["grad_norm"] for run in (here, there))
    return abs(float(norm) / float(reference) - 1) if norm and reference else None
