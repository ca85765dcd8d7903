from __future__ import annotations

import gzip
import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace

import fsspec
import pandas as pd
import pytest

from stn_tune import analysis
from stn_tune.analysis import AnalysisError, Results, incumbent, load, table, trials
from stn_tune.analysis.results import FIRST_COLUMNS
from stn_tune.record import MethodInfo, RunRecord
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
    assert set(frame["method"]) == set(frame["label"]) == {"stn"}
    assert frame["compared"].all()
    assert set(frame["online"]) == {("drop",)}
    assert problems(frame) == []
    assert frame.attrs["record"] is None


def test_sorted_by_method_seed_and_compute(tmp_path):
    infos = []
    for method, variant in (("zebra", {}), ("grid", {}), ("stn", {"start": 0.3}), ("stn", {})):
        infos.append(logs.write_run(tmp_path, method, 1, logs.rows([1.0]), variant=variant))
        both = [*logs.rows([2.0, 1.0], trial=1, start=20), *logs.rows([4.0, 3.0])]
        infos.append(logs.write_run(tmp_path, method, 0, both, variant=variant))
    logs.write_record(tmp_path, infos)
    frame = load(tmp_path)
    assert list(frame["label"].unique()) == ["stn", "stn start=0.3", "grid", "zebra"]
    assert list(frame["method"].unique()) == ["stn", "grid", "zebra"]
    assert set(frame.loc[frame["label"] == "stn start=0.3", "variant/start"]) == {0.3}
    assert frame.loc[frame["label"] == "grid", "variant/start"].isna().all()
    assert frame["seed"].tolist() == [0, 0, 0, 0, 1] * 4
    assert frame["compute_s"].tolist() == [10, 20, 30, 40, 10] * 4
    assert frame["epochs"].tolist() == [1, 2, 3, 4, 1] * 4, "epochs add up over trials"


def test_order_and_titles_are_those_of_the_record(tmp_path):
    infos = [logs.write_run(tmp_path, name, 0, logs.rows([1.0])) for name in ("a", "b", "c", "d")]
    infos.append(logs.write_run(tmp_path, "b", 0, logs.rows([1.0]), variant={"x": 1}))
    infos.append(logs.write_run(tmp_path, "a", 0, logs.rows([1.0]), variant={"view": "map"}, compared=False))
    logs.write_record(tmp_path, infos, methods=(MethodInfo("c", "Cee"), MethodInfo("b", "Bee")))
    results = Results.of(load(tmp_path))
    assert results.labels == ["c", "b", "b x=1", "a", "d", "a view=map"], "what is not listed follows alphabetically"
    assert [results.title(label) for label in results.labels] == ["Cee", "Bee", "Bee x=1", "a", "d", "a view=map"]
    assert table(results).frame["method"].tolist() == ["Cee", "Bee", "Bee x=1", "a", "d"], "the map is not compared"


def test_the_default_reference_is_a_question_to_the_logs(tmp_path):
    def reference(folder, given=None):
        return Results.of(load(folder)).reference(given)

    names = ("grid", "stn", "hybrid")
    infos = [logs.write_run(tmp_path / "both", name, 0, logs.rows([1.0])) for name in names]
    logs.write_record(tmp_path / "both", infos, methods=tuple(MethodInfo(name, name) for name in names))
    assert reference(tmp_path / "both") == "stn", "the record's first method that tunes online"
    assert reference(tmp_path / "both", "grid") == "grid"
    variants = [logs.write_run(tmp_path / "only", "stn", 0, logs.rows([1.0]), variant={"scale": s}) for s in (1, 2)]
    logs.write_record(tmp_path / "only", variants)
    assert reference(tmp_path / "only") == "stn", "variants are not compared with one of them"
    assert "No plain STN to compare with" in str(table(load(tmp_path / "only")))
    logs.write_runs(tmp_path / "none", {("random", 0): logs.rows([1.0]), ("grid", 0): logs.rows([1.0])})
    assert reference(tmp_path / "none") == "grid", "the first, if none tunes online"
    logs.write_trial(tmp_path / "tune" / "plain", "a", logs.tune_rows("a", [{"val_loss": 1.0}]))
    mine = logs.tune_rows("b", [{"val_loss": 1.0}], config={"stn": {"space": {"drop": {}}, "seed": 0}})
    logs.write_trial(tmp_path / "tune" / "self-tuned", "b", mine)
    assert reference(tmp_path / "tune") == "self-tuned"


def test_which_hyperparameters_a_trial_tuned_online(tmp_path):
    """As the runner says; in plain folders, those that the config reserves, else those with a scale."""
    logs.write_run(tmp_path / "a", "stn", 0, logs.rows([1.0], **{"scale/x": 1.0}), online=["drop"])
    assert load(tmp_path / "a")["online"].tolist() == [("drop",)]
    for trial, config, metrics in (
        ("a", {"stn": {"space": {"drop": {}, "decay": {}}, "seed": 0}}, {"scale/x": 1.0}),
        ("b", {"lr": 1.0}, {"scale/x": 1.0, "scale/y": 1.0}),
        ("c", {"lr": 1.0}, {}),
    ):
        reported = logs.tune_rows(trial, [{"val_loss": 1.0, **metrics}], config=config)
        logs.write_trial(tmp_path / "b", trial, reported)
    found = load(tmp_path / "b").set_index("trial_id")["online"].to_dict()
    assert found == {"a": ("drop", "decay"), "b": ("x", "y"), "c": ()}


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


def test_compute_seconds_of_a_trial_are_those_of_its_own_clock(tmp_path):
    values = [{"val_loss": 1.0, "trial_compute_s": 3.0 * k, "wall_s": 9.0 * k, "clock": "cpu"} for k in (1, 2)]
    logs.write_trial(tmp_path / "mine", "a", logs.tune_rows("a", values))
    logs.write_trial(tmp_path / "mine", "b", logs.tune_rows("b", values, began=1_700_000_005))
    frame = load(tmp_path / "mine")
    assert frame["compute_s"].tolist() == [3, 6, 9, 12], "not wall-clock, which a busy neighbour makes longer"
    assert "clock" not in frame


def test_clocks_are_not_mixed(tmp_path):
    def tune(name, clock):
        rows = logs.tune_rows("t", [{"val_loss": 1.0, "trial_compute_s": 1.0} | clock])
        logs.write_trial(tmp_path / name, "t", rows)
        return tmp_path / name

    cpu, device, unknown = tune("a", {"clock": "cpu"}), tune("b", {"clock": "device"}), tune("c", {})
    assert len(load(cpu, unknown)) == 2, "nothing speaks against it"
    with pytest.raises(AnalysisError, match=r"different clocks \(cpu: a-0; device: b-0\): load them one by one$"):
        load(cpu, device)
    logs.write_run(tmp_path / "runner", "stn", 0, logs.rows([1.0]), clock="worker")
    assert len(load(tmp_path / "runner", unknown)) == 2
    with pytest.raises(AnalysisError, match=r"different clocks \(cpu: a-0; worker: stn-0\)"):
        load(tmp_path / "runner", cpu)


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
    assert problems(load(tmp_path)) == [], "nobody has said what the metric is"
    with pytest.raises(
        AnalysisError, match="no log names the metric: give it; columns with numbers: loss, eval/acc/top1"
    ):
        table(load(tmp_path))


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
    assert frame["experiment"].tolist() == ["random-0", "stn-0"], "alphabetically, where no record has an order"
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
        with pytest.raises(AnalysisError, match=r"^memory://bucket/b: no such file or folder$"):
            load("memory://bucket/b")
    finally:
        memory.rm("/bucket", recursive=True)


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(AnalysisError, match=r"^.*/none: no such file or folder$"):
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
    assert problems(frame) == ["mine-0: trial 0: an incomplete last line (dropped)"]
    lines = text.splitlines()
    (folder / "result.json").write_text("\n".join([lines[0][:30], "[1, 2]", "\0\0", lines[1], ""]))
    frame = load(tmp_path)
    assert frame["val_loss"].tolist() == [1.0]
    assert problems(frame) == ["mine-0: trial 0: lines that cannot be read (dropped)"]


def test_a_torn_archive_keeps_what_can_be_unpacked(tmp_path):
    logs.write_run(tmp_path, "stn", 0, logs.rows([1 / (k + 1) for k in range(300)]))
    path = tmp_path / "runs" / "stn-0.jsonl.gz"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    frame = load(tmp_path)
    assert 0 < len(frame) < 300
    assert frame["training_iteration"].tolist() == list(range(1, len(frame) + 1))
    assert problems(frame) == ["stn-0: trial 0: an incomplete last line (dropped)"]


def test_an_archive_that_is_not_a_run(tmp_path):
    logs.write_run(tmp_path, "stn", 0, logs.rows([1.0]))
    for seed, change in ((1, {"version": 9}), (2, {"seed": "two"}), (3, {"note": ""})):
        logs.write_run(tmp_path, "stn", seed, logs.rows([1.0]))
        rewrite(tmp_path / "runs" / f"stn-{seed}.jsonl.gz", **change)
    (tmp_path / "runs" / "b.jsonl.gz").write_bytes(gzip.compress(b'{"x": 1}\n'))
    (tmp_path / "runs" / "c.jsonl.gz").write_bytes(b"plain text")
    (tmp_path / "runs" / "d.jsonl.gz").write_bytes(b"")
    (tmp_path / "runs" / ".stn-4.jsonl.gz").write_bytes(b"half written")
    frame = load(tmp_path)
    assert set(frame["experiment"]) == {"stn-0"}
    no_header = 'not read, its first line is not the header of a log ("format": "stn_tune.run")'
    assert problems(frame) == [
        *(f"{name}.jsonl.gz: {no_header}" for name in "bcd"),
        "stn-1.jsonl.gz: not read, its first line: version is 9; this release reads 2",
        'stn-2.jsonl.gz: not read, its first line: seed is "two"; it must be int',
        "stn-3.jsonl.gz: not read, its first line: unknown field 'note'; known: method, seed, variant, compared, "
        "online, tuned, overrides, trials, machine, versions, searches, startup_s, ended_trials",
    ]


def rewrite(path, **changes) -> None:
    """Changes fields of a log's header."""
    header, *rows = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress((json.dumps(json.loads(header) | changes) + "\n").encode() + b"".join(rows)))


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
    assert problems(frame) == ["mine-0: trial 0: iterations reported again after a restore (the last report is kept)"]


def test_what_a_trial_did_before_pbt_replaced_it_is_kept(tmp_path):
    """It may hold the best of the experiment: the checkpoint that replaces it need not be the best ever."""
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


def test_a_cloned_checkpoint_brings_neither_epochs_nor_seconds(tmp_path):
    """PBT makes a young trial go on from an old one's checkpoint, with its iterations and Tune's clock."""
    young = logs.tune_rows("t", [{"val_loss": 1.0, "epoch": k} for k in (2, 4, 6, 20, 22)])
    for row, iteration, seconds in zip(young, (1, 2, 3, 10, 11), (10.0, 20.0, 30.0, 100.0, 110.0), strict=True):
        row |= {"training_iteration": iteration, "time_total_s": seconds}
    logs.write_trial(tmp_path, "t", young)
    frame = load(tmp_path)
    assert frame["epochs"].tolist() == [2, 4, 6, 8, 10]
    assert frame["compute_s"].tolist() == [10, 20, 30, 40, 50]


def test_a_lost_line_is_no_cloned_checkpoint(tmp_path):
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
    done = logs.write_run(root, "stn", 0, logs.rows([1.0]))
    logs.write_record(root, [done, replace(done, seed=1), replace(done, method="grid")])
    logs.write_trial(root / "work" / "stn-0", "t", logs.tune_rows("t", [{"val_loss": 9.0}]))
    frame = load(tmp_path)
    assert set(frame["experiment"]) == {"stn-0"}
    assert frame["val_loss"].tolist() == [1.0], "the runner's own working folders are not read a second time"
    missing = "not finished, it has no log in runs/"
    assert problems(frame) == [f"stn-1: {missing}", f"grid-0: {missing}"]
    assert frame.attrs["record"].name == "ptb-small"


def test_the_record_survives_what_pandas_does_to_attributes(tmp_path):
    logs.write_runs(tmp_path, {("stn", 0): logs.rows([1.0]), ("grid", 0): logs.rows([2.0])})
    frame = load(tmp_path)
    record = frame.attrs["record"]
    assert isinstance(record, RunRecord)
    assert frame[frame["method"] == "stn"].assign(x=1).attrs["record"] is record
    assert Results.of(frame).record is record
    assert Results.of(Results.of(frame)).frame is frame


def test_a_frame_of_ones_own_needs_a_few_columns_only():
    columns = {"experiment": "a-0", "method": "a", "seed": 0, "trial": 0, "compute_s": [1.0, 2.0]}
    results = Results.of(pd.DataFrame({**columns, "val_loss": [2.0, 1.0]}))
    assert results.labels == ["a"]
    assert results.reference() == "a"
    assert table(results).long["mean"].tolist() == [1.0]


def test_a_record_that_cannot_be_read_is_named_with_its_field(tmp_path):
    logs.write_runs(tmp_path, {("stn", 0): logs.rows([1.0])})
    path = tmp_path / "record.json"
    data = json.loads(path.read_text())
    for change, message in (
        ({"methods": [{"name": "stn"}]}, r"record.json: methods\[0\]: title is missing$"),
        ({"clock": "sun"}, r"record.json: clock is .sun.; it must be one of 'cpu', 'device', 'worker'$"),
        ({"version": 3}, r"record.json: version is 3; this release reads 2$"),
        ({"colour": 1}, r"record.json: unknown field 'colour'; known: name, study, task"),
    ):
        path.write_text(json.dumps(data | change))
        with pytest.raises(AnalysisError, match=message):
            load(tmp_path)
    path.write_text("{")
    with pytest.raises(AnalysisError, match=r"record.json is not JSON"):
        load(tmp_path)


def test_version_1_is_read_with_an_upgrade(tmp_path):
    runs = tmp_path / "old" / "runs"
    runs.mkdir(parents=True)
    config = {"format": 1, "name": "old", "experiments": ["own_fixed-0", "own_fixed-1"]}
    (tmp_path / "old" / "config.json").write_text(json.dumps(config))
    header = {"format": "stn_tune.run", "version": 1, "label": "own fixed", "seed": 0, "trials": []}
    text = "".join(json.dumps(line) + "\n" for line in [header, *logs.rows([2.0, 1.0])])
    (runs / "own_fixed-0.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(AnalysisError, match=r"old: a run of version 1; `python -m benchmarks report` reads it$"):
        load(tmp_path)

    def upgrade(config, headers):
        assert [header["label"] for header in headers] == ["own fixed"]
        infos = [logs.ExperimentInfo("own", seed, {"tuned": False}, online=("drop",)) for seed in (0, 1)]
        return logs.write_record(tmp_path / "new", infos, name=config["name"], clock="worker")

    frame = load(tmp_path / "old", upgrade=upgrade)
    assert frame["label"].tolist() == ["own tuned=false"] * 2
    assert frame["val_loss"].tolist() == [2.0, 1.0]
    assert frame.attrs["record"].name == "old"
    assert problems(frame) == ["own_tuned=false-1: not finished, it has no log in runs/"]
    (tmp_path / "old" / "config.json").unlink()
    assert "version is 1; this release reads 2" in problems(load(tmp_path / "old"))[0]


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
        "stn-0 was run 2 times: all count, none is paired with other methods",
        "the runs differ in budget_s: 60.0, 600.0",
    ]
    logs.write_run(tmp_path / "c", "stn", 0, logs.rows([2.0]), task=logs.CIFAR10)
    with pytest.raises(AnalysisError, match=r"the logs are of different tasks \(cifar10, ptb\): load them one by one"):
        load(tmp_path)


def test_several_records_become_one(tmp_path):
    logs.write_runs(tmp_path / "a", {("stn", 0): logs.rows([1.0]), ("grid", 0): logs.rows([2.0])})
    logs.write_runs(tmp_path / "b", {("bayes", 0): logs.rows([1.5])}, settings={"lr": 1.0}, workers=2)
    frame = load(tmp_path / "a", tmp_path / "b")
    record = frame.attrs["record"]
    assert record.name == "a and b"
    assert [info.name for info in record.methods] == ["stn", "grid", "bayes"]
    assert [info.name for info in record.experiments] == ["stn-0", "grid-0", "bayes-0"]
    assert len(record.invocations) == 2
    assert problems(frame) == [
        "the runs differ in workers: 1, 2",
        "the runs differ in settings; those of the first are shown",
    ]


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
    frame = load(tmp_path, metric="x", mode="min")
    assert frame[["experiment", "method", "status"]].iloc[0].tolist() == ["mine-0", "mine", "TERMINATED"]
    assert frame["seed"].tolist() == [0]
    assert incumbent(frame, metric="cost", mode="min")["value"].tolist() == [2.0]
    assert table(frame).long["mean"].tolist() == [3.0, 1.0]


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_long_logs_are_parsed_in_pieces(monkeypatch, size):
    monkeypatch.setattr(trials, "CHUNK", size)
    lines = ['{"a": 1}', "", '{"a": 2', '{"a": 3}', "  ", '{"a": [4]}']
    for end, torn in (("\n", False), ("", False), ('\n{"a": 5', True), ('\n{"a": 5\n', False)):
        parsed = trials.Lines.parse(("\n".join(lines) + end).encode())
        assert [row["a"] for row in parsed.rows] == [1, 3, [4]]
        assert parsed.torn == torn
        assert parsed.broken == 1 + (end == '\n{"a": 5\n')


def test_public_names_are_what_they_say():
    assert all(getattr(analysis, public) for public in analysis.__all__)
    assert callable(analysis.report)
    assert callable(analysis.curves)
    with pytest.raises(AttributeError, match="has no attribute 'figure'"):
        analysis.figure  # noqa: B018


def test_reading_and_comparing_needs_neither_torch_nor_ray_nor_matplotlib(tmp_path):
    logs.write_runs(tmp_path, {("stn", 0): logs.rows([1.0]), ("grid", 0): logs.rows([2.0])})
    code = f"""
import sys
from stn_tune import analysis
print(analysis.table(analysis.load({str(tmp_path)!r})))
sys.exit(", ".join(name for name in ("torch", "ray", "matplotlib", "jinja2") if name in sys.modules) or None)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Differences to STN" in done.stdout


def test_a_larger_tree_loads(tmp_path):
    """A hundred trials of a hundred rows, in one frame."""
    metrics = [{"val_loss": 1 / k, "wall_s": 10.0 * k, **{f"hp/{n}": 0.5 for n in "abcdefg"}} for k in range(1, 101)]
    for k in range(100):
        config = {"a": k, "seed": 0}
        logs.write_trial(tmp_path / "mine", f"{k:03d}", logs.tune_rows(f"{k:03d}", metrics, config=config, began=7 * k))
    frame = load(tmp_path)
    assert len(frame) == 10_000
    assert frame["compute_s"].is_monotonic_increasing
    assert frame["compute_s"].iloc[-1] == 100 * 1000
