"""Generated bad files: each is read, or refused in one line; no code in them runs, and nothing is written outside."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import random
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import tomllib
import torch
from ray import tune
from rich.console import Console

import stn_tune as stn
from benchmarks import presets
from benchmarks.__main__ import main
from benchmarks.data.cifar10 import read_batch
from benchmarks.data.download import unpack
from benchmarks.errors import DataError, SettingsError
from benchmarks.faults.suite import Suite
from benchmarks.microbenchmarks.hypergradient.checkpoints import read_folder
from benchmarks.microbenchmarks.searchers.measure import load_searches
from benchmarks.runner.budget import Budget
from benchmarks.runner.log import pack_log
from benchmarks.runner.repair import repair
from benchmarks.runner.row_log import stored_rows
from benchmarks.tasks import TASKS, problem
from benchmarks.tasks.settings import load_settings
from benchmarks.version1 import upgrade
from stn_tune.analysis import load
from stn_tune.checkpoint import STATE_FILE, load_state
from stn_tune.errors import AnalysisError, CheckpointError, RecordError, ScheduleError, SpaceError
from stn_tune.raytune.clock import Clock
from stn_tune.record import FILE_NAME, ExperimentInfo, Invocation, MethodInfo, RunRecord
from stn_tune.schedule_file import ScheduleFile
from tests.hostile import mutated_bytes, mutated_json, mutated_value

CASES = 50
"""Bad files of each kind."""


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch) -> Iterator[None]:
    """A folder of its own, beside one that nothing may be written to."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    yield
    assert not list((tmp_path / "outside").iterdir())


class Payload:
    """Runs code when it is unpickled by somebody who trusts it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch ../outside/ran",)


def refused(read: Callable[[], Any], *errors: type[Exception]) -> bool:
    """Whether a file is refused, in one line; any error but these fails the test."""
    try:
        read()
    except errors as error:
        said = str(error)
    else:
        return False
    assert len(said.splitlines()) == 1, said
    assert len(said) < 1000, "a line, not the file"
    assert "\x1b" not in said, "no control characters on the terminal"
    return True


def schedule() -> dict[str, Any]:
    space = {"drop": tune.uniform(0, 0.9), "holes": tune.randint(0, 5), "decay": tune.loguniform(1e-5, 1)}
    steps: dict[str, list[float]] = {"drop": [0.1, 0.2, 0.3], "holes": [0, 1, 4], "decay": [1e-4, 1e-3, 1e-2]}
    return stn.Schedule(space, [0, 4, 8], steps, {"drop": [0.5, 0.5, 0.4]}, 12, "stn").to_json()


def test_schedules():
    bad = 0
    for seed in range(2 * CASES):
        Path("schedule.json").write_bytes(mutated_json(schedule(), seed))
        bad += refused(lambda: stn.Schedule.load("schedule.json"), ScheduleError)
    assert bad > CASES
    Path("deep.json").write_text("[" * 100_000)
    assert refused(lambda: stn.Schedule.load("deep.json"), ScheduleError)
    Path("README.md").write_text("# no schedule")
    with pytest.raises(ScheduleError, match=r"^README\.md is not a schedule: it is not JSON$"):
        stn.Schedule.load("README.md")


@pytest.fixture(scope="module")
def trial() -> stn.STNTrainable:
    p = problem("digits", "smoke")
    made = p.self_tuned()(config={**p.initial, "seed": 100})
    made.train()
    return made


def test_checkpoints(trial):
    folder = Path("checkpoint")
    folder.mkdir()
    trial.save_checkpoint(str(folder))
    whole = (folder / STATE_FILE).read_bytes()
    state = torch.load(folder / STATE_FILE, weights_only=True)
    bad = 0
    for seed in range(CASES):
        (folder / STATE_FILE).write_bytes(mutated_bytes(whole, seed))
        bad += refused(lambda: load_state(folder), CheckpointError)
    assert bad > CASES // 2
    bad = 0
    for seed in range(CASES):
        torch.save(mutated_value(state, seed), folder / STATE_FILE)
        bad += refused(lambda: trial.load_checkpoint(str(folder)), CheckpointError, SpaceError)
    assert bad > CASES // 3
    for bomb in (Payload(), {"version": 1, "trainer": Payload()}, {**state, "task": Payload()}):
        torch.save(bomb, folder / STATE_FILE)
        assert refused(lambda: trial.load_checkpoint(str(folder)), CheckpointError)
        (folder / STATE_FILE).write_bytes(pickle.dumps(bomb, protocol=2))
        assert refused(lambda: trial.load_checkpoint(str(folder)), CheckpointError)


def record() -> RunRecord:
    experiments = (ExperimentInfo("stn", 0, online=("fc1_dropout",)), ExperimentInfo("random", 0))
    methods = (MethodInfo("stn", "STN"), MethodInfo("random", "random search"))
    invocation = Invocation("python -m benchmarks run", "2026-01-01T00:00:00+00:00")
    return RunRecord("out", "run", problem("digits", "smoke").info, methods, experiments, (invocation,), budget_s=10.0)


def test_records():
    bad = 0
    for seed in range(CASES):
        data = mutated_json(record().to_json(), seed)
        bad += refused(lambda data=data: RunRecord.parse(data, FILE_NAME), RecordError)
    assert bad > CASES // 2


def log(method: str) -> bytes:
    row = {"val_loss": 1.0, "best_val_loss": 1.0, "test_loss": 1.1, "compute_s": 1.0, "elapsed_s": 1.0, "epoch": 1}
    rows = [{**row, "trial": 0, "training_iteration": k + 1, "compute_s": 1.0 + k} for k in range(4)]
    about = {"task": "digits", "metric": "val_loss", "mode": "min", "preset": "smoke", "budget_s": 10.0, "clock": "cpu"}
    head = pack_log(ExperimentInfo(method, 0), about, [])
    return gzip.decompress(head) + "".join(json.dumps(one) + "\n" for one in rows).encode()


def test_schedules_that_the_console_script_reads():
    for seed in range(CASES):
        Path("schedule.json").write_bytes(mutated_json(schedule(), seed))
        refused(lambda: ScheduleFile.read("schedule.json"), ScheduleError)


def test_policy_logs_of_pbt():
    config = {"drop": 0.5, "seed": 3}
    copies = [["a", "b", 2, 2, config, {**config, "drop": 0.6}], ["a", "b", 4, 4, config, {**config, "drop": 0.7}]]
    rows = [{"trial_id": "a", "training_iteration": k, "val_loss": 1.0, "config": config, "step": k} for k in (4, 5)]
    whole = {"pbt_policy_a.txt": copies, "pbt_global.txt": copies, "trial_a/result.json": rows}
    Path("trial_a").mkdir()
    bad = 0
    for seed in range(CASES):
        for name, lines in whole.items():
            Path(name).write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        name = random.Random(seed).choice(list(whole))
        with Path(name).open("ab") as file:
            file.write(mutated_json(whole[name][1], seed) + b"\n" + json.dumps(whole[name][1]).encode() + b"\n")
        bad += refused(lambda: stn.Schedule.from_pbt("."), ScheduleError)
        refused(lambda: stn.Schedule.from_pbt(".", {"drop": tune.uniform(0, 0.9)}), ScheduleError)
    assert bad > CASES // 4


def test_runs_of_version_1():
    Path("old/runs").mkdir(parents=True)
    space = {"fc1_dropout": {"kind": "uniform", "lower": 0.0, "upper": 0.8, "init": 0.1}}
    config = {"format": 1, "name": "old", "task": "digits", "preset": "smoke", "metric": "val_loss", "mode": "min"}
    config |= {"settings": {"space": space}, "experiments": ["stn-0", "random-0"], "command": "run", "goes": []}
    head = {"format": "stn_tune.run", "version": 1, "label": "stn", "seed": 0, "trials": []}
    row = {"trial": 0, "val_loss": 1.0, "compute_s": 1.0, "training_iteration": 1}
    text = "".join(json.dumps(line) + "\n" for line in (head, row))
    Path("old/runs/stn-0.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    Path("old/config.json").write_text(json.dumps(config))
    assert len(load("old", upgrade=upgrade)) == 1
    bad = 0
    for seed in range(CASES):
        Path("old/config.json").write_bytes(mutated_json(config, seed))
        bad += refused(lambda: load("old", upgrade=upgrade), AnalysisError, RecordError)
    assert bad > CASES // 4


def test_states_of_searchers():
    space = {"x": tune.uniform(0, 1), "k": tune.randint(0, 4)}
    searcher = stn.SkOptSearch(space, "loss", "min", n_initial_points=2, seed=0)
    for trial in "abc":
        searcher.on_trial_complete(trial, {"loss": searcher.suggest(trial)["x"]})
    searcher.save("skopt")
    search = stn.STNSearch(online=["x"], outer=stn.SkOptSearch(n_initial_points=2, seed=0))
    search.set_search_properties("loss", "min", space)
    search.save("stn")
    skopt, whole = Path("skopt").read_bytes(), Path("stn").read_bytes()
    bad = 0
    for seed in range(CASES):
        Path("skopt").write_bytes(mutated_bytes(skopt, seed))
        bad += refused(lambda: stn.SkOptSearch().restore("skopt"), CheckpointError)
        Path("stn").write_bytes(mutated_bytes(whole, seed))
        other = stn.STNSearch(online=["x"], outer=stn.SkOptSearch())
        bad += refused(lambda other=other: other.restore("stn"), CheckpointError)
        Path("skopt").write_bytes(pickle.dumps(mutated_value(pickle.loads(skopt), seed)))
        refused(lambda: stn.SkOptSearch().restore("skopt"), CheckpointError)
    assert bad > CASES


def test_what_a_crash_leaves_of_a_run_is_resumed_or_left_out():
    """Tune's state, rows and clocks: a run that is resumed goes on with what can be read."""
    trial = [json.dumps({"trial_id": "a", "status": "RUNNING"}), json.dumps({"last_result": {"compute_s": 3.0}})]
    state = {"trial_data": [trial], "runner_data": {}, "stats": {}}
    clocks = {"trial_compute_s": 1.0, "start_s": 0.1, "setup_s": 0.1, "elapsed_s": 2.0}
    Clock(Path("clock.json")).write()
    counted = json.loads(Path("clock.json").read_bytes())
    place = Path("experiment").absolute()
    (place / "trial_a").mkdir(parents=True)
    for seed in range(CASES):
        inner = mutated_json(json.loads(trial[1]), seed).decode(errors="replace")
        damaged = mutated_json(state, seed) if seed % 3 else json.dumps({"trial_data": [[trial[0], inner]]}).encode()
        (place / "experiment_state-2026-01-01_00-00-00.json").write_bytes(damaged)
        row = mutated_json({"trial_id": "a", "best_val_loss": 1.0, **clocks}, seed)
        (place / "trial_a" / "result.json").write_bytes(row + b"\n")
        repair(str(place))
        Budget(10.0).catch_up(stored_rows(str(place)))
        Path("clock.json").write_bytes(mutated_json(counted, seed))
        assert Clock(Path("clock.json")).now()["clock"] == "cpu"


def test_files_of_finished_measurements():
    case = {"kind": "node", "case": 0, "seed": 0, "survived": True, "lost": 0, "seconds": 1.0, "reason": ""}
    search = {"task": "a", "searcher": "b", "seed": 0, "regret": [1.0], "target": 0.1, "cpu_s": [0.1]}
    point = {"variant": "stn", "seed": 0, "epoch": 1, "val_loss": 1.0, "values": {"a": 0.1}, "truth": [[1.0]]}
    point |= {"estimate": [[1.0]], "sizes": [1], "options": {}, "settings": {"task": "digits"}}
    Path("points").mkdir()
    for seed in range(CASES):
        Path("cases.jsonl").write_bytes(mutated_json(case, seed) + b"\n")
        refused(Suite(Path(), 0, Console()).results, SettingsError)
        Path("searches.jsonl").write_bytes(mutated_json(search, seed) + b"\n")
        refused(lambda: load_searches(Path()), AnalysisError)
        Path("points/stn.jsonl").write_bytes(mutated_json(point, seed) + b"\n")
        refused(lambda: read_folder(Path("points")), AnalysisError)


@pytest.mark.parametrize("seed", range(0, CASES, 10))
def test_commands_refuse_bad_files_in_one_line_with_code_2(seed, capsys):
    Path("schedule.json").write_bytes(mutated_bytes(json.dumps(schedule()).encode(), seed))
    Path("run").mkdir()
    Path("run", FILE_NAME).write_bytes(mutated_bytes(json.dumps(record().to_json()).encode(), seed))
    replay = [
        "run",
        "digits",
        "--preset",
        "smoke",
        "--methods",
        "replay",
        "--schedule",
        "schedule.json",
        "--out",
        "new",
    ]
    for command in (replay, ["run", "digits", "--dry-run", "--resume", "--out", "run"], ["report", "run"]):
        assert main(command) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["run", "schedule.json"]


def test_logs_and_records_that_a_report_reads():
    Path("run/runs").mkdir(parents=True)
    for seed in range(CASES):
        rng = random.Random(seed)
        record().write(Path("run"))
        for method in ("stn", "random"):
            lines = log(method).splitlines()
            k = rng.randrange(len(lines))
            lines[k] = mutated_json(json.loads(lines[k]), seed) if method == "stn" else lines[k]
            data = gzip.compress(b"\n".join(lines) + b"\n")
            Path(f"run/runs/{method}-0.jsonl.gz").write_bytes(mutated_bytes(data, seed) if seed % 3 == 0 else data)
        if seed % 7 == 0:
            Path("run", FILE_NAME).write_bytes(mutated_json(record().to_json(), seed))
        refused(lambda: load("run"), AnalysisError)


def cifar_batch(rows: int = 4) -> dict[bytes, Any]:
    return {b"data": np.zeros((rows, 3072), np.uint8), b"labels": list(range(rows)), b"batch_label": b"x"}


def test_cifar_pickles():
    whole = pickle.dumps(cifar_batch(), protocol=2)
    bad = 0
    for seed in range(CASES):
        Path("batch").write_bytes(mutated_bytes(whole[:600] + whole[-600:] if seed % 2 else whole, seed))
        bad += refused(lambda: read_batch(Path("batch")), DataError)
    assert bad > CASES // 2
    for bomb in (Payload(), {b"data": Payload(), b"labels": []}, [Payload()]):
        for protocol in range(6):
            Path("batch").write_bytes(pickle.dumps(bomb, protocol))
            assert refused(lambda: read_batch(Path("batch")), DataError)


def archive(*members: tarfile.TarInfo, mode: Literal["w", "w:gz"] = "w:gz") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") if mode == "w" else tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return stream.getvalue()


def member(name: str, size: int = 500, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size, made.type, made.linkname = size, kind, link
    return made


def test_tar_archives():
    members = [member(f"data/{k}") for k in range(5)]
    whole = [archive(*members), archive(*members, mode="w")]
    bad = 0
    for seed in range(CASES):
        Path("a.tar").write_bytes(mutated_bytes(whole[seed % 2], seed // 2))
        bad += refused(lambda: unpack(Path("a.tar"), Path("data")), DataError)
    assert bad > CASES // 3
    links = [member("data/l", 0, kind, "../../outside/x") for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE)]
    names = ["../outside/x", "/outside/x", "data/../../outside/x", "data/..", "data/a/b", "..", "data/x\0y"]
    specials = [member("data/f", 0, kind) for kind in (tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE)]
    for one in [*(member(name) for name in names), *links, *specials]:
        Path("a.tar").write_bytes(archive(one))
        refused(lambda: unpack(Path("a.tar"), Path("data")), DataError)
        assert {path.name for path in Path.cwd().iterdir()} <= {"a.tar", "data"}
        assert all(path.is_file() and not path.is_symlink() for path in Path("data").iterdir())


def test_presets(monkeypatch):
    text = (presets.FOLDER / "digits.toml").read_bytes().split(b"[smoke]")[0]
    cifar = (presets.FOLDER / "cifar10.toml").read_bytes()
    monkeypatch.setattr(presets, "FOLDER", Path.cwd())
    kind = TASKS["digits"].settings
    bad = 0
    for seed in range(CASES):
        Path("digits.toml").write_bytes(mutated_bytes(text, seed))
        Path("cifar10.toml").write_bytes(cifar)
        presets._presets.cache_clear()
        bad += refused(lambda: load_settings("digits", "small", kind), SettingsError, SpaceError)
    presets._presets.cache_clear()
    assert bad > CASES // 3


def test_settings_of_the_command_line():
    bad = 0
    values = tomllib.loads("a = [1, {b = 2}, 'c', 1979-05-27, nan, -inf, true, 0xff]")["a"]
    for seed in range(CASES):
        rng = random.Random(seed)
        key = rng.choice(["lr", "hidden", "channels", "stn.warmup", "stn", "space", "space.contrast.init", "space.x"])
        value = rng.choice(
            [
                *map(repr, values),
                "[",
                "{",
                "]]",
                "\n[x]\ny=1",
                "'",
                "\x00",
                "[[[[",
                "1_",
                "=",
                "9" * 5000,
                "9" * 300,
                "9" * 5000,
            ]
        )
        text = mutated_bytes(f"{key}={value}".encode(), seed).decode(errors="replace") if seed % 2 else f"{key}={value}"
        bad += refused(lambda text=text: problem("digits", "smoke", [text]), SettingsError, SpaceError)
    assert bad > CASES // 3
