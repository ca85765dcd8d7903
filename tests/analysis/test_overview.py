"""Several tasks in one picture and one table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.__main__ import main
from stn_tune.analysis import AnalysisError, load, overview
from stn_tune.analysis.figures.dark import PAPER
from stn_tune.analysis.reporting.overview import Overview, load_tasks
from stn_tune.record import RunRecord
from tests.analysis import logs


def write_task(folder, task, stn, random):
    """Two seeds of an STN and of a search, a second apart, and one of the STN's final values."""
    infos = []
    for seed in range(2):
        for method, values in (("stn", stn), ("random", random)):
            reported = logs.rows([value + seed / 10 for value in values])
            infos.append(logs.write_run(folder, method, seed, reported, task=task))
    infos.append(logs.write_run(folder, "final", 0, logs.rows([min(stn) - 0.5]), task=task))
    logs.write_record(folder, infos, task=task)
    return folder


def add(folder, method, seed, reported, task):
    """One more experiment."""
    record = RunRecord.read(folder)
    info = logs.write_run(folder, method, seed, reported, task=task)
    logs.write_record(folder, [*record.experiments, info], task=task)


@pytest.fixture
def folders(tmp_path):
    easy = write_task(tmp_path / "a", logs.TASK, stn=[3.0, 2.0, 1.0], random=[4.0, 3.0, 2.0])
    hard = write_task(tmp_path / "b", logs.CIFAR10, stn=[3.0, 2.0, 1.5], random=[4.0, 1.2, 1.2])
    return [easy, hard]


def made(folders) -> Overview:
    return overview(load_tasks(folders))


def test_one_row_per_method_with_values_of_the_selected_row_and_times_of_the_reference(folders):
    section = made(folders).section
    rows = {row[0]: dict(zip(section.columns, row, strict=True)) for row in section.marked("**{}**")}
    assert rows["random search"]["Penn Treebank: val loss"] == "2.050", "two seeds have no interval"
    assert rows["random search"]["Penn Treebank: test loss"] == "2.550"
    assert rows["random search"]["Penn Treebank: time to target (s), STN / method"] == "20.0 / 30.0"
    assert rows["random search"]["CIFAR-10: time to target (s), STN / method"] == "> 30.0 / 20.0 (0 of 2)"
    assert rows["STN"]["Penn Treebank: val loss"] == "**1.050**"
    assert rows["random search"]["CIFAR-10: val loss"] == "**1.250**"
    assert [row["seeds"] for row in rows.values()] == ["2", "2", "1"]
    assert section.notes[1] == (
        "Preset small, 600 compute-seconds per method and seed, 1 CPU per trial, abacus with 2 cores, no GPU, "
        "torch 2.13.0, ray 2.60.0"
    )


def test_a_summary_has_claims_test_values_and_those_that_start_from_nothing(folders):
    found = made(folders)
    assert found.claims == [
        "STN has the lowest test loss on Penn Treebank: 1.550 (n = 2), too few seeds for a test.",
        "random search has the lowest test loss on CIFAR-10: 1.750 (n = 2), too few seeds for a test.",
    ]
    assert found.short.columns == [c for c in found.section.columns if ": val " not in c]
    assert [row[0] for row in found.short.rows] == ["STN", "random search"]
    assert found.short.marked("**{}**")[1][4] == "**1.750**"


def test_a_run_made_on_several_machines_names_each_once(folders):
    record = RunRecord.read(folders[0])
    (first,) = record.invocations
    slide = replace(first, machine={**first.machine, "cpu": "slide rule", "gpus": ["A100"]})
    replace(record, invocations=(first, slide, first)).write(folders[0])
    assert made(folders).section.notes[1] == (
        "Penn Treebank: Preset small, 600 compute-seconds per method and seed, 1 CPU per trial, "
        "abacus with 2 cores, no GPU, torch 2.13.0, ray 2.60.0 or slide rule with 2 cores, A100, torch 2.13.0, "
        "ray 2.60.0. "
        "CIFAR-10: Preset small, 600 compute-seconds per method and seed, 1 CPU per trial, "
        "abacus with 2 cores, no GPU, torch 2.13.0, ray 2.60.0"
    )


def test_what_builds_on_another_method_is_neither_drawn_nor_best(folders):
    found = made(folders)
    final = next(row for row in found.section.rows if row[0].startswith("final"))
    assert final[2] == "0.500"
    for ax in found.figure.axes:
        assert {line.get_label() for line in ax.lines} == {"STN", "random search"}


def test_the_figure_has_test_values_above_those_that_select(folders):
    axes = made(folders).figure.axes
    titles = [f"{task}, {split} set" for split in ("test", "validation") for task in ("Penn Treebank", "CIFAR-10")]
    assert [ax.get_title(loc="left") for ax in axes] == titles
    ends = [next(line for line in ax.lines if line.get_label() == "STN").get_ydata()[-1] for ax in axes]
    assert ends == pytest.approx([1.55, 2.05, 1.05, 1.55]), "the mean of two seeds; test values are 0.5 above"


def test_one_task_has_both_panels_and_no_profiles(folders):
    found = made(folders[:1])
    assert len(found.figure.axes) == 2
    assert found.profiles is None
    assert found.across is None
    assert "profiles" not in found.to_markdown()


def test_all_tasks_together_are_of_methods_that_all_have_and_of_these_tasks_alone(folders):
    add(folders[0], "bayes", 0, logs.rows([0.1]), logs.TASK)
    found = made(folders)
    assert [row[0] for row in found.across.rows] == ["STN", "random search"], "neither what builds on the STN nor bayes"
    assert [row[1] for row in found.across.rows] == ["4", "4"]
    assert found.across.notes[-1].startswith("Penn Treebank and CIFAR-10 are 2 tasks: the intervals are over seeds")
    (ax,) = found.profiles.axes
    assert [line.get_label() for line in ax.lines] == ["STN", "random search"]
    assert "2 tasks: this describes them and says nothing about" in " ".join(found.profiles.get_supxlabel().split())


def test_the_dark_figure_has_the_page_s_dark_colours(folders, tmp_path):
    made(folders).write(tmp_path)
    dark, light = ((tmp_path / f"overview{kind}.svg").read_text() for kind in ("-dark", ""))
    assert PAPER in dark
    assert PAPER not in light
    assert "#ffffff" not in dark
    assert dark.count("<path") == light.count("<path")


def test_a_method_that_a_task_lacks_has_dashes(folders, tmp_path):
    add(folders[0], "bayes", 0, logs.rows([2.5]), logs.TASK)
    section = made(folders).section
    row = next(row for row in section.rows if row[0] == "Bayesian optimisation")
    assert row[1] == "1, 0"
    assert list(row[5:]) == ["–"] * 3


def test_fewer_seeds_are_counted_for_each_task_and_never_best(folders, capsys):
    """Their mean is over other seeds than the reference's."""
    add(folders[0], "bayes", 0, logs.rows([0.1]), logs.TASK)
    add(folders[1], "bayes", 0, logs.rows([0.1]), logs.CIFAR10)
    add(folders[1], "bayes", 1, logs.rows([0.1]), logs.CIFAR10)
    section = made(folders).section
    rows = {row[0]: dict(zip(section.columns, row, strict=True)) for row in section.marked("**{}**")}
    assert rows["Bayesian optimisation"]["seeds"] == "1, 2"
    assert rows["Bayesian optimisation"]["Penn Treebank: val loss"] == "0.100"
    assert rows["Bayesian optimisation"]["CIFAR-10: val loss"].startswith("**0.10")
    assert rows["STN"]["Penn Treebank: val loss"] == "**1.050**"


def test_the_command_names_what_is_missing(folders, tmp_path, capsys):
    (folders[1] / "runs" / "random-1.jsonl.gz").unlink()
    main(["overview", *map(str, folders), "--out", str(tmp_path / "out")])
    assert "CIFAR-10: random-1: not finished, it has no log in runs/" in capsys.readouterr().out


def test_the_files_are_the_same_whenever_the_logs_are(folders, tmp_path):
    first = {path.name: path.read_bytes() for path in made(folders).write(tmp_path / "one")}
    second = {path.name: path.read_bytes() for path in made(folders).write(tmp_path / "two")}
    drawn = [f"{name}{kind}" for name in ("overview", "profiles") for kind in ("-dark.svg", ".png", ".svg")]
    assert sorted(first) == sorted(["overview.md", "summary.md", *drawn])
    assert first == second


def test_bad_input(folders, tmp_path):
    with pytest.raises(AnalysisError, match="at least one task"):
        overview({})
    with pytest.raises(AnalysisError, match="a second folder of Penn Treebank; an overview has one for each task"):
        load_tasks([folders[0], folders[0]])
    logs.write_run(tmp_path / "c", "random", 0, logs.rows([1.0]))
    with pytest.raises(AnalysisError, match="unknown reference 'stn'; known: random"):
        overview({"mine": load(tmp_path / "c")}, reference="stn")
    (tmp_path / "file").touch()
    with pytest.raises(AnalysisError, match="file is a file; the overview needs a folder"):
        made(folders).write(tmp_path / "file")
