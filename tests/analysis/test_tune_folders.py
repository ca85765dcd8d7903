"""Folders of Ray Tune as its versions leave them, and what Tune recorded in them."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from stn_tune.analysis import AnalysisError, Results, load, storage, table
from stn_tune.analysis.tuner_state import read_inert
from tests.analysis import logs


def acc_rows(trial: str, values=(0.1, 0.3, 0.2), **options):
    return logs.tune_rows(trial, [{"acc": value} for value in values], **options)


def state(experiment: Path, name: str, trials: list, runner: dict | None = None) -> None:
    contents = {name: trials, "runner_data": runner or {}, "stats": {"start_time": 0.0}}
    (experiment / "experiment_state-2023-11-14_22-13-20.json").write_text(json.dumps(contents))


def test_folders_of_ray_2_7_and_later(tmp_path):
    """2.9 as 2.60: ``trial_data`` holds pairs of JSON strings, the metric is in the runner's data."""
    for trial in ("a", "b"):
        logs.write_trial(tmp_path, trial, acc_rows(trial))
    trials = [json.dumps({"trial_id": t, "status": s, "relative_logdir": f"train_{t}"}) for t, s in
              (("a", "TERMINATED"), ("b", "ERROR"), ("c", "PENDING"))]  # fmt: skip
    state(tmp_path, "trial_data", [[trial, "{}"] for trial in trials], {"_metric": "acc"})
    frame = load(tmp_path, mode="max")
    assert frame.attrs["metric"] == "acc"
    assert dict(zip(frame["trial_id"], frame["status"], strict=True)) == {"a": "TERMINATED", "b": "ERROR"}
    assert any("train_c: reported nothing" in line for line in frame.attrs["problems"])


@pytest.mark.parametrize("key", ["relative_logdir", "logdir", "_logdir"])
def test_folders_of_earlier_versions(tmp_path, key):
    """2.0 to 2.6: ``checkpoints`` holds one JSON string per trial; folders are relative or absolute."""
    logs.write_trial(tmp_path, "a", acc_rows("a"))
    folder = "train_a" if key == "relative_logdir" else "/home/me/ray_results/exp/train_a"
    state(tmp_path, "checkpoints", [json.dumps({"trial_id": "a", "status": "ERROR", key: folder})])
    frame = load(tmp_path, metric="acc", mode="max")
    assert set(frame["status"]) == {"ERROR"}


def test_rows_of_earlier_versions(tmp_path):
    """More housekeeping, counts that are null, and NaN as a bare word."""
    rows = [row | {"timesteps_total": None, "episodes_total": None, "warmup_time": 0.1, "experiment_id": "x"} for row in
            acc_rows("a", (0.1, float("nan"), 0.3))]  # fmt: skip
    logs.write_trial(tmp_path, "a", rows)
    frame = load(tmp_path, metric="acc", mode="max")
    assert frame["best_acc"].tolist() == [0.1, 0.1, 0.3]
    with pytest.raises(AnalysisError, match=r"columns with numbers: acc, best_acc$"):
        table(frame, metric="zzzz")


def test_rows_without_their_config_have_that_of_params_json(tmp_path):
    rows = acc_rows("a", config={"lr": 0.1, "seed": 4})
    logs.write_trial(tmp_path / "exp", "a", rows)
    bare = [{key: value for key, value in row.items() if key != "config"} for row in rows]
    (tmp_path / "exp" / "train_a" / "result.json").write_text("".join(json.dumps(row) + "\n" for row in bare))
    frame = load(tmp_path, metric="acc", mode="max")
    assert set(frame["hp/lr"]) == {0.1}
    assert set(frame["seed"]) == {4}


@pytest.mark.parametrize("left", ["absent", "empty"])
def test_progress_csv_where_result_json_has_nothing(tmp_path, left):
    rows = acc_rows("a", config={"lr": 0.1})
    folder = logs.write_trial(tmp_path / "exp", "a", rows)
    flat = [{k: v for k, v in row.items() if k != "config"} | {"config/lr": 0.1, "note": "a, b"} for row in rows]
    lines = [",".join(flat[0]), *(",".join(f'"{v}"' for v in row.values()) for row in flat)]
    (folder / "progress.csv").write_text("\n".join(lines) + "\n")
    (folder / "result.json").unlink() if left == "absent" else (folder / "result.json").write_text("")
    frame = load(tmp_path, metric="acc", mode="max")
    assert frame["acc"].tolist() == [0.1, 0.3, 0.2]
    assert frame["hp/lr"].tolist() == [0.1] * 3
    assert frame["done"].tolist() == [False, False, True]
    assert frame["compute_s"].tolist() == [10, 20, 30]


def test_metric_and_mode_are_those_that_tune_recorded(tmp_path):
    logs.write_trial(tmp_path / "a", "t", acc_rows("t"))
    logs.write_tuner(tmp_path / "a", metric="acc", mode="max")
    frame = load(tmp_path)
    assert (frame.attrs["metric"], frame.attrs["mode"]) == ("acc", "max")
    assert frame["best_acc"].tolist() == [0.1, 0.3, 0.3]
    logs.write_trial(tmp_path / "b", "t", acc_rows("t"))
    logs.write_tuner(tmp_path / "b", metric="loss", mode="min")
    with pytest.raises(AnalysisError, match=r"optimise different metrics \(acc, loss\): give the metric"):
        load(tmp_path)
    assert load(tmp_path, metric="acc").attrs["mode"] == "max", "the mode of the experiment that has this metric"


def test_the_searchers_metric_counts_where_tune_was_given_none(tmp_path):
    """A searcher of the user's own, pickled by value, with closures and containers."""
    from ray.tune.search import ConcurrencyLimiter, Searcher

    class Mine(Searcher):
        def __init__(self):
            super().__init__(metric="acc", mode="max")
            self.rule = lambda value: value + len(seen)
            self.sets = {1: {2, 3}}

        def suggest(self, trial_id):
            return None

        def on_trial_complete(self, trial_id, result=None, error=False):
            pass

    seen = [Path("x")]
    logs.write_trial(tmp_path, "t", acc_rows("t"))
    logs.write_tuner(tmp_path, search_alg=ConcurrencyLimiter(Mine(), 2))
    assert (load(tmp_path).attrs["metric"], load(tmp_path).attrs["mode"]) == ("acc", "max")


class Harmful:
    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def test_nothing_in_a_pickle_is_run(tmp_path):
    mark = tmp_path / "mark"
    data = pickle.dumps({"_tune_config": Harmful(mark), "number": 3})
    assert read_inert(data)["number"] == 3
    logs.write_trial(tmp_path / "a", "t", acc_rows("t"))
    (tmp_path / "a" / "tuner.pkl").write_bytes(data)
    assert load(tmp_path / "a").attrs["metric"] is None
    assert not mark.exists()
    pickle.loads(data)
    assert mark.exists(), "it does harm where it is run"


def test_a_damaged_pickle_says_nothing(tmp_path):
    logs.write_trial(tmp_path, "t", acc_rows("t"))
    data = logs.write_tuner(tmp_path, metric="acc", mode="max").read_bytes()
    (tmp_path / "tuner.pkl").write_bytes(data[: len(data) // 2])
    assert load(tmp_path).attrs["metric"] is None


@pytest.mark.parametrize("seed", ["seed_of_run", "hp/seed_of_run", r"-run(\d+)"])
def test_seeds_by_config_column_or_name(tmp_path, seed):
    for number in (3, 5):
        rows = acc_rows("t", config={"seed_of_run": number})
        logs.write_trial(tmp_path / f"asha-run{number}", "t", rows)
    frame = load(tmp_path, metric="acc", mode="max", seed=seed)
    assert sorted(frame["seed"].unique()) == [3, 5]
    expected = {"asha"} if "run(" in seed else {"asha-run3", "asha-run5"}
    assert set(frame["label"]) == expected, "a seed in the name is not part of the method's"


def test_seeds_from_a_reported_column(tmp_path):
    rows = [row | {"rng": 7} for row in acc_rows("t")]
    logs.write_trial(tmp_path / "a", "t", rows)
    assert set(load(tmp_path, metric="acc", mode="max", seed="rng")["seed"]) == {7}


def test_seeds_in_names_that_nobody_named_are_pointed_out(tmp_path):
    for name in ("asha-run3", "asha-run5", "tpe-run3", "tpe-run5", "other7"):
        logs.write_trial(tmp_path / name, "t", acc_rows("t"))
    (line,) = load(tmp_path, metric="acc", mode="max").attrs["problems"]
    assert line.startswith("asha-run3, asha-run5 and so on count as methods of their own, with one run each")
    (rule,) = re.findall(r"--seed='(.*)'", line)
    (tmp_path / "other7").rename(tmp_path / "other-run7")
    found = load(tmp_path, metric="acc", mode="max", seed=rule)
    assert (set(found["label"]), found.attrs["problems"]) == ({"asha", "tpe", "other"}, [])


def test_numbers_of_single_methods_are_not_taken_for_seeds(tmp_path):
    for name in ("resnet18", "resnet50", "vgg16", "train_2026-01-02_10-00-01", "train_2026-01-02_10-00-02"):
        logs.write_trial(tmp_path / name, "t", acc_rows("t"))
    assert load(tmp_path, metric="acc", mode="max").attrs["problems"] == []


def test_a_users_experiment_keeps_its_name(tmp_path):
    """Beside a benchmark's run that has a method of that name."""
    logs.write_runs(tmp_path / "ours", {("stn", 0): logs.rows([1.0]), ("random", 0): logs.rows([2.0])})
    logs.write_trial(tmp_path / "theirs" / "random", "t", logs.tune_rows("t", [{"val_loss": 3.0}]))
    logs.write_trial(tmp_path / "theirs" / "grid", "t", logs.tune_rows("t", [{"val_loss": 3.0}]))
    results = Results.of(load(tmp_path / "ours", tmp_path / "theirs"))
    assert [results.title(label) for label in results.labels] == ["STN", "random search", "grid", "random (Tune)"]
    alone = Results.of(load(tmp_path / "theirs"))
    assert [alone.title(label) for label in alone.labels] == ["grid", "random"]
    assert not alone.counts_setup
    assert Results.of(load(tmp_path / "ours")).counts_setup


class Flaky(MemoryFileSystem):  # type: ignore[misc]
    """Every file fails twice before it can be read, with an exception of the client's own; one can never be read."""

    protocol = "flaky"
    failures: dict[str, int] = {}  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("flaky://", "memory://"))

    def _open(self, path, *arguments, **keywords):
        count = self.failures[path] = self.failures.get(path, 0) + 1
        if count <= 2 or path.endswith("lost/result.json"):
            raise RuntimeError("503 slow down")
        return super()._open(path, *arguments, **keywords)


@pytest.fixture
def flaky(tmp_path, monkeypatch):
    logs.write_trial(tmp_path / "exp", "a", acc_rows("a"))
    logs.write_trial(tmp_path / "exp", "lost", acc_rows("lost"))
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    Flaky.failures.clear()
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "exp"), "/flaky/exp", recursive=True)
    monkeypatch.setattr(storage, "PAUSES", (0.0, 0.0, 0.0))
    yield "flaky://flaky/exp"
    memory.rm("/flaky", recursive=True)


def test_remote_reads_are_tried_again(flaky):
    frame = load(flaky, metric="acc", mode="max")
    assert frame["acc"].tolist() == [0.1, 0.3, 0.2]
    assert [line for line in frame.attrs["problems"] if "lost" in line], "what cannot be read at all is said"


@pytest.mark.slow
def test_ten_thousand_trials_load_in_half_a_minute_and_two_gigabytes(tmp_path):
    """10,000 trials of 100 rows, in a process of its own: at most 30 s of CPU and 2 GB."""
    logs.write_many(tmp_path / "many")
    command = [sys.executable, "-m", "tests.analysis.logs", str(tmp_path / "many")]
    said = subprocess.run(command, cwd=Path(__file__).parents[2], check=True, capture_output=True, text=True).stdout
    found = re.fullmatch(r"1000000 rows: ([\d.]+) s of CPU, at most ([\d.]+) GB\n", said)
    assert found, said
    assert float(found[1]) < 30
    assert float(found[2]) < 2


def test_ten_thousand_trials_in_small(tmp_path):
    """A hundredth of 10,000 trials of 100 rows: at most 0.6 s of CPU, twice what the whole may take."""
    import time

    logs.write_many(tmp_path, trials=100, rows=100)
    load(tmp_path, metric="acc", mode="max")
    began = time.process_time()
    frame = load(tmp_path, metric="acc", mode="max")
    assert len(frame) == 10_000
    assert time.process_time() - began < 0.6
