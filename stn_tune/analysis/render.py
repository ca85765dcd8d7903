"""Tables as text: aligned for a terminal, as Markdown, for LaTeX with booktabs, as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import floor, isfinite, isinf, isnan, log10
from textwrap import wrap
from typing import NamedTuple

WIDTH = 100
NONE = "–"
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "×": r"$\times$", "∞": r"$\infty$",
    "–": "--", "−": "$-$", "<": "$<$", ">": "$>$", "≥": r"$\geq$",
}  # fmt: skip


class Section(NamedTuple):
    """A table of text: a title, the names of its columns, its rows, and notes."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]


def decimals(centers: Iterable[float], halves: Iterable[float]) -> int:
    """The decimals a column of numbers needs: two digits of the typical half-width, else four digits of the largest."""
    widths = sorted(half for half in halves if isfinite(half) and half > 0)
    if widths:
        return min(max(1 - floor(log10(widths[len(widths) // 2])), 0), 6)
    largest = max((abs(center) for center in centers if isfinite(center)), default=0.0)
    return min(max(3 - floor(log10(largest)), 0), 6) if largest > 0 else 2


def number(value: float, places: int) -> str:
    """A number with a true minus sign; NaN as a dash."""
    if isnan(value):
        return NONE
    text = "∞" if isinf(value) else f"{abs(value):.{places}f}"
    negative = value < 0 and (isinf(value) or float(text) != 0)
    return f"−{text}" if negative else text


def with_interval(center: float, low: float, high: float, places: int) -> str:
    """``1.23 ± 0.04``; the number alone where there is no interval."""
    half = (high - low) / 2
    return number(center, places) + (f" ± {number(half, places)}" if isfinite(half) else "")


def seconds(value: float) -> str:
    """``429`` or ``56.8``; "not reached" where it is infinite."""
    return "not reached" if isinf(value) else number(value, 0 if value >= 100 else 1)


def factor(value: float) -> str:
    """``7.5×``; NaN as a dash."""
    return NONE if isnan(value) else f"{value:.3g}×"


def probability(value: float) -> str:
    """``0.042`` or ``<0.001``; NaN as a dash."""
    return NONE if isnan(value) else "<0.001" if value < 0.001 else f"{value:.3f}"


def text(sections: Sequence[Section]) -> str:
    """Aligned columns, no line longer than :data:`WIDTH`: columns that do not fit follow in another block."""
    return "\n\n".join("\n".join([section.title, *_blocks(section), *_wrapped(section.notes)]) for section in sections)


def _blocks(section: Section) -> list[str]:
    widths = [max(len(row[k]) for row in (section.columns, *section.rows)) for k in range(len(section.columns))]
    blocks, used = [[0]], widths[0]
    for k in range(1, len(widths)):
        if used + 2 + widths[k] > WIDTH:
            blocks.append([0])
            used = widths[0]
        blocks[-1].append(k)
        used += 2 + widths[k]
    lines: list[str] = []
    for block in blocks:
        lines += [""] if lines else []
        for row in (section.columns, ["-" * width for width in widths], *section.rows):
            cells = [row[k].ljust(widths[k]) if k == 0 else row[k].rjust(widths[k]) for k in block]
            lines.append("  ".join(cells).rstrip())
    return lines


def _wrapped(notes: Sequence[str]) -> list[str]:
    return [line for note in notes for line in wrap(note, WIDTH, subsequent_indent="  ", break_on_hyphens=False)]


def markdown(sections: Sequence[Section]) -> str:
    """Tables with a bold title, and the notes below."""
    parts = []
    for section in sections:
        rule = ["---", *["---:"] * (len(section.columns) - 1)]
        rows = [[cell.replace("|", "\\|") for cell in row] for row in (section.columns, rule, *section.rows)]
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        parts.append("\n\n".join([f"**{section.title}**", table, *section.notes]))
    return "\n\n".join(parts) + "\n"


def latex(sections: Sequence[Section]) -> str:
    """One ``tabular`` per section, for the booktabs package; titles and notes are comments."""
    parts = []
    for section in sections:
        head, *body = (" & ".join(_latex(cell) for cell in row) + r" \\" for row in (section.columns, *section.rows))
        lines = [f"% {line}" for line in (section.title, *section.notes)]
        lines += [rf"\begin{{tabular}}{{l{'r' * (len(section.columns) - 1)}}}", r"\toprule", head, r"\midrule"]
        parts.append("\n".join([*lines, *body, r"\bottomrule", r"\end{tabular}"]))
    return "\n\n".join(parts) + "\n"


def _latex(cell: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in cell)


def html(sections: Sequence[Section]) -> str:
    """Tables with a caption, and the notes below; everything is escaped."""
    parts = []
    for section in sections:
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in section.columns)
        rows = []
        for name, *cells in section.rows:
            rest = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            rows.append(f'<tr><th scope="row">{escape(name)}</th>{rest}</tr>')
        notes = "".join(f"<p>{escape(note)}</p>" for note in section.notes)
        caption = f"<caption>{escape(section.title)}</caption>"
        parts.append(
            f"<table>{caption}<thead><tr>{head}</tr></thead>\n<tbody>\n"
            + "\n".join(rows)
            + f"\n</tbody></table>\n{notes}"
        )
    return "\n".join(parts)
