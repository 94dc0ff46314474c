"""Numbers as the page writes them, and the letters that explain what is blank."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from depthbench.report.lines import Spread

MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Value:
    """One table cell. A blank has a `reason` and the `letter` of its footnote.

    `share`: signed length of the bar behind the number, in [-1, 1]; `fill`: length of a bar that
    starts at the left, in [0, 1]; `reach`: both ends of a bar, each in [-1, 1] with zero in the
    middle. `links`: address and text of what is linked instead of `text`. `below`: a second line.
    `order`: what the table is sorted by instead of the text, `kind` what it is filtered by.
    """

    text: str
    title: str = ""
    reason: str = ""
    letter: str = ""
    share: float | None = None
    fill: float | None = None
    links: tuple[tuple[str, str], ...] = ()
    below: str = ""
    order: float | None = None
    kind: str = ""
    reach: tuple[float, float] | None = None

    @property
    def bar(self) -> tuple[float, float] | None:
        """Where the bar begins and ends, in per cent of its room."""
        if self.fill is not None:
            return 0.0, 100 * self.fill
        if self.share is not None:
            return 50 + 50 * min(self.share, 0.0), 50 + 50 * max(self.share, 0.0)
        if self.reach is None:
            return None
        low, high = self.reach
        middle, half = 50 + 25 * (low + high), max(25 * (high - low), 2.5)  # narrow ones are seen
        middle = min(max(middle, 2.5), 97.5)
        return middle - half, middle + half


@dataclass
class Footnotes:
    """A letter for every reason, in order of first use; long ones are cut."""

    reasons: dict[str, str] = field(default_factory=dict)

    def blank(self, reason: str) -> Value:
        reason = shortened(reason)
        letter = self.reasons.setdefault(reason, _letter(len(self.reasons)))
        return Value("—", reason=reason, letter=letter)


def shortened(text: str, length: int = 240) -> str:
    """The text, or its beginning."""
    return text if len(text) <= length else text[: length - 1] + "…"


def _letter(index: int) -> str:
    round_, place = divmod(index, 26)
    return chr(ord("a") + place) + (str(round_ + 1) if round_ else "")


def signed(value: float, digits: int = 4) -> str:
    """With its sign; what rounds to zero has none."""
    text = f"{value:+.{digits}f}"
    if not float(text):
        return text[1:]
    return text.replace("-", MINUS)


def mean_text(spread: Spread, digits: int = 4, sign: bool = False) -> str:
    """`mean ± deviation`, or the mean alone for one seed."""
    mean = signed(spread.mean, digits)
    if not sign:
        mean = mean.removeprefix("+")
    return mean if spread.sd is None else f"{mean} ± {spread.sd:.{digits}f}"


def count(value: float) -> str:
    """Whole up to four digits, else three digits and a unit: 1.50 M."""
    if float(value).is_integer() and abs(value) < 10_000:
        return f"{value:,.0f}"
    value = float(f"{value:.3g}")
    for factor, unit in (
        (1e21, "Z"),
        (1e18, "E"),
        (1e15, "P"),
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
    ):
        if abs(value) >= factor:
            return f"{value / factor:#.3g}".rstrip(".") + f"\N{NO-BREAK SPACE}{unit}"
    return f"{value:.3g}"


def number(value: float, digits: int = 3) -> str:
    """So many digits, with a minus sign."""
    return f"{value:.{digits}g}".replace("-", MINUS)


def count_range(values: Iterable[float]) -> str:
    """The count, or least and greatest."""
    low, high = (count(bound) for bound in _bounds(values))
    return low if low == high else f"{low} to {high}"


def _bounds(values: Iterable[float]) -> tuple[float, float]:
    known = list(values)
    return min(known), max(known)


def rank_range(rank: int, worst: int | None) -> str:
    """The first and the last rank that noise leaves open, or the only one."""
    return f"{rank}–{worst}" if worst is not None and worst != rank else str(rank)


def joined(names: Iterable[str]) -> str:
    """`a, b and c`."""
    *first, last = list(names) or [""]
    return f"{', '.join(first)} and {last}" if first else last


def spelled_seconds(seconds: float) -> str:
    """`12 s`, `3 min` or `2.5 h`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def duration(hours: float) -> str:
    """Three digits of seconds, minutes or hours."""
    seconds = 3600 * hours
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{hours:.3g} h"


def plain(value: float | str) -> str:
    """A setting as it was given."""
    return value if isinstance(value, str) else f"{value:g}"
