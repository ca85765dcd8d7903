"""Figures of a page in fewer bytes: nothing that is drawn or pointed at changes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from stn_tune.analysis.reporting.compact import compact, share_styles, short_path


def corners(d: str) -> np.ndarray:
    """The corners of a path of M, L and l, as the page's script reads them."""
    found: list[np.ndarray] = []
    for command, text in re.findall(r"([MLl])([^A-Za-z]*)", d):
        for pair in np.reshape([float(word) for word in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", text)], (-1, 2)):
            found.append(found[-1] + pair if command == "l" else pair)
    return np.array(found)


def far(points: np.ndarray, line: np.ndarray) -> float:
    """The largest distance of any point from a line."""
    start, step = line[:-1], np.diff(line, axis=0)
    share = np.einsum("psd,sd->ps", points[:, None] - start, step) / np.maximum((step**2).sum(axis=1), 1e-12)
    nearest = start + np.clip(share, 0, 1)[..., None] * step
    return float(np.linalg.norm(points[:, None] - nearest, axis=2).min(axis=1).max())


@pytest.mark.parametrize("staircase", [False, True])
def test_a_line_stays_where_it_is_and_does_not_drift(staircase):
    random = np.random.default_rng(0)
    y = random.normal(0, 50, 400) if not staircase else np.repeat(random.normal(0, 50, 40), 10)
    points = np.column_stack([np.linspace(0, 600, 400), y])
    path = "M " + "\nL ".join(f"{a:.6f} {b:.6f}" for a, b in points)
    short = short_path(path)
    line = corners(short)
    assert far(points, line) < 0.01
    assert far(line, points) < 0.01
    assert len(short) < len(path) * (0.7 if not staircase else 0.15)


def test_a_path_by_hand():
    assert short_path("M 0 0 \nL 1 1 \nL 2 2 \nL 3 1.004 \nC 1 2 3 4 5 6 \nL 5.5 7 \nz\n") == (
        "M0 0l2 2 1-1C1 2 3 4 5 6l.5 1z"
    )
    assert short_path("M 0 0 L 5 0 L 2 0") == "M0 0l5 0-3 0", "a line that turns back reaches its end"
    assert short_path("M 0 0 L 1 0 z M 5 5 L 6 5") == "M0 0l1 0zM5 5l1 0"


def test_what_is_referred_to_stays_and_what_does_nothing_goes():
    svg = (
        '<svg id="time-figure">\n <g id="time-axes_1">\n  <g id="line2d_1">\n   <path id="m1" d="M 0 0 L 1.23456 0"/>\n'
        '  </g>\n  <use xlink:href="#m1" x="1.00001" y="2.345678"/>\n  <g clip-path="url(#p)"><g/></g>\n'
        '  <text transform="rotate(-0 1 2)">a  b</text>\n  <clipPath id="p"/>\n </g>\n</svg>\n'
    )
    assert compact(svg) == (
        '<svg><g id="time-axes_1"><path id="m1" d="M0 0l1.23 0"/><use xlink:href="#m1" x="1" y="2.35"/>'
        '<g clip-path="url(#p)"></g><text>a  b</text><clipPath id="p"/></g></svg>'
    )


def test_styles_that_repeat_become_rules():
    many, few = '<path style="fill: none"/>' * 3, '<path style="fill: red"/>'
    rules, (first, second) = share_styles([many, few + '<path style="fill: none"/>'])
    assert rules == ".s0 { fill: none }"
    assert first == '<path class="s0"/>' * 3
    assert second == few + '<path class="s0"/>'
