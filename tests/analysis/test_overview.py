"""Several tasks in one picture and one table."""

from __future__ import annotations

import json

import pytest

from benchmarks import overview as command
from stn_tune.analysis import AnalysisError, load, overview
from tests.analysis import logs


def write_task(folder, task, stn, random):
    """Two seeds of an STN and of a search, a second apart, and one of the STN's final values."""
    for seed in range(2):
        logs.write_run(folder, "stn", seed, logs.rows([value + seed / 10 for value in stn]), task=task)
        logs.write_run(folder, "random", seed, logs.rows([value + seed / 10 for value in random]), task=task)
    logs.write_run(folder, "final", 0, logs.rows([min(stn) - 0.5]), task=task)
    logs.write_config(folder, ["stn-0", "stn-1", "random-0", "random-1", "final-0"], task=task, cpus=1)
    return folder


@pytest.fixture
def folders(tmp_path):
    easy = write_task(tmp_path / "a", "ptb", stn=[3.0, 2.0, 1.0], random=[4.0, 3.0, 2.0])
    hard = write_task(tmp_path / "b", "cifar10", stn=[3.0, 2.0, 1.5], random=[4.0, 1.2, 1.2])
    return [easy, hard]


def test_one_row_per_method_with_values_of_the_selected_row_and_times_of_the_reference(folders):
    section = command.compose(folders).section
    rows = {row[0]: dict(zip(section.columns, row, strict=True)) for row in section.rows}
    assert rows["random search"]["Penn Treebank: val loss"].startswith("2.05 ±")
    assert rows["random search"]["Penn Treebank: test loss"].startswith("2.55 ±")
    assert rows["random search"]["Penn Treebank: STN as good / itself"] == "20.0 s / 30.0 s"
    assert rows["random search"]["CIFAR-10: STN as good / itself"] == "never / 20.0 s (0 of 2)"
    assert rows["STN"]["Penn Treebank: val loss"].startswith("**1.05 ±")
    assert rows["random search"]["CIFAR-10: val loss"].startswith("**1.25 ±")
    assert [row["seeds"] for row in rows.values()] == ["2", "2", "1"]
    assert section.notes[1] == (
        "Preset small, 600 compute-seconds per method and seed, 1 CPU per trial, abacus with 2 cores, no GPU, "
        "torch 2.13.0, ray 2.60.0"
    )


def test_a_run_made_on_several_machines_names_each_once(folders):
    path = folders[0] / "config.json"
    config = json.loads(path.read_text())
    (go,) = config["goes"]
    slide = go | {"machine": go["machine"] | {"cpu": "slide rule", "gpus": ["A100"]}}
    path.write_text(json.dumps(config | {"goes": [go, slide, go]}))
    assert command.compose(folders).section.notes[1] == (
        "Penn Treebank: Preset small, 600 compute-seconds per method and seed, 1 CPU per trial, "
        "abacus with 2 cores, no GPU, torch 2.13.0, ray 2.60.0 or slide rule with 2 cores, A100, torch 2.13.0, "
        "ray 2.60.0. "
        "CIFAR-10: Preset small, 600 compute-seconds per method and seed, 1 CPU per trial, "
        "abacus with 2 cores, no GPU, torch 2.13.0, ray 2.60.0"
    )


def test_what_was_taken_over_from_another_method_is_neither_drawn_nor_best(folders):
    made = command.compose(folders)
    final = next(row for row in made.section.rows if row[0].startswith("final"))
    assert final[2] == "0.50"
    for ax in made.figure.axes:
        assert {line.get_label() for line in ax.lines} == {"STN", "random search"}


def test_a_method_that_a_task_lacks_has_dashes(folders, tmp_path):
    logs.write_run(folders[0], "bayes", 0, logs.rows([2.5]), task="ptb")
    section = command.compose(folders).section
    row = next(row for row in section.rows if row[0] == "Bayesian optimisation")
    assert row[1] == "1, 0"
    assert list(row[5:]) == ["–"] * 3


def test_fewer_seeds_are_counted_for_each_task_and_never_best(folders, capsys):
    """Their mean is over other seeds than the reference's."""
    logs.write_run(folders[0], "bayes", 0, logs.rows([0.1]), task="ptb")
    logs.write_run(folders[1], "bayes", 0, logs.rows([0.1]), task="cifar10")
    logs.write_run(folders[1], "bayes", 1, logs.rows([0.1]), task="cifar10")
    section = command.compose([*folders]).section
    rows = {row[0]: dict(zip(section.columns, row, strict=True)) for row in section.rows}
    assert rows["Bayesian optimisation"]["seeds"] == "1, 2"
    assert rows["Bayesian optimisation"]["Penn Treebank: val loss"] == "0.10"
    assert rows["Bayesian optimisation"]["CIFAR-10: val loss"].startswith("**0.10")
    assert rows["STN"]["Penn Treebank: val loss"].startswith("**1.05 ±")


def test_the_command_names_what_is_missing(folders, tmp_path, capsys):
    (folders[1] / "runs" / "random-1.jsonl.gz").unlink()
    command.run(folders, str(tmp_path / "out"))
    assert "CIFAR-10: random-1: not finished, it has no log in runs/" in capsys.readouterr().out


def test_the_files_are_the_same_whenever_the_logs_are(folders, tmp_path):
    first = {path.name: path.read_bytes() for path in command.compose(folders).write(tmp_path / "one")}
    second = {path.name: path.read_bytes() for path in command.compose(folders).write(tmp_path / "two")}
    assert sorted(first) == ["overview.md", "overview.png", "overview.svg"]
    assert first == second


def test_bad_input(folders, tmp_path):
    with pytest.raises(AnalysisError, match="at least one frame"):
        overview({})
    with pytest.raises(AnalysisError, match="there is a folder of Penn Treebank already"):
        command.compose([folders[0], folders[0]])
    logs.write_run(tmp_path / "c", "random", 0, logs.rows([1.0]))
    with pytest.raises(AnalysisError, match="mine: there is no stn to compare the others with"):
        overview({"mine": load(tmp_path / "c")})
    (tmp_path / "file").touch()
    with pytest.raises(AnalysisError, match="cannot write the overview"):
        command.compose(folders).write(tmp_path / "file")
