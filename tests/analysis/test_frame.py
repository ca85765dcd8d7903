from __future__ import annotations

import gzip
import importlib
import json
import math
import shutil
import subprocess
import sys
import time

import fsspec
import pandas as pd
import pytest
from stn_tune.analysis.frame import FIRST_COLUMNS
from stn_tune.analysis.order import METHOD_ORDER, in_order, title

from stn_tune import analysis
from stn_tune.analysis import AnalysisError, incumbent, load, reading, table
from tests.analysis import logs


def problems(frame: pd.DataFrame) -> list[str]:
    return frame.attrs["problems"]


def test_a_runs_rows_come_out_as_they_went_in(tmp_path):
    reported = logs.rows([3.0, 2.0, 2.5], **{"hp/drop": 0.1, "val_perplexity": 20.0})
    logs.write_run(tmp_path, "stn", 3, reported)
    frame = load(tmp_path)
    assert list(frame.columns[: len(FIRST_COLUMNS)]) == list(FIRST_COLUMNS)
    assert set(frame["experiment"]) == {"stn-3"}
    assert set(frame["seed"]) == {3}
    assert set(frame["trial_id"]) == {"00003_00000"}
    assert set(frame["status"]) == {"TERMINATED"}
    for name in ("training_iteration", "elapsed_s", "compute_s", "wall_s", "step", "val_loss", "test_loss", "hp/drop"):
        assert frame[name].tolist() == [row[name] for row in reported], name
    assert frame["epochs"].tolist() == [1, 2, 3]
    assert problems(frame) == []
    json.dumps(frame.attrs)


def test_sorted_by_method_seed_and_compute(tmp_path):
    for label in ("zebra", "grid", "stn start=0.3", "stn"):
        logs.write_run(tmp_path, label, 1, logs.rows([1.0]))
        logs.write_run(tmp_path, label, 0, [*logs.rows([2.0, 1.0], trial=1, start=20), *logs.rows([4.0, 3.0])])
    frame = load(tmp_path)
    assert list(frame["method"].unique()) == ["stn", "stn start=0.3", "grid", "zebra"]
    assert frame["seed"].tolist() == [0, 0, 0, 0, 1] * 4
    assert frame["compute_s"].tolist() == [10, 20, 30, 40, 10] * 4
    assert frame["epochs"].tolist() == [1, 2, 3, 4, 1] * 4, "epochs add up over trials"


def test_the_order_and_the_titles_of_methods():
    assert in_order(["b", "pbt", "a", "stn", "grid x=1", "grid"]) == ["stn", "grid", "grid x=1", "pbt", "a", "b"]
    assert METHOD_ORDER[:4] == ("stn", "grid", "random", "bayes")
    assert title("bayes") == "Bayesian optimisation"
    assert title("stn start=0.3") == "STN start=0.3"
    assert title("mine") == "mine"


def test_the_experiments_clocks_are_derived_for_plain_folders(tmp_path):
    """Two trials at once: one reports at 10, 20, 30 s, the other began 5 s later and reports at 15 and 25 s."""
    values = [{"val_loss": 3.0 - k, "wall_s": 12.0 + 10 * k, "start_s": 1.0} for k in range(3)]
    logs.write_trial(tmp_path / "mine", "b", logs.tune_rows("b", values, config={"seed": 4}))
    logs.write_trial(tmp_path / "mine", "a", logs.tune_rows("a", values[:2], config={"seed": 4}, began=1_700_000_005))
    frame = load(tmp_path / "mine")
    assert set(frame["experiment"]) == {"mine-4"}
    assert frame["trial_id"].tolist() == ["b", "a", "b", "a", "b"]
    assert frame["trial"].tolist() == [0, 1, 0, 1, 0], "numbered by their first report"
    assert frame["elapsed_s"].tolist() == [10, 15, 20, 25, 30]
    assert frame["compute_s"].tolist() == [13, 13 + 13, 23 + 13, 23 + 23, 33 + 23]
    assert frame["epochs"].tolist() == [1, 2, 3, 4, 5], "iterations, where no epoch is reported"


def test_any_tune_experiment_is_read(tmp_path):
    """No key of ours: nested metrics, Tune's own clock, a running best of the metric, values from the config."""
    metrics = [{"loss": v, "eval": {"acc": {"top1": 1 - v}}} for v in (0.5, 0.25, 0.75)]
    config = {"lr": 0.1, "model": {"width": 8}, "name": "net", "seed": 0}
    logs.write_trial(tmp_path / "one", "t", logs.tune_rows("t", metrics, config=config))
    frame = load(tmp_path, metric="loss")
    assert frame["eval/acc/top1"].tolist() == [0.5, 0.75, 0.25]
    assert frame["best_loss"].tolist() == [0.5, 0.25, 0.25]
    assert frame["compute_s"].tolist() == [10, 20, 30]
    assert frame["hp/lr"].tolist() == [0.1] * 3
    assert frame["hp/model/width"].tolist() == [8] * 3
    assert not {"hp/name", "hp/seed", "config", "pid", "date"} & set(frame.columns)
    assert load(tmp_path, metric="eval/acc/top1", mode="max")["best_eval/acc/top1"].tolist() == [0.5, 0.75, 0.75]
    assert problems(load(tmp_path)) == ["no row reports val_loss"]


def test_values_follow_a_config_that_changes_on_the_way(tmp_path):
    reported = logs.tune_rows("t", [{"val_loss": 1.0}] * 3, config={"lr": 0.1})
    reported[2]["config"] = {"lr": 0.2}
    logs.write_trial(tmp_path, "t", reported)
    assert load(tmp_path)["hp/lr"].tolist() == [0.1, 0.1, 0.2]


def test_seeds_of_plain_folders(tmp_path):
    for trial, seed in (("a", 1), ("b", 2)):
        logs.write_trial(tmp_path / "mixed", trial, logs.tune_rows(trial, [{"val_loss": 1.0}], config={"seed": seed}))
    online = {"stn": {"seed": 7, "space": {}}}
    logs.write_trial(tmp_path / "deep" / "er" / "tuned", "c", logs.tune_rows("c", [{"val_loss": 1.0}], config=online))
    frame = load(tmp_path)
    assert set(frame["experiment"]) == {"mixed-0", "tuned-7"}
    assert set(load(tmp_path / "mixed", method="mine")["method"]) == {"mine"}


def test_both_formats_and_several_paths_in_one_frame(tmp_path):
    logs.write_run(tmp_path / "ours", "stn", 0, logs.rows([1.0]))
    logs.write_trial(tmp_path / "theirs" / "random", "t", logs.tune_rows("t", [{"val_loss": 2.0}]))
    frame = load(tmp_path / "ours", tmp_path / "theirs")
    assert frame["experiment"].tolist() == ["stn-0", "random-0"]
    assert frame["compute_s"].tolist() == [10, 10]
    assert frame.attrs["sources"] == [str(tmp_path / "ours"), str(tmp_path / "theirs")]
    assert load(tmp_path / "theirs" / "random" / "train_t")["method"].tolist() == ["random"]
    assert load(tmp_path / "ours" / "runs" / "stn-0.jsonl.gz")["experiment"].tolist() == ["stn-0"]


def test_storage_by_uri(tmp_path):
    logs.write_run(tmp_path / "a", "stn", 0, logs.rows([2.0, 1.0]))
    logs.write_trial(tmp_path / "a" / "grid", "t", logs.tune_rows("t", [{"val_loss": 2.0}]))
    local = load(tmp_path / "a")
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "a"), "/bucket/a", recursive=True)
    try:
        for uri in (f"file://{tmp_path}/a", "memory://bucket/a"):
            pd.testing.assert_frame_equal(load(uri), local)
        with pytest.raises(AnalysisError, match=r"^memory://bucket/b: there is no such file or folder$"):
            load("memory://bucket/b")
    finally:
        memory.rm("/bucket", recursive=True)


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(AnalysisError, match=r"^.*/none: there is no such file or folder$"):
        load(tmp_path / "none")
    with pytest.raises(AnalysisError, match="nowhere://x: neither pyarrow nor fsspec reads it"):
        load("nowhere://x")
    with pytest.raises(AnalysisError, match="at least one path"):
        load()
    with pytest.raises(AnalysisError, match="mode is 'low'; it must be"):
        load(tmp_path, mode="low")


def test_a_folder_without_results(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing yet")
    frame = load(tmp_path)
    assert len(frame) == 0
    assert list(frame.columns) == list(FIRST_COLUMNS)
    assert problems(frame) == [f"{tmp_path}: no results"]


def test_a_torn_last_line_is_dropped_and_said(tmp_path):
    folder = logs.write_trial(tmp_path / "mine", "t", logs.tune_rows("t", [{"val_loss": 2.0}, {"val_loss": 1.0}]))
    text = (folder / "result.json").read_text()
    (folder / "result.json").write_text(text[:-20])
    frame = load(tmp_path)
    assert frame["val_loss"].tolist() == [2.0]
    assert problems(frame) == ["mine-0: trial 0: a torn last line (dropped)"]
    lines = text.splitlines()
    (folder / "result.json").write_text("\n".join([lines[0][:30], "[1, 2]", "\0\0", lines[1], ""]))
    frame = load(tmp_path)
    assert frame["val_loss"].tolist() == [1.0]
    assert problems(frame) == ["mine-0: trial 0: lines that cannot be read (dropped)"]


def test_a_torn_archive_keeps_what_can_be_unpacked(tmp_path):
    path = logs.write_run(tmp_path, "stn", 0, logs.rows([1 / (k + 1) for k in range(300)]))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    frame = load(tmp_path)
    assert 0 < len(frame) < 300
    assert frame["training_iteration"].tolist() == list(range(1, len(frame) + 1))
    assert problems(frame) == ["stn-0: trial 0: a torn last line (dropped)"]


def test_an_archive_that_is_not_a_run(tmp_path):
    logs.write_run(tmp_path, "stn", 0, logs.rows([1.0]))
    logs.write_run(tmp_path, "stn", 1, logs.rows([1.0]), version=9)
    (tmp_path / "runs" / "b.jsonl.gz").write_bytes(gzip.compress(b'{"x": 1}\n'))
    (tmp_path / "runs" / "c.jsonl.gz").write_bytes(b"plain text")
    (tmp_path / "runs" / "d.jsonl.gz").write_bytes(b"")
    (tmp_path / "runs" / ".stn-2.jsonl.gz").write_bytes(b"half written")
    frame = load(tmp_path)
    assert set(frame["experiment"]) == {"stn-0"}
    no_header = 'not read, its first line is not the header of a run ("format": "stn_tune.run")'
    assert problems(frame) == [
        *(f"{name}.jsonl.gz: {no_header}" for name in "bcd"),
        "stn-1.jsonl.gz: not read, a run of version 9; this release reads 1",
    ]


def test_failed_and_empty_trials_are_counted(tmp_path):
    root = tmp_path / "mine"
    logs.write_trial(root, "good", logs.tune_rows("good", [{"val_loss": 1.0}]))
    bad = logs.tune_rows("bad", [{"val_loss": 2.0}], began=1_700_000_001)
    logs.write_trial(root, "bad", [bad[0] | {"done": False}], error="boom")
    logs.write_trial(root, "empty", [])
    shutil.rmtree(logs.write_trial(root, "gone", []))
    frame = load(tmp_path)
    assert dict(zip(frame["trial_id"], frame["status"], strict=True)) == {"good": "TERMINATED", "bad": "ERROR"}
    assert problems(frame) == ["mine-0: trial 1: failed", "mine-0: trial train_empty: reported nothing"]
    statuses = {"good": "TERMINATED", "bad": "TERMINATED", "empty": "PENDING", "gone": "PENDING"}
    state = logs.write_state(root, statuses)
    frame = load(tmp_path)
    assert set(frame["status"]) == {"TERMINATED"}, "Tune's own record knows better than an old error.txt"
    assert problems(frame) == ["mine-0: trials train_empty, train_gone: reported nothing"]
    state.write_text("{")
    assert problems(load(tmp_path))[0].startswith("mine: experiment_state-2023-11-14_22-13-20.json cannot be read")


def test_many_problems_are_counted_not_listed(tmp_path):
    logs.write_run(tmp_path, "grid", 0, logs.rows([1.0]), configs={k: {} for k in range(9)}, statuses={8: "ERROR"})
    ids = ", ".join(f"00000_{k:05d}" for k in range(8, 9))
    assert problems(load(tmp_path)) == ["grid-0: 8 trials: reported nothing", f"grid-0: trial {ids}: failed"]


def test_iterations_after_a_restore_are_kept_once(tmp_path):
    reported = logs.tune_rows("t", [{"val_loss": v} for v in (5.0, 4.0, 3.0)])
    again = [row | {"val_loss": row["val_loss"] - 1, "timestamp": row["timestamp"] + 100} for row in reported[1:]]
    logs.write_trial(tmp_path / "mine", "t", [*reported, *again])
    frame = load(tmp_path)
    assert frame["training_iteration"].tolist() == [1, 2, 3]
    assert frame["val_loss"].tolist() == [5.0, 3.0, 2.0]
    assert frame["elapsed_s"].tolist() == [10, 120, 130]
    assert problems(frame) == ["mine-0: trial 0: iterations reported again after a restore (the last is kept)"]


def test_what_a_trial_did_before_pbt_replaced_it_is_kept(tmp_path):
    """The best of an experiment may be among it: the checkpoint that is taken over need not be the best ever."""
    rows = logs.rows([5.0, 4.0, 3.0])
    clone = [
        row | {"hp/drop": 0.2, "compute_s": row["compute_s"] + 20, "elapsed_s": row["elapsed_s"] + 20}
        for row in logs.rows([5.0, 3.5, 3.2])[1:]
    ]
    logs.write_run(tmp_path / "runner", "pbt", 0, [*(row | {"hp/drop": 0.1} for row in rows), *clone])
    frame = load(tmp_path / "runner")
    assert frame["val_loss"].tolist() == [5.0, 4.0, 3.0, 3.5, 3.2]
    assert frame["epochs"].tolist() == [1, 2, 3, 4, 5], "what it trained, not what the checkpoint had behind it"
    assert problems(frame) == []
    reported = logs.tune_rows("t", [{"val_loss": v} for v in (5.0, 4.0, 3.0)], config={"drop": 0.1})
    later = {name: reported[2][name] for name in ("timestamp", "time_total_s")}
    other = [row | {k: v + row[k] for k, v in later.items()} | {"config": {"drop": 0.2}} for row in reported[1:]]
    logs.write_trial(tmp_path / "mine", "t", [*reported, *other])
    assert load(tmp_path / "mine")["hp/drop"].tolist() == [0.1, 0.1, 0.1, 0.2, 0.2]


def test_a_checkpoint_taken_over_brings_neither_epochs_nor_seconds(tmp_path):
    """PBT makes a young trial go on from an old one's checkpoint, with its iterations and Tune's clock."""
    young = logs.tune_rows("t", [{"val_loss": 1.0, "epoch": k} for k in (2, 4, 6, 20, 22)])
    for row, iteration, seconds in zip(young, (1, 2, 3, 10, 11), (10.0, 20.0, 30.0, 100.0, 110.0), strict=True):
        row |= {"training_iteration": iteration, "time_total_s": seconds}
    logs.write_trial(tmp_path, "t", young)
    frame = load(tmp_path)
    assert frame["epochs"].tolist() == [2, 4, 6, 8, 10]
    assert frame["compute_s"].tolist() == [10, 20, 30, 40, 50]


def test_a_lost_line_is_no_checkpoint_taken_over(tmp_path):
    logs.write_trial(tmp_path, "t", logs.tune_rows("t", [{"val_loss": 1.0, "epoch": k} for k in range(1, 6)]))
    path = next(tmp_path.rglob("result.json"))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], lines[2][:20] + "\n", *lines[3:]]))
    frame = load(tmp_path)
    assert frame["epochs"].tolist() == [1, 2, 4, 5]
    assert frame["compute_s"].tolist() == [10, 20, 40, 50]


def test_compute_never_runs_backwards(tmp_path):
    """Tune's own clock does after a restore; what the first row after it took is then taken to be as long as usual."""
    reported = logs.tune_rows("t", [{"val_loss": 1.0}] * 4)
    for row, seconds in zip(reported, (10.0, 20.0, 12.0, 25.0), strict=True):
        row["time_total_s"] = seconds
    logs.write_trial(tmp_path, "t", reported)
    assert load(tmp_path)["compute_s"].tolist() == [10, 20, 30, 43]


def test_unfinished_experiments_are_named(tmp_path):
    root = tmp_path / "ptb-small"
    logs.write_config(root, ["stn-0", "stn-1", "grid-0"])
    logs.write_run(root, "stn", 0, logs.rows([1.0]))
    logs.write_trial(root / "work" / "stn-0", "t", logs.tune_rows("t", [{"val_loss": 9.0}]))
    frame = load(tmp_path)
    assert set(frame["experiment"]) == {"stn-0"}
    assert frame["val_loss"].tolist() == [1.0], "the runner's own working folders are not read a second time"
    missing = "not finished, it has no log in runs/"
    assert problems(frame) == [f"stn-1: {missing}", f"grid-0: {missing}"]
    assert [config["name"] for config in frame.attrs["configs"]] == ["ptb-small"]


def test_the_metric_is_the_one_the_runs_name(tmp_path):
    reported = logs.rows([1.0], val_accuracy=0.5)
    logs.write_run(tmp_path, "stn", 0, reported, metric="val_accuracy", mode="max")
    frame = load(tmp_path)
    assert (frame.attrs["metric"], frame.attrs["mode"]) == ("val_accuracy", "max")
    frame = load(tmp_path, metric="val_loss", mode="min")
    assert (frame.attrs["metric"], frame.attrs["mode"]) == ("val_loss", "min")


def test_runs_that_do_not_belong_together(tmp_path):
    logs.write_run(tmp_path / "a", "stn", 0, logs.rows([1.0]))
    logs.write_run(tmp_path / "b", "stn", 0, logs.rows([2.0]), budget_s=60.0)
    frame = load(tmp_path)
    assert frame["experiment"].nunique() == 2
    assert problems(frame) == [
        "the runs differ in budget_s: 60.0, 600.0",
        "stn-0: there are 2 of it; they count as 2 runs and are not paired",
    ]
    logs.write_run(tmp_path / "c", "stn", 0, logs.rows([2.0]), task="cifar10")
    with pytest.raises(AnalysisError, match=r"the logs are of different tasks \(cifar10, ptb\): load them one by one"):
        load(tmp_path)


def test_numbers_that_are_none(tmp_path):
    values = [{"val_loss": v} for v in (2.0, math.nan, math.inf, None, "null", 1.0)]
    logs.write_trial(tmp_path, "t", logs.tune_rows("t", values))
    frame = load(tmp_path)
    assert frame["val_loss"].isna().tolist() == [False, True, False, True, True, False]
    assert frame["best_val_loss"].tolist() == [2.0] * 5 + [1.0]


def test_without_a_clock_there_is_no_compute(tmp_path):
    reported = logs.tune_rows("t", [{"val_loss": 2.0}, {"val_loss": 1.0}])
    without = ("timestamp", "time_total_s", "time_this_iter_s")
    logs.write_trial(tmp_path, "t", [{k: v for k, v in row.items() if k not in without} for row in reported])
    frame = load(tmp_path)
    assert frame[["compute_s", "elapsed_s"]].isna().all(axis=None)
    assert frame["epochs"].tolist() == [1, 2]
    assert len(incumbent(frame)) == 0
    assert incumbent(frame, "epochs")["value"].tolist() == [2, 1]


def test_columns_of_unlike_trials(tmp_path):
    first = [{"val_loss": 1.0, "note": "a", "flag": True, "list": [1, 2]}, {"val_loss": 1.0, "late": 3}]
    logs.write_trial(tmp_path / "x", "t", logs.tune_rows("t", first))
    logs.write_trial(tmp_path / "x", "u", logs.tune_rows("u", [{"val_loss": 2.0}], began=1_700_001_000))
    frame = load(tmp_path)
    assert frame["note"].isna().tolist() == [False, True, True]
    assert frame["late"].tolist()[1] == 3
    assert frame["list"].tolist()[0] == [1, 2]


def test_what_a_trial_reports_does_not_stand_in_for_what_the_frame_knows(tmp_path):
    clashing = {"experiment": "e", "method": "m", "seed": 9, "status": "s", "val_loss": 1.0, "cost": 2.0, "x": 3.0}
    logs.write_trial(tmp_path / "mine", "t", logs.tune_rows("t", [clashing]))
    frame = load(tmp_path, metric="x")
    assert frame[["experiment", "method", "status"]].iloc[0].tolist() == ["mine-0", "mine", "TERMINATED"]
    assert frame["seed"].tolist() == [0]
    assert incumbent(frame, metric="cost")["value"].tolist() == [2.0]
    assert table(frame).long["mean"].tolist() == [3.0, 1.0]


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_long_logs_are_parsed_in_pieces(monkeypatch, size):
    monkeypatch.setattr(reading, "CHUNK", size)
    lines = ['{"a": 1}', "", '{"a": 2', '{"a": 3}', "  ", '{"a": [4]}']
    for end, torn in (("\n", False), ("", False), ('\n{"a": 5', True), ('\n{"a": 5\n', False)):
        parsed = reading.Lines.parse(("\n".join(lines) + end).encode())
        assert [row["a"] for row in parsed.rows] == [1, 3, [4]]
        assert parsed.torn == torn
        assert parsed.broken == 1 + (end == '\n{"a": 5\n')


@pytest.mark.parametrize("name", ["overview", "report"])
def test_a_public_name_is_the_function_whoever_imported_the_module_first(name):
    module = importlib.import_module(f"stn_tune.analysis.{name}")
    assert getattr(analysis, name) is getattr(module, name)
    assert all(getattr(analysis, public) for public in analysis.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'figure'"):
        analysis.figure  # noqa: B018


def test_reading_logs_needs_no_drawing():
    code = "import sys, stn_tune.analysis; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_larger_tree_loads_fast(tmp_path):
    """10,000 trials of 100 rows take less than a minute; here a hundredth of them, with ten times their share of it."""
    metrics = [{"val_loss": 1 / k, "wall_s": 10.0 * k, **{f"hp/{n}": 0.5 for n in "abcdefg"}} for k in range(1, 101)]
    for k in range(100):
        config = {"a": k, "seed": 0}
        logs.write_trial(tmp_path / "mine", f"{k:03d}", logs.tune_rows(f"{k:03d}", metrics, config=config, began=7 * k))
    start = time.perf_counter()
    frame = load(tmp_path)
    assert time.perf_counter() - start < 6
    assert len(frame) == 10_000
    assert frame["compute_s"].is_monotonic_increasing
    assert frame["compute_s"].iloc[-1] == 100 * 1000
