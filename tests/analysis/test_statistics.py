"""Estimates against answers worked out by hand, against SciPy, and against runs whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from stn_tune.analysis import AnalysisError, estimates
from stn_tune.analysis.anytime import rank_over_time, regret_auc
from stn_tune.analysis.estimates import aggregate, holm, normalised, performance_profile, probability_of_improvement
from stn_tune.analysis.stats import FEWEST, interquartile_mean, paired, summary
from stn_tune.analysis.survival import kaplan_meier

SIMULATIONS = 1000
COVERED = pytest.approx(0.95, abs=0.02)


def covered(estimate, truth: float) -> float:
    return float(np.mean((estimate.low <= truth) & (truth <= estimate.high)))


def test_the_interquartile_mean_by_hand():
    assert interquartile_mean([9.0, 1.0, 2.0, 3.0]) == 2.5, "the middle two"
    assert interquartile_mean([0.0, 1.0, 2.0, 3.0, 100.0]) == pytest.approx((0.75 * 1 + 2 + 0.75 * 3) / 2.5)
    assert interquartile_mean([1.0, 2.0, 3.0, math.inf]) == 2.5, "what diverged is outside the middle half"
    runs = np.random.default_rng(0).normal(size=(40, 3))
    assert interquartile_mean(runs) == pytest.approx(stats.trim_mean(runs, 0.25, axis=0))


def test_aggregates_pool_the_runs_of_all_tasks():
    tasks = [[1.0, 2.0, 3.0], [4.0, 5.0, 9.0]]
    assert aggregate(tasks, "median").center == 3.5
    assert aggregate(tasks, "mean").center == 4.0
    assert aggregate(tasks, "iqm").center == pytest.approx((0.5 * 2 + 3 + 4 + 0.5 * 5) / 3)
    assert aggregate(tasks).n == 6
    with pytest.raises(AnalysisError, match="kind is 'mode'; it must be one of iqm, median, mean"):
        aggregate(tasks, "mode")


def test_the_bootstrap_is_scipys_where_the_tails_are_equal():
    """SciPy's percentile interval at the level whose tails are those of the expanded interval."""
    runs = [np.random.default_rng(k).normal(k, 1, 12) for k in range(2)]
    found = aggregate(runs, "mean")
    level = 1 - 2 * stats.norm.cdf(-stats.t.ppf(0.975, 22) * math.sqrt(24 / 22))
    theirs = stats.bootstrap(
        runs,
        lambda a, b, axis: np.concatenate([a, b], axis).mean(axis),
        n_resamples=20000,
        confidence_level=level,
        method="percentile",
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=0.06)


def test_few_runs_have_no_interval():
    for runs in ([1.0, 2.0], [1.0, 2.0, 3.0, 4.0]):
        assert math.isnan(aggregate([runs]).low), "four values cannot bound a median with 95 %"
    assert aggregate([[1.0, 2.0, 3.0, 4.0, 5.0]]).low >= 1
    assert math.isnan(probability_of_improvement([[1.0, 2.0]], [[3.0, 4.0]]).low)
    assert math.isnan(summary([1.0, 2.0]).low)
    assert math.isnan(paired([1.0, 2.0], [0.0, 0.0]).t_p)
    assert FEWEST == 3
    empty = aggregate([[]])
    assert math.isnan(empty.center)
    assert empty.n == 0


def test_the_probability_of_improvement_is_mann_and_whitneys_u():
    ours, theirs = [1.0, 2.0, 3.0, 3.0], [2.0, 3.0, 4.0]
    found = probability_of_improvement([ours], [theirs])
    assert found.center == pytest.approx((3 + 2.5 + 1.5 + 1.5) / 12)
    assert found.center == pytest.approx(1 - stats.mannwhitneyu(ours, theirs).statistic / 12)
    assert probability_of_improvement([ours], [theirs], "max").center == pytest.approx(1 - found.center)
    assert found.n == 3


def test_the_probability_of_improvement_is_averaged_over_tasks():
    found = probability_of_improvement([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]], [[2.0, 2.0, 2.0], [1.0, 2.0, 3.0]])
    assert found.center == pytest.approx((1 + 0.5) / 2)


def test_three_better_runs_of_three_are_not_certainty():
    found = probability_of_improvement([[1.0, 2.0, 3.0]], [[4.0, 5.0, math.inf]])
    assert (found.center, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(0.5, abs=0.01)


def test_newcombes_interval_by_hand():
    """At either end the distance to the estimate is 1.96 standard errors of Hanley and McNeil's variance."""
    ours, theirs = np.arange(10.0), np.arange(10.0) + 2.5
    found = probability_of_improvement([ours], [theirs])
    for end in (found.low, found.high):
        more = 9 * ((1 - end) / (2 - end) + end / (1 + end))
        assert abs(found.center - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) * (1 + more) / 100))


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9, 0.04]) == pytest.approx([1.0, 1.0, 0.12])
    corrected = holm([0.02, math.nan, 0.01])
    assert corrected[[0, 2]] == pytest.approx([0.02, 0.02])
    assert math.isnan(corrected[1])
    assert len(holm([])) == 0


def test_performance_profiles_by_hand():
    tasks = [[0.0, 0.1, 0.9], [0.2, 0.2, math.inf]]
    found = performance_profile(tasks, [0.0, 0.2, 1.0])
    assert found.center == pytest.approx([(1 / 3 + 0) / 2, (2 / 3 + 2 / 3) / 2, (1 + 2 / 3) / 2])
    assert found.low.shape == (3,)
    assert (found.low <= found.center).all()
    assert (found.high >= found.center).all()


def test_regrets_are_on_a_common_scale():
    assert normalised([3.0, 1.0, 2.0, math.inf, math.nan]) == pytest.approx([1, 0, 0.5, math.inf, math.inf])
    assert normalised([0.5, 0.9, 0.7], "max") == pytest.approx([1, 0, 0.5])
    assert normalised([2.0, 2.0]) == pytest.approx([0, 0])
    assert normalised([math.nan]) == pytest.approx([math.inf])


def test_ranks_over_time_by_hand():
    """Two seeds, two points; the second method starts later on the first seed, and ties at the end of the second."""
    values = [[[3.0, 1.0], [2.0, 2.0]], [[math.nan, 2.0], [1.0, 2.0]]]
    found = rank_over_time(values)
    assert found.center.tolist() == [[1.5, 1.25], [1.5, 1.75]]
    assert found.n == 2
    assert rank_over_time(values, "max").center.tolist() == [[1.0, 1.75], [2.0, 1.25]]


def test_the_area_under_the_regret_by_hand():
    """3 until 10 s, then 2 until 30 s, then 1: regrets of 2, 1 and 0 over 5, 20 and 15 of 40 seconds."""
    x, values = [0.0, 10.0, 30.0], [3.0, 2.0, 1.0]
    assert regret_auc(x, values, 1.0, 5.0, 45.0) == pytest.approx((2 * 5 + 1 * 20) / 40)
    assert regret_auc(x, [-v for v in values], -1.0, 5.0, 45.0, "max") == pytest.approx(30 / 40)
    assert math.isnan(regret_auc([7.0], [1.0], 0.0, 5.0, 45.0)), "no value at the start"
    assert math.isnan(regret_auc(x, values, 1.0, 5.0, 5.0))


def test_kaplan_and_meier_by_hand():
    """Events at 1, 2 and 4, runs that ended without one at 3 and 5."""
    found = kaplan_meier([1.0, 2.0, 3.0, 4.0, 5.0], [True, True, False, True, False])
    assert found.times.tolist() == [1, 2, 4]
    assert found.share == pytest.approx([0.8, 0.6, 0.3])
    assert found.quantile(0.5) == 4
    assert (found.reached, found.n, found.last) == (3, 5, 5)
    greenwood = math.sqrt(1 / (5 * 4) + 1 / (4 * 3) + 1 / (2 * 1))
    assert found.error[-1] == pytest.approx(greenwood / abs(math.log(0.3)))


def test_kaplan_and_meier_like_scipy():
    random = np.random.default_rng(0)
    when, ends = random.exponential(1, 60).round(1), random.uniform(0, 2, 60).round(1)
    times, reached = np.minimum(when, ends), when <= ends
    found = kaplan_meier(times, reached)
    theirs = stats.ecdf(stats.CensoredData.right_censored(times, ~reached)).sf
    assert found.share == pytest.approx(theirs.evaluate(found.times))
    low = theirs.confidence_interval(method="log-log").low.evaluate(found.times)
    assert found.median().low == found.times[np.flatnonzero(low <= 0.5)[0]]


def test_without_censoring_it_is_the_median():
    for runs in ([3.0, 1.0, 2.0], [4.0, 1.0, 2.0, 3.0], [5.0, 5.0, 5.0, 5.0]):
        assert kaplan_meier(runs, [True] * len(runs)).quantile() == np.median(runs)


def test_a_median_that_the_runs_cannot_tell_is_not_a_number():
    found = kaplan_meier([1.0, 5.0, 5.0], [True, False, False])
    assert math.isnan(found.quantile())
    assert found.median().high == math.inf
    never = kaplan_meier([5.0, 5.0], [False, False])
    assert math.isnan(never.quantile())
    assert never.reached == 0


@pytest.mark.parametrize("n", [3, 5, 20])
def test_t_intervals_of_a_known_difference_cover_it(n):
    """Paired runs: what a seed adds to both methods drops out; the reference is better by 0.3."""
    random = np.random.default_rng(n)
    seed = random.normal(0, 2, (n, 4 * SIMULATIONS))
    ours, theirs = (seed + random.normal(d, 1, seed.shape) for d in (0.3, 0.0))
    assert covered(summary(ours - theirs), 0.3) == COVERED
    one = paired(ours[:, 0], theirs[:, 0])
    test = stats.ttest_rel(ours[:, 0], theirs[:, 0])
    assert one.t_p == pytest.approx(test.pvalue)
    assert (one.low, one.high) == pytest.approx(tuple(test.confidence_interval()))


@pytest.mark.parametrize("kind", ["iqm", "median", "mean"])
@pytest.mark.parametrize("sizes", [(20,), (8, 8, 8)])
def test_bootstrap_intervals_cover_what_they_estimate(kind, sizes, monkeypatch):
    monkeypatch.setattr(estimates, "RESAMPLES", 800)
    random = np.random.default_rng(sum(sizes))
    runs = [random.normal(0.3, 1, (n, SIMULATIONS)) for n in sizes]
    assert covered(aggregate(runs, kind), 0.3) == COVERED


@pytest.mark.parametrize(("n", "difference"), [(5, 0.5), (5, 2.0), (20, 0.0), (20, 1.0)])
def test_probabilities_of_improvement_are_covered(n, difference):
    random = np.random.default_rng(0)
    truth = stats.norm.cdf(difference / math.sqrt(2))
    hits = []
    for _ in range(SIMULATIONS):
        found = probability_of_improvement([random.normal(-difference, 1, n)], [random.normal(0, 1, n)])
        hits.append(found.low <= truth <= found.high)
    assert np.mean(hits) == COVERED


def test_median_times_are_covered_though_runs_end_early():
    random = np.random.default_rng(0)
    hits = []
    for _ in range(SIMULATIONS):
        when, ends = random.exponential(1, 20), random.uniform(0.5, 3, 20)
        found = kaplan_meier(np.minimum(when, ends), when <= ends).median()
        hits.append(found.low <= math.log(2) <= found.high)
    assert np.mean(hits) == COVERED


def test_holm_keeps_the_rate_of_false_alarms():
    """Of ten true null hypotheses, at least one is rejected in at most about 5 % of studies."""
    p = np.random.default_rng(0).uniform(size=(4 * SIMULATIONS, 10))
    assert np.mean([holm(study).min() < 0.05 for study in p]) == pytest.approx(0.05, abs=0.015)


RLIABLE = {"iqm": (0.46416666666666667, 0.5375), "low": (0.31333333, 0.3825), "high": (0.6125, 0.68833333)}
"""Of :func:`rliable_runs`, by rliable 1.2.0 (arch 7.2.0, numpy 2.4.6, scipy 1.17.1), ``aggregate_iqm`` and
``get_interval_estimates`` with 50,000 resamples. It is no dependency: it needs arch and seaborn.
"""
RLIABLE_IMPROVEMENT = 0.4427083333333333
"""``probability_of_improvement(x, y)``, where higher is better."""


def rliable_runs() -> tuple[np.ndarray, np.ndarray]:
    """Eight runs on three tasks, ``(runs, tasks)``, of two methods."""
    k = np.arange(24).reshape(8, 3)
    return (k * 37 % 101) / 100, (k * 53 % 97) / 100 + 0.1


@pytest.mark.parametrize("which", [0, 1])
def test_interquartile_means_and_their_bootstrap_are_those_of_rliable(which, monkeypatch):
    """rliable has the percentile interval; ours is wider, for few runs, by design; centre and spread are the same."""
    tasks = list(rliable_runs()[which].T)
    low, high = RLIABLE["low"][which], RLIABLE["high"][which]
    ours = aggregate(tasks, "iqm")
    assert ours.center == pytest.approx(RLIABLE["iqm"][which])
    assert ours.low < low < high < ours.high
    monkeypatch.setattr(estimates, "bootstrap_tail", lambda sizes, level: (1 - level) / 2)
    same = aggregate(tasks, "iqm")
    assert (same.low, same.high) == pytest.approx((low, high), abs=0.01), "5,000 resamples against 50,000"


def test_the_probability_of_improvement_is_that_of_rliable():
    x, y = rliable_runs()
    assert probability_of_improvement(list(x.T), list(y.T), "max").center == pytest.approx(RLIABLE_IMPROVEMENT)


def test_differences_that_are_all_the_same_have_no_t_test():
    assert math.isnan(paired([1.1, 2.1, 3.1], [1.0, 2.0, 3.0]).t_p), "the same but for rounding"
    assert paired([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]).t_p == 1.0
