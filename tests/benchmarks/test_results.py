"""What is committed under results/ is rebuilt, to the byte, from the logs beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stn_tune.analysis import load
from stn_tune.analysis.report import compose

RESULTS = Path(__file__).parents[2] / "results"
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
