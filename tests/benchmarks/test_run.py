"""The runner on a real Ray: equal budgets, resumed runs, bad input."""

from __future__ import annotations

import gzip
import json
import os
import pickle
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

from baselines import METHODS, Method
from benchmarks.__main__ import main
from benchmarks.errors import SettingsError
from benchmarks.runner.log import earlier_result, pack_log, unpack_log
from benchmarks.runner.options import Options
from benchmarks.runner.repair import repair
from benchmarks.runner.run_record import first_difference, make_record
from benchmarks.runner.runner import run_experiments
from benchmarks.runner.store import Store
from benchmarks.studies import STUDIES, Study
from benchmarks.tasks import problem
from stn_tune.record import ExperimentInfo, MethodInfo, RunRecord
from tests.benchmarks import toy_method

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
REPO = Path(__file__).parents[2]
TRIALS_END_SOON = ("patience=1", "examples=150")


def options(folder: Path, **changes) -> Options:
    given = Options(
        task="digits",
        out=folder / "out",
        budget_s=14.0,
        preset="smoke",
        overrides=TRIALS_END_SOON,
        storage=str(folder / "storage"),
    )
    return replace(given, **changes)


def choose(methods: list[str], seeds: list[int]) -> list[ExperimentInfo]:
    return [ExperimentInfo(name, seed) for seed in seeds for name in methods]


def rows_of(folder: Path, name: str) -> tuple[dict, list[dict]]:
    return unpack_log(Store(folder / "out").read_log(name))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mnist"], "unknown task 'mnist'"),
        (["digits", "--methods", "stn", "magic"], "unknown method 'magic'; known: stn, grid"),
        (["digits", "--methods", "stm"], "did you mean 'stn'?"),
        (["ptbb"], "did you mean 'ptb'?"),
        (["digits", "--methods", "stn,stn"], " twice"),
        (["digits", "--methods", "replay"], "replay builds on the results of stn at seed 0; add stn to --methods"),
        (["digits", "--schedule", "any.json"], "to --methods"),
        (["digits", "--cpus", "0"], "--cpus and --gpus are both 0"),
        (["digits", "--preset", "huge"], "digits: unknown preset 'huge'; known: small, smoke, paper"),
        (["digits", "--tune", "droput"], "digits: unknown hyperparameter 'droput'; known: conv1_dropout"),
        (["digits", "--set", "hiden=3"], "did you mean 'hidden'?"),
        (["digits", "--set", "hidden=big"], "digits.small.hidden is 'big'; it must be a whole number"),
        (["ptb", "--data-dir", "/nowhere"], "python -m benchmarks data ptb"),
        (["digits", "--out", "/proc/nothing/here"], "--out /proc/nothing/here cannot be written"),
        (["digits", "--storage", "/proc/nothing"], "--storage /proc/nothing cannot be written"),
        (
            ["digits", "--storage", "STORAGE", "--workers", "500"],
            "--workers 500 with --cpus 1 each need 500 cores; this machine has ",
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
    """A run of a method that searches until the budget is used up, one that does not, and two that build on it."""
    folder = tmp_path_factory.mktemp("run")
    assert run_experiments(options(folder), choose(["stn", "grid", "final", "replay"], [0]), Console(quiet=True))
    return folder


def test_every_method_is_finished_within_its_budget(finished):
    for method in ("stn", "grid", "final", "replay"):
        head, rows = rows_of(finished, f"{method}-0")
        assert head["method"] == method
        assert head["budget_s"] == 14.0
        spent = [row["compute_s"] for row in rows]
        assert spent == sorted(spent)
        assert all(s < 14.0 for s in spent[:-1])
        assert {t["config"]["seed"] for t in head["trials"]} == {0}
        if method == "grid":
            assert spent[-1] >= 14.0
            assert len(head["trials"]) >= 2
        else:
            assert len(head["trials"]) == 1
            assert rows[-1]["done"]


def test_compute_seconds_are_the_sum_over_trials(finished):
    _, rows = rows_of(finished, "grid-0")
    used: dict[int, float] = {}
    for row in rows:
        used[row["trial"]] = row["trial_compute_s"]
        assert row["clock"] == "cpu"
        assert row["compute_s"] == pytest.approx(sum(used.values()), rel=1e-4)
        parts = row["start_s"] + row["train_s"] + row["eval_s"] + row["setup_s"]
        assert row["trial_compute_s"] >= parts - 1e-3
    starts = [next(row["start_s"] for row in rows if row["trial"] == t) for t in used]
    assert starts[0] > 0.5, "the first trial starts a process"
    assert set(starts[1:]) == {0.0}, "the next ones take over that process"


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
    assert run_experiments(alone, choose(["replay"], [0]), Console(quiet=True))
    replayed = rows_of(tmp_path, "replay-0")[1]
    assert [row["val_loss"] for row in replayed] == [row["val_loss"] for row in rows_of(finished, "replay-0")[1]]
    with pytest.raises(SettingsError, match=r"does not fit pydoc: .*conv1_dropout"):
        options(tmp_path, schedule=path, task="pydoc", overrides=()).given_schedule()
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        options(tmp_path, schedule=tmp_path / "nothing.json").given_schedule()


def test_the_greedy_schedule_takes_the_best_of_each_epoch(finished):
    data = Store(finished / "out").read_log("grid-0")
    p = problem("digits", "smoke", TRIALS_END_SOON)
    _, rows = unpack_log(data)
    greedy = earlier_result(data, p).greedy
    first = min((row for row in rows if row["epoch"] == 1), key=lambda row: row["val_loss"])
    assert greedy.at(step=0)["fc1_dropout"] == first["hp/fc1_dropout"]
    last = max(row["epoch"] for row in rows)
    best_last = min((row for row in rows if row["epoch"] == last), key=lambda row: row["val_loss"])
    assert greedy.at(fraction=1.0)["fc1_dropout"] == best_last["hp/fc1_dropout"]


def test_what_a_refined_stn_has_found_is_the_schedule_of_its_stn():
    p = problem("digits", "smoke", tuned=["fc1_dropout"])
    rows = [
        {"trial": 0, "phase": phase, "epoch": step // 10, "step": step, "val_loss": loss, "hp/fc1_dropout": value}
        for phase, step, loss, value in [
            ("tuning", 10, 3.0, 0.2),
            ("tuning", 20, 2.0, 0.3),
            ("refining", 10, 2.5, 0.19),
            ("refining", 20, 1.0, 0.29),
            ("refining", 30, 1.5, 0.3),
        ]
    ]
    found = earlier_result(gzip.compress("".join(json.dumps(line) + "\n" for line in [{}, *rows]).encode()), p)
    assert found.schedule.steps == [0, 10, 20]
    assert found.schedule.values["fc1_dropout"] == [p.initial["fc1_dropout"], 0.2, 0.3]
    assert found.final == found.best == {"fc1_dropout": 0.3}


def test_the_record_says_what_was_run(finished):
    record = RunRecord.read(finished / "out")
    assert (record.study, record.task.name, record.clock) == ("run", "digits", "cpu")
    assert record.task.space["cutout_length"].unit == "pixels"
    assert record.settings["patience"] == 1
    assert [e.name for e in record.experiments][:2] == ["stn-0", "grid-0"]
    assert record.experiment("stn-0").online == record.tuned == tuple(record.task.space)
    assert record.experiment("grid-0").online == ()
    assert [m.name for m in record.methods] == ["stn", "grid", "final", "replay"]
    (invocation,) = record.invocations
    assert invocation.versions["ray"]
    assert invocation.machine["cores"] == os.cpu_count()


def test_a_log_begins_with_its_experiment(finished):
    head, _ = rows_of(finished, "grid-0")
    about = {
        key: head.pop(key) for key in ("format", "version", "task", "preset", "budget_s", "clock", "metric", "mode")
    }
    assert about["version"] == 2
    assert (about["clock"], about["metric"], about["mode"]) == ("cpu", "val_loss", "min")
    info = ExperimentInfo.from_json(head, "grid-0")
    assert info.name == "grid-0"
    assert [t.number for t in info.trials] == list(range(len(info.trials)))
    assert info.machine["cores"] == os.cpu_count()


def test_what_is_finished_is_not_run_again(finished, tmp_path, capsys):
    """With the logs alone, as on another machine."""
    before = {path.name: path.stat().st_mtime_ns for path in (finished / "out" / "runs").iterdir()}
    again = options(finished, resume=True, storage=str(tmp_path / "elsewhere"))
    assert run_experiments(again, choose(["stn", "grid"], [0]))
    assert f"everything in {finished / 'out'} is finished" in capsys.readouterr().out
    assert {path.name: path.stat().st_mtime_ns for path in (finished / "out" / "runs").iterdir()} == before
    assert not (tmp_path / "elsewhere").exists()


def test_a_second_run_in_the_same_folder_needs_resume_and_the_same_settings(finished):
    with pytest.raises(SettingsError, match="already contains a run; add --resume, or choose another --out"):
        run_experiments(options(finished), choose(["stn"], [0]))
    with pytest.raises(SettingsError, match=r"with other settings: budget_s was 14\.0, now it is 20\.0"):
        run_experiments(options(finished, resume=True, budget_s=20.0), choose(["stn"], [0]))
    changed = options(finished, resume=True, overrides=("patience=2", "examples=150"))
    with pytest.raises(SettingsError, match=r"settings\.patience was 1, now it is 2"):
        run_experiments(changed, choose(["stn"], [0]))
    with pytest.raises(SettingsError, match=r"stn-0 was \[.*, now it is \[\"hidden=4\""):
        run_experiments(options(finished, resume=True), [ExperimentInfo("stn", 0, overrides=("hidden=4",))])


def test_resume_refuses_another_schedule(finished, tmp_path):
    path = tmp_path / "other.json"
    path.write_bytes((finished / "out" / "schedules" / "stn-0.json").read_bytes())
    with pytest.raises(SettingsError, match="was started with another --schedule"):
        run_experiments(options(finished, schedule=path, resume=True), choose(["replay"], [1]))


def record() -> RunRecord:
    return RunRecord("out", "run", problem("digits", "smoke").info, (), ())


def test_a_store_deletes_nothing_once_something_is_finished(tmp_path):
    store = Store(tmp_path / "out")
    store.create()
    store.write_record(record())
    store.write_log("random-0", b"")
    store.discard()
    assert store.record() == record()
    store.path("random-0").unlink()
    store.discard()
    assert not (tmp_path / "out").exists()


def test_folders_that_cannot_be_resumed_are_refused(tmp_path):
    store = Store(tmp_path / "out")
    store.create()
    store.write_log("random-0", b"")
    with pytest.raises(SettingsError, match=r"contains logs but no record\.json; choose another --out"):
        run_experiments(options(tmp_path), choose(["random"], [0]))
    (tmp_path / "out" / "config.json").write_text("{}")
    with pytest.raises(SettingsError, match=r"was made by an earlier version; choose another --out"):
        run_experiments(options(tmp_path, resume=True), choose(["random"], [0]))
    assert store.finished("random-0")


def test_a_log_says_how_many_lines_were_lost(tmp_path):
    good = json.dumps({"val_loss": 1.0, "compute_s": 1.0, "elapsed_s": 1.0, "training_iteration": 1}) + "\n"
    (tmp_path / "trial_a").mkdir()
    (tmp_path / "trial_a" / "result.json").write_text(
        good + "{glued{\n" + good.replace("1.0", "2.0").replace('n": 1', 'n": 2') + '{"torn": '
    )
    storage = SimpleNamespace(
        experiment_fs_path=str(tmp_path), trial_fs_path=f"{tmp_path}/trial_a", storage_filesystem=LocalFileSystem()
    )
    trial = SimpleNamespace(trial_id="a", status="TERMINATED", config={"drop": 0.1, "stn": {}}, storage=storage)
    head, rows = unpack_log(pack_log(ExperimentInfo("random", 0), {"task": "digits"}, [trial]))
    assert head["trials"] == [{"number": 0, "id": "a", "status": "TERMINATED", "config": {"drop": 0.1}, "lost": 2}]
    assert [row["val_loss"] for row in rows] == [1.0, 2.0]


def state_text(compute_s: float) -> str:
    return json.dumps({"trial_data": [["{}", json.dumps({"last_result": {"compute_s": compute_s}})]]})


def test_a_truncated_state_of_tune_is_replaced_by_the_one_before(tmp_path):
    state = tmp_path / "experiment_state-2026-01-01_00-00-00.json"
    state.write_text('{"trial_data": [')
    assert not repair(str(tmp_path)), "there is none before: the experiment starts over"
    state.write_text('{"trial_data": [')
    (tmp_path / f"{state.name}.previous").write_text(state_text(3.0))
    assert repair(str(tmp_path))
    assert state.read_text() == state_text(3.0)
    state.write_text('{"trial_data": []}')
    assert not repair(str(tmp_path))
    assert not repair(str(tmp_path / "nothing"))


def test_a_clock_that_was_set_back_does_not_make_an_old_state_the_newest(tmp_path):
    for day, compute_s in (("2026-01-01", 7.0), ("2026-01-02", 3.0)):
        (tmp_path / f"experiment_state-{day}_00-00-00.json").write_text(state_text(compute_s))
        (tmp_path / f"callback-states-{day}_00-00-00.pkl").write_bytes(pickle.dumps({}))
    assert repair(str(tmp_path))
    assert {path.name.partition("2026")[2] for path in tmp_path.iterdir()} == {
        "-01-01_00-00-00.json",
        "-01-01_00-00-00.pkl",
    }


def test_a_log_whose_last_line_was_cut_off_is_ended(tmp_path):
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial" / "result.json").write_text('{"a": 1}\n{"a": ')
    repair(str(tmp_path))
    assert (tmp_path / "trial" / "result.json").read_text() == '{"a": 1}\n{"a": \n'


def test_the_first_difference_is_named():
    assert first_difference({"a": {"b": [1]}}, {"a": {"b": [1]}}) is None
    assert first_difference({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}) == "a.c was null, now it is 2"


def test_a_run_of_before_a_search_had_a_setting_is_resumed_with_its_default(tmp_path):
    given = options(tmp_path, resume=True)
    record = make_record(given, given.problem(), choose(["asha"], [0]), None)
    assert record.methods[0].settings == {"grace_period": 4, "reduction_factor": 3}
    settings = {name: value for name, value in record.settings.items() if name != "grace_period"}
    before = replace(record, settings=settings)
    assert make_record(given, given.problem(), choose(["asha"], [0]), before).name == record.name
    changed = replace(given, overrides=(*given.overrides, "grace_period=2"))
    with pytest.raises(SettingsError, match=r"settings\.grace_period was 4, now it is 2"):
        make_record(changed, changed.problem(), choose(["asha"], [0]), before)


def test_a_budget_too_small_for_one_iteration_is_an_error_and_leaves_nothing(tmp_path, ray_session):
    with pytest.raises(
        SettingsError, match=r"--budget: 0\.1 s is too small: start-up and the first iteration of fixed"
    ):
        run_experiments(options(tmp_path, budget_s=0.1), choose(["fixed"], [0]), Console(quiet=True))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_new_method_is_one_function_and_one_entry(tmp_path, ray_session, monkeypatch):
    info = MethodInfo("toy", "a toy", builds_on="fixed")
    monkeypatch.setitem(METHODS, "toy", Method(toy_method.plan, info))
    assert run_experiments(options(tmp_path, budget_s=60.0), choose(["fixed", "toy"], [0]), Console(quiet=True))
    head, rows = rows_of(tmp_path, "toy-0")
    assert head["trials"][0]["config"]["fc1_dropout"] == pytest.approx(0.05 + toy_method.ADDED)
    assert rows[-1]["done"]
    assert RunRecord.read(tmp_path / "out").method("toy") == info


@pytest.mark.slow
def test_a_new_study_is_a_command(tmp_path, ray_session, monkeypatch):
    study = Study(
        "toy",
        "a toy study",
        lambda parser: parser.add_argument("task"),
        lambda given: [ExperimentInfo("fixed", 0, {"width": n}, overrides=(f"hidden={n}",)) for n in (4, 8)],
        budget="60s",
        published=lambda task: None,
    )
    monkeypatch.setitem(STUDIES, "toy", study)
    command = ["toy", "digits", "--preset", "smoke", "--set", "patience=1", "--out", str(tmp_path / "out")]
    assert main([*command, "--storage", str(tmp_path / "storage")]) == 0
    record = RunRecord.read(tmp_path / "out")
    assert (record.study, record.budget_s) == ("toy", 60.0)
    assert [(e.name, e.variant) for e in record.experiments] == [
        ("fixed_width=4-0", {"width": 4}),
        ("fixed_width=8-0", {"width": 8}),
    ]
    assert rows_of(tmp_path, "fixed_width=4-0")[0]["overrides"] == ["hidden=4"]


@pytest.mark.slow
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
        "20s",
    ]
    command += ["--methods", "asha", "pbt", "--out", str(tmp_path / "out"), "--storage", str(tmp_path / "storage")]
    first = subprocess.Popen(
        command, cwd=REPO, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        reported = _wait_for_rows(tmp_path / "storage", at_least=8)
        saved = _stop_between_writes(first.pid, tmp_path / "storage")
    finally:
        _signal_session(first.pid, signal.SIGKILL)
        first.wait()
    again = subprocess.run([*command, "--resume"], cwd=REPO, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "asha seed 0: finished" in again.stdout
    for method in ("asha", "pbt"):
        head, rows = rows_of(tmp_path, f"{method}-0")
        ids = {t["id"]: t["number"] for t in head["trials"]}
        for trial, iterations in reported[method].items():
            now = [row["training_iteration"] for row in rows if row["trial"] == ids[trial]]
            assert set(iterations) <= set(now), "rows that had been reported are still there"
            if method == "asha" and trial in saved:
                assert len(now) - len(set(now)) <= 1, "at most one iteration is redone"
    assert len(RunRecord.read(tmp_path / "out").invocations) == 2


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


def _stop_between_writes(leader: int, storage: Path) -> set[str]:
    """Stops all processes at a moment when Tune's state files are complete: it does not write them atomically, and a
    truncated one is refused (see the test of truncated states). Gives the trials that are saved as started."""
    for _ in range(50):
        _signal_session(leader, signal.SIGSTOP)
        try:
            states = [json.loads(state.read_text()) for state in storage.glob("*/*/experiment_state-*.json")]
        except ValueError:
            _signal_session(leader, signal.SIGCONT)
            time.sleep(0.1)
            continue
        trials = [json.loads(trial) for state in states for trial, _ in state["trial_data"]]
        return {trial["trial_id"] for trial in trials if trial["relative_logdir"]}
    raise AssertionError("Tune's state files are never complete")


def _signal_session(leader: int, number: int) -> None:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                same = os.getsid(int(entry.name)) == leader
            except ProcessLookupError:
                continue
            if same:
                os.kill(int(entry.name), number)


@pytest.mark.slow
def test_sigterm_ends_like_ctrl_c_and_an_empty_folder_is_a_new_run(tmp_path):
    words = ["run", "digits", "--preset", "smoke", "--set", "patience=1000", "--methods", "fixed", "--seeds", "1"]
    words += ["--budget", "10m", "--out", str(tmp_path / "out"), "--storage", str(tmp_path / "storage"), "--resume"]
    command = [sys.executable, "-m", "benchmarks", *words]
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + 350
        while not any(path.read_text() for path in (tmp_path / "storage").glob("*/*/*/result.json")):
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.2)
        process.terminate()
        said, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 143, said
    lines = said.splitlines()
    assert lines[0] == f"nothing in {tmp_path / 'out'} yet: starting a new run", time.monotonic() - began
    assert lines[1] == "starting Ray …"
    assert "interrupted: saving checkpoints …" in lines
    assert lines[-1] == f"  python -m benchmarks {' '.join(words)}"
    assert "Traceback" not in said
    assert not (tmp_path / "out" / ".lock").exists()
    assert not any("SIGTERM" in line for line in lines), "nothing of Ray's"
