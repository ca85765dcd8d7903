"""The studies as lists for the runner, and their smoke runs on a real Ray."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.errors import SettingsError
from benchmarks.runner.log import unpack_log
from benchmarks.runner.store import Store
from benchmarks.studies import STUDIES
from benchmarks.studies.base import discover
from benchmarks.studies.schedules import spaced
from benchmarks.tasks import problem
from stn_tune.record import ExperimentInfo


def asked(study: str, *words: str) -> list[ExperimentInfo]:
    """The experiments that a command line asks for."""
    parser = argparse.ArgumentParser()
    STUDIES[study].arguments(parser)
    return STUDIES[study].experiments(parser.parse_args(words))


def test_every_override_is_one_that_the_presets_know():
    for e in [*asked("schedules", "pydoc", "--seeds", "1"), *asked("sensitivity", "pydoc")]:
        p = problem("pydoc", "smoke", e.overrides, tuned=e.tuned)
        if "start" in e.variant:
            assert p.initial["output_dropout"] == e.variant["start"]
        for name in ("train_steps", "valid_steps", "scale", "tune_scale"):
            if name in e.variant:
                assert p.settings.stn[name] == e.variant[name]
    for e in asked("theory"):
        settings = problem("theory", "small", e.overrides).settings
        assert e.variant == {"network": settings.network, "scale": settings.stn["scale"]}


def test_variants_have_labels_that_say_what_they_change():
    names = [e.name for e in asked("sensitivity", "digits", "--steps", "2:1", "--scales", "0.5", "1")]
    assert names == [
        "stn_train_steps=2_valid_steps=1-0",
        "stn_scale=0.5_tune_scale=false-0",
        "stn_scale=0.5_tune_scale=true-0",
        "stn_scale=1_tune_scale=false-0",
        "stn_scale=1_tune_scale=true-0",
    ]
    found = asked("theory", "--seeds", "0,5")
    assert [e.label for e in found[:2]] == ["stn network=ridge scale=0.01", "stn network=ridge scale=0.2"]
    assert len({e.name for e in found}) == len(found) == 12


def test_run_is_methods_times_seeds():
    found = asked("run", "digits", "--methods", "stn,grid", "pbt", "--seeds", "0,3", "--tune", "hue")
    assert [e.name for e in found] == ["stn-0", "grid-0", "pbt-0", "stn-3", "grid-3", "pbt-3"], "seed by seed"
    assert {e.tuned for e in found} == {("hue",)}
    assert [e.method for e in asked("run", "digits", "--seeds", "1")] == ["stn", "grid", "random", "bayes"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "byes"], "unknown method 'byes'; known: stn, .*; did you mean 'bayes'"),
        (["--methods", "stn", "stn"], "--methods names one twice: stn stn"),
        (["--schedule", "s.json"], "--schedule is what replay follows: add replay to --methods"),
    ],
)
def test_methods_that_make_no_comparison(words, message):
    with pytest.raises(SettingsError, match=message):
        asked("run", "digits", *words)


def test_schedules_tune_output_dropout_alone():
    chosen = asked("schedules", "ptb", "--seeds", "2")
    assert {e.tuned for e in chosen if e.compared} == {("output_dropout",)}
    assert [(e.label, e.seed) for e in chosen if not e.compared] == [("grid view=heatmap", 0)]
    assert len({e.name for e in chosen}) == len(chosen)


def test_no_heat_map_where_none_is_asked_for():
    assert all(e.compared for e in asked("schedules", "ptb", "--heatmap", "0"))


def test_schedules_are_of_language_models():
    with pytest.raises(SettingsError, match="'digits' is not ptb or pydoc"):
        asked("schedules", "digits")


def test_spaced():
    assert spaced(4) == [0.0, 0.3, 0.6, 0.9]


def test_published_values_are_those_of_the_same_experiment():
    task = problem("ptb", "small").info
    everything = tuple(task.space)
    assert STUDIES["run"].published_for(task, everything).values["stn"] == {"val": "70.30", "test": "67.68"}
    assert STUDIES["run"].published_for(task, everything[:2]) is None, "the paper tunes all of them"
    assert STUDIES["schedules"].published_for(task, everything).values["stn"]["val"] == "82.58"
    assert STUDIES["sensitivity"].published_for(task, everything) is None
    digits = problem("digits", "small").info
    assert STUDIES["run"].published_for(digits, tuple(digits.space)) is None


def test_a_study_is_one_file(tmp_path, monkeypatch):
    """A toy study in a package of its own: found by its STUDY, nothing else to touch."""
    package = tmp_path / "toy_studies"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helpers.py").write_text("")
    (package / "toy.py").write_text(
        "from benchmarks.studies import Study\n"
        "from stn_tune.record import ExperimentInfo\n"
        "STUDY = Study('toy', 'a toy', lambda parser: None, lambda options: [ExperimentInfo('stn', 7)])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = discover("toy_studies", [str(package)])
    assert list(found) == ["toy"]
    assert [e.name for e in found["toy"].experiments(argparse.Namespace())] == ["stn-7"]
    assert list(STUDIES) == ["run", "schedules", "sensitivity", "theory"]


@pytest.mark.parametrize("text", ["2", "2:x", "0:1"])
def test_a_step_ratio_is_two_counts(text, capsys):
    with pytest.raises(SystemExit, match="2"):
        asked("sensitivity", "digits", "--steps", text)
    assert "--steps" in capsys.readouterr().err


def test_studies_are_cheap_to_import():
    code = "import sys, benchmarks.studies; print([m for m in ('torch', 'ray', 'pandas', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


SMALL = ["--preset", "smoke", "--seeds", "1", "--budget", "90s"]


def smoke(command: list[str], out: Path, *expected: str) -> Store:
    """Runs a study to its report, which has the figures that it is about."""
    assert main([*command, *SMALL, "--out", str(out), "--storage", str(out.parent / "storage")]) == 0
    store = Store(out)
    record = store.record()
    assert record is not None
    assert record.study == command[0]
    assert {path.name for path in (out / "runs").iterdir()} == {f"{e.name}.jsonl.gz" for e in record.experiments}
    page = (out / "report" / "report.html").read_text()
    for name in expected:
        assert (out / "report" / "figures" / f"{name}.svg").exists(), name
        assert f'id="{name}' in page
    return store


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("ray_session")
def test_schedules_run(tmp_path):
    store = smoke(
        ["schedules", "pydoc", "--levels", "2", "--heatmap", "2", "--starts", "0.5", "--set", "lr_patience=1"],
        tmp_path / "out",
        "schedules-by-start",
        "perturbed",
        "heatmaps",
    )
    _, rows = unpack_log(store.read_log("sinusoid-0"))
    assert len({row["hp/output_dropout"] for row in rows}) > 1
    _, rows = unpack_log(store.read_log("stn-0"))
    for name in ("input_dropout", "alpha"):
        assert len({row[f"hp/{name}"] for row in rows}) == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("ray_session")
def test_sensitivity_runs(tmp_path):
    smoke(["sensitivity", "digits", "--steps", "1:1", "1:5", "--scales", "1"], tmp_path / "out", "steps", "scales")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("ray_session")
def test_theory_runs(tmp_path):
    smoke(["theory", "--set", "lr_patience=1"], tmp_path / "out", "neighbourhood")
