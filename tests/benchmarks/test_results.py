"""What is committed under results/ is rebuilt, to the byte, from the logs beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import overview
from stn_tune.analysis import load
from stn_tune.analysis.report import compose

RESULTS = Path(__file__).parents[2] / "results"
README = RESULTS.parent / "README.md"
RUNS = sorted(path.parent for path in RESULTS.glob("*/config.json") if (path.parent / "report").exists())


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: path.name)
def test_committed_tables_are_those_of_the_committed_logs(folder):
    made = compose(load(folder), figures=["time"], formats=("svg",))
    for name, content in made.contents().items():
        if name.endswith((".csv", ".md", ".tex")):
            assert (folder / "report" / name).read_bytes() == content, name


def test_every_run_is_in_the_index():
    index = (RESULTS / "README.md").read_text()
    for folder in RUNS:
        assert f"({folder.name}/" in index, folder.name


def test_the_first_screen_is_that_of_the_committed_logs():
    """The README's table and the conditions it was measured under, to the letter."""
    made = overview.compose([RESULTS / "ptb-small", RESULTS / "cifar10-small"])
    text = made.to_markdown()
    assert (RESULTS / "overview" / "overview.md").read_text() == text
    readme = README.read_text()
    for line in [*(line for line in text.splitlines() if line.startswith("|")), made.section.notes[-1]]:
        assert line in readme
    assert "(results/overview/overview.png)" in readme
