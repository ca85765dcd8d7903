"""Lines over seeds: a thin one for each, a thick one for their mean, a band for their range."""

from __future__ import annotations

from typing import Any

import pandas as pd

from stn_tune.plotting import LineEnd, look
from stn_tune.record import Style

BAND_FROM = 3
"""The fewest seeds whose range is drawn as a band; of two, the lines are enough."""


def draw_seeds(
    ax: Any, part: pd.DataFrame, text: str | None = None, drawstyle: str = "default", band: bool = False
) -> LineEnd:
    """Draws one series (columns experiment, x, y, colour, dash, title), and its mean where all seeds have values.

    With ``band``, the range of the seeds while all have values; a seed that goes on for longer is a thin line.
    """
    first = part.iloc[0]
    style = Style(first["colour"], first["dash"])
    values = wide(part)
    several = values.shape[1] > 1
    for experiment in values:
        one = values[experiment].dropna()
        width, alpha = (0.7, 0.45) if several else (1.8, 1.0)
        ax.plot(one.index, one, lw=width, alpha=alpha, drawstyle=drawstyle, **look(style))
    shared = values.dropna()
    mean = shared.mean(axis=1)
    if several:
        ax.plot(mean.index, mean, lw=2.2, drawstyle=drawstyle, **look(style))
    if band and values.shape[1] >= BAND_FROM:
        step = "post" if drawstyle == "steps-post" else None
        low, high = shared.min(axis=1), shared.max(axis=1)
        ax.fill_between(shared.index, low, high, step=step, color=style.colour, alpha=0.18, lw=0)
    last = mean if len(mean) else values.mean(axis=1)
    return LineEnd(float(last.index[-1]), float(last.iloc[-1]), text or str(first["title"]), style)


def wide(part: pd.DataFrame) -> pd.DataFrame:
    """A series with one column per experiment over ``x``."""
    return part.pivot(index="x", columns="experiment", values="y")


def seeds_note(count: int, what: str = "", band: bool = False) -> str:
    """What thin and thick lines and bands are, and of how many seeds."""
    lines = "one seed" if count == 1 else f"thick: mean while all n = {count} seeds train; thin: one seed each"
    return f"{what}{lines}" + ("; band: their range" if band and count >= BAND_FROM else "")


def parts(frame: pd.DataFrame, column: str) -> list[tuple[Any, pd.DataFrame]]:
    """The frame by the values of a column, in their order of appearance."""
    return list(frame.groupby(column, sort=False))
