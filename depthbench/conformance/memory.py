"""Does a design keep anything between calls?"""

import gc
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from copy import deepcopy
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from depthbench.conformance.checks import check, fail
from depthbench.conformance.subject import Subject
from depthbench.conformance.tiny import branch, summed_nll, tokens_of
from depthbench.model.decoder import Decoder
from residuals import Design

DEPTH = 6
CONTAINERS = (list, tuple, set, frozenset, dict, deque)
_OWN_OF_MODULES = frozenset(vars(nn.Module()))


@check("in-place", "read", "write", needs=("forward",))
@torch.no_grad()
def in_place(subject: Subject) -> str:
    """Do `read` and `write` leave the tensors that they are given as they are?"""
    model = subject.moved()
    design, seq = model.design, model.sequence(9)
    state = design.start(model.embedding(tokens_of()))
    for visit in range(design.stack.num_visits):
        before = tuple(tensor.clone() for tensor in state)
        x, carry = design.read(visit, visit, state)
        if not all(map(torch.equal, state, before)):
            fail(f"read changes the state at visit {visit}: others hold these tensors, add anew")
        y, carry = branch(model, visit, x, carry, seq)
        given = y.clone()
        after = design.write(visit, visit, carry, y)
        if not all(map(torch.equal, state, before)) or not torch.equal(y, given):
            fail(f"write changes what it is given at visit {visit}: others hold it, add anew")
        state = after
    return "through all sublayers, in float64"


@check("module-state", "start", "read", "attend", "write", "finish")
def module_state(subject: Subject) -> str:
    """Does a forward leave the module as it was, and do forwards not see each other?"""
    model, tokens = subject.moved(), tokens_of(1, 11)  # a shape that no other check has
    fresh, before = deepcopy(model), snapshot(model)
    first = model.logits(tokens)
    after = snapshot(model)
    changed, longer = changes(before, after)
    model.logits(tokens)
    _, growing = changes(after, snapshot(model))
    changed += [place for place in longer if place not in growing]  # those are `growth`'s
    if changed:
        fail(f"a forward changes {', '.join(changed[:3])}: pass it in state or carry", changed[0])
    others = model.logits(tokens_of(3, 5, seed=8))
    if not torch.equal(model.logits(tokens), first):
        fail("the same tokens give other logits after another batch has been seen")
    if not torch.equal(fresh.logits(tokens_of(3, 5, seed=8)), others):
        fail("a batch gives other logits when it comes first: something of the other is kept")
    return "attributes, buffers and globals stay; batches in turn do not see each other"


@check("growth", "start", "read", "attend", "write", "finish", needs=("forward", "in-place"))
def growth(subject: Subject) -> str:
    """Does nothing accumulate from one forward to the next?"""
    model = subject.single()
    summed_nll(model).backward()
    before = snapshot(model)
    counts = []
    gc.freeze()  # what is there already is not looked at again
    try:
        for _ in range(3):
            summed_nll(model).backward()
            gc.collect()
            counts.append(sum(issubclass(type(each), Tensor) for each in gc.get_objects()))
    finally:
        gc.unfreeze()
    _, grown = changes(before, snapshot(model))
    if grown:
        fail(f"{', '.join(grown[:3])} grows with every forward: pass it in the state", grown[0])
    if counts[0] < counts[1] < counts[2]:
        fail(f"each forward leaves {counts[2] - counts[1]} tensors behind")
    return "three training steps leave no tensor and no longer list behind"


Snapshot = dict[str, tuple[str, Any]]


def snapshot(model: Decoder) -> Snapshot:
    """Everything in which a design could keep something, by place: kind and value."""
    seen: Snapshot = {}
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if key not in _OWN_OF_MODULES:
                _describe(f"{name}.{key}", value, seen)
        for kind in (module._parameters, module._buffers):
            for key, tensor in kind.items():
                _describe(f"{name}.{key}", None if tensor is None else tensor.detach(), seen)
    for owner in type(model.design).__mro__:
        if issubclass(owner, Design) and owner is not Design:
            _describe_class(owner, seen)
    return seen


def _describe_class(owner: type[Design], seen: Snapshot) -> None:
    """Class attributes, what functions remember, and the globals of the file."""
    in_file = vars(sys.modules[owner.__module__])
    for name, value in (*vars(owner).items(), *in_file.items()):
        place = f"{owner.__name__}.{name}" if name in vars(owner) else name
        if isinstance(value, FunctionType):
            _describe(place, list(_remembered(value)), seen)
        elif isinstance(value, (*CONTAINERS, Tensor, int, float)) and not name.startswith("__"):
            _describe(place, value, seen)


def _remembered(function: FunctionType) -> Iterator[Any]:
    """Default arguments and captured variables."""
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for cell in function.__closure__ or ():
        if isinstance(cell.cell_contents, (*CONTAINERS, Tensor, int, float)):
            yield cell.cell_contents


def _describe(place: str, value: Any, seen: Snapshot, depth: int = 0) -> None:
    if isinstance(value, Tensor):
        content = value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        seen[place] = (f"{value.dtype} {tuple(value.shape)}", content)
    elif isinstance(value, CONTAINERS):
        if isinstance(value, Mapping):
            items: Any = value.items()
        else:
            items = enumerate(sorted(value, key=repr) if isinstance(value, set) else value)
        seen[place] = ("container", len(value))
        for key, item in items if depth < DEPTH else ():
            _describe(f"{place}.{key}", item, seen, depth + 1)
    elif isinstance(value, str | int | float | None):
        seen[place] = (type(value).__name__, value)
    else:
        seen[place] = (type(value).__name__, id(value))
        if hasattr(value, "__dict__") and not isinstance(value, nn.Module | type | FunctionType):
            for key, item in vars(value).items() if depth < 2 else ():
                _describe(f"{place}.{key}", item, seen, depth + 1)


def changes(before: Snapshot, after: Snapshot) -> tuple[list[str], list[str]]:
    """Places whose value is another one, and containers that got longer."""
    grown, changed = list[str](), list[str]()
    for place, (kind, value) in after.items():
        if any(place.startswith(f"{longer}.") for longer in grown):
            continue
        was = before.get(place)
        if was == (kind, value):
            continue
        if was is not None and kind == was[0] == "container" and value > was[1]:
            grown.append(place)
        else:
            changed.append(place)
    return changed, grown
