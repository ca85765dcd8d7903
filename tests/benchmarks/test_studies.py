"""The paper's other experiments as lists for the runner, and their smoke runs on a real Ray."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stn_tune.analysis.labels import parse

import stn_tune as stn
from benchmarks.__main__ import main
from benchmarks.studies import schedules, sensitivity, spaced
from benchmarks.tasks import problem


def test_every_change_is_one_that_the_presets_know():
    for e in [*schedules("pydoc", [0], 3, 2), *sensitivity([0])]:
        p = problem("pydoc", "smoke", e.changes, tuned=e.tuned)
        if e.label.startswith("stn start="):
            assert p.initial["output_dropout"] == parse(e.label).settings["start"]
        if "train" in parse(e.label).settings:
            assert p.settings.stn.train_steps == parse(e.label).settings["train"]
            assert p.settings.stn.valid_steps == parse(e.label).settings["valid"]
        if "scale" in parse(e.label).settings:
            assert p.settings.stn.tune_scale == ("tuned" in parse(e.label).flags)


def test_schedules_tune_output_dropout_alone():
    chosen = schedules("ptb", [0, 1], 10, 5)
    assert {e.tuned for e in chosen if e.label != "heatmap"} == {("output_dropout",)}
    assert [e.seed for e in chosen if e.label == "heatmap"] == [0]
    assert len({e.name for e in chosen}) == len(chosen)


def test_no_heat_map_where_none_is_asked_for():
    assert "heatmap" not in {e.label for e in schedules("ptb", [0], 10, 0)}


@pytest.mark.parametrize(
    "command", [["schedules", "pydoc", "--starts", "0.5", "0.5"], ["sensitivity", "digits", "--scales", "1", "1.0"]]
)
def test_a_variant_asked_for_twice_is_named(command, capsys, tmp_path):
    assert main([*command, "--out", str(tmp_path / "out")]) == 2
    assert ": asked for twice; give every value once" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_spaced():
    assert spaced(4) == [0.0, 0.3, 0.6, 0.9]


def test_schedules_are_of_language_models(capsys):
    assert main(["schedules", "digits"]) == 2
    assert "'digits' is not ptb or pydoc" in capsys.readouterr().err


SMALL = ["--preset", "smoke", "--seeds", "1", "--budget", "90s"]


def smoke(command: list[str], out: Path, *expected: str) -> None:
    """Runs a study; its report has the figures it is about."""
    assert main([*command, *SMALL, "--out", str(out), "--storage", str(out.parent / "storage")]) == 0
    config = json.loads((out / "config.json").read_text())
    assert len(list((out / "runs").iterdir())) == len(config["experiments"])
    page = (out / "report" / "report.html").read_text()
    for name in expected:
        assert (out / "report" / "figures" / f"{name}.svg").exists(), name
        assert f'id="{name}' in page


@pytest.mark.parametrize("text", ["2", "2:x", "0:1"])
def test_a_step_ratio_is_two_counts(text, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["sensitivity", "digits", "--steps", text])
    assert "--steps" in capsys.readouterr().err


@pytest.mark.usefixtures("ray_session")
def test_schedules_run(tmp_path, capsys):
    smoke(
        ["schedules", "pydoc", "--levels", "3", "--heatmap", "2", "--starts", "0.5"],
        tmp_path / "out",
        *("schedules-by-start", "heatmaps", "greedy", "perturbed"),
    )
    frame = stn.analysis.load(tmp_path / "out")
    sinusoid = frame[frame["method"] == "sinusoid"].set_index("step")["hp/output_dropout"]
    assert sinusoid.nunique() > 1
    for name in ("input_dropout", "alpha"):
        assert frame[frame["method"] == "stn"][f"hp/{name}"].nunique() == 1


@pytest.mark.usefixtures("ray_session")
def test_sensitivity_runs(tmp_path):
    command = ["sensitivity", "digits", "--steps", "1:1", "1:5", "--scales", "1"]
    smoke(command, tmp_path / "out", "steps", "scales")


@pytest.mark.usefixtures("ray_session")
def test_theory_runs(tmp_path):
    smoke(["theory"], tmp_path / "out", "neighbourhood")
