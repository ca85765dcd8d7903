"""How figures look: colours that colour-blind readers can tell apart, labels at line ends, reproducible files."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pandas as pd

from stn_tune.analysis.results import Results
from stn_tune.record import Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

FORMATS = ("png", "svg", "pdf")
LOG_RATIO = 30.0
GREY = "#5f6368"
CLIPPED = "early values are clipped"
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#8C6D1F")
"""Okabe and Ito's colours, with brown instead of yellow, which is hard to see on white."""

DASHES: dict[str, Any] = {
    "solid": "-",
    "dashed": (0, (5, 1.5)),
    "dotted": (0, (1.2, 1.2)),
    "dashdot": (0, (6, 1.5, 1.2, 1.5)),
}
"""The names of :class:`~stn_tune.record.Style`, as matplotlib writes them."""

STYLES = tuple(Style(colour, dash) for dash in DASHES for colour in PALETTE)
SEQUENTIAL = "cividis"
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
    "savefig.dpi": 160,
    "svg.fonttype": "none",
    "svg.hashsalt": "stn_tune",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}

Draw = Callable[[pd.DataFrame], "Picture"]


class LineEnd(NamedTuple):
    """The last point of a line, and what to write beside it."""

    x: float
    y: float
    text: str
    style: Style


def styled(draw: Draw) -> Draw:
    """Makes a drawing function use this style, whatever the caller's matplotlib settings are."""

    @functools.wraps(draw)
    def drawn(frame: pd.DataFrame) -> Picture:
        import matplotlib as mpl

        with mpl.rc_context(cast(Any, RC)):
            figure = draw(frame)
            figure.draw_without_rendering()
            figure.set_layout_engine(None)  # laid out once, so it is the same in every format
        return figure

    return drawn


def line_styles(results: Results, labels: Iterable[str]) -> dict[str, Style]:
    """A style per label: the record's for methods without a variant; the others take free ones, alphabetically."""
    names = sorted(set(labels))
    infos = {name: results.method(name) for name in names}
    own = {n: info.style for n, info in infos.items() if info.style is not None and info.name == n}
    free = [style for style in STYLES if style not in own.values()]
    others = [name for name in names if name not in own]
    return own | {name: free[k % len(free)] for k, name in enumerate(others)}


def look(style: Style) -> dict[str, Any]:
    """A style as matplotlib's keywords."""
    return {"color": style.colour, "ls": DASHES.get(style.dash, style.dash)}


def ramp(count: int) -> list[str]:
    """Colours for values that have an order: dark to light, none too pale for a white page."""
    import matplotlib as mpl

    shades = np.linspace(0.0, 0.85, max(count, 2))[:count]
    return [mpl.colors.to_hex(mpl.colormaps[SEQUENTIAL](s)) for s in shades]


def asks_for_log(values: Any) -> bool:
    """Whether values need a log axis: all positive, and spread over more than a factor of 30."""
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    return bool(finite.size and finite.min() > 0 and finite.max() / finite.min() > LOG_RATIO)


def new_figure(width: float = 6.4, height: float = 3.8) -> Picture:
    """An empty figure, in inches."""
    from matplotlib.figure import Figure as Picture

    return Picture(figsize=(width, height), layout="constrained", facecolor="white")


def panels(
    count: int, columns: int = 2, width: float = 4.6, height: float = 3.0, sharey: bool = False
) -> tuple[Picture, Any]:
    """A figure of ``count`` panels in rows of at most ``columns``, and its axes in reading order."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = new_figure(max(width * columns, 5.2), height * rows + 0.3)
    axes = figure.subplots(rows, columns, squeeze=False, sharey=sharey).ravel()
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def note(figure: Picture, text: str) -> None:
    """A line below the figure: what the lines and bands are, and how many seeds they stand on."""
    wrapped = textwrap.fill(text, width=int(figure.get_figwidth() * 18))
    figure.supxlabel(wrapped, x=0.01, ha="left", fontsize=7.5, color=GREY)


def label_ends(*labelled: tuple[Any, Sequence[LineEnd]], size: float = 8.0) -> None:
    """Writes each line's name to the right of its axes, moved apart where lines end close together."""
    if labelled:
        labelled[0][0].figure.draw_without_rendering()
    for ax, ends in labelled:
        height = ax.get_window_extent().height * 72.0 / ax.figure.dpi
        points = [(end.x, end.y) for end in ends]
        wanted = ax.transAxes.inverted().transform(ax.transData.transform(points))[:, 1] if points else []
        for end, y in zip(ends, spread(wanted, size * 1.3 / height), strict=True):
            inside = np.clip(end.y, *sorted(ax.get_ylim()))
            ax.annotate(
                end.text,
                xy=(end.x, inside),
                xytext=(1.04, y),
                textcoords="axes fraction",
                fontsize=size,
                color=end.style.colour,
                va="center",
                annotation_clip=False,
                arrowprops={
                    "arrowstyle": "-",
                    "color": end.style.colour,
                    "ls": look(end.style)["ls"],
                    "lw": 0.7,
                    "alpha": 0.7,
                    "relpos": (0.0, 0.5),
                    "shrinkA": 1,
                    "shrinkB": 1,
                },
            )


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


def zoom(ax: Any, x: Any, values: Any, start: float = 0.1, bands: Any = None) -> bool:
    """Clips early values that would flatten everything after them; says whether it did.

    ``values`` has a row per ``x``; those in the first fraction ``start`` of the axis are early. ``bands`` are widest
    early: they count from the middle of the axis on, up to half of the values' range on either side.
    """
    x, values = np.asarray(x, dtype=float), np.asarray(values, dtype=float)
    drawn, later = [values], [values[x >= start * np.max(x)]]
    if bands is not None:
        drawn.append(np.asarray(bands, dtype=float))
        low, high = _range(later)
        late = drawn[-1][x >= 0.5 * np.max(x)]
        later.append(np.clip(late, low - 0.5 * (high - low), high + 0.5 * (high - low)))
    low, high = _range(later)
    first, last = _range(drawn)
    if not (high > low and last - first > 2 * (high - low)):
        return False
    room = [0.3 if cut else 0.05 for cut in (np.nanmin(values) < low, np.nanmax(values) > high)]
    ax.set_ylim(low - room[0] * (high - low), high + room[1] * (high - low))
    return True


def _range(parts: Sequence[Any]) -> tuple[float, float]:
    together = np.concatenate([part.ravel() for part in parts])
    return float(np.nanmin(together)), float(np.nanmax(together))


def render(figure: Picture, kind: str) -> bytes:
    """The figure as a file's content: the same bytes for the same data."""
    import matplotlib as mpl

    metadata: dict[str, Any] = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }[kind]
    with mpl.rc_context(cast(Any, RC)):
        buffer = BytesIO()
        figure.savefig(buffer, format=kind, metadata=metadata)
    return buffer.getvalue()


def save(figure: Picture, folder: str | Path, name: str, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Writes ``folder/name.png``, ``.svg`` and ``.pdf``."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    paths = [Path(folder, f"{name}.{kind}") for kind in formats]
    for path, kind in zip(paths, formats, strict=True):
        path.write_bytes(render(figure, kind))
    return paths
