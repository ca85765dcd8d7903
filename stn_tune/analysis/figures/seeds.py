"""Lines over seeds: a thin one for each, a thick one for their mean."""

from __future__ import annotations

from typing import Any

import pandas as pd

from stn_tune.analysis.figures.style import LineEnd, look
from stn_tune.record import Style


def draw_seeds(ax: Any, part: pd.DataFrame, text: str | None = None, drawstyle: str = "default") -> LineEnd:
    """Draws one series (columns experiment, x, y, colour, dash, title), and its mean where all seeds have values."""
    first = part.iloc[0]
    style = Style(first["colour"], first["dash"])
    values = wide(part)
    several = values.shape[1] > 1
    for experiment in values:
        one = values[experiment].dropna()
        width, alpha = (0.7, 0.45) if several else (1.8, 1.0)
        ax.plot(one.index, one, lw=width, alpha=alpha, drawstyle=drawstyle, **look(style))
    mean = values.dropna().mean(axis=1)
    if several:
        ax.plot(mean.index, mean, lw=2.2, drawstyle=drawstyle, **look(style))
    last = mean if len(mean) else values.mean(axis=1)
    return LineEnd(float(last.index[-1]), float(last.iloc[-1]), text or str(first["title"]), style)


def wide(part: pd.DataFrame) -> pd.DataFrame:
    """A series with one column per experiment over ``x``."""
    return part.pivot(index="x", columns="experiment", values="y")


def seeds_note(count: int, what: str = "") -> str:
    """What thin and thick lines are, and of how many seeds."""
    lines = "one seed" if count == 1 else f"thick: mean while all n = {count} seeds train; thin: one seed each"
    return f"{what}{lines}"


def parts(frame: pd.DataFrame, column: str) -> list[tuple[Any, pd.DataFrame]]:
    """The frame by the values of a column, in their order of appearance."""
    return list(frame.groupby(column, sort=False))
