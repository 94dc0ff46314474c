"""One picture for each probe: heat maps of what is pairwise, lines over depth of the rest."""

from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from depthbench.probes.registry import Probe

_PANEL = 3.6  # inches


def draw(probe: Probe, values: dict[str, Any]) -> bytes:
    """PNG with one panel for every named value, on the probe's scale where it has one."""
    width = _PANEL * len(values) + 0.6
    figure = Figure(figsize=(width, _PANEL))
    figure.subplots_adjust(0.55 / width, 0.12, 1 - 0.3 / width, 0.82, 0.3)  # a solver takes longer
    figure.suptitle(f"{probe.title} ({probe.unit})", fontsize=9)
    for axes, (name, found) in zip(
        np.atleast_1d(figure.subplots(1, len(values))), values.items(), strict=True
    ):
        array = np.array(found, dtype=float)  # None becomes NaN, which is left blank
        if array.ndim == 2:
            _heat_map(figure, axes, array, probe)
        else:
            axes.plot(np.arange(len(array)), array, marker=".", linewidth=1)
            if probe.scale:
                axes.set_ylim(*probe.scale)
        axes.set_ylabel(probe.axes[0], fontsize=7)
        axes.set_xlabel(probe.axes[1], fontsize=7)
        axes.set_title(name.replace("_", " "), fontsize=9)
        axes.tick_params(labelsize=7)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=array.ndim == 2))
    file = BytesIO()
    figure.savefig(file, format="png", dpi=110, metadata={"Software": None})
    return file.getvalue()


def _heat_map(figure: Figure, axes: Axes, array: NDArray[np.float64], probe: Probe) -> None:
    low, high = probe.scale or (None, None)
    colours = "RdBu_r" if low is not None and low < 0 else "viridis"
    image = axes.imshow(array, vmin=low, vmax=high, cmap=colours, interpolation="nearest")
    figure.colorbar(image, ax=axes, shrink=0.8, extend="both" if probe.scale else "neither")
