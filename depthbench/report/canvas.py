"""What all figures share: colours, fonts, sizes, and how they are saved."""

from dataclasses import dataclass
from io import BytesIO
from typing import Any, Literal

from matplotlib.figure import Figure

INK, MUTED, RULE = "#1a1c20", "#666b73", "#d8dbe0"
RC: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "depthbench",
    "font.family": ["DejaVu Sans", "sans-serif"],
    "text.parse_math": False,  # a design may be named with a dollar sign
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
Form = Literal["svg", "png"]


@dataclass(frozen=True)
class Size:
    """Width and height in CSS pixels, font size, whether lines are named at their right
    end, how many panels stand side by side
    in a file, the resolution of its PNG, and whether a key under the panels names the lines."""

    width: int
    height: int
    font: float
    labels: bool
    columns: int = 3
    dpi: int = 150
    key: bool = False

    @property
    def plot(self) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of the plot itself."""
        left, bottom = 5.4 * self.font, 5 * self.font
        right = 138 if self.labels else 2.6 * self.font
        return left, bottom, self.width - left - right, self.height - bottom - 30


WIDE = Size(640, 460, 11.5, labels=True)
COMPACT = Size(350, 330, 10.0, labels=False)
SMALL = Size(350, 260, 10.0, labels=False)
MANY = Size(350, 260, 10.0, labels=False, dpi=110, key=True)


def saved(figure: Figure, form: Form, dpi: int = 150) -> bytes:
    """The file's bytes, the same for the same figure."""
    file = BytesIO()
    metadata = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
    ground = "none" if form == "svg" else "white"
    fast: Any = {"pil_kwargs": {"compress_level": 1}} if form == "png" else {}
    figure.savefig(file, format=form, dpi=dpi, metadata=metadata, facecolor=ground, **fast)
    return file.getvalue()
