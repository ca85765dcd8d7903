"""Figures of the analysis: styles of methods, scales of colours, notes, clipped starts, reproducible files."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from stn_tune.analysis.results import Results
from stn_tune.plotting import GREY, RC, STYLES, is_narrow
from stn_tune.record import Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

FORMATS = ("png", "svg", "pdf")
CLIPPED = "early values are clipped"
SEQUENTIAL = "cividis"
BLUES = ("Blues", 0.2, 1.0)
"""From pale to dark, for thin lines: the palest can be seen on white."""
RAMP = ("plasma", 0.0, 0.62)
"""From dark to light, for lines: the lightest has a contrast of 3 to white, which WCAG AA asks of graphics."""
SHADES = 32
"""Colours of a scale: few enough that a colour bar is drawn as vectors, which a page can recolour."""

Draw = Callable[[pd.DataFrame], "Picture"]


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


def ramp(count: int) -> list[str]:
    """Colours for lines that have an order: dark to light, none too pale for a white page."""
    import matplotlib as mpl

    shades = np.linspace(0.0, 1.0, max(count, 2))[:count]
    return [mpl.colors.to_hex(scale(*RAMP)(s)) for s in shades]


def scale(name: str, first: float = 0.0, last: float = 1.0) -> Any:
    """A part of one of matplotlib's colour maps, in :data:`SHADES` colours."""
    import matplotlib as mpl

    return mpl.colors.ListedColormap(mpl.colormaps[name](np.linspace(first, last, SHADES)))


def colour_bar(figure: Picture, mappable: Any, ax: Any, label: str = "", **options: Any) -> Any:
    """A colour bar without a frame."""
    bar = figure.colorbar(mappable, ax=ax, pad=0.02, **options)
    bar.set_label(label)
    cast(Any, bar.outline).set_visible(False)
    cast(Any, bar.solids).set_edgecolor("face")  # no seams between its cells
    return bar


def note(figure: Picture, text: str) -> None:
    """A line below the figure: what the lines and bands are, and how many seeds they stand on."""
    together = text.replace(" %", "\u00a0%").replace("n = ", "n\u00a0=\u00a0")
    lines = textwrap.fill(together, width=int(figure.get_figwidth() * 18)).replace("\u00a0", " ")
    figure.supxlabel(lines, x=0.01, ha="left", fontsize=7.5, color=GREY)


def wrapped(text: str) -> str:
    """The label of an axis, in lines that fit the figure."""
    return textwrap.fill(text, 40 if is_narrow() else 80)


def zoom(
    ax: Any, x: Any, values: Any, start: float = 0.1, bands: Any = None, ends: Any = (), late: float = 0.5
) -> bool:
    """Clips early values that would flatten everything after them; says whether it did.

    ``values`` has a row per ``x``; those in the first fraction ``start`` of the axis are early. ``ends`` are what lines
    end with, which is never clipped, however early they end. ``bands`` are widest early: they count from the fraction
    ``late`` of the axis on, up to half of the values' range on either side.
    """
    x, values = np.asarray(x, dtype=float), np.asarray(values, dtype=float)
    drawn, later = [values], [values[x >= start * np.max(x)], np.asarray(ends, dtype=float)]
    if bands is not None:
        drawn.append(np.asarray(bands, dtype=float))
        low, high = _range(later)
        later.append(np.clip(drawn[-1][x >= late * np.max(x)], low - 0.5 * (high - low), high + 0.5 * (high - low)))
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
    return _smaller(buffer) if kind == "png" else buffer.getvalue()


def _smaller(png: BytesIO) -> bytes:
    """The picture in 256 colours: a third of the bytes, and no difference to the eye."""
    from PIL import Image

    result = BytesIO()
    with Image.open(png) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(result, format="png", optimize=True)
    return result.getvalue()


def save(figure: Picture, folder: str | Path, name: str, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Writes ``folder/name.png``, ``.svg`` and ``.pdf``."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    paths = [Path(folder, f"{name}.{kind}") for kind in formats]
    for path, kind in zip(paths, formats, strict=True):
        path.write_bytes(render(figure, kind))
    return paths
