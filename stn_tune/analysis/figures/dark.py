"""Figures on dark paper: the colour that stands for each colour of a light figure."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np

from stn_tune.analysis.figures.style import BLUES, RAMP, SEQUENTIAL, scale
from stn_tune.plotting import contrast, linear_rgb, luminance

PAPER = "#14171a"
LEAST = 4.5
"""The contrast that WCAG AA asks for; lines get it, too."""
NEUTRAL = 24
"""Of 255: a colour whose channels differ by less is a grey."""


@cache
def on_dark(colour: str) -> str:
    """The colour for dark paper: greys and the shades of a scale are inverted, other colours at most lightened."""
    if colour.lower() == "#ffffff":
        return PAPER
    if _is_grey(colour) or colour.lower() in _shades():
        return _with_luminance(colour, _inverted(luminance(colour)))
    for share in np.linspace(0.0, 1.0, 51):
        lighter = _hex(linear_rgb(colour) * (1 - share) + share)
        if contrast(lighter, PAPER) >= LEAST:
            return lighter
    raise AssertionError(colour)


def dark_svg(svg: str) -> str:
    """A drawing as matplotlib writes it, on dark paper."""
    body = re.sub(r"(?<=[ :])#[0-9a-fA-F]{6}\b", lambda colour: on_dark(colour[0]), svg)
    return body.replace("<svg ", f'<svg style="fill: {on_dark("#000000")}" ', 1)


@cache
def _shades() -> frozenset[str]:
    import matplotlib as mpl

    maps = [scale(SEQUENTIAL), scale(*BLUES), scale(*RAMP)]
    return frozenset(mpl.colors.to_hex(colour) for colours in maps for colour in colours.colors)


def _is_grey(colour: str) -> bool:
    channels = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    return max(channels) - min(channels) < NEUTRAL


def _inverted(y: float) -> float:
    """The luminance whose lightness (CIE L*) is low where that of ``y`` is high: black becomes 96, white 7."""
    lightness = 116 * np.cbrt(y) - 16 if y > 0.008856 else 903.3 * y
    mirrored = 96 - 0.89 * lightness
    return float(((mirrored + 16) / 116) ** 3 if mirrored > 8 else mirrored / 903.3)


def _with_luminance(colour: str, y: float) -> str:
    """The colour, mixed with black or with white until it has that luminance."""
    linear = linear_rgb(colour)
    own = luminance(colour)
    return _hex(linear * (y / own) if y < own else linear + (y - own) / (1 - own) * (1 - linear))


def _hex(linear: Any) -> str:
    channels = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return "#" + "".join(f"{round(255 * float(np.clip(c, 0, 1))):02x}" for c in channels)
