"""Tables as text: aligned for a terminal, as Markdown, for LaTeX with booktabs, as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import floor, isfinite, isinf, isnan, log10
from textwrap import wrap
from typing import NamedTuple

WIDTH = 80
NONE = "–"
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "×": r"$\times$", "∞": r"$\infty$",
    "–": "--", "−": "$-$", "<": "$<$", ">": "$>$", "≥": r"$\geq$",
}  # fmt: skip


class Section(NamedTuple):
    """A table of text: a title, the names of its columns, its rows, notes, and the places of cells in bold."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]
    bold: frozenset[tuple[int, int]] = frozenset()
    """(row, column)."""

    def marked(self, form: str) -> list[list[str]]:
        """The rows, with every cell in bold put into ``form``: ``"**{}**"``."""
        return [
            [form.format(cell) if (r, c) in self.bold else cell for c, cell in enumerate(row)]
            for r, row in enumerate(self.rows)
        ]


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
    """``429``, ``56.8`` or ``0.043``; "not reached" where it is infinite."""
    return "not reached" if isinf(value) else number(value, 0 if value >= 100 else 1 if value >= 1 else 3)


def at_least(value: float, watched: float) -> str:
    """``429``; ``> 600`` where it is later than the time for which it was watched."""
    return f"> {seconds(watched)}" if isinf(value) else seconds(value)


def factor(value: float) -> str:
    """``7.5×``; NaN as a dash."""
    return NONE if isnan(value) else f"{value:.3g}×"


def within(center: float, low: float, high: float, places: int) -> str:
    """``1.23 [1.1, 1.4]``, for an interval that need not be symmetric; the number alone where there is none."""
    ends = f" [{number(low, places)}, {number(high, places)}]" if isfinite(low) and isfinite(high) else ""
    return number(center, places) + ends


def probability(value: float) -> str:
    """``0.042`` or ``< 0.001``; NaN as a dash."""
    return NONE if isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"


def text(sections: Sequence[Section], width: int = WIDTH) -> str:
    """Aligned columns, no line longer than ``width``: columns that do not fit follow in another block."""
    return "\n\n".join(
        "\n".join([section.title, *_blocks(section, width), *_wrapped(section.notes, width)]) for section in sections
    )


def _blocks(section: Section, width: int) -> list[str]:
    """Headings wider than the cells below them are wrapped; what is in bold elsewhere is marked by an asterisk."""
    body = section.marked("*{}")
    widths = [
        max(*(len(row[k]) for row in body), *(len(word) for word in name.split())) if body else len(name)
        for k, name in enumerate(section.columns)
    ]
    blocks, used = [[0]], widths[0]
    for k in range(1, len(widths)):
        if used + 2 + widths[k] > width and len(blocks[-1]) > 1:
            blocks.append([0])
            used = widths[0]
        blocks[-1].append(k)
        used += 2 + widths[k]
    lines: list[str] = []
    for block in blocks:
        lines += [""] if lines else []
        for row in (*_headings(section.columns, widths, block), ["-" * w for w in widths], *body):
            cells = [row[k].ljust(widths[k]) if k == 0 else row[k].rjust(widths[k]) for k in block]
            lines.append("  ".join(cells).rstrip())
    return lines


def _headings(names: Sequence[str], widths: Sequence[int], block: Sequence[int]) -> list[list[str]]:
    """Rows of words, the last full: every heading of the block wrapped to its column."""
    parts = [wrap(name, width, break_long_words=False) for name, width in zip(names, widths, strict=True)]
    height = max(len(parts[k]) for k in block)
    padded = [[""] * (height - len(part)) + part for part in parts]
    return [[part[line] if line < len(part) else "" for part in padded] for line in range(height)]


def _wrapped(notes: Sequence[str], width: int) -> list[str]:
    return [line for note in notes for line in wrap(note, width, subsequent_indent="  ", break_on_hyphens=False)]


def markdown(sections: Sequence[Section]) -> str:
    """Tables with a bold title, and the notes below."""
    parts = []
    for section in sections:
        rule = ["---", *["---:"] * (len(section.columns) - 1)]
        body = section.marked("**{}**")
        rows = [[cell.replace("|", "\\|") for cell in row] for row in (section.columns, rule, *body)]
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        parts.append("\n\n".join([f"**{section.title}**", table, *section.notes]))
    return "\n\n".join(parts) + "\n"


def latex(sections: Sequence[Section]) -> str:
    """One ``tabular`` per section, for the booktabs package; titles and notes are comments."""
    parts = []
    for section in sections:
        cells = [[_latex(cell) for cell in row] for row in (section.columns, *section.rows)]
        for row, column in section.bold:
            cells[row + 1][column] = rf"\textbf{{{cells[row + 1][column]}}}"
        head, *body = (" & ".join(row) + r" \\" for row in cells)
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
        for r, (name, *cells) in enumerate(section.rows):
            shown = [f"<b>{escape(c)}</b>" if (r, k) in section.bold else escape(c) for k, c in enumerate(cells, 1)]
            rest = "".join(f"<td>{cell}</td>" for cell in shown)
            rows.append(f'<tr><th scope="row">{escape(name)}</th>{rest}</tr>')
        notes = "".join(f"<p>{escape(note)}</p>" for note in section.notes)
        caption = f"<caption>{escape(section.title)}</caption>"
        parts.append(
            f"<table>{caption}<thead><tr>{head}</tr></thead>\n<tbody>\n"
            + "\n".join(rows)
            + f"\n</tbody></table>\n{notes}"
        )
    return "\n".join(parts)
