"""compact, share_styles: the figures of a page in fewer bytes, which look and answer the pointer as before."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

SCALE = 100
"""Coordinates are kept in hundredths of a point, less than a fiftieth of a pixel on the page."""

_TAG = re.compile(r"<[^>]+>")
_PATH = re.compile(r'(\sd=")([^"]*)"')
_UPRIGHT = re.compile(r'\stransform="rotate\(-?0 [^"]*\)"')
_PLACE = re.compile(r'(\s(?:x|y|width|height)=")(-?\d+\.\d+)"')
_STYLE = re.compile(r'\sstyle="([^"]*)"')
_COMMAND = re.compile(r"([a-zA-Z])([^a-zA-Z]*)")
_KEPT = re.compile(r'\sid="[^"]*axes_\d+"')
"""The page's script finds a panel by the id of its axes."""

Step = tuple[int, int]


def compact(svg: str) -> str:
    """Without ids that nothing refers to, groups that do nothing, space between tags, and needless digits and corners.

    Expects what matplotlib writes: every group is closed, and no attribute holds a ``>``.
    """
    wanted = {*re.findall(r"url\(#([^)]*)\)", svg), *re.findall(r'href="#([^"]*)"', svg)}

    def shorter(tag: str) -> str:
        if not _KEPT.search(tag):
            tag = re.sub(r'\sid="([^"]*)"', lambda found: found[0] if found[1] in wanted else "", tag)
        tag = _UPRIGHT.sub("", tag)
        tag = _PATH.sub(lambda found: f'{found[1]}{short_path(found[2])}"', tag)
        return _PLACE.sub(lambda found: f'{found[1]}{_number(round(float(found[2]) * SCALE))}"', tag)

    parts: list[str] = []
    does_nothing: list[bool] = []
    place = 0
    for found in _TAG.finditer(svg):
        text, tag = svg[place : found.start()], shorter(found[0])
        place = found.end()
        parts.append(text if text.strip() else "")
        if tag.startswith("<g") and tag.rstrip(">").strip() in ("<g", "<g/"):
            does_nothing += [True] if not tag.endswith("/>") else []
            continue
        if tag.startswith("<g ") and not tag.endswith("/>"):
            does_nothing.append(False)
        elif tag == "</g>" and does_nothing.pop():
            continue
        parts.append(tag)
    return "".join(parts) + svg[place:].strip()


def short_path(d: str) -> str:
    """A path with rounded numbers; lines are relative (``l``), without the corners that lie on a straight line."""
    commands: list[tuple[str, list[int]]] = []
    for name, text in _COMMAND.findall(d):
        numbers = [round(float(word) * SCALE) for word in text.replace(",", " ").split()]
        if name == "L" and len(commands) > 1 and commands[-1][0] == "L" and commands[-2][1]:
            (*_, x, y), last = commands[-2][1], commands[-1][1]
            if _straight((last[0] - x, last[1] - y), (numbers[0] - last[0], numbers[1] - last[1])):
                commands[-1] = (name, numbers)
                continue
        commands.append((name, numbers))
    return "".join(_written(commands))


def _written(commands: list[tuple[str, list[int]]]) -> Iterator[str]:
    at: list[int] = []
    lines = False
    for name, numbers in commands:
        if name == "L" and at:
            text = _joined([numbers[0] - at[0], numbers[1] - at[1]])
            yield (" " if lines and not text.startswith("-") else "" if lines else "l") + text
        else:
            yield name + _joined(numbers)
        lines = name == "L"
        at = numbers[-2:]


def _straight(first: Step, second: Step) -> bool:
    """Whether the second step goes on in the direction of the first."""
    across = first[0] * second[1] - first[1] * second[0]
    return across == 0 and first[0] * second[0] + first[1] * second[1] >= 0


def _joined(numbers: list[int]) -> str:
    """ "1.42-.46": a minus separates, too."""
    return " ".join(map(_number, numbers)).replace(" -", "-")


def _number(hundredths: int) -> str:
    """ "12.3", "-.5", "7" """
    text = f"{abs(hundredths) / SCALE:.2f}".rstrip("0").rstrip(".")
    short = text.removeprefix("0") or "0"
    return f"-{short}" if hundredths < 0 else short


def share_styles(pictures: Sequence[str], fewest: int = 4) -> tuple[str, list[str]]:
    """Rules for the styles that pictures of a page use at least so many times, and the pictures with their classes."""
    counts = Counter(style for picture in pictures for style in _STYLE.findall(picture))
    names = {style: f"s{k}" for k, style in enumerate(s for s, n in counts.items() if n >= fewest)}

    def named(found: re.Match[str]) -> str:
        return f' class="{names[found[1]]}"' if found[1] in names else found[0]

    rules = "\n".join(f".{name} {{ {style} }}" for style, name in names.items())
    return rules, [_STYLE.sub(named, picture) for picture in pictures]
