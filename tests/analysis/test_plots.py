from __future__ import annotations

import math
import re

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from stn_tune.analysis.labels import Label, groups, metric_title, parse
from stn_tune.analysis.plots_grid import greedy_schedule, nearest
from stn_tune.analysis.style import METHOD_LINES, NotThere, asks_for_log, method_lines, save, spread, zoom

from stn_tune.analysis import AnalysisError, curves, load, plots
from tests.analysis import logs

mpl.use("Agg")


def frame_of(tmp_path, runs: dict[tuple[str, int], list]) -> pd.DataFrame:
    for (label, seed), reported in runs.items():
        logs.write_run(tmp_path, label, seed, reported)
    return load(tmp_path)


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
    ("label", "parsed"),
    [
        ("stn", Label("stn")),
        ("stn start=0.3", Label("stn", {"start": 0.3})),
        ("stn train=2 valid=1", Label("stn", {"train": 2.0, "valid": 1.0})),
        ("stn scale=0.5 fixed", Label("stn", {"scale": 0.5}, ("fixed",))),
        ("my own search", Label("my own search")),
        ("stn mode=fast", Label("stn mode=fast")),
    ],
)
def test_labels_are_read(label, parsed):
    assert parse(label) == parsed


def test_rates_counts_and_coefficients_never_share_an_axis():
    rows = pd.DataFrame(
        {
            "hp/fc_dropout": [0.1, 0.7],
            "hp/hue": [0.0, 0.5],
            "hp/holes": [1, 4],
            "hp/length": [4, 24],
            "hp/alpha": [0.1, 1.9],
        }
    )
    names = ["fc_dropout", "hue", "holes", "length", "alpha"]
    found = [(g.axis, list(g.names)) for g in groups(rows, names, None)]
    expected = [("rate", ["fc_dropout"]), ("rate", ["hue"]), ("coefficient", ["alpha"])]
    assert found == [*expected, ("count", ["holes"]), ("count", ["length"])]
    space = {"hue": {"kind": "uniform", "lower": 0.0, "upper": 4.0}, "fc_dropout": {"kind": "randint", "lower": 0}}
    by_space = {g.axis: list(g.names) for g in groups(rows, ["fc_dropout", "hue"], {"settings": {"space": space}})}
    assert by_space == {"coefficient": ["hue"], "count": ["fc_dropout"]}, "the space knows better than the values"


def test_a_method_keeps_its_colour_and_no_two_look_alike():
    for others in ([], ["grid"], ["another", "zebra", "stn start=0.1"]):
        assert method_lines(["stn", *others])["stn"] == METHOD_LINES["stn"]
    many = method_lines([*METHOD_LINES, *(f"label {k}" for k in range(12))])
    assert len(set(many.values())) == len(many)


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
    ax = mpl.figure.Figure().subplots()
    assert zoom(ax, [1, 50, 100], [[100.0], [2.0], [1.0]])
    assert ax.get_ylim()[0] < 1.0 < 2.0 < ax.get_ylim()[1] < 3.0
    assert not zoom(ax, [1, 50, 100], [[2.5], [2.0], [1.0]])
    assert zoom(ax, [1, 50, 100], [[-100.0], [2.0], [3.0]])
    assert zoom(ax, [1, 40, 100], [[2.5], [2.0], [1.0]], bands=[[-9.0, 9.0], [-9.0, 9.0], [0.9, 1.1]])
    assert ax.get_ylim() == pytest.approx((0.9 - 0.055, 2.0 + 0.33))
    assert zoom(ax, [1, 40, 100], [[9.0], [2.0], [1.0]], bands=[[-9.0, 9.0], [-9.0, 9.0], [-9.0, 9.0]])
    assert ax.get_ylim() == pytest.approx((0.5 - 0.1, 2.5 + 0.6)), "as far as half of what the values do"


def test_curves_show_their_band_and_n(tmp_path):
    runs = {("stn", s): logs.rows([5.0 + s, 4.0 + s]) for s in range(3)} | {("grid", 0): logs.rows([6.0, 5.0])}
    frame = frame_of(tmp_path, runs)
    ax = curves(frame).plot()
    stn = next(line for line in ax.lines if line.get_label() == "STN")
    assert stn.get_ydata()[0] == pytest.approx(6.0)
    assert stn.get_ydata()[-1] == pytest.approx(5.0)
    assert mpl.colors.to_hex(stn.get_color()).upper() == METHOD_LINES["stn"].colour
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
    last = found.data.groupby("method").last()
    upright = {}
    for line in ax.lines:
        x, y = line.get_xdata(), line.get_ydata()
        if len(x) == 2 and x[0] == x[1]:
            upright[mpl.colors.to_hex(line.get_color()).upper()] = (x[0], list(y))
    assert len(upright) == 5, "none for one seed"
    places = []
    for method in methods:
        x, ends = upright[METHOD_LINES[method].colour]
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
    figure = plots.FIGURES["time"](frame_of(tmp_path, runs), None)
    end, long = (text.get_text() for text in figure.axes[0].texts)
    assert end == odd.replace("$", r"\$")
    assert len(long) == 40


def test_time_leaves_variants_to_their_own_figures_when_there_are_many(tmp_path):
    runs = {(f"stn start=0.{k}", 0): logs.rows([2.0, 1.0]) for k in range(1, 9)}
    runs |= {(f"stn train={k} valid=1", 0): logs.rows([2.0, 1.0]) for k in range(1, 5)}
    figure = plots.FIGURES["time"](frame_of(tmp_path, {**runs, ("stn", 0): logs.rows([2.0, 1.0])}), None)
    assert [line.get_label() for line in figure.axes[0].lines] == ["STN"]
    runs[("stn start=0.9", 0)] = logs.rows([2.0, 1.0])
    with pytest.raises(NotThere, match="13 variants"):
        plots.FIGURES["time"](frame_of(tmp_path / "variants", runs), None)


def test_units_of_the_loss_come_from_the_rows(tmp_path):
    rows = [row | {"val_perplexity": math.exp(row["val_loss"])} for row in logs.rows([2.0, 1.5])]
    frame = frame_of(tmp_path, {("stn", 0): rows})
    assert metric_title(frame, None) == "validation loss (nats per token)"
    frame["val_perplexity"] *= 2
    assert metric_title(frame, None) == "validation loss"


def test_schedules_have_a_thin_line_per_seed_and_a_thick_mean(tmp_path):
    hp = {"input_dropout": [0.1, 0.2, 0.3], "holes": [1, 2, 3]}
    other = {"input_dropout": [0.3, 0.4], "holes": [1, 1]}
    frame = frame_of(
        tmp_path,
        {("stn", 0): self_tuned_rows([3.0, 2.0, 1.0], hp), ("stn", 1): self_tuned_rows([3.0, 2.0], other)},
    )
    figure = plots.FIGURES["schedules"](frame, None)
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
    figure = plots.FIGURES["schedules"](frame_of(tmp_path, {("stn", 0): trials}), None)
    assert lines_of(figure.axes[0]) == [([1, 2], [0.2, 0.4])]


def test_schedules_of_variants_are_those_of_the_best(tmp_path):
    runs = {
        ("stn scale=0.1", 0): self_tuned_rows([3.0, 2.5], {"drop": [0.1, 0.2]}),
        ("stn scale=0.5", 0): self_tuned_rows([3.0, 1.0], {"drop": [0.1, 0.4]}),
        ("stn scale=2", 0): self_tuned_rows([3.0, 2.0], {"drop": [0.1, 0.3]}),
    }
    figure = plots.FIGURES["schedules"](frame_of(tmp_path, runs), None)
    assert lines_of(figure.axes[0]) == [([1, 2], [0.1, 0.4])]
    assert "STN scale=0.5" in words(figure)


def test_schedules_need_a_value_that_moves(tmp_path):
    rows = self_tuned_rows([3.0, 2.0], {"drop": [0.1, 0.1]})
    with pytest.raises(NotThere, match="λ was not tuned"):
        plots.FIGURES["schedules"](frame_of(tmp_path, {("stn", 0): rows}), None)


def test_sigma_needs_a_scale_that_moves(tmp_path):
    rows = self_tuned_rows([3.0, 2.0], {"drop": [0.1, 0.2]})
    with pytest.raises(NotThere, match="σ was not tuned"):
        plots.FIGURES["sigma"](frame_of(tmp_path / "still", {("stn", 0): rows}), None)
    rows[1]["scale/drop"] = 0.5
    figure = plots.FIGURES["sigma"](frame_of(tmp_path / "moved", {("stn", 0): rows}), None)
    assert lines_of(figure.axes[0]) == [([1, 2], [1.0, 0.5])]


def test_one_line_per_start_in_the_order_of_starts(tmp_path):
    runs = {(f"stn start={s}", 0): self_tuned_rows([2.0, 1.0], {"drop": [s, 0.5]}) for s in (0.9, 0.05, 0.3)}
    figure = plots.FIGURES["schedules-by-start"](frame_of(tmp_path, runs), None)
    assert [y for _, y in lines_of(figure.axes[0])] == [[0.05, 0.5], [0.3, 0.5], [0.9, 0.5]]
    assert [text.get_text() for text in figure.axes[0].texts] == ["from 0.05", "from 0.3", "from 0.9"]
    runs["stn", 0] = self_tuned_rows([2.0, 1.0], {"drop": [0.2, 0.5]})
    config = {"settings": {"space": {"drop": {"init": 0.2}}}}
    figure = plots.FIGURES["schedules-by-start"](frame_of(tmp_path / "own", runs), config)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["from 0.05", "from 0.2", "from 0.3", "from 0.9"], "the preset's own start is one of them"


def test_perturbed_values_stand_beside_the_schedule(tmp_path):
    runs = {
        (label, 0): [row | {"hp/output_dropout": 0.1 * row["epoch"]} for row in logs.rows([2.0, 1.0])]
        for label in ("gaussian", "sinusoid")
    }
    runs["stn", 0] = self_tuned_rows([2.0, 1.0], {"output_dropout": [0.3, 0.6]})
    figure = plots.FIGURES["perturbed"](frame_of(tmp_path, runs), None)
    assert [lines_of(ax)[0] for ax in figure.axes] == [
        ([100, 200], [0.1, 0.2]),
        ([100, 200], [0.1, 0.2]),
        ([100, 200], [0.3, 0.6]),
    ]


def test_the_heat_map_marks_the_best_cell_of_each_epoch(tmp_path):
    trials = []
    for number, (a, b) in enumerate((a, b) for a in (0.0, 0.3, 0.6) for b in (0.0, 0.5)):
        values = [5 + a + b, *[4.5] * 8, 4 - a - b]
        values = values if (a, b) != (0.6, 0.5) else [*values[:9], math.inf]
        trials += logs.rows(values, trial=number, **{"hp/input_dropout": a, "hp/output_dropout": b, "hp/alpha": 1.0})
    figure = plots.FIGURES["heatmaps"](frame_of(tmp_path, {("heatmap", 0): trials}), None)
    first, last = (ax for ax in figure.axes if ax.get_xlabel() == "input dropout")
    assert first.get_title("left") == "epoch 1: best 5 at (0, 0)"
    assert last.get_title("left").startswith("epoch 10: best 3.2 at (0.3, 0.5)"), "a diverged cell is never the best"
    assert lines_of(last) == [([1], [1])]
    mesh = np.ma.masked_invalid(np.asarray(last.collections[0].get_array().filled(np.nan))).reshape(2, 3)
    assert mesh.mask.tolist() == [[False] * 3, [False, False, True]]
    assert mesh[0].tolist() == pytest.approx([4.0, 3.7, 3.4])
    assert "grey: diverged" in words(figure)


def test_the_nearest_epochs_are_taken():
    assert nearest(range(1, 31)) == [1, 10, 25]
    assert nearest([2, 4, 8]) == [2, 8]


def test_the_greedy_schedule_is_the_best_value_of_each_epoch(tmp_path):
    trials = fixed_trials({0.1: [3.0, 2.9, 2.8], 0.5: [4.0, 2.5, 2.4], 0.9: [5.0, 3.0, 2.0]})
    along = [row | {"hp/output_dropout": 0.5} for row in logs.rows([3.0, 2.4, 1.9])]
    frame = frame_of(tmp_path, {("grid", 0): trials, ("greedy", 0): along})
    assert greedy_schedule(frame[frame["method"] == "grid"], "output_dropout").tolist() == [0.1, 0.5, 0.9]
    upwards = frame[frame["method"] == "grid"].copy()
    upwards.attrs["mode"] = "max"
    assert greedy_schedule(upwards, "output_dropout").tolist() == [0.9, 0.9, 0.1]
    figure = plots.FIGURES["greedy"](frame, None)
    left, right = figure.axes[:2]
    assert lines_of(left) == [([1, 2, 3], [0.1, 0.5, 0.9])]
    assert lines_of(right)[-1] == ([1, 2, 3], [3.0, 2.4, 1.9])


def test_a_grid_over_several_hyperparameters_has_no_greedy_schedule(tmp_path):
    trials = [row | {"hp/alpha": row["trial"]} for row in fixed_trials({0.1: [3.0], 0.5: [2.0], 0.9: [1.0]})]
    with pytest.raises(NotThere, match=r'"grid" varies 2 hyperparameters.* needs exactly one'):
        plots.FIGURES["greedy"](frame_of(tmp_path, {("grid", 0): trials}), None)


def test_steps_and_scales_have_a_line_per_setting(tmp_path):
    runs = {(f"stn train={t} valid=1", 0): logs.rows([3.0, 2.0 + t / 10]) for t in (10, 2)}
    runs |= {("stn scale=0.5 fixed", 0): logs.rows([3.0, 2.0]), ("stn scale=0.5 tuned", 0): logs.rows([3.0, 1.0])}
    frame = frame_of(tmp_path, runs)
    steps = plots.FIGURES["steps"](frame, None).axes[0]
    assert [(t.get_text(), y[-1]) for t, (_, y) in zip(steps.texts, lines_of(steps), strict=True)] == [
        ("2 train, 1 valid", 2.2),
        ("10 train, 1 valid", 3.0),
    ]
    fixed, tuned = plots.FIGURES["scales"](frame, None).axes
    assert (fixed.get_title("left"), lines_of(fixed)) == ("σ fixed", [([1, 2], [3.0, 2.0])])
    assert lines_of(tuned) == [([1, 2], [3.0, 1.0])]


def configuration_runs() -> dict[tuple[str, int], list]:
    rng = np.random.default_rng(0)
    trials = []
    for number, (a, b) in enumerate(rng.uniform(size=(30, 2))):
        trials += logs.rows([3.0, 2.0 + 3 * (a - 0.5) ** 2], trial=number, **{"hp/drop": a, "hp/noise": b})
    trials += logs.rows([3.0, math.inf], trial=30, **{"hp/drop": 0.5, "hp/noise": 0.5})
    trials[-2]["val_loss"] = math.inf
    stn = self_tuned_rows([3.0, 2.5, 2.0], {"drop": [0.05, 0.2, 0.4], "noise": [0.05, 0.1, 0.3]})
    return {("random", 0): trials, ("stn", 0): stn}


def test_configurations_show_every_trial_and_the_way_of_the_stn(tmp_path):
    frame = frame_of(tmp_path, configuration_runs())
    figure = plots.FIGURES["configurations"](
        frame, {"settings": {"space": {"drop": {"kind": "uniform", "lower": 0.0, "upper": 1.0}}}}
    )
    ax = figure.axes[0]
    assert len(ax.collections[0].get_segments()) == 30
    assert "30 trials of random search; darker is better; 1 without a finite loss" in words(figure).replace("\n", " ")
    end, _, start = (line.get_ydata() for line in ax.lines)
    assert (start[0], end[0]) == (pytest.approx(0.05), pytest.approx(0.4)), "on the space's own axis from 0 to 1"


def test_importance_finds_what_matters(tmp_path):
    pytest.importorskip("sklearn")
    figure = plots.FIGURES["importance"](frame_of(tmp_path, configuration_runs()), None)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["noise", "drop"]
    noise, drop = (bar.get_width() for bar in figure.axes[0].patches)
    assert drop > 10 * abs(noise)
    said = re.search(
        r"n = 30 configurations, 30 trials of random search; held-out R² of the forest (0\.\d+)", words(figure)
    )
    assert said
    assert float(said[1]) > 0.5


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
        said = words(plots.FIGURES[name](frame, None)).replace("\n", " ")
        assert "32 trials of random search" in said
        assert "ASHA" not in said
        assert "21 that were stopped early left out" in said


def test_a_configuration_that_many_tried_counts_once(tmp_path):
    """Otherwise the forest would be asked for what it was fitted to."""
    pytest.importorskip("sklearn")
    runs = configuration_runs()
    again = {("grid", seed): runs["random", 0] for seed in range(3)}
    said = words(plots.FIGURES["importance"](frame_of(tmp_path, runs | again), None))
    assert "n = 30 configurations, 120 trials" in said.replace("\n", " ")


def test_what_was_taken_over_has_no_curve_as_its_cost_is_not_in_it(tmp_path):
    runs = {("stn", 0): logs.rows([2.0, 1.0]), ("replay", 0): logs.rows([2.0, 0.9])}
    figure = plots.FIGURES["time"](frame_of(tmp_path, runs), None)
    assert [line.get_label() for line in figure.axes[0].lines] == ["STN"]
    with pytest.raises(NotThere, match="without what finding it cost"):
        plots.FIGURES["time"](frame_of(tmp_path / "alone", {("replay", 0): logs.rows([2.0, 0.9])}), None)


def test_nine_trials_are_too_few_for_importances(tmp_path):
    trials = fixed_trials({k / 10: [3.0, 2.0 - k / 10] for k in range(9)})
    with pytest.raises(NotThere, match=r"1 hyperparameters vary .*; importances need two or more"):
        plots.FIGURES["importance"](frame_of(tmp_path / "one", {("grid", 0): trials}), None)
    frame = frame_of(tmp_path, {("grid", 0): [row | {"hp/alpha": row["trial"]} for row in trials]})
    with pytest.raises(NotThere, match="9 configurations in finished black-box trials; importances need 10 or more"):
        plots.FIGURES["importance"](frame, None)


def test_what_is_not_there_is_said_and_is_an_analysis_error(tmp_path):
    frame = frame_of(tmp_path, {("random", 0): logs.rows([2.0, 1.0])})
    reasons = {}
    for name, draw in plots.FIGURES.items():
        try:
            draw(frame, None)
        except AnalysisError as error:
            reasons[name] = str(error)
    assert set(plots.FIGURES) - set(reasons) == {"time", "time-elapsed", "time-epochs"}
    assert "no trial reports scale/<name>" in reasons["schedules"]
    assert reasons["heatmaps"] == 'no runs with the label "heatmap"'
    assert reasons["steps"] == 'no label such as "stn train=… valid=…"'


def test_nothing_finite_is_no_curve(tmp_path):
    frame = frame_of(tmp_path, {("random", 0): logs.rows([math.inf, math.inf])})
    with pytest.raises(AnalysisError, match="never had a finite val_loss"):
        plots.FIGURES["time"](frame, None)


def test_saved_figures_are_the_same_bytes_every_time(tmp_path):
    frame = frame_of(tmp_path / "logs", {("stn", s): logs.rows([3.0, 2.0 + s]) for s in range(2)})
    saved = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        saved.append([path.read_bytes() for path in save(plots.FIGURES["time"](frame, None), folder, "time")])
    assert saved[0] == saved[1]
    png, svg, pdf = saved[0]
    assert png.startswith(b"\x89PNG")
    assert b"Software" not in png
    assert b"<svg" in svg
    assert b"matplotlib" not in svg.lower().replace(b"matplotlib.axis_", b"")
    assert pdf.startswith(b"%PDF")
    assert b"CreationDate" not in pdf
