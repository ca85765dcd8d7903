"""What a page needs to answer the pointer: which shapes belong to which series, and where the axes are.

A shape whose ``gid`` is ``series-<id>`` is switched on and off with its series; a line whose values are shown is
``series-<id>--main``, a collection whose lines have texts of their own ``series-<id>--<key>``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

PREFIX = "series-"
_texts: WeakKeyDictionary[Any, dict[str, list[str]]] = WeakKeyDictionary()


def describe_lines(figure: Picture, collection: Any, series: str, texts: Sequence[str]) -> None:
    """Gives every line of a collection its text."""
    own = _texts.setdefault(figure, {})
    key = str(len(own))
    own[key] = list(texts)
    collection.set_gid(f"{PREFIX}{series}--{key}")


def facts(figure: Picture) -> dict[str, Any] | None:
    """Series, panels and texts of a figure for the page's script; None where nothing is marked.

    Boxes are in points, from the top left corner, as in the SVG.
    """
    series: dict[str, dict[str, str]] = {}
    panels = []
    for number, ax in enumerate(figure.axes, 1):
        marked = [artist for artist in ax.get_children() if str(artist.get_gid() or "").startswith(PREFIX)]
        for artist in marked:
            key = str(artist.get_gid()).removeprefix(PREFIX).partition("--")[0]
            label = str(artist.get_label())
            if label and not label.startswith("_"):
                series.setdefault(key, {"title": label.replace(r"\$", "$"), "colour": _colour(artist)})
        if marked:
            panels.append({"axes": number, **_panel(figure, ax)})
    if not series:
        return None
    return {"series": series, "panels": panels, "texts": _texts.get(figure, {})}


def _colour(artist: Any) -> str:
    import matplotlib as mpl

    return mpl.colors.to_hex(artist.get_color()) if hasattr(artist, "get_xdata") else ""


def _panel(figure: Picture, ax: Any) -> dict[str, Any]:
    box = ax.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
    height = figure.get_figheight()
    return {
        "box": [round(72 * v, 2) for v in (box.x0, height - box.y1, box.x1, height - box.y0)],
        "x": _axis(ax.get_xlim(), ax.get_xscale()),
        "y": _axis(ax.get_ylim(), ax.get_yscale()),
        "title": ax.get_ylabel().replace(r"\$", "$"),
        "unit": ax.get_xlabel().replace(r"\$", "$").replace("\n", " "),
    }


def _axis(limits: tuple[float, float], scale: str) -> list[Any]:
    return [float(f"{limits[0]:.6g}"), float(f"{limits[1]:.6g}"), scale == "log"]
