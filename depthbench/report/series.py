"""The lines of a figure: one per design as it was run, with its name and its look.

Families differ in hue, dash and, where families are many, both; within a family the shade and the
marker differ, so that no pair rests on colour alone.
"""

import colorsys
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import residuals
from depthbench.report.text import printable
from depthbench.store import Record

BASELINE = "pre-ln"
_FAMILIES = ("baseline", "norm", "streams", "access")
_DASHES = {"norm": (5, 2), "streams": None, "access": (5, 1.5, 1, 1.5)}
_HUES = {"norm": (0.51, 0.74), "streams": (0.0, 0.09), "access": (0.46, 0.3)}
_OTHER_HUES = ((0.86, 0.93), (0.12, 0.16), (0.8, 0.84))
MARKERS = "os^DvPX*<>pd"
PLAIN_INK = ("#1b1d21", "#f2f2ee")


@dataclass(frozen=True)
class Series:
    """One design with its version and options. `options` is JSON."""

    design: str
    version: int
    options: str

    @property
    def is_baseline(self) -> bool:
        """Pre-LN with its defaults, which every other series is compared to."""
        return self.design == BASELINE and self.options == "{}"


@dataclass(frozen=True)
class Look:
    """How a series is named and drawn. Colours are hex for light and dark ground."""

    label: str
    family: str
    summary: str
    light: str
    dark: str
    dash: tuple[float, ...] | None
    marker: str
    width: float


def series_of(record: Record) -> Series:
    return Series(record["design"], record["design_version"], record["options"])


def looks(records: Iterable[Record]) -> dict[Series, Look]:
    """The look of every series in `records`, the baseline first, then by family and name."""
    found = {series_of(record) for record in records}
    versions = Counter(design for design, _ in {(s.design, s.version) for s in found})
    named = {s: _describe(s, versions[s.design] > 1) for s in found}
    families = sorted({family for _, family, _ in named.values()}, key=_family_rank)
    result: dict[Series, Look] = {}
    for family in families:
        members = [s for s in found if named[s][1] == family]
        members.sort(key=lambda s: (not s.is_baseline, s.design, s.version, s.options))
        for place, series in enumerate(members):
            label, _, summary = named[series]
            light, dark = _colours(family, families, place, len(members))
            result[series] = Look(
                label=label,
                family=family,
                summary=summary,
                light=light,
                dark=dark,
                dash=None if series.is_baseline else _DASHES.get(family, (1.5, 1.5)),
                marker=MARKERS[place % len(MARKERS)],
                width=3.0 if series.is_baseline else 1.6,
            )
    return result


def _describe(series: Series, name_version: bool) -> tuple[str, str, str]:
    """Label, family and summary. A design that is not installed here goes by its bare name."""
    try:
        design = residuals.get(series.design)
    except residuals.DesignError:
        label, family, summary = series.design, "other", "a design that is not installed here"
    else:
        label, family, summary = design.title, design.family, design.summary()
    if name_version:
        label += f" @{series.version}"
    options = json.loads(series.options)
    if options:
        label += f" ({', '.join(f'{n}={json.dumps(v)}' for n, v in options.items())})"
    return printable(label), printable(family), printable(summary)


def _family_rank(family: str) -> tuple[int, str]:
    return (_FAMILIES.index(family) if family in _FAMILIES else len(_FAMILIES), family)


def _colours(family: str, families: list[str], place: int, count: int) -> tuple[str, str]:
    if family == "baseline" and place == 0:
        return PLAIN_INK
    others = [name for name in families if name not in _HUES]
    first, last = _HUES.get(family) or _OTHER_HUES[others.index(family) % len(_OTHER_HUES)]
    shade = place / max(1, count - 1)
    hue = first + (last - first) * shade
    lighter = place % 2  # neighbours in hue differ in lightness
    return hex_of(hue, 0.29 + 0.13 * lighter, 0.8), hex_of(hue, 0.6 + 0.14 * lighter, 0.65)


def hex_of(hue: float, lightness: float, saturation: float) -> str:
    """All three in 0 … 1."""
    parts = colorsys.hls_to_rgb(hue, lightness, saturation)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)
