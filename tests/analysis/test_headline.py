"""The sentence on top of a report: computed, with its uncertainty, and honest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stn_tune.analysis import Results, load, table
from stn_tune.analysis.reporting.headline import headline
from stn_tune.analysis.reporting.sections import sections
from tests.analysis import logs


def found(tmp_path, finals: dict[str, list[float]], **changes):
    """Methods whose runs end at these validation values; test values are 0.5 above."""
    runs = {(m, s): logs.rows([9.0, value]) for m, values in finals.items() for s, value in enumerate(values)}
    logs.write_runs(tmp_path, runs, **changes)
    results = Results.of(load(tmp_path))
    return headline(results, table(results))


def test_a_significant_lead_is_said_with_its_uncertainty(tmp_path):
    said = found(
        tmp_path, {"stn": [1.0, 1.01, 1.02, 1.01], "grid": [2.0, 2.02, 2.01, 2.03], "pbt": [3.0, 3.1, 3.0, 3.1]}
    )
    assert said.claim.startswith("STN reaches the lowest test loss on Penn Treebank: 1.510 ± 0.013 (n = 4)")
    assert said.claim.endswith("significantly ahead of grid search and PBT.")
    assert said.details[0].startswith("Next: grid search, 2.515 ±")
    assert any("Holm-corrected for these 2 comparisons" in line for line in said.details), "not those of the table"
    assert (
        any("STN is first to the final validation loss of every other method" in line for line in said.details) is False
    )


def test_a_lead_that_is_not_significant_is_not_claimed(tmp_path):
    said = found(tmp_path, {"stn": [1.0, 1.3, 0.9], "grid": [1.1, 1.1, 1.1]})
    assert said.claim.startswith("No method is significantly ahead on Penn Treebank: STN has the lowest mean test loss")
    assert any(line.startswith("Not significantly behind: grid search (p = ") for line in said.details)


def test_who_was_there_before_the_reference_is_named(tmp_path):
    runs = {("stn", s): logs.rows([9.0, 3.0, 2.0 + s / 10, 1.0]) for s in range(3)}
    runs |= {("grid", s): logs.rows([9.0, 2.5 + s / 10]) for s in range(3)}
    runs |= {("pbt", s): logs.rows([9.0, 9.0, 9.0, 9.0, 1.5 + s / 10]) for s in range(3)}
    runs |= {("tpe", s): logs.rows([0.9]) for s in range(3)}
    logs.write_runs(tmp_path, runs)
    results = Results.of(load(tmp_path))
    details = headline(results, table(results)).details
    first = "STN is first to the final validation loss of PBT: after 40.0 compute-seconds, PBT after 50.0."
    assert details[details.index(first) + 1 :] == [
        "Had theirs sooner: grid search, after 20.0; STN after 30.0.",
        "STN ended on most seeds without reaching that of TPE.",
    ]


def test_who_is_level_is_named(tmp_path):
    finals = {"stn": [1.0, 1.1, 1.05, 1.02], "pbt": [1.02, 1.08, 1.07, 1.02], "grid": [2.0, 2.1, 2.05, 2.03]}
    said = found(tmp_path, finals)
    assert said.claim.endswith(", significantly ahead of grid search; its lead over PBT is not significant.")
    assert "STN is significantly ahead of grid search (p < 0.001)." in said.details


def test_it_need_not_be_the_reference_that_wins(tmp_path):
    said = found(tmp_path, {"stn": [2.0, 2.01, 2.02], "pbt": [1.0, 1.01, 1.03]})
    assert said.claim.startswith("PBT reaches the lowest test loss")


@pytest.mark.parametrize(("seeds", "words"), [(1, "One seed each"), (2, "Tests and intervals need 3 seeds.")])
def test_few_seeds_have_no_test(tmp_path, seeds, words):
    said = found(tmp_path, {"stn": [1.0, 1.1][:seeds], "grid": [2.0, 2.1][:seeds]})
    assert said.claim.endswith("too few seeds for a test.")
    assert "±" not in said.claim
    assert any(line.startswith(words) for line in said.details)


def test_a_tie_has_two_names(tmp_path):
    said = found(tmp_path, {"stn": [1.0, 1.2, 1.1], "grid": [1.0, 1.2, 1.1], "pbt": [2.0, 2.1, 2.2]})
    assert said.claim.startswith("STN and grid search tie for the lowest test loss on Penn Treebank: 1.60 ±")
    assert said.details[0].startswith("Next: PBT")


def test_a_metric_has_one_name_in_all_tables(tmp_path):
    for name in ("asha", "tpe"):
        rows = [{"acc": 0.5, "test_acc": 0.4}, {"acc": 0.6, "test_acc": 0.5}]
        logs.write_trial(tmp_path / name, "t", logs.tune_rows("t", rows))
    results = Results.of(load(tmp_path, metric="acc", mode="max"))
    first, differences, *_ = sections(results, table(results))
    assert first.columns[:3] == ["method", "test acc", "acc"]
    assert differences.columns == ["method", "n", "test acc", "acc"]


def test_more_may_be_better(tmp_path):
    task = replace(logs.TASK, metric="val_accuracy", mode="max", unit="")
    infos = []
    for method, values in {"stn": [0.9, 0.91, 0.92], "grid": [0.5, 0.51, 0.53]}.items():
        for seed, value in enumerate(values):
            rows = [row | {"val_accuracy": value, "test_accuracy": value - 0.1} for row in logs.rows([1.0])]
            infos.append(logs.write_run(tmp_path, method, seed, rows, task=task))
    logs.write_record(tmp_path, infos, task=task)
    results = Results.of(load(tmp_path))
    said = headline(results, table(results))
    assert said.claim.startswith("STN reaches the highest test accuracy on Penn Treebank: 0.810 ± 0.025 (n = 3)")


def test_one_method_has_a_value_and_no_lead(tmp_path):
    assert (
        found(tmp_path, {"stn": [1.0, 1.1, 1.2]}).claim
        == "STN reaches a test loss of 1.60 ± 0.25 (n = 3) on Penn Treebank."
    )


def test_what_builds_on_others_or_lacks_seeds_does_not_win(tmp_path):
    said = found(tmp_path, {"stn": [1.0, 1.01, 1.0], "grid": [2.0, 2.02, 2.01], "replay": [0.5] * 3, "tpe": [0.4]})
    assert said.claim.startswith("STN reaches")
    assert "Left out, because they have fewer than 3 seeds: TPE (n = 1)." in said.details
    assert "Left out, because they build on another method's results: STN schedule replayed." in said.details
    assert "Of those, better in the mean: STN schedule replayed, 1.000 ± 0.000." in said.details, (
        "the table has it on top"
    )


def test_data_for_figures_have_no_headline_and_no_ranks(tmp_path):
    info = logs.write_run(tmp_path, "stn", 0, logs.rows([1.0]), variant={"scale": 1.0}, compared=False)
    logs.write_record(tmp_path, [info])
    results = Results.of(load(tmp_path))
    made = table(results)
    assert headline(results, made) is None
    (only,) = sections(results, made)
    assert "rank" not in only.columns
    assert "rank" not in made.frame.columns


def test_the_first_table_has_test_values_first_and_nothing_twice(tmp_path):
    runs = {}
    for method, value in {"stn": 1.0, "grid": 2.0}.items():
        for seed in range(3):
            rows = logs.rows([value * (1 + seed / 100)], test_accuracy=0.5 + value / 10 + seed / 50)
            for row in rows:
                row |= {
                    "val_perplexity": 2.718281828 ** row["val_loss"],
                    "test_perplexity": 2.718281828 ** row["test_loss"],
                }
            runs[method, seed] = rows
    logs.write_runs(tmp_path, runs)
    results = Results.of(load(tmp_path))
    first, differences, *rest = sections(results, table(results))
    assert first.columns == ["method", "test loss", "test accuracy", "val loss", "n", "trials", "compute s", "rank"]
    assert [row[0] for row in first.rows] == ["STN", "grid search"]
    assert (0, 1) in first.bold
    assert differences.title == "Differences to STN"
    assert differences.columns == ["method", "n", "test loss", "test accuracy", "val loss"], "a row per method"
    assert differences.rows[0][2].startswith("1.010")
    assert "(p < 0.001)" in differences.rows[0][2]
    assert all(
        "–" not in set(cells) or set(cells) != {"–"} for s in [first, *rest] for cells in zip(*s.rows, strict=True)
    )


def test_seeds_that_are_not_shared_are_not_called_few(tmp_path):
    runs = {("stn", s): logs.rows([9.0, 1 + 0.01 * s]) for s in range(4)}
    runs |= {("grid", 10 + s): logs.rows([9.0, 2 + 0.02 * s]) for s in range(4)}
    logs.write_runs(tmp_path, runs)
    results = Results.of(load(tmp_path))
    said = headline(results, table(results))
    assert said.claim.endswith("(n = 4); its lead cannot be tested.")
    assert "Not tested, because fewer than 3 seeds are shared with STN: grid search." in said.details


def test_seeds_that_repeat_one_run_are_not_evidence(tmp_path):
    """Whoever forgets to use the seed gets the same difference every time: a t-test would call it certain."""
    said = found(tmp_path, {"stn": [1.0, 1.0, 1.0], "grid": [1.001, 1.001, 1.001], "pbt": [2.0, 2.1, 2.3]})
    assert said.claim.endswith("(n = 3), significantly ahead of PBT; its lead over grid search cannot be tested.")
    assert "Not tested, because every seed gives the same difference to STN: grid search." in said.details


def test_a_method_with_a_diverged_seed_is_named(tmp_path):
    nan = float("nan")
    runs = {("stn", s): logs.rows([9.0, 1 + 0.01 * s]) for s in range(4)}
    runs |= {("grid", s): logs.rows([nan, nan] if s == 0 else [9.0, 0.5 + 0.1 * s]) for s in range(4)}
    logs.write_runs(tmp_path, runs)
    results = Results.of(load(tmp_path))
    made = table(results)
    assert "Left out, because not every seed had a finite value: grid search." in headline(results, made).details
    better = made.differences.set_index("split")["better"]
    assert better["test"] == better["val"] == 0.75, "the seed that diverged is worse than all, not left out"


def test_fewer_seeds_are_neither_bold_nor_hidden(tmp_path):
    values = {("stn", s): 1 + 0.1 * s * s for s in range(5)} | {("grid", s): 0.5 + 0.1 * s for s in range(3)}
    values |= {("pbt", s): 3.0 + 0.1 * s * s * s for s in range(5)}
    logs.write_runs(tmp_path, {run: logs.rows([9.0, value]) for run, value in values.items()})
    results = Results.of(load(tmp_path))
    made = table(results)
    details = headline(results, made).details
    assert "Left out, because they have fewer than 5 seeds: grid search (n = 3)." in details
    assert "With the fewer seeds they have, better in the mean: grid search, 1.10 ± 0.25." in details
    first = made.sections[0]
    assert {first.rows[row][0] for row, _ in first.bold} == {"STN"}
    assert any("apart from methods that have fewer seeds than the reference" in note for note in first.notes)


def test_methods_that_tie_are_not_behind_each_other(tmp_path):
    said = found(tmp_path, {"stn": [1.0, 2.0, 3.0], "grid": [1.0, 2.0, 3.0]})
    assert said.claim.startswith("STN and grid search tie")
    assert not any("behind" in line for line in said.details)
