"""What is committed under results/ is rebuilt from the logs beside it."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path

import pytest

from benchmarks.studies import STUDIES, all_figures
from benchmarks.version1 import upgrade
from stn_tune.analysis import Results, load, overview
from stn_tune.analysis.reporting.overview import load_tasks
from stn_tune.analysis.reporting.page import compose
from stn_tune.errors import RecordError
from stn_tune.record import RunRecord

RESULTS = Path(__file__).parents[2] / "results"
README = RESULTS.parent / "README.md"
RUNS = sorted(path.parent for path in RESULTS.glob("*/*.json") if (path.parent / "report").exists())
VERSION_1 = [folder for folder in RUNS if (folder / "config.json").exists()]
"""Runs that were made before there was a record."""


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: path.name)
def test_committed_reports_are_those_of_the_committed_logs(folder):
    """Every table to the byte; every figure drawn again (its pixels depend on the fonts of the machine)."""
    contents = compose(load(folder, upgrade=upgrade), formats=("svg",), extra_figures=all_figures()).contents()
    for name, content in contents.items():
        if name.endswith((".csv", ".md", ".tex")):
            assert (folder / "report" / name).read_bytes() == content, name
    assert len(contents["report.html"]) < 1_000_000, "a page that opens at once, on a phone too"
    drawn = {Path(name).stem for name in contents if name.startswith("figures/")}
    assert drawn == {path.stem for path in (folder / "report" / "figures").iterdir()}


@pytest.mark.parametrize("folder", VERSION_1, ids=lambda path: path.name)
def test_a_run_of_version_1_has_a_record_like_any_other(folder):
    results = Results.of(load(folder, upgrade=upgrade))
    record = results.record
    config = json.loads((folder / "config.json").read_text())
    assert record.clock == "worker", "seconds on a worker: not to be mixed with CPU time"
    assert RunRecord.from_json(json.loads(json.dumps(record.to_json())), "copy") == record
    assert [info.seed for info in record.experiments] == [int(name[-1]) for name in config["experiments"]]
    assert [len(info.trials) > 0 for info in record.experiments] == [True] * len(config["experiments"])
    assert results.reference() == "stn"
    asked = {info.label for info in record.experiments}
    assert set(results.labels) == asked
    for name, info in record.task.space.items():
        own = config["settings"]["space"][name]
        assert info.initial == own["init"]
        assert info.domain["upper"] == own["upper"] + (own["kind"] == "randint"), "Tune's convention"


def test_labels_of_version_1_are_variants():
    labels = {folder.name: Results.of(load(folder, upgrade=upgrade)).labels for folder in VERSION_1}
    assert labels["theory"][:2] == ["stn network=gated scale=0.01", "stn network=gated scale=0.2"]
    assert labels["sensitivity-small"][0] == "stn scale=0.1 tune_scale=false"
    assert "stn train_steps=10 valid_steps=1" in labels["sensitivity-small"]
    assert labels["schedules-ptb-small"][-1] == "grid view=heatmap"


@pytest.mark.parametrize(("name", "study"), [("theory", "theory"), ("sensitivity-small", "sensitivity")])
def test_version_1_has_the_experiments_that_a_study_asks_for_today(name, study):
    record = Results.of(load(RESULTS / name, upgrade=upgrade)).record
    parser = ArgumentParser()
    STUDIES[study].arguments(parser)
    words = ["ptb"] if study == "sensitivity" else []
    today = STUDIES[study].experiments(parser.parse_args([*words, "--seeds", "2"]))
    known = {info.name: info for info in record.experiments}
    for info in today:
        assert known[info.name].variant == info.variant


def test_other_versions_are_refused():
    with pytest.raises(RecordError, match=r"config.json: format is 7; version 1 has 1"):
        upgrade({"format": 7}, [])


def test_every_run_is_in_the_index():
    index = (RESULTS / "README.md").read_text()
    for folder in RUNS:
        assert f"({folder.name}/" in index, folder.name


def test_the_first_screen_is_that_of_the_committed_logs():
    """The README's sentences, its table and the conditions it was measured under, to the letter."""
    made = overview(load_tasks([RESULTS / "ptb-small-fresh", RESULTS / "cifar10-small-fresh"], upgrade))
    text = made.to_markdown()
    assert (RESULTS / "overview" / "overview.md").read_text() == text
    summary = made.summary()
    assert (RESULTS / "overview" / "summary.md").read_text() == summary
    readme = README.read_text()
    rows = [line for line in summary.splitlines() if line.startswith("|")]
    for line in [*made.claims, *rows, made.section.notes[-1]]:
        assert line in readme
    assert len(rows) < 12, "a first look, not a reference"
    assert "(results/overview/overview.png)" in readme
