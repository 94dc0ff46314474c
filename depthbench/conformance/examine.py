"""All checks in order, and asking a design each of them."""

import os
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from inspect import getsourcefile, getsourcelines
from typing import Any

import torch

from depthbench.conformance import (
    costs,
    looping,
    memory,
    numerics,
    parameters,
    paths,
    probing,
    tokens,
    training,
)
from depthbench.conformance.badge import source_files, source_hash
from depthbench.conformance.checks import (
    Check,
    ContractError,
    Finding,
    NotAskedError,
    Report,
    fail,
)
from depthbench.conformance.subject import Subject
from residuals import Design

ORDER = (
    *(parameters.forward, parameters.roles, memory.in_place, parameters.gradients),
    *(numerics.determinism, parameters.initialisation, tokens.causality, tokens.token_locality),
    *(tokens.incremental_decoding, memory.module_state, memory.growth),
    *(parameters.parameter_formula, costs.flop_formula),
    *(numerics.compiled, numerics.bf16, numerics.save_load, training.resume),
    *(numerics.checkpointing, probing.depth_state, probing.skip, probing.exchange),
    *(paths.path_weights, looping.whole_loop, looping.core_loop, looping.truncation),
    *(costs.memory, costs.speed),
)
CHECKS: dict[str, Check] = {each.name: each for each in ORDER}
"""What a check needs stands before it."""


def examine(
    subject: Subject,
    names: Iterable[str] | None = None,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Report:
    """All checks on a design, or those of these names; none of them can end the others.

    `progress` is told the design, how many checks are done, and of how many.
    The global random generator and the module's own settings are left as they were.
    """
    wanted = set(CHECKS if names is None else names)
    found: dict[str, Finding] = {}
    for each in CHECKS.values():
        progress(subject.design.name, len(found), len(wanted))
        if each.name in wanted:
            failed = [n for n in each.needs if n in found and found[n].passed is False]
            found[each.name] = (
                Finding(each.name, None, f"not asked, since {' and '.join(failed)} failed")
                if failed
                else _made(each, subject)
            )
    design = subject.design
    progress(design.name, len(found), len(wanted))
    return Report(
        design.name, design.version, subject.options, source_hash(design), tuple(found.values())
    )


def _made(each: Check, subject: Subject) -> Finding:
    try:
        with torch.random.fork_rng(devices=[]), _settings_kept():
            why = each.call(subject)
    except NotAskedError as reason:
        return Finding(each.name, None, str(reason))
    except ContractError as fault:
        where = _mentioned(subject.design, fault.mention) or _places(subject.design, each.methods)
        return Finding(each.name, False, str(fault), where)
    except (Exception, SystemExit) as error:
        first = str(error).strip().partition("\n")[0]
        why = f"{type(error).__name__}: {first}" if first else type(error).__name__
        where = _raised(subject.design, error) or _places(subject.design, each.methods)
        return Finding(each.name, False if each.judged else None, why, where)
    return Finding(each.name, True if each.judged else None, why)


@contextmanager
def _settings_kept() -> Iterator[None]:
    """Fails a design that changed torch's settings, and puts them back for whoever comes next."""
    before = _settings()
    try:
        yield
        changed = [name for name, value in _settings().items() if value != before[name]]
        if changed:
            fail(f"it changed torch's {' and '.join(changed)}, which is everybody's")
    finally:
        torch.set_default_dtype(before["default dtype"])
        torch.set_grad_enabled(before["grad mode"])
        torch.set_num_threads(before["number of threads"])


def _settings() -> dict[str, Any]:
    return {
        "default dtype": torch.get_default_dtype(),
        "grad mode": torch.is_grad_enabled(),
        "number of threads": torch.get_num_threads(),
    }


def _places(design: type[Design], methods: Iterable[str]) -> str:
    """`file.py:12 write` of each method that the design has of its own, else of the first."""
    owners = {m: next((c for c in design.__mro__ if m in vars(c)), None) for m in methods}
    own = [m for m, owner in owners.items() if owner is design] or list(owners)[:1]
    places = []
    for method in own:
        function = getattr(design, method)
        line = getsourcelines(function)[1]
        places.append(f"{os.path.basename(str(getsourcefile(function)))}:{line} {method}")
    return ", ".join(places)


def _mentioned(design: type[Design], name: str) -> str:
    """The first lines of the design's files that mention a name of it."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    found = [
        f"{file.name}:{number}"
        for file in source_files(design)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if name and word.search(line)
    ]
    return ", ".join(found[:3])


def _raised(design: type[Design], error: BaseException) -> str:
    """The deepest line of the design's files that an error came through, or that it speaks of."""
    own = {str(file) for file in source_files(design)}
    frames = [(f.filename, f.lineno, f.name) for f in traceback.extract_tb(error.__traceback__)]
    # The compiler's errors come from its own trace of the code.
    frames += re.findall(r'File "([^"]+)", line (\d+), in (\w+)', str(error))
    places = [f"{os.path.basename(file)}:{n} {name}" for file, n, name in frames if file in own]
    return places[-1] if places else ""
