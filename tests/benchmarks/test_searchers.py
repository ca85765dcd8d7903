from __future__ import annotations

import json
import math
from dataclasses import fields

import pytest
from scipy.optimize import minimize

from benchmarks.errors import SettingsError
from benchmarks.microbenchmarks.searchers import functions as searchers
from benchmarks.microbenchmarks.searchers.functions import (
    EVALUATIONS,
    FUNCTIONS,
    SEARCHERS,
    SearcherRow,
    Trace,
    branin,
    compare_traces,
    hartmann6,
    measure_searchers,
)

BRANIN, HARTMANN6 = FUNCTIONS
HARTMANN6_LEAST = (0.20168951, 0.15001069, 0.47687397, 0.27533243, 0.31165162, 0.65730053)


def trace(regrets, seconds=0.0):
    return Trace(BRANIN, list(regrets), [seconds] * len(regrets))


@pytest.mark.parametrize("x", [(-math.pi, 12.275), (math.pi, 2.275), (3 * math.pi, 2.475)])
def test_branin_has_three_equal_minima(x):
    assert branin(x) == pytest.approx(0.397887, abs=1e-6)
    assert branin(x) == pytest.approx(BRANIN.minimum, abs=1e-12)


def test_branin_elsewhere():
    assert branin((0, 0)) == pytest.approx(36 + 20 - 10 / (8 * math.pi))
    assert branin((-5, 0)) == pytest.approx(308.129096, abs=1e-6)


def test_hartmann6_at_its_minimum_and_elsewhere():
    assert hartmann6(HARTMANN6_LEAST) == pytest.approx(-3.32237, abs=1e-5)
    assert hartmann6((0.40465, 0.88244, 0.84610, 0.57399, 0.13893, 0.03850)) == pytest.approx(-3.20316, abs=1e-5)
    assert hartmann6((0,) * 6) == pytest.approx(-0.00508911, abs=1e-8)


@pytest.mark.parametrize(
    ("function", "start"), [(BRANIN, (3.0, 2.0)), (HARTMANN6, HARTMANN6_LEAST)], ids=["Branin", "Hartmann6"]
)
def test_no_descent_leads_below_the_minimum(function, start):
    found = minimize(function.value, start, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-14})
    assert found.fun == pytest.approx(function.minimum, abs=1e-12)


@pytest.mark.parametrize("name", SEARCHERS)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_every_searcher_makes_so_many_evaluations_inside_the_box(name, function):
    points = []
    recorded = searchers.Function("", lambda x: points.append(list(x)) or function.value(x), function.bounds, 0.0)
    found = Trace(recorded)
    SEARCHERS[name](found, 11, 0)
    assert len(found.regrets) == len(found.seconds) == len(points) == 11
    assert found.regrets == [function.value(x) for x in points]
    for (lower, upper), column in zip(function.bounds, zip(*points, strict=True), strict=True):
        middle = (lower + upper) / 2
        assert lower <= min(column) < middle < max(column) <= upper


def test_rows_hold_the_quartiles_of_the_best_so_far():
    traces = {
        "random": [trace([9, 5, 1], 0.1), trace([4, 8, 1], 0.3), trace([6, 7, 1], 0.2)],
        "SkOptSearch": [trace([3, 4, 0]), trace([9, 2, 0]), trace([1, 9, 0])],
        "gp_minimize": [trace([1, 2, 8]), trace([1, 1, 8]), trace([1, 3, 8])],
    }
    random, ours, reference = compare_traces("Branin", 2, traces)
    assert random == SearcherRow("Branin", 2, "random", 5.0, 4.5, 5.5, 5.0, 0.2)
    assert ours == SearcherRow(
        "Branin", 2, "SkOptSearch", 2.0, 1.5, 2.5, 2.0, 0.0, below_random=True, within_twice=True
    )
    assert reference.ratio == 1.0


@pytest.mark.parametrize(
    ("ours", "below", "within"), [(1.9, True, True), (2.1, True, False), (5.0, False, False), (6.0, False, False)]
)
def test_both_requirements_are_judged(ours, below, within):
    traces = {"random": [trace([5.0])], "SkOptSearch": [trace([ours])], "gp_minimize": [trace([1.0])]}
    row = compare_traces("Branin", 1, traces)[1]
    assert (row.below_random, row.within_twice) == (below, within)


def test_a_long_run_holds_the_short_one():
    both = measure_searchers(1, (13, 11), [BRANIN])
    assert [(row.evaluations, row.searcher) for row in both] == [(n, name) for n in (11, 13) for name in SEARCHERS]
    assert [row.median for row in measure_searchers(1, (11,), [BRANIN])] == [row.median for row in both[:3]]
    assert all(row.seconds > 0 for row in both)


def test_prints_a_table_or_json(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setattr(searchers, "FUNCTIONS", (HARTMANN6,))
    monkeypatch.setattr(searchers, "SEARCHERS", dict.fromkeys(SEARCHERS, searchers.random_search))
    searchers.print_comparison(2, [10, 11], as_json=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 6
    assert list(rows[0]) == [field.name for field in fields(SearcherRow)]
    assert [row["below_random"] for row in rows[:3]] == [None, False, None]
    searchers.print_comparison(2)
    text = capsys.readouterr().out
    assert "quartiles of 2 seeds" in text
    for row in [line.split("│") for line in text.splitlines() if "SkOptSearch" in line]:
        assert int(row[2]) in EVALUATIONS
        assert [cell.strip() for cell in row[6:10:3]] == ["1.00", "yes"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": 0}, "seeds is 0; it must be at least 1"),
        ({"evaluations": (30, 5)}, r"evaluations is \[5, 30\]; each must be at least 10"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(SettingsError, match=message):
        measure_searchers(**options)
