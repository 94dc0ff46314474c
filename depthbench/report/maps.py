"""Heat maps as small images: one pixel a pair, one palette, blank where there is no pair."""

import base64
from functools import cache
from io import BytesIO

import matplotlib
import numpy as np
from PIL import Image

from depthbench.report.cells import Array

_LEVELS = 64  # shades: an eye tells no more apart, and the palette is part of every image
Limits = tuple[float, float]


@cache
def _palette(signed: bool) -> tuple[int, ...]:
    """Red, green, blue of every shade, and of none: from low to high, or through white at zero."""
    colours = matplotlib.colormaps["RdBu_r" if signed else "viridis"]
    rgb = colours(np.linspace(0.0, 1.0, _LEVELS))[:, :3]
    return (*(int(part) for part in (255 * rgb).round().astype(int).ravel()), 255, 255, 255)


def shades(values: Array, limits: Limits) -> Array:
    """Index of every value's shade; what lies beyond the limits gets the end, NaN the last + 1."""
    low, high = limits
    place = np.clip((values - low) / (high - low), 0.0, 1.0)
    return np.where(np.isnan(place), _LEVELS, np.round(place * (_LEVELS - 1)))


def png(values: Array, limits: Limits) -> bytes:
    """(rows, columns) as a PNG of as many pixels."""
    image = Image.fromarray(shades(values, limits).astype(np.uint8))
    image.putpalette(_palette(limits[0] < 0))
    file = BytesIO()
    image.save(file, format="png", transparency=_LEVELS, compress_level=1)
    return file.getvalue()


def data_uri(values: Array, limits: Limits) -> str:
    """The image as an address that asks for nothing."""
    return "data:image/png;base64," + base64.b64encode(png(values, limits)).decode()


def rgb(values: Array, limits: Limits) -> Array:
    """(rows, columns, 3) in 0 … 1, white where there is no pair: for a figure."""
    palette = np.array(_palette(limits[0] < 0)).reshape(-1, 3) / 255
    coloured: Array = palette[shades(values, limits).astype(int)]
    return coloured


def legend_uri(limits: Limits) -> str:
    """All shades from low to high, side by side."""
    return data_uri(np.linspace(*limits, _LEVELS)[None], limits)


def common_limits(scales: list[Limits | None], found: list[Array]) -> Limits:
    """The limits that all documents agree on, else what holds every value."""
    known = {scale for scale in scales if scale is not None}
    if len(known) == 1 and None not in scales:
        return known.pop()
    finite = np.concatenate([values[np.isfinite(values)] for values in found])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if low < 0:
        low, high = -max(-low, abs(high)), max(-low, abs(high))
    return (low, high) if high > low else (low, low + 1.0)
