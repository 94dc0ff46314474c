"""Designs by name. One decorator adds a design; no list has to be edited.

A design is found in this folder, in a file given by path, or in an installed package that announces
it under the entry-point group `depthbench.residuals`. Ids are `name` (the newest version) or
`name@version`.
"""

import importlib
import pkgutil
import re
import sys
import warnings
from functools import cache
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isabstract
from pathlib import Path
from typing import Any, TypeVar

from residuals.contract import Design, Stack
from residuals.errors import DesignError, unknown

NAME = r"[a-z0-9]+(-[a-z0-9]+)*"
ENTRY_POINTS = "depthbench.residuals"
PLUGIN = "residuals_plugin_"
D = TypeVar("D", bound=Design)
_designs: dict[tuple[str, int], type[Design]] = {}
_broken: dict[str, str] = {}


def register(design: type[D]) -> type[D]:
    """Class decorator: makes the design known by its name and version."""
    for attribute in ("name", "title", "version", "family", "paper"):
        if not hasattr(design, attribute):
            raise DesignError(f"design {design.__name__} has no {attribute!r}: set the attribute")
    if not re.fullmatch(NAME, design.name):
        raise DesignError(
            f"the design's name {design.name!r} must be lowercase words of letters and digits, "
            "joined by single dashes: it names folders"
        )
    if type(design.version) is not int or design.version < 1:
        raise DesignError(
            f"design {design.name!r} has version {design.version!r}: give a whole number from 1 on"
        )
    if isabstract(design):
        missing = ", ".join(sorted(design.__abstractmethods__))
        raise DesignError(f"design {design.name!r} lacks {missing}: write the method")
    if not design.summary():
        raise DesignError(f"design {design.name!r} has no docstring: name paper and equation in it")
    key = (design.name, design.version)
    known = _designs.get(key)
    if known is not None and not _again(known, design):
        raise DesignError(
            f"design {design.name}@{design.version} is registered twice, by {_origin(known)} and "
            f"{_origin(design)}: rename one or raise its version"
        )
    _designs[key] = design
    return design


def _origin(design: type[Design]) -> str:
    return f"{design.__module__}.{design.__qualname__}"


def _again(known: type[Design], design: type[Design]) -> bool:
    """Whether a module that is executed again defines its class again, as notebooks do.

    A file is taken out before it is loaded again, so what is met there stands twice in it.
    """
    return _origin(known) == _origin(design) and not known.__module__.startswith(PLUGIN)


@cache
def _discover() -> None:
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"residuals.{module.name}")
    for entry in entry_points(group=ENTRY_POINTS):
        before = dict(_designs)
        try:
            _load_entry(entry)
        except Exception as error:
            # One package must not take away everybody else's designs; half of it is not a plugin.
            _designs.clear()
            _designs.update(before)
            package = entry.dist.name if entry.dist else entry.module
            _broken[package] = (
                f"the installed package {package!r} announces the designs of {entry.value!r}, "
                f"which cannot be loaded ({type(error).__name__}: {error}): they are left out; "
                "repair or uninstall the package"
            )
            warnings.warn(_broken[package], stacklevel=2)


def _load_entry(entry: EntryPoint) -> None:
    entry.load()
    package = entry.module.partition(".")[0]
    if not any(design.__module__.partition(".")[0] == package for design in _designs.values()):
        raise DesignError("it registers no design: decorate its class with @register")


def broken_packages() -> dict[str, str]:
    """Installed packages whose designs cannot be loaded, and for each what is wrong with it."""
    _discover()
    return dict(_broken)


def load_plugin(path: Path | str) -> list[type[Design]]:
    """The designs that a Python file registers. Raises `DesignError` if it cannot be imported."""
    _discover()  # first, so that a name that is taken already is the file's fault
    file = Path(path).resolve()
    if not file.is_file():
        raise DesignError(f"no design file at {file}: give the path of a Python file")
    # The name is a function of the path: loading a file again replaces its own designs only.
    name = f"{PLUGIN}{sha256(str(file).encode()).hexdigest()[:12]}"
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise DesignError(f"{file} is not a Python file: a design is one .py file")
    before = dict(_designs)
    for key in [key for key, design in _designs.items() if design.__module__ == name]:
        del _designs[key]
    module = module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses and the compiler look a module up
    try:
        spec.loader.exec_module(module)
        own = [design for design in _designs.values() if design.__module__ == name]
        if not own:
            raise DesignError(f"{file} registers no design: decorate its class with @register")
    except (Exception, SystemExit) as error:
        # Half of a file is not a plugin.
        del sys.modules[name]
        _designs.clear()
        _designs.update(before)
        if isinstance(error, DesignError):
            raise
        raise DesignError(f"{file} fails when imported: {type(error).__name__}: {error}") from error
    return own


def all_designs() -> list[type[Design]]:
    """Newest version of every design, by family in order of discovery, then by name."""
    _discover()
    newest: dict[str, type[Design]] = {}
    for (name, version), design in sorted(_designs.items(), key=lambda item: item[0]):
        if name not in newest or version > newest[name].version:
            newest[name] = design
    return sorted(newest.values(), key=lambda d: (_family_rank(d.family), d.name))


def names(family: str | None = None) -> list[str]:
    """Names of all designs, or of one family."""
    return [d.name for d in all_designs() if family is None or d.family == family]


def get(identifier: str) -> type[Design]:
    """Design class for `name` or `name@version`. Raises `DesignError` with the nearest names."""
    _discover()
    name, _, wanted = identifier.partition("@")
    versions = sorted(version for known, version in _designs if known == name)
    if not versions:
        sentence = unknown("design", name, {known for known, _ in _designs})
        raise DesignError("\n".join((sentence, *_broken.values())))
    if not wanted:
        return _designs[name, versions[-1]]
    if not wanted.isdigit() or int(wanted) not in versions:
        have = ", ".join(f"{name}@{v}" for v in versions)
        raise DesignError(f"unknown version {wanted!r} of design {name!r}: there is {have}")
    return _designs[name, int(wanted)]


def build(identifier: str, stack: Stack, **options: Any) -> Design:
    """A design for `stack`. Unknown options are refused with the nearest name."""
    design = get(identifier)
    for option in options:
        if option not in design.option_defaults():
            raise DesignError(
                unknown(f"option of design {design.name!r}", option, design.option_defaults())
            )
    return design(stack, **options)


def _family_rank(family: str) -> tuple[int, str]:
    order = ("baseline", "norm", "streams", "access")
    return (order.index(family) if family in order else len(order), family)
