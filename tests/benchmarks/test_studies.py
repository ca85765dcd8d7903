"""The studies as lists for the runner, and their smoke runs on a real Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.commands import build_parser
from benchmarks.runner.log import unpack_log
from benchmarks.runner.store import Store
from benchmarks.studies import STUDIES
from benchmarks.tasks import problem
from stn_tune.record import ExperimentInfo


def listed(*command: str) -> list[ExperimentInfo]:
    """The experiments of a command line."""
    return STUDIES[command[0]].experiments(build_parser().parse_args(command))


def test_experiments_go_seed_by_seed_so_that_an_early_end_leaves_complete_comparisons():
    names = [e.name for e in listed("run", "digits", "--methods", "stn", "replay", "--seeds", "2")]
    assert names == ["stn-0", "replay-0", "stn-1", "replay-1"]


def test_every_change_is_one_that_the_presets_know():
    commands = [
        ("schedules", "pydoc", "--seeds", "1", "--levels", "3", "--heatmap", "2"),
        ("sensitivity", "pydoc"),
        ("theory", "--seeds", "0,5"),
    ]
    for command in commands:
        chosen = listed(*command)
        assert len({e.name for e in chosen}) == len(chosen)
        for e in chosen:
            p = problem("theory" if command[0] == "theory" else "pydoc", "smoke", e.overrides, tuned=e.tuned)
            settings = p.settings
            known = {
                "start": lambda p=p: p.initial["output_dropout"],
                "train": lambda s=settings: s.stn.train_steps,
                "valid": lambda s=settings: s.stn.valid_steps,
                "scale": lambda s=settings: s.stn.scale,
                "tune_scale": lambda s=settings: s.stn.tune_scale,
                "network": lambda s=settings: s.network,
            }
            for key, value in e.variant.items():
                if key in known:
                    assert known[key]() == value, e.name


def test_schedules_tune_output_dropout_alone():
    chosen = listed("schedules", "ptb", "--seeds", "2")
    assert {e.tuned for e in chosen if e.compared} == {("output_dropout",)}
    assert [e.seed for e in chosen if not e.compared] == [0], "the heat map"
    assert all(e.compared for e in listed("schedules", "ptb", "--heatmap", "0"))


@pytest.mark.parametrize(
    "command", [["schedules", "pydoc", "--starts", "0.5", "0.5"], ["sensitivity", "digits", "--scales", "1", "1.0"]]
)
def test_a_variant_asked_for_twice_is_named(command, capsys, tmp_path):
    assert main([*command, "--out", str(tmp_path / "out")]) == 2
    assert ": asked for twice; give every method, value and seed once" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_schedules_are_of_language_models(capsys):
    assert main(["schedules", "digits"]) == 2
    assert "'digits'" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["2", "2:x", "0:1"])
def test_a_step_ratio_is_two_counts(text, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["sensitivity", "digits", "--steps", text])
    assert "--steps" in capsys.readouterr().err


SMALL = ["--preset", "smoke", "--seeds", "1", "--budget", "90s"]


def smoke(command: list[str], out: Path) -> Store:
    """Runs a study to its report."""
    assert main([*command, *SMALL, "--out", str(out), "--storage", str(out.parent / "storage")]) == 0
    store = Store(out)
    record = store.record()
    assert record.study == command[0]
    assert {path.name for path in (out / "runs").iterdir()} == {f"{e.name}.jsonl.gz" for e in record.experiments}
    assert (out / "report" / "report.html").exists()
    return store


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("ray_session")
def test_schedules_run(tmp_path):
    store = smoke(
        ["schedules", "pydoc", "--levels", "3", "--heatmap", "2", "--starts", "0.5", "--set", "lr_patience=1"],
        tmp_path / "out",
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
    smoke(["sensitivity", "digits", "--steps", "1:1", "1:5", "--scales", "1"], tmp_path / "out")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("ray_session")
def test_theory_runs(tmp_path):
    smoke(["theory", "--set", "lr_patience=1"], tmp_path / "out")
