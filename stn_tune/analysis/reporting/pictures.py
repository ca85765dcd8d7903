"""Figures for a page: vectors whose colours follow the page's theme, with a text for those who cannot see them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from stn_tune.analysis.figures.dark import on_dark
from stn_tune.analysis.figures.interactive import facts
from stn_tune.analysis.figures.style import render
from stn_tune.analysis.reporting.compact import compact

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

HEX = re.compile(r"#[0-9a-fA-F]{6}\b")


@dataclass(frozen=True)
class Inlined:
    """A figure as the page holds it."""

    wide: str
    """An SVG element."""
    narrow: str
    """The one for a phone; empty where it would be the same."""
    facts: Mapping[str, str]
    """"wide" and "narrow" -> JSON for the page's script; empty where the figure has nothing to point at."""


def inlined(name: str, alt: str, svg: str, wide: Picture, narrow: Picture | None) -> Inlined:
    """A figure, drawn as ``svg``, and its narrow form, for the page."""
    found = {"wide": facts(wide)}
    small = "" if narrow is None else render(narrow, "svg").decode()
    if small == svg:
        small = ""
    if small and narrow is not None:
        found["narrow"] = facts(narrow)
        small = compact(inline(small, f"{name}-narrow", alt))
    return Inlined(compact(inline(svg, name, alt)), small, {kind: _json(data) for kind, data in found.items() if data})


def _json(data: Any) -> str:
    """JSON that can stand in a script element."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def inline(svg: str, name: str, alt: str) -> str:
    """An SVG for use inside a page: unique ids, no external address, no style that affects the page.

    Colours are variables of the page. What belongs to a series has ``data-series``.
    """

    def own(tag: re.Match[str]) -> str:
        text = re.sub(r'\sid="series-(\w+?)(?:--(\w+))?"', _series, tag[0])
        text = re.sub(r'(\sid="|url\(#|href="#)', rf"\g<1>{name}-", text)
        text = HEX.sub(lambda colour: f"var({variable(colour[0])})", text) if "style=" in text else text
        return re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)

    body = svg[svg.index("<svg") :]
    body = re.sub(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    body = re.sub(r"<[^>]+>", own, body)
    width = re.search(r'width="([\d.]+)pt"', body)
    style = f"stroke-linejoin: round; stroke-linecap: butt; fill: var({variable('#000000')})"
    style += f"; max-width: {1.45 * float(width[1]):.0f}px" if width else ""
    return body.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}" style="{style}"', 1)


def _series(found: re.Match[str]) -> str:
    lines = "" if found[2] is None else f' data-lines="{found[2]}"'
    return f' data-series="{found[1]}"{lines}'


def variable(colour: str) -> str:
    """The page's name for a colour."""
    return f"--c{colour.lower().removeprefix('#')}"


def theme(pictures: Iterable[str]) -> tuple[str, str]:
    """The colours that inlined figures use, as declarations for light and for dark paper."""
    names = {name for picture in pictures for name in re.findall(r"var\(--c([0-9a-f]{6})\)", picture)}
    colours = sorted(names | {"000000", "ffffff"})
    light = " ".join(f"--c{colour}: #{colour};" for colour in colours)
    return light, " ".join(f"--c{colour}: {on_dark(f'#{colour}')};" for colour in colours)
