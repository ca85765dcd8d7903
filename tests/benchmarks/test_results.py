"""What is committed under results/ is rebuilt from the logs beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.record import difference, plain_settings

from benchmarks import overview
from benchmarks.tasks import problem
from stn_tune.analysis import load
from stn_tune.analysis.report import compose

RESULTS = Path(__file__).parents[2] / "results"
README = RESULTS.parent / "README.md"
RUNS = sorted(path.parent for path in RESULTS.glob("*/config.json") if (path.parent / "report").exists())


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: path.name)
def test_committed_reports_are_those_of_the_committed_logs(folder):
    """Every table to the byte; every figure drawn anew (its pixels depend on the fonts of the machine)."""
    contents = compose(load(folder), formats=("svg",)).contents()
    for name, content in contents.items():
        if name.endswith((".csv", ".md", ".tex")):
            assert (folder / "report" / name).read_bytes() == content, name
    drawn = {Path(name).stem for name in contents if name.startswith("figures/")}
    assert drawn == {path.stem for path in (folder / "report" / "figures").iterdir()}


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: path.name)
def test_committed_runs_can_be_carried_on(folder):
    """Their settings are those of today's presets: what --resume asks for."""
    config = json.loads((folder / "config.json").read_text())
    today = problem(config["task"], config["preset"], config["set"], tuned=config["tuned"])
    assert difference(config["settings"], plain_settings(today)) is None


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
