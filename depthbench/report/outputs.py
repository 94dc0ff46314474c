"""Figures as files beside the page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from depthbench.report import canvas, figures
from depthbench.report.looped import Looped
from depthbench.report.panels import Panel
from depthbench.report.parts import Parts
from depthbench.report.plates import picture
from depthbench.report.rates import Rates
from depthbench.report.series import Look, Series

LOSS, DOMAINS, EFFICIENCY, PROBES = "loss_vs_aspect", "domains", "efficiency", "probes"
EXECUTED, COMPUTE, WORTH = "loss_vs_executed_depth", "loss_vs_compute", "worth_of_loops"
LOOPED_PROBES = "looped_probes"
TUNING = "tuning"


@dataclass(frozen=True)
class Names:
    """Stems of a section's files; empty where there is nothing to draw."""

    loss: str
    domains: list[str]
    efficiency: str
    probes: str


def names_of(sections: Sequence[Parts]) -> list[Names]:
    """The first section's files have plain names, those of others a number."""
    names, num_blocks = [], 0
    for number, parts in enumerate(sections, 1):
        blocks = []
        for _ in parts.blocks:
            num_blocks += 1
            blocks.append(_numbered(DOMAINS, num_blocks))
        names.append(
            Names(
                _numbered(LOSS, number) if parts.losses else "",
                blocks,
                _numbered(EFFICIENCY, number) if parts.costs else "",
                _numbered(PROBES, number) if parts.probes.columns else "",
            )
        )
    return names


@dataclass(frozen=True)
class LoopedNames:
    """Stems of a looped part's files; empty where there is nothing to draw."""

    executed: str
    compute: str
    worth: str
    probes: str


def looped_names(parts: Sequence[Looped]) -> list[LoopedNames]:
    """As `names_of`."""
    return [
        LoopedNames(
            _numbered(EXECUTED, number) if part.depth else "",
            _numbered(COMPUTE, number) if part.compute else "",
            _numbered(WORTH, number) if part.worth else "",
            _numbered(LOOPED_PROBES, number) if part.probes.columns else "",
        )
        for number, part in enumerate(parts, 1)
    ]


def rates_names(groups: Sequence[Rates]) -> list[str]:
    """As `names_of`; empty where no curve has a point."""
    return [
        _numbered(TUNING, number) if any(panel.values for panel in rates.panels) else ""
        for number, rates in enumerate(groups, 1)
    ]


@dataclass(frozen=True)
class Contents:
    """All parts of a report, each with the stems of its files."""

    sections: list[tuple[Parts, Names]]
    looped: list[tuple[Looped, LoopedNames]]
    rates: list[tuple[Rates, str]]


def all_pictures(contents: Contents, looks: Mapping[Series, Look]) -> Iterator[tuple[str, bytes]]:
    """Name and content of every figure file of a report."""
    for parts, names in contents.sections:
        yield from pictures(parts, names, looks)
    for part, stems in contents.looped:
        yield from looped_pictures(part, stems, looks)
    for rates, stem in contents.rates:
        drawn = [panel for panel in rates.panels if panel.values]
        yield from _files([(stem, drawn, canvas.MANY)], looks)


def _numbered(stem: str, number: int) -> str:
    return stem if number == 1 else f"{stem}-{number}"


def pictures(
    parts: Parts, names: Names, looks: Mapping[Series, Look]
) -> Iterator[tuple[str, bytes]]:
    """Name and content of every figure file of a section."""
    drawn = [
        (names.loss, parts.losses, canvas.WIDE),
        (names.efficiency, parts.costs, canvas.MANY),
    ]
    drawn += [
        (stem, panels, canvas.MANY)
        for stem, (_, panels) in zip(names.domains, parts.blocks, strict=True)
    ]
    yield from _files(drawn, looks)
    if names.probes:
        yield f"{names.probes}.png", picture(parts.probes, looks)


def looped_pictures(
    part: Looped, names: LoopedNames, looks: Mapping[Series, Look]
) -> Iterator[tuple[str, bytes]]:
    """Name and content of every figure file of a looped part."""
    worth = [part.worth] if part.worth else []
    stems = ((names.executed, part.depth), (names.compute, part.compute), (names.worth, worth))
    yield from _files([(stem, panels, canvas.MANY) for stem, panels in stems], looks)
    if names.probes:
        yield f"{names.probes}.png", picture(part.probes, looks)


def _files(
    drawn: Iterable[tuple[str, Sequence[Panel], canvas.Size]], looks: Mapping[Series, Look]
) -> Iterator[tuple[str, bytes]]:
    for stem, panels, size in drawn:
        if stem and panels:
            drawn_forms = figures.draw_forms(panels, looks, size, ("svg", "png"))
            yield from ((f"{stem}.{form}", content) for form, content in drawn_forms.items())
