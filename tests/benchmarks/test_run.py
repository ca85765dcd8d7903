"""The runner on a real Ray: equal budgets, resumed runs, bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow.fs import LocalFileSystem
from rich.console import Console

from benchmarks.__main__ import main
from benchmarks.experiment import ExperimentError, _begun
from benchmarks.options import Options, choose, seconds, seed_list
from benchmarks.record import Record, compact, difference, found, unpack
from benchmarks.run import run
from benchmarks.settings import SettingsError
from benchmarks.tasks import problem
from stn_tune.analysis import load

REPO = Path(__file__).parents[2]
TRIALS_END_SOON = ("patience=1", "examples=150")


def options(folder: Path, **changes) -> Options:
    given = Options(
        task="digits",
        out=folder / "out",
        budget_s=45.0,
        preset="smoke",
        overrides=TRIALS_END_SOON,
        storage=str(folder / "storage"),
    )
    return replace(given, **changes)


def rows_of(folder: Path, name: str) -> tuple[dict, list[dict]]:
    return unpack(Record(folder / "out").read(name))


@pytest.mark.parametrize(("text", "value"), [("90s", 90), ("20m", 1200), ("6h", 21600), ("1h30m", 5400), ("7", 7)])
def test_budgets(text, value):
    assert seconds(text) == value


@pytest.mark.parametrize(("text", "value"), [("3", [0, 1, 2]), ("0,3,7", [0, 3, 7]), ("7,", [7])])
def test_seeds(text, value):
    assert seed_list(text) == value


def test_experiments_go_seed_by_seed_so_that_an_early_end_leaves_whole_comparisons():
    names = [e.name for e in choose(["stn", "replay"], [0, 1])]
    assert names == ["stn-0", "replay-0", "stn-1", "replay-1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mnist"], "unknown task 'mnist'"),
        (["digits", "--methods", "stn", "magic"], "unknown method 'magic'; there are stn, grid"),
        (["digits", "--methods", "stm"], "unknown method 'stm': did you mean 'stn'?"),
        (["ptbb"], "unknown task 'ptbb': did you mean 'ptb'?"),
        (["digits", "--methods", "stn,stn"], "--methods names one twice"),
        (["digits", "--methods", "replay"], "replay builds on what stn finds at seed 0: add stn to --methods"),
        (["digits", "--schedule", "any.json"], "--schedule is what replay follows: add replay to --methods"),
        (["digits", "--cpus", "0"], "--cpus is 0, and --gpus too"),
        (["digits", "--seeds", "99999999999,"], "all below 2**32"),
        (["digits", "--seeds", "99999999999"], "all below 2**32"),
        (["digits", "--preset", "huge"], "digits has no preset 'huge'"),
        (["digits", "--budget", "soon"], "--budget 'soon' is no duration; write 90s"),
        (["digits", "--seeds", "x"], "--seeds 'x' is neither a count"),
        (["digits", "--seeds", "1,1"], "--seeds '1,1' is neither"),
        (["digits", "--tune", "droput"], "digits has no hyperparameter 'droput': did you mean"),
        (["digits", "--set", "hiden=3"], "did you mean 'hidden'?"),
        (["ptb", "--data-dir", "/nowhere"], "python -m benchmarks data ptb"),
        (["digits", "--out", "/proc/nothing/here"], "--out /proc/nothing/here cannot be written"),
        (["digits", "--storage", "/proc/nothing"], "--storage /proc/nothing cannot be written"),
        (
            ["digits", "--storage", "STORAGE", "--workers", "500"],
            "--workers 500 with 1 CPUs and 0 GPUs each do not fit",
        ),
    ],
)
def test_bad_input_is_one_line_and_code_2_and_leaves_nothing(arguments, message, capsys, tmp_path, ray_session):
    arguments = [a.replace("STORAGE", str(tmp_path / "storage")) for a in arguments]
    out = [] if "--out" in arguments else ["--out", str(tmp_path / "out")]
    assert main(["run", *arguments, *out]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_an_address_where_nobody_listens_is_named_at_once(tmp_path):
    arguments = ["run", "digits", "--preset", "smoke", "--address", "127.0.0.1:1", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-m", "benchmarks", *arguments]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "--address 127.0.0.1:1: no Ray cluster there: Connection refused" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def finished(tmp_path_factory, ray_session) -> Path:
    """A run of methods that search until the budget is used up, one that does not, and two that build on it."""
    folder = tmp_path_factory.mktemp("run")
    assert run(options(folder), choose(["stn", "grid", "random", "final", "replay"], [0]), Console(quiet=True))
    return folder


def test_every_method_is_finished_within_its_budget(finished):
    for method in ("stn", "grid", "random", "final", "replay"):
        head, rows = rows_of(finished, f"{method}-0")
        assert head["method"] == method
        assert head["budget_s"] == 45.0
        spent = [row["compute_s"] for row in rows]
        assert spent == sorted(spent)
        assert all(s < 45.0 for s in spent[:-1])
        assert {t["config"]["seed"] for t in head["trials"]} == {0}
        if method in ("grid", "random"):
            assert spent[-1] >= 45.0
            assert len(head["trials"]) >= 2
        else:
            assert len(head["trials"]) == 1
            assert rows[-1]["done"]


def test_compute_seconds_are_what_the_trials_held(finished):
    _, rows = rows_of(finished, "grid-0")
    held: dict[int, float] = {}
    for row in rows:
        held[row["trial"]] = row["wall_s"] + row["start_s"]
        assert row["compute_s"] == pytest.approx(sum(held.values()), rel=1e-4)
        assert row["wall_s"] >= row["train_s"] + row["eval_s"] + row["setup_s"] - 1e-3
    starts = [next(row["start_s"] for row in rows if row["trial"] == t) for t in held]
    assert starts[0] > 0.5, "the first trial waits for its process"
    assert max(starts[1:]) < 0.5, "the next ones take over that process"
    assert rows[-1]["elapsed_s"] >= rows[-1]["compute_s"] - 0.5


def test_methods_are_paired(finished):
    """The same weights, data and order: two methods at the same values and seed do the same."""
    first = {m: rows_of(finished, f"{m}-0")[1][0] for m in ("stn", "replay")}
    assert first["replay"]["step"] == first["stn"]["step"]
    assert first["replay"]["hp/fc1_dropout"] == pytest.approx(0.05, abs=1e-6)


def test_replay_and_final_use_what_stn_found(finished):
    _, stn = rows_of(finished, "stn-0")
    _, replay = rows_of(finished, "replay-0")
    head, final = rows_of(finished, "final-0")
    by_step = {row["step"]: row for row in stn}
    for row in replay:
        if row["step"] in by_step:
            assert row["hp/fc1_dropout"] == pytest.approx(by_step[row["step"]]["hp/fc1_dropout"], abs=1e-5)
    assert head["trials"][0]["config"]["fc1_dropout"] == stn[-1]["hp/fc1_dropout"]
    assert final[-1]["hp/fc1_dropout"] == stn[-1]["hp/fc1_dropout"]


def test_a_found_schedule_is_kept_and_can_be_given_to_replay(finished, tmp_path):
    path = finished / "out" / "schedules" / "stn-0.json"
    given = options(tmp_path, schedule=path).given_schedule()
    _, rows = rows_of(finished, "stn-0")
    assert given.at(step=rows[-1]["step"])["fc1_dropout"] == rows[-1]["hp/fc1_dropout"]
    alone = options(tmp_path, schedule=path)
    assert run(alone, choose(["replay"], [0], schedule=True), Console(quiet=True))
    replayed = rows_of(tmp_path, "replay-0")[1]
    assert [row["val_loss"] for row in replayed] == [row["val_loss"] for row in rows_of(finished, "replay-0")[1]]
    with pytest.raises(SettingsError, match="does not fit pydoc: conv1_dropout is not a hyperparameter here"):
        options(tmp_path, schedule=path, task="pydoc", overrides=()).given_schedule()
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        options(tmp_path, schedule=tmp_path / "nothing.json").given_schedule()


def test_the_greedy_schedule_takes_the_best_of_each_epoch(finished):
    data = Record(finished / "out").read("grid-0")
    p = problem("digits", "smoke", TRIALS_END_SOON)
    _, rows = unpack(data)
    greedy = found(data, p).greedy
    first = min((row for row in rows if row["epoch"] == 1), key=lambda row: row["val_loss"])
    assert greedy.at(step=0)["fc1_dropout"] == first["hp/fc1_dropout"]
    last = max(row["epoch"] for row in rows)
    best_last = min((row for row in rows if row["epoch"] == last), key=lambda row: row["val_loss"])
    assert greedy.at(fraction=1.0)["fc1_dropout"] == best_last["hp/fc1_dropout"]


def test_config_json_says_what_was_run(finished):
    config = json.loads((finished / "out" / "config.json").read_text())
    assert config["task"] == "digits"
    assert config["settings"]["patience"] == 1
    assert config["experiments"][:2] == ["stn-0", "grid-0"]
    (go,) = config["goes"]
    assert go["versions"]["ray"]
    assert go["machine"]["cores"] == os.cpu_count()


def test_what_is_finished_is_not_run_again(finished, tmp_path, capsys):
    """With the compact files alone, as on another machine."""
    before = {path.name: path.stat().st_mtime_ns for path in (finished / "out" / "runs").iterdir()}
    again = options(finished, resume=True, storage=str(tmp_path / "elsewhere"))
    assert run(again, choose(["stn", "grid"], [0]))
    assert "all 2 experiments" in capsys.readouterr().out
    assert {path.name: path.stat().st_mtime_ns for path in (finished / "out" / "runs").iterdir()} == before
    assert not (tmp_path / "elsewhere").exists()


def test_a_second_run_in_the_same_folder_needs_resume_and_the_same_settings(finished):
    with pytest.raises(
        SettingsError, match="holds a run already: add --resume to carry it on, or choose another --out"
    ):
        run(options(finished), choose(["stn"], [0]))
    with pytest.raises(SettingsError, match=r"begun with other settings: budget_s was 45\.0, and is 20\.0 now"):
        run(options(finished, resume=True, budget_s=20.0), choose(["stn"], [0]))
    changed = options(finished, resume=True, overrides=("patience=2", "examples=150"))
    with pytest.raises(SettingsError, match=r"settings\.patience was 1, and is 2 now"):
        run(changed, choose(["stn"], [0]))


def test_resume_refuses_another_schedule(finished, tmp_path):
    path = tmp_path / "other.json"
    path.write_bytes((finished / "out" / "schedules" / "stn-0.json").read_bytes())
    with pytest.raises(SettingsError, match="follow another --schedule than this one"):
        run(options(finished, schedule=path, resume=True), choose(["replay"], [1], schedule=True))


def test_a_record_takes_nothing_back_once_something_is_finished(tmp_path):
    record = Record(tmp_path / "out")
    record.create()
    record.write_config({"format": 1})
    record.write("random-0", b"")
    record.discard()
    assert record.config() == {"format": 1}
    record.path("random-0").unlink()
    record.discard()
    assert not (tmp_path / "out").exists()


def test_logs_without_a_config_are_nobodys(tmp_path):
    record = Record(tmp_path / "out")
    record.create()
    record.write("random-0", b"")
    with pytest.raises(SettingsError, match=r"holds logs and no config\.json"):
        run(options(tmp_path), choose(["random"], [0]))
    assert record.finished("random-0")


def test_a_compact_file_says_how_many_lines_it_lost(tmp_path):
    good = json.dumps({"val_loss": 1.0, "compute_s": 1.0, "elapsed_s": 1.0, "training_iteration": 1}) + "\n"
    (tmp_path / "result.json").write_text(
        good + "{glued{\n" + good.replace("1.0", "2.0").replace('n": 1', 'n": 2') + '{"torn": '
    )
    storage = SimpleNamespace(trial_fs_path=str(tmp_path), storage_filesystem=LocalFileSystem())
    trial = SimpleNamespace(trial_id="a", status="TERMINATED", config={"drop": 0.1}, storage=storage)
    header = {"method": "random", "label": "random", "seed": 0, "task": "digits", "metric": "val_loss", "mode": "min"}
    head, rows = unpack(data := compact(header, [trial]))
    assert head["trials"][0]["lost"] == 2
    assert [row["val_loss"] for row in rows] == [1.0, 2.0]
    (tmp_path / "random-0.jsonl.gz").write_bytes(data)
    problems = load(tmp_path / "random-0.jsonl.gz").attrs["problems"]
    assert problems == ["random-0: trial 0: lines that cannot be read (dropped)"]


def test_a_torn_state_of_tune_is_named_with_what_to_do(tmp_path):
    (tmp_path / "tuner.pkl").touch()
    state = tmp_path / "experiment_state-2026-01-01_00-00-00.json"
    state.write_text('{"trial_data": [')
    with pytest.raises(ExperimentError, match=rf"{state.name} is not whole, .*: delete it"):
        _begun(str(tmp_path))
    state.write_text('{"trial_data": []}')
    assert not _begun(str(tmp_path))


def test_difference_names_the_first_place():
    assert difference({"a": {"b": [1]}}, {"a": {"b": [1]}}) is None
    assert difference({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}) == "a.c was null, and is 2 now"


def test_a_budget_too_small_for_one_iteration_is_an_error_and_leaves_nothing(tmp_path, ray_session):
    with pytest.raises(
        SettingsError, match=r"--budget: 0\.1 s is too small: the start and the first iteration of fixed"
    ):
        run(options(tmp_path, budget_s=0.1), choose(["fixed"], [0]), Console(quiet=True))
    assert not (tmp_path / "out").exists()


@pytest.mark.timeout(400)
def test_killed_half_way_it_resumes_and_loses_nothing(tmp_path):
    """SIGKILL for the command and its whole cluster, with a population and halving under way."""
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        "run",
        "digits",
        "--preset",
        "smoke",
        "--seeds",
        "1",
        "--budget",
        "40s",
    ]
    command += ["--methods", "asha", "pbt", "--out", str(tmp_path / "out"), "--storage", str(tmp_path / "storage")]
    first = subprocess.Popen(
        command, cwd=REPO, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        reported = _wait_for_rows(tmp_path / "storage", at_least=8)
    finally:
        _kill_session(first.pid)
        first.wait()
    again = subprocess.run([*command, "--resume"], cwd=REPO, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "asha seed 0: finished" in again.stdout
    for method in ("asha", "pbt"):
        head, rows = rows_of(tmp_path, f"{method}-0")
        ids = {t["id"]: t["trial"] for t in head["trials"]}
        for trial, iterations in reported[method].items():
            now = [row["training_iteration"] for row in rows if row["trial"] == ids[trial]]
            assert set(iterations) <= set(now), "rows that had been reported are still there"
            assert len(now) - len(set(now)) <= (1 if method == "asha" else len(now)), "at most one iteration is redone"
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert len(config["goes"]) == 2


def _wait_for_rows(storage: Path, at_least: int) -> dict[str, dict[str, list[int]]]:
    """The iterations that are in storage, by method and trial, once both methods have reported enough."""
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        found: dict[str, dict[str, list[int]]] = {"asha": {}, "pbt": {}}
        for log in storage.glob("*/*/*/result.json"):
            lines = log.read_text().splitlines(keepends=True)
            rows = [json.loads(line) for line in lines if line.endswith("\n")]
            if rows:
                method = log.parents[1].name.partition("-")[0]
                found[method][rows[0]["trial_id"]] = [row["training_iteration"] for row in rows]
        if all(sum(map(len, trials.values())) >= at_least for trials in found.values()):
            return found
        time.sleep(0.2)
    raise AssertionError(f"no {at_least} rows of each method in time: {found}")


def _kill_session(leader: int) -> None:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                same = os.getsid(int(entry.name)) == leader
            except ProcessLookupError:
                continue
            if same:
                os.kill(int(entry.name), signal.SIGKILL)
