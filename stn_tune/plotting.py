"""How figures look: colours that colour-blind readers can tell apart, text dark enough to read, labels at line ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stn_tune.record import Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

LOG_RATIO = 30.0
GREY = "#5f6368"
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#8C6D1F")
"""Okabe and Ito's colours, with brown instead of yellow, which is hard to see on white."""

TEXT_CONTRAST = 5.0
"""Of text on white. WCAG AA asks for 4.5; a little more also leaves room for it on dark paper."""

DASHES: dict[str, Any] = {
    "solid": "-",
    "dashed": (0, (5, 1.5)),
    "dotted": (0, (1.2, 1.2)),
    "dashdot": (0, (6, 1.5, 1.2, 1.5)),
}
"""The names of :class:`~stn_tune.record.Style`, as matplotlib writes them."""

STYLES = tuple(Style(colour, dash) for dash in DASHES for colour in PALETTE)
RC: dict[str, Any] = {
    "axes.grid": True,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "figure.autolayout": False,
    "figure.constrained_layout.use": False,
    "figure.dpi": 100,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "font.size": 9,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "pdf.fonttype": 42,
    "savefig.dpi": 144,
    "svg.fonttype": "none",
    "svg.hashsalt": "stn_tune",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}

NARROW = 3.9
"""Inches: a figure of this width can be read on a phone."""
_widest: ContextVar[float] = ContextVar("widest", default=float("inf"))


class LineEnd(NamedTuple):
    """The last point of a line, what to write beside it, and the id of its series on a page."""

    x: float
    y: float
    text: str
    style: Style
    series: str = ""


@contextmanager
def narrow_figures() -> Iterator[None]:
    """Inside it, new figures are at most :data:`NARROW` wide, and have one panel in a row."""
    token = _widest.set(NARROW)
    try:
        yield
    finally:
        _widest.reset(token)


def is_narrow() -> bool:
    """Whether figures are drawn for a phone."""
    return _widest.get() <= NARROW


def look(style: Style) -> dict[str, Any]:
    """A style as matplotlib's keywords."""
    return {"color": style.colour, "ls": DASHES.get(style.dash, style.dash)}


def linear_rgb(colour: str) -> NDArray[np.float64]:
    """Red, green and blue of a hex code as shares of light, without sRGB's gamma."""
    channels = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    """The relative luminance of a colour, as WCAG defines it: 0 for black, 1 for white."""
    return float(linear_rgb(colour) @ [0.2126, 0.7152, 0.0722])


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours, as WCAG defines it: 1 to 21."""
    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def readable(colour: str) -> str:
    """The colour, darkened until text in it can be read on white."""
    import matplotlib as mpl

    red, green, blue = mpl.colors.to_rgb(colour)
    for share in np.linspace(1.0, 0.0, 41):
        darker = mpl.colors.to_hex((share * red, share * green, share * blue))
        if contrast(darker, "#ffffff") >= TEXT_CONTRAST:
            return darker
    return "#000000"


def asks_for_log(values: Any) -> bool:
    """Whether values need a log axis: all positive, and spread over more than a factor of 30."""
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    return bool(finite.size and finite.min() > 0 and finite.max() / finite.min() > LOG_RATIO)


def new_figure(width: float = 6.4, height: float = 3.8, figure: Callable[..., Picture] | None = None) -> Picture:
    """An empty figure, in inches; ``figure`` makes it, ``plt.figure`` for one that notebooks show."""
    from matplotlib.figure import Figure as Picture

    made = figure or Picture
    return made(figsize=(min(width, _widest.get()), height), layout="constrained", facecolor="white")


def panels(
    count: int,
    columns: int = 2,
    width: float = 4.6,
    height: float = 3.0,
    sharey: bool = False,
    figure: Callable[..., Picture] | None = None,
) -> tuple[Picture, Any]:
    """A figure of ``count`` panels in rows of at most ``columns``, and its axes in reading order."""
    columns = min(columns, count, max(int(_widest.get() // width), 1) if is_narrow() else columns)
    rows = -(-count // columns)
    made = new_figure(max(width * columns, 5.2), height * rows + 0.3, figure)
    axes = made.subplots(rows, columns, squeeze=False, sharey=sharey).ravel()
    for spare in axes[count:]:
        spare.remove()
    return made, axes[:count]


def label_ends(*labelled: tuple[Any, Sequence[LineEnd]], size: float = 8.0) -> None:
    """Writes each line's name to the right of its axes, moved apart where lines end close together."""
    if labelled:
        labelled[0][0].figure.draw_without_rendering()
    for ax, ends in labelled:
        height = ax.get_window_extent().height * 72.0 / ax.figure.dpi
        points = [(end.x, end.y) for end in ends]
        wanted = ax.transAxes.inverted().transform(ax.transData.transform(points))[:, 1] if points else []
        right = max(ax.get_xlim())
        for end, y in zip(ends, spread(wanted, size * 1.3 / height), strict=True):
            inside = np.clip(end.y, *sorted(ax.get_ylim()))
            early = end.x < right - 0.15 * abs(np.diff(ax.get_xlim())[0])
            text = ax.annotate(
                end.text,
                xy=(end.x, inside),
                xytext=(1.04, y),
                textcoords="axes fraction",
                fontsize=size,
                color=readable(end.style.colour),
                va="center",
                annotation_clip=False,
                arrowprops={
                    "arrowstyle": "-",
                    "color": end.style.colour,
                    "ls": DASHES["dotted"] if early else look(end.style)["ls"],
                    "lw": 0.6,
                    "alpha": 0.5 if early else 0.7,
                    "relpos": (0.0, 0.5),
                    "shrinkA": 1,
                    "shrinkB": 3 if early else 1,
                },
            )
            if end.series:
                text.set_gid(f"series-{end.series}")
                text.arrow_patch.set_gid(f"series-{end.series}")


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Places at least ``gap`` apart, in the order of ``wanted`` and as near to it as can be, kept within [0, 1]."""
    order = np.argsort(wanted, kind="stable")
    blocks: list[list[float]] = []  # [sum of wishes, size] of labels that touch
    for rank, k in enumerate(order):
        blocks.append([float(np.clip(wanted[k], 0.0, 1.0)) - rank * gap, 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            total, size = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + size]
    flat = [total / size for total, size in blocks for _ in range(int(size))]
    room = 1.0 - gap * (len(flat) - 1)
    low, high = (0.0, room) if room >= 0 else (room / 2, room / 2)
    places = [0.0] * len(flat)
    for rank, k in enumerate(order):
        places[k] = float(np.clip(flat[rank], low, high)) + rank * gap
    return places
