from __future__ import annotations

import math
import re
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as Picture

from stn_tune.analysis import FIGURES, AnalysisError, Figure, MissingData, Results, curves, load
from stn_tune.analysis.curves import incumbent
from stn_tune.analysis.figures.dark import PAPER, on_dark
from stn_tune.analysis.figures.style import BLUES, RAMP, line_styles, ramp, render, save, scale, zoom
from stn_tune.analysis.selection import bounds, groups, metric_title
from stn_tune.plotting import GREY, PALETTE, asks_for_log, contrast, luminance, narrow_figures, readable, spread
from stn_tune.record import HyperparameterInfo, Style
from tests.analysis import logs

mpl.use("Agg")
COLOURS = {info.name: info.style.colour for info in logs.METHODS if info.style}


def frame_of(tmp_path, runs: dict[tuple, list], **changes) -> pd.DataFrame:
    logs.write_runs(tmp_path, runs, **changes)
    return load(tmp_path)


def drawn(name: str, frame: pd.DataFrame):
    """A figure, from what its ``select`` returned alone."""
    figure = FIGURES[name]
    return figure.draw(figure.select(Results.of(frame)))


def self_tuned_rows(values: list[float], hp: dict[str, list[float]], scale: float = 1.0) -> list[dict]:
    reported = logs.rows(values)
    for k, row in enumerate(reported):
        row |= {f"hp/{name}": column[k] for name, column in hp.items()}
        row |= {f"scale/{name}": scale for name in hp}
    return reported


def fixed_trials(losses: dict[float, list[float]], name: str = "output_dropout") -> list[dict]:
    return [
        row
        for trial, (value, column) in enumerate(losses.items())
        for row in logs.rows(column, trial=trial, start=100.0 * trial, **{f"hp/{name}": value})
    ]


def lines_of(ax) -> list[tuple[list[float], list[float]]]:
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines]


def words(figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(mpl.text.Text))


@pytest.mark.parametrize(
    ("values", "log"),
    [([1, 29], False), ([1, 31], True), ([0, 100], False), ([-1, 100], False), ([1, 31, math.inf], True), ([], False)],
)
def test_log_axes_are_for_positive_values_over_a_factor_of_thirty(values, log):
    assert asks_for_log(values) is log


def test_labels_are_moved_apart_but_keep_their_order():
    assert spread([0.2, 0.8], 0.1) == [0.2, 0.8]
    assert spread([0.5, 0.5, 0.5], 0.1) == pytest.approx([0.4, 0.5, 0.6])
    assert spread([1.0, 0.99], 0.1) == pytest.approx([1.0, 0.9]), "kept within the axes"
    crowded = spread([0.1] * 20, 0.1)
    assert np.diff(crowded) == pytest.approx([0.1] * 19)
    assert np.mean(crowded) == pytest.approx(0.5)


def test_zoom_cuts_a_start_that_would_flatten_the_rest():
    ax = Picture().subplots()
    assert zoom(ax, [1, 50, 100], [[100.0], [2.0], [1.0]])
    assert ax.get_ylim()[0] < 1.0 < 2.0 < ax.get_ylim()[1] < 3.0
    assert not zoom(ax, [1, 50, 100], [[2.5], [2.0], [1.0]])
    assert zoom(ax, [1, 50, 100], [[-100.0], [2.0], [3.0]])
    assert zoom(ax, [1, 40, 100], [[2.5], [2.0], [1.0]], bands=[[-9.0, 9.0], [-9.0, 9.0], [0.9, 1.1]])
    assert ax.get_ylim() == pytest.approx((0.9 - 0.055, 2.0 + 0.33))
    assert zoom(ax, [1, 40, 100], [[9.0], [2.0], [1.0]], bands=[[-9.0, 9.0], [-9.0, 9.0], [-9.0, 9.0]])
    assert ax.get_ylim() == pytest.approx((0.5 - 0.1, 2.5 + 0.6)), "as far as half of what the values do"
    assert zoom(ax, [1, 5, 50, 100], [[99.0], [0.5], [2.0], [1.0]], ends=[0.5, 1.0])
    assert ax.get_ylim()[0] < 0.5 < 2.0 < ax.get_ylim()[1] < 3.0, "a line that ends early is seen to its end"


def test_rates_counts_and_coefficients_never_share_an_axis(tmp_path):
    values = {"fc_dropout": 0.7, "hue": 0.5, "holes": 4, "length": 24, "alpha": 1.9}
    reported = logs.rows([2.0, 1.0], **{f"hp/{name}": value for name, value in values.items()})
    results = Results.of(frame_of(tmp_path / "a", {("stn", 0): reported}))
    found = [(group.kind, list(group.names)) for group in groups(results, list(values))]
    expected = [("rate", ["fc_dropout"]), ("rate", ["hue"]), ("coefficient", ["alpha"])]
    assert found == [*expected, ("count", ["holes"]), ("count", ["length"])], "as the values look"
    space = {
        "hue": HyperparameterInfo("hue", "coefficient", {"kind": "uniform", "lower": 0.0, "upper": 4.0}),
        "length": HyperparameterInfo("hole size", "count", {"kind": "randint", "lower": 0, "upper": 25}, 4, "pixels"),
    }
    results = Results.of(frame_of(tmp_path / "b", {("stn", 0): reported}, task=replace(logs.TASK, space=space)))
    hue, length = groups(results, ["hue", "length"])
    assert (hue.kind, hue.axis) == ("coefficient", "coefficient"), "the record knows better than the values"
    assert (length.title, length.kind, length.axis) == ("hole size", "count", "pixels")


def test_the_upper_end_of_an_integer_range_is_not_a_value():
    assert bounds({"kind": "randint", "lower": 0, "upper": 25}) == (0, 24)
    assert bounds({"kind": "uniform", "lower": 0, "upper": 25}) == (0, 25)
    assert bounds({"kind": "choice", "categories": [1, 2]}) is None


def test_a_method_keeps_its_colour_and_no_two_look_alike(tmp_path):
    runs = {(info.name, 0): logs.rows([1.0]) for info in logs.METHODS}
    runs |= {(f"label {k}", 0): logs.rows([1.0]) for k in range(12)}
    runs["stn", 0, ("start", 0.1)] = logs.rows([1.0])
    results = Results.of(frame_of(tmp_path, runs))
    for labels in (["stn"], ["stn", "grid"], ["label 1", "stn", "stn start=0.1"]):
        assert line_styles(results, labels)["stn"] == Style(COLOURS["stn"])
    many = line_styles(results, results.labels)
    assert len(set(many.values())) == len(many) == 25


def test_the_metric_has_its_unit(tmp_path):
    runs = {("stn", 0): logs.rows([2.0], val_accuracy=0.5)}
    frame = frame_of(tmp_path, runs)
    assert metric_title(Results.of(frame)) == "validation loss (nats per token)"
    assert metric_title(Results.of(load(tmp_path, metric="val_accuracy"))) == "validation accuracy"
    assert metric_title(Results(frame)) == "validation loss"


def test_curves_show_their_band_and_n(tmp_path):
    runs = {("stn", s): logs.rows([5.0 + s, 4.0 + s]) for s in range(3)} | {("grid", 0): logs.rows([6.0, 5.0])}
    frame = frame_of(tmp_path, runs)
    ax = curves(frame).plot()
    stn = next(line for line in ax.lines if line.get_label() == "STN")
    assert stn.get_ydata()[0] == pytest.approx(6.0)
    assert stn.get_ydata()[-1] == pytest.approx(5.0)
    assert mpl.colors.to_hex(stn.get_color()).upper() == COLOURS["stn"]
    assert len(ax.collections) == 1, "one seed has no band"
    shown = words(ax.figure)
    assert "95 % t-interval" in shown
    assert "STN (n = 3)" in shown
    assert "grid search (n = 1)" in shown
    assert "seconds" in ax.get_xlabel()
    mpl.pyplot.close("all")


def test_many_intervals_stand_side_by_side_at_the_end(tmp_path):
    methods = ("stn", "grid", "random", "bayes", "tpe")
    runs = {
        (method, seed): logs.rows([9.0, k + 0.1 * seed]) for k, method in enumerate(methods, 1) for seed in range(3)
    } | {("pbt", 0): logs.rows([9.0, 6.0])}
    found = curves(frame_of(tmp_path, runs))
    ax = found.plot()
    assert not ax.collections, "no bands"
    last = found.data.groupby("label").last()
    upright = {}
    for line in ax.lines:
        x, y = line.get_xdata(), line.get_ydata()
        if len(x) == 2 and x[0] == x[1]:
            upright[mpl.colors.to_hex(line.get_color()).upper()] = (x[0], list(y))
    assert len(upright) == 5, "none for one seed"
    places = []
    for method in methods:
        x, ends = upright[COLOURS[method]]
        assert ends == pytest.approx([last.loc[method, "low"], last.loc[method, "high"]])
        places.append(x)
    assert places == sorted(set(places))
    assert places[0] > last["x"].max() >= max(ax.get_xticks())
    assert "at the end" in words(ax.figure)
    assert "intervals from 3 on" in words(ax.figure)
    mpl.pyplot.close("all")


def test_names_are_written_as_they_are_unless_endless(tmp_path):
    odd = r"a $\frac$ b_{"
    runs = {(odd, 0): logs.rows([2.0, 1.0]), ("long " * 20, 0): logs.rows([2.0, 1.5])}
    figure = drawn("time", frame_of(tmp_path, runs))
    end, long = (text.get_text() for text in figure.axes[0].texts)
    assert end == odd.replace("$", r"\$")
    assert len(long) == 40


def test_time_leaves_variants_to_their_own_figures_when_there_are_many(tmp_path):
    runs = {("stn", 0, ("start", k / 10)): logs.rows([2.0, 1.0]) for k in range(1, 9)}
    runs |= {("stn", 0, ("train_steps", k), ("valid_steps", 1)): logs.rows([2.0, 1.0]) for k in range(1, 5)}
    figure = drawn("time", frame_of(tmp_path, {**runs, ("stn", 0): logs.rows([2.0, 1.0])}))
    assert [line.get_label() for line in figure.axes[0].lines] == ["STN"]
    runs["stn", 0, ("start", 0.9)] = logs.rows([2.0, 1.0])
    with pytest.raises(MissingData, match="13 variants are too many lines"):
        drawn("time", frame_of(tmp_path / "variants", runs))


def test_schedules_of_variants_are_those_of_the_best(tmp_path):
    runs = {
        ("stn", 0, ("scale", 0.1)): self_tuned_rows([3.0, 2.5], {"drop": [0.1, 0.2]}),
        ("stn", 0, ("scale", 0.5)): self_tuned_rows([3.0, 1.0], {"drop": [0.1, 0.4]}),
        ("stn", 0, ("scale", 2.0)): self_tuned_rows([3.0, 2.0], {"drop": [0.1, 0.3]}),
    }
    figure = drawn("schedules", frame_of(tmp_path, runs))
    assert lines_of(figure.axes[0]) == [([1, 2], [0.1, 0.4])]
    assert "STN scale=0.5" in words(figure)


def test_schedules_have_a_thin_line_per_seed_and_a_thick_mean(tmp_path):
    hp = {"input_dropout": [0.1, 0.2, 0.3], "holes": [1, 2, 3]}
    other = {"input_dropout": [0.3, 0.4], "holes": [1, 1]}
    frame = frame_of(
        tmp_path,
        {("stn", 0): self_tuned_rows([3.0, 2.0, 1.0], hp), ("stn", 1): self_tuned_rows([3.0, 2.0], other)},
    )
    figure = drawn("schedules", frame)
    rates, counts = figure.axes
    assert lines_of(rates) == [
        ([1, 2, 3], [0.1, 0.2, 0.3]),
        ([1, 2], [0.3, 0.4]),
        ([1, 2], pytest.approx([0.2, 0.3])),
    ]
    assert rates.lines[2].get_linewidth() > rates.lines[0].get_linewidth()
    assert (rates.get_ylabel(), counts.get_ylabel(), counts.get_title("left")) == ("rate", "count", "holes")
    assert "n = 2 seeds" in words(figure)


def test_schedules_follow_the_best_trial_of_an_outer_search(tmp_path):
    trials = self_tuned_rows([3.0, 2.5], {"drop": [0.9, 0.9]}) + [
        row | {"trial": 1} for row in self_tuned_rows([3.0, 1.0], {"drop": [0.2, 0.4]})
    ]
    figure = drawn("schedules", frame_of(tmp_path, {("stn", 0): trials}))
    assert lines_of(figure.axes[0]) == [([1, 2], [0.2, 0.4])]


@pytest.mark.parametrize("name", ["schedules", "sigma"])
def test_a_refined_network_is_not_drawn_over_the_schedule_that_it_follows(tmp_path, name):
    tuning = self_tuned_rows([3.0, 2.0], {"drop": [0.1, 0.4]})
    refining = self_tuned_rows([2.5, 1.0, 0.9], {"drop": [0.1, 0.1, 0.4]})
    for k, row in enumerate(refining, 3):
        row |= {"training_iteration": k, "compute_s": 10.0 * k, "trial_compute_s": 10.0 * k, "elapsed_s": 10.0 * k}
    for k, row in enumerate([*tuning, *refining]):
        row |= {"phase": "tuning" if k < 2 else "refining", "scale/drop": 0.5 - 0.1 * k}
    frame = frame_of(tmp_path, {("refined", 0): tuning + refining, ("grid", 0): logs.rows([5.0, 4.0])})
    (line,) = lines_of(drawn(name, frame).axes[0])
    assert line == ([1, 2], pytest.approx([0.1, 0.4] if name == "schedules" else [0.5, 0.4]))
    own = frame[frame["method"] == "refined"]
    assert own["epochs"].tolist() == [1, 2, 3, 4, 5], "both networks count"
    steps = incumbent(frame)
    assert steps.loc[steps["method"] == "refined", "value"].tolist() == [3.0, 2.0, 1.0, 0.9]


def test_schedules_need_a_value_that_moves(tmp_path):
    rows = self_tuned_rows([3.0, 2.0], {"drop": [0.1, 0.1]})
    with pytest.raises(MissingData, match="λ was not tuned"):
        drawn("schedules", frame_of(tmp_path, {("stn", 0): rows}))


def test_sigma_needs_a_scale_that_moves(tmp_path):
    rows = self_tuned_rows([3.0, 2.0], {"drop": [0.1, 0.2]})
    with pytest.raises(MissingData, match="σ was not tuned"):
        drawn("sigma", frame_of(tmp_path / "still", {("stn", 0): rows}))
    rows[1]["scale/drop"] = 0.5
    figure = drawn("sigma", frame_of(tmp_path / "moved", {("stn", 0): rows}))
    assert lines_of(figure.axes[0]) == [([1, 2], [1.0, 0.5])]


def configuration_runs() -> dict[tuple[str, int], list]:
    rng = np.random.default_rng(0)
    trials = []
    for number, (a, b) in enumerate(rng.uniform(size=(30, 2))):
        trials += logs.rows([3.0, 2.0 + 3 * (a - 0.5) ** 2], trial=number, **{"hp/drop": a, "hp/noise": b})
    trials += logs.rows([3.0, math.inf], trial=30, **{"hp/drop": 0.5, "hp/noise": 0.5})
    trials[-2]["val_loss"] = math.inf
    stn = self_tuned_rows([3.0, 2.5, 2.0], {"drop": [0.05, 0.2, 0.4], "noise": [0.05, 0.1, 0.3]})
    return {("random", 0): trials, ("stn", 0): stn}


def test_a_method_that_ended_early_ends_with_a_dot_and_not_at_the_budget(tmp_path):
    runs = {("stn", s): logs.rows([3.0, 1.0 + s / 10]) for s in range(2)}
    runs |= {("grid", s): logs.rows([3.0] + [2.0 + s / 10] * 9) for s in range(2)}
    figure = drawn("time", frame_of(tmp_path, runs))
    for ax in figure.axes:
        ends = {line.get_label(): line.get_xdata()[-1] for line in ax.lines if not line.get_label().startswith("_")}
        assert ends == {"STN": pytest.approx(20.0), "grid search": pytest.approx(100.0)}
        dots = [line for line in ax.lines if line.get_marker() == "o"]
        assert [list(dot.get_xdata()) for dot in dots] == [[20.0]]
    assert "dot: where a method had ended on all seeds" in words(figure).replace("\n", " ")


def test_the_best_line_is_in_view_though_it_ends_long_before_the_others(tmp_path):
    runs = {("stn", 0): logs.rows([20.0, 1.0]), ("grid", 0): logs.rows([20.0, 3.0] + [2.5] * 30 + [2.4] * 30)}
    for ax in drawn("time", frame_of(tmp_path, runs)).axes:
        low, high = ax.get_ylim()
        ends = [line.get_ydata()[-1] for line in ax.lines]
        assert high < 15, "the start is clipped"
        assert all(low < end < high for end in ends), "but no end"


def test_time_shows_the_test_values_of_the_selected_networks_first(tmp_path):
    rows = logs.rows([3.0, 1.0, 2.0])
    figure = drawn("time", frame_of(tmp_path / "a", {("stn", 0): rows}))
    test, valid = figure.axes
    assert (test.get_ylabel(), valid.get_ylabel()) == (
        "test loss (nats per token)",
        "best validation loss (nats per token)",
    )
    assert test.lines[0].get_ydata()[-1] == pytest.approx(1.5)
    assert valid.lines[0].get_ydata()[-1] == pytest.approx(1.0)
    without = [{key: value for key, value in row.items() if key != "test_loss"} for row in rows]
    assert len(drawn("time", frame_of(tmp_path / "b", {("stn", 0): without})).axes) == 1


def test_intervals_at_the_ends_are_seen_whole_however_early_the_ends_are(tmp_path):
    """Five methods have whiskers instead of bands; the best ends first."""
    runs = {("stn", s): logs.rows([6.0, 1.0 + 0.2 * s]) for s in range(3)}
    for k, label in enumerate(("grid", "random", "bayes", "tpe")):
        runs |= {(label, s): logs.rows([6.0, 3.0, *([2.0 + 0.1 * (k + s)] * 18)]) for s in range(3)}
    ax = drawn("time-epochs", frame_of(tmp_path, runs)).axes[0]
    low, high = ax.get_ylim()
    assert high < 6, "the start is clipped"
    whiskers = [line.get_ydata() for line in ax.lines if len(line.get_xdata()) == 2 and np.ptp(line.get_xdata()) == 0]
    assert len(whiskers) == 5
    assert all(low <= min(ends) for ends in whiskers)


def test_schedules_of_several_seeds_are_bands_a_panel_each(tmp_path):
    runs = {
        ("stn", s): self_tuned_rows([3.0, 2.0], {"drop": [0.1 * s, 0.2 * s], "noise": [0.5, 0.1]}) for s in range(3)
    }
    figure = drawn("schedules", frame_of(tmp_path, runs))
    assert [ax.get_title("left") for ax in figure.axes] == ["drop", "noise"]
    box = figure.axes[0].collections[0].get_paths()[0].get_extents()
    assert (box.y0, box.y1) == (pytest.approx(0.0), pytest.approx(0.4))
    assert "band: their range" in words(figure)


def test_ranks_over_time(tmp_path):
    runs = {("stn", s): logs.rows([9.0, 1.0]) for s in range(2)} | {
        ("grid", s): logs.rows([5.0, 5.0]) for s in range(2)
    }
    figure = drawn("ranks", frame_of(tmp_path, runs))
    stn = next(line for line in figure.axes[0].lines if line.get_label() == "STN").get_ydata()
    assert (stn[0], stn[-1]) == (2.0, 1.0)
    low, high = figure.axes[0].get_ylim()
    assert low > high, "the best on top"
    assert figure.axes[0].get_xlabel() == drawn("time", frame_of(tmp_path, runs)).axes[0].get_xlabel(), "the same clock"
    with pytest.raises(MissingData, match="2 methods share 1 seeds"):
        drawn("ranks", frame_of(tmp_path / "one", {key: rows for key, rows in runs.items() if key[1] == 0}))


def test_probabilities_of_improvement_are_those_of_the_reference(tmp_path):
    runs = {("stn", s): logs.rows([1.0 + s]) for s in range(3)} | {("grid", s): logs.rows([2.5 + s]) for s in range(3)}
    selected = FIGURES["improvement"].select(Results.of(frame_of(tmp_path, runs)))
    assert selected["title"].tolist() == ["grid search"]
    assert selected["center"].tolist() == pytest.approx([8 / 9])
    assert selected["low"].iloc[0] < 8 / 9 < selected["high"].iloc[0]
    with pytest.raises(MissingData, match="need 3 or more runs"):
        drawn("improvement", frame_of(tmp_path / "few", {key: rows for key, rows in runs.items() if key[1] < 2}))


def test_the_landscape_has_trials_as_points_and_the_way_of_online_tuning(tmp_path):
    pytest.importorskip("sklearn")
    frame = frame_of(tmp_path, configuration_runs())
    figure = drawn("landscape", frame)
    ax = figure.axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("drop", "noise"), "what matters most first"
    assert len(ax.collections[0].get_offsets()) == 30
    assert lines_of(ax)[0] == ([0.05, 0.2, 0.4], [0.05, 0.1, 0.3])


@pytest.mark.parametrize(
    "name", ["time", "time-elapsed", "time-epochs", "configurations", "schedules", "importance", "landscape"]
)
def test_every_figure_has_a_text_and_fits_a_phone(tmp_path, name):
    pytest.importorskip("sklearn")
    selected = FIGURES[name].select(Results.of(frame_of(tmp_path, configuration_runs())))
    assert len(selected.attrs["alt"]) > 40
    with narrow_figures():
        figure = FIGURES[name].draw(selected)
    assert figure.get_figwidth() <= 4.3
    for ax in figure.axes:
        box = ax.xaxis.label.get_window_extent()
        assert box.x0 >= 0, f"cut off: {ax.get_xlabel()}"
        assert box.x1 <= figure.bbox.x1, f"cut off: {ax.get_xlabel()}"


def test_text_can_be_read_on_light_and_on_dark_paper():
    """WCAG AA: 4.5 for text; lines get as much on dark paper."""
    assert contrast("#ffffff", "#000000") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    shades = [*ramp(9), *(mpl.colors.to_hex(c) for c in scale(*BLUES).colors)]
    for colour in (*PALETTE, GREY, *shades):
        text = readable(colour)
        assert contrast(text, "#ffffff") >= 4.5, colour
        assert contrast(on_dark(text), PAPER) >= 4.5, colour
    for colour in PALETTE:
        assert contrast(on_dark(colour.lower()), PAPER) >= 4.5
    assert on_dark("#ffffff") == PAPER


def test_lines_of_a_ramp_can_be_seen_on_light_and_on_dark_paper():
    """WCAG AA: 3 for graphics."""
    for colour in ramp(9):
        assert contrast(colour, "#ffffff") >= 3, colour
        assert contrast(on_dark(colour), PAPER) >= 3, colour


def test_a_scale_keeps_its_order_on_dark_paper():
    for colours in (scale(*BLUES), scale("cividis"), scale(*RAMP)):
        light = [luminance(mpl.colors.to_hex(c)) for c in colours.colors]
        dark = [luminance(on_dark(mpl.colors.to_hex(c))) for c in colours.colors]
        assert np.argsort(light).tolist() == np.argsort(dark)[::-1].tolist()


def test_configurations_show_every_trial_and_the_path_of_online_tuning(tmp_path):
    task = replace(logs.TASK, space=logs.hyperparameters(drop=(0.0, 1.0)))
    figure = drawn("configurations", frame_of(tmp_path, configuration_runs(), task=task))
    ax = figure.axes[0]
    lines = [c for c in ax.collections if c.get_label() == "random search"]
    assert sum(len(part.get_segments()) for part in lines) == 30
    said = words(figure).replace("\n", " ")
    assert "30 trials of random search; thicker is better; 1 without a finite val_loss" in said
    assert "STN: rings, initial values; bars, the range it covered; line, final values" in said
    end, _, start = (line.get_ydata() for line in ax.lines)
    assert (start[0], end[0]) == (pytest.approx(0.05), pytest.approx(0.4)), "on the space's own axis from 0 to 1"


def test_importance_finds_what_matters(tmp_path):
    pytest.importorskip("sklearn")
    figure = drawn("importance", frame_of(tmp_path, configuration_runs()))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["noise", "drop"]
    noise, drop = (bar.get_width() for bar in figure.axes[0].patches)
    assert drop > 10 * abs(noise)
    said = words(figure).replace("\n", " ")
    assert "n = 30 configurations, 30 trials of random search" in said
    assert int(re.search(r"explains (\d+) % of the differences", said)[1]) > 50


def test_trials_that_a_scheduler_cut_off_say_nothing_of_their_configuration(tmp_path):
    pytest.importorskip("sklearn")
    runs = configuration_runs()
    whole = [row | {"training_iteration": 10 * row["training_iteration"]} for row in runs["random", 0]]
    stopped = [
        row
        for k in range(20)
        for row in logs.rows([3.0, 2.9 - k / 50, 2.95], trial=100 + k, **{"hp/drop": k / 20, "hp/noise": 0.3})
    ]
    out_of_time = logs.rows([3.0, 2.8, 2.9], trial=40, **{"hp/drop": 0.3, "hp/noise": 0.3})
    gave_up = logs.rows([2.0, *[3.0] * 7], trial=41, **{"hp/drop": 0.3, "hp/noise": 0.4})
    diverged = logs.rows([3.0, 2.8, math.inf], trial=42, **{"hp/drop": 0.3, "hp/noise": 0.5})
    whole += [*out_of_time, *gave_up, *diverged]
    frame = frame_of(tmp_path, runs | {("random", 0): whole, ("asha", 0): stopped})
    for name in ("configurations", "importance"):
        said = words(drawn(name, frame)).replace("\n", " ")
        assert "32 trials of random search" in said
        assert "ASHA" not in said
        assert "21 stopped early left out" in said


def test_a_configuration_that_many_tried_counts_once(tmp_path):
    """Otherwise the forest would be asked for what it was fitted to."""
    pytest.importorskip("sklearn")
    runs = configuration_runs()
    again = {("grid", seed): runs["random", 0] for seed in range(3)}
    said = words(drawn("importance", frame_of(tmp_path, runs | again)))
    assert "n = 30 configurations, 120 trials" in said.replace("\n", " ")


def test_what_builds_on_others_has_no_curve_as_its_cost_is_not_in_it(tmp_path):
    runs = {("stn", 0): logs.rows([2.0, 1.0]), ("replay", 0): logs.rows([2.0, 0.9])}
    figure = drawn("time", frame_of(tmp_path, runs))
    assert [line.get_label() for line in figure.axes[0].lines] == ["STN"]
    with pytest.raises(MissingData, match="all methods build on another's results"):
        drawn("time", frame_of(tmp_path / "alone", {("replay", 0): logs.rows([2.0, 0.9])}))


def test_nine_trials_are_too_few_for_importances(tmp_path):
    trials = fixed_trials({k / 10: [3.0, 2.0 - k / 10] for k in range(9)})
    with pytest.raises(MissingData, match=r"1 hyperparameters vary .*; importances need two or more"):
        drawn("importance", frame_of(tmp_path / "one", {("grid", 0): trials}))
    frame = frame_of(tmp_path, {("grid", 0): [row | {"hp/alpha": row["trial"]} for row in trials]})
    with pytest.raises(MissingData, match="9 configurations in finished black-box trials; importances need 10 or more"):
        drawn("importance", frame)


def test_missing_data_is_named_and_an_analysis_error(tmp_path):
    frame = frame_of(tmp_path, {("random", 0): logs.rows([2.0, 1.0])})
    reasons = {}
    for name in FIGURES:
        try:
            drawn(name, frame)
        except MissingData as error:
            reasons[name] = str(error)
    assert issubclass(MissingData, AnalysisError)
    assert set(FIGURES) - set(reasons) == {"time", "time-elapsed", "time-epochs"}
    assert reasons["schedules"] == reasons["sigma"] == "no trial tunes hyperparameters online"
    assert reasons["importance"] == "no black-box trials with hyperparameters"


def test_a_figure_draws_what_it_selected_and_nothing_else(tmp_path):
    """What ``select`` returned can be kept, changed and drawn later, without the results."""
    frame = frame_of(tmp_path, configuration_runs())
    for name in ("time", "schedules", "configurations"):
        selected = FIGURES[name].select(Results.of(frame))
        kept = pd.DataFrame(selected.to_dict("list"))
        kept.attrs = dict(selected.attrs)
        pictures = [render(FIGURES[name].draw(part), "svg") for part in (selected, kept)]
        assert pictures[0] == pictures[1], name


def test_a_figure_of_ones_own(tmp_path):
    """One object with four fields: nothing to register."""

    def select(results):
        if "val_loss" not in results.frame:
            raise MissingData("no losses")
        return results.frame[["val_loss"]]

    def draw(selected):
        figure = Picture()
        figure.subplots().hist(selected["val_loss"])
        return figure

    histogram = Figure("histogram", "All losses.", select, draw)
    frame = frame_of(tmp_path, {("stn", 0): logs.rows([2.0, 1.0])})
    assert len(histogram.draw(histogram.select(Results.of(frame))).axes) == 1


def test_nothing_finite_is_no_curve(tmp_path):
    frame = frame_of(tmp_path, {("random", 0): logs.rows([math.inf, math.inf])})
    with pytest.raises(AnalysisError, match="never had a finite val_loss"):
        drawn("time", frame)


def test_saved_figures_are_the_same_bytes_every_time(tmp_path):
    frame = frame_of(tmp_path / "logs", {("stn", s): logs.rows([3.0, 2.0 + s]) for s in range(2)})
    saved = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        saved.append([path.read_bytes() for path in save(drawn("time", frame), folder, "time")])
    assert saved[0] == saved[1]
    png, svg, pdf = saved[0]
    assert png.startswith(b"\x89PNG")
    assert b"Software" not in png
    assert b"<svg" in svg
    assert b"matplotlib" not in svg.lower().replace(b"matplotlib.axis_", b"")
    assert pdf.startswith(b"%PDF")
    assert b"CreationDate" not in pdf
