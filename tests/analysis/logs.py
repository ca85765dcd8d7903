"""Writers of synthetic logs, in the benchmark runner's format and in Ray Tune's own."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stn_tune.record import (
    LOG_SUFFIX,
    ExperimentInfo,
    HyperparameterInfo,
    Invocation,
    LogHeader,
    MethodInfo,
    RunRecord,
    Style,
    TaskInfo,
    TrialInfo,
)

Row = dict[str, Any]
ONLINE = ("stn", "hybrid")

TASK = TaskInfo("ptb", "Penn Treebank", "val_loss", "min", "nats per token")
CIFAR10 = TaskInfo("cifar10", "CIFAR-10", "val_loss", "min", "nats")

METHODS = (
    MethodInfo("stn", "STN", style=Style("#D55E00")),
    MethodInfo("grid", "grid search", style=Style("#0072B2")),
    MethodInfo("random", "random search", style=Style("#009E73")),
    MethodInfo("bayes", "Bayesian optimisation", style=Style("#CC79A7")),
    MethodInfo("tpe", "TPE", style=Style("#E69F00")),
    MethodInfo("asha", "ASHA", stops_early=True, style=Style("#56B4E9")),
    MethodInfo("pbt", "PBT", style=Style("#000000")),
    MethodInfo("final", "final STN values (fixed)", builds_on="stn", style=Style("#8C6D1F", "dashed")),
    MethodInfo("replay", "STN schedule replayed", builds_on="stn", style=Style("#CC79A7", "dashed")),
    MethodInfo("greedy", "greedy schedule of the grid", builds_on="grid", style=Style("#D55E00", "dashdot")),
    MethodInfo("gaussian", "Gaussian noise", builds_on="grid", style=Style("#0072B2", "dashed")),
    MethodInfo("sinusoid", "sinusoid noise", builds_on="grid", style=Style("#009E73", "dashed")),
)
"""As a runner might describe its methods, in the order of tables."""

MACHINE = {"cpu": "abacus", "cores": 2, "memory_gb": 23.4, "gpus": [], "system": "Linux"}
VERSIONS = {"python": "3.11.9", "torch": "2.13.0", "ray": "2.60.0"}
INVOCATION = Invocation(
    "python -m benchmarks run ptb --preset small", "2026-11-16T05:00:00+00:00", "0" * 40, False, VERSIONS, MACHINE
)


def rows(
    values: Sequence[float], *, every: float = 10.0, start: float = 0.0, trial: int = 0, **extra: Any
) -> list[Row]:
    """One trial that reports a validation loss every so many seconds; the test loss is 0.5 above at the best so far."""
    result, best = [], float("inf")
    for k, value in enumerate(values, 1):
        best = min(best, value)
        row = {
            "trial": trial,
            "training_iteration": k,
            "elapsed_s": start + every * k,
            "compute_s": start + every * k,
            "trial_compute_s": every * k,
            "wall_s": every * k,
            "epoch": k,
            "step": 100 * k,
            "val_loss": value,
            "best_val_loss": best,
            "test_loss": best + 0.5,
            "diverged": "",
            "done": k == len(values),
        }
        result.append(row | extra)
    return result


def hyperparameters(**domains: tuple[float, float]) -> dict[str, HyperparameterInfo]:
    """Rates and coefficients by their bounds, with the lower one as the initial value."""
    return {
        name: HyperparameterInfo(
            name.replace("_", " "),
            "rate" if lower >= 0 and upper <= 1 else "coefficient",
            {"kind": "uniform", "lower": lower, "upper": upper},
            lower,
        )
        for name, (lower, upper) in domains.items()
    }


def write_run(
    folder: Path,
    method: str,
    seed: int,
    reported: Sequence[Row],
    *,
    variant: Mapping[str, Any] | None = None,
    compared: bool = True,
    online: Iterable[str] | None = None,
    configs: Mapping[int, Mapping[str, Any]] | None = None,
    statuses: Mapping[int, str] | None = None,
    task: TaskInfo = TASK,
    **changes: Any,
) -> ExperimentInfo:
    """``<folder>/runs/<label>-<seed>.jsonl.gz``, as the runner writes it; ``configs`` may name trials without rows.

    By default an online method tunes the hyperparameters whose scale it reports.
    """
    numbers = sorted({row["trial"] for row in reported} | set(configs or {}))
    trials = tuple(
        TrialInfo(
            number,
            f"{seed:05x}_{number:05d}",
            (statuses or {}).get(number, "TERMINATED"),
            {"seed": seed, **(configs or {}).get(number, {})},
        )
        for number in numbers
    )
    if online is None:
        scales = [name.removeprefix("scale/") for row in reported for name in row if name.startswith("scale/")]
        online = dict.fromkeys(scales or (["drop"] if method in ONLINE else []))
    info = ExperimentInfo(
        method, seed, variant or {}, compared, tuple(online), trials=trials, machine=MACHINE, versions=VERSIONS
    )
    header = LogHeader(info, task.name, task.metric, task.mode, "small", 600.0)
    lines = [replace(header, **changes).to_json(), *reported]
    path = folder / "runs" / f"{info.name}{LOG_SUFFIX}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode(), mtime=0))
    return info


def write_record(folder: Path, experiments: Iterable[ExperimentInfo] = (), **changes: Any) -> RunRecord:
    """The runner's ``record.json``: what was asked for, finished or not; by default what has a log."""
    infos = [replace(info, trials=()) for info in experiments]
    known = {info.method for info in infos}
    methods = [info for info in METHODS if info.name in known]
    methods += [MethodInfo(name, name) for name in sorted(known - {info.name for info in METHODS})]
    record = RunRecord(
        name=folder.name,
        study="run",
        task=TASK,
        methods=tuple(methods),
        experiments=tuple(infos),
        invocations=(INVOCATION,),
        preset="small",
        settings={"lr": 10.0},
        budget_s=600.0,
    )
    record = replace(record, **changes)
    folder.mkdir(parents=True, exist_ok=True)
    record.write(folder)
    return record


def write_runs(folder: Path, runs: Mapping[Any, Sequence[Row]], **changes: Any) -> list[ExperimentInfo]:
    """Logs and their record: ``(method, seed)`` or ``(method, seed, variant)`` with variants as pairs -> rows."""
    infos = []
    for (method, seed, *variant), reported in runs.items():
        infos.append(write_run(folder, method, seed, reported, variant=dict(variant)))
    write_record(folder, infos, **changes)
    return infos


def tune_rows(
    trial_id: str,
    metrics: Sequence[Mapping[str, Any]],
    *,
    config: Mapping[str, Any] | None = None,
    began: int = 1_700_000_000,
    every: int = 10,
) -> list[Row]:
    """What Tune writes of a trial that reports ``metrics``, one mapping per iteration."""
    return [
        {
            **metric,
            "timestamp": began + every * k,
            "done": k == len(metrics),
            "training_iteration": k,
            "trial_id": trial_id,
            "date": "2023-11-14_22-13-20",
            "time_this_iter_s": float(every),
            "time_total_s": float(every * k),
            "pid": 1,
            "hostname": "node",
            "node_ip": "127.0.0.1",
            "config": dict(config or {}),
            "time_since_restore": float(every * k),
            "iterations_since_restore": k,
        }
        for k, metric in enumerate(metrics, 1)
    ]


def write_trial(experiment: Path, trial_id: str, reported: Sequence[Row], error: str = "") -> Path:
    """``<experiment>/train_<trial_id>/`` as Tune leaves it."""
    folder = experiment / f"train_{trial_id}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text("".join(json.dumps(row) + "\n" for row in reported))
    (folder / "params.json").write_text(json.dumps(reported[0]["config"] if reported else {}))
    if error:
        (folder / "error.txt").write_text(error)
    return folder


def write_state(experiment: Path, statuses: Mapping[str, str]) -> Path:
    """Tune's own record of which trials there are and how they ended."""
    trials = [
        [json.dumps({"trial_id": t, "status": status, "relative_logdir": f"train_{t}"}), "{}"]
        for t, status in statuses.items()
    ]
    path = experiment / "experiment_state-2023-11-14_22-13-20.json"
    path.write_text(json.dumps({"trial_data": trials, "runner_data": {}, "stats": {}}))
    return path


def write_tuner(experiment: Path, **config: Any) -> Path:
    """Tune's own ``tuner.pkl``, pickled as Tune does; ``config`` are the arguments of ``TuneConfig``."""
    from ray import cloudpickle
    from ray.tune import TuneConfig

    path = experiment / "tuner.pkl"
    path.write_bytes(cloudpickle.dumps({"_tune_config": TuneConfig(**config), "_is_restored": False}))
    return path


def write_many(folder: Path, trials: int = 10_000, rows: int = 100) -> None:
    """One large Tune experiment, for measurements: ``python -m tests.analysis.logs FOLDER`` writes 10,000 trials."""
    for k in range(trials):
        rate = (k * 37 % 1000 + 1) / 1000
        metrics = [{"acc": 1 - rate / i, "val_loss": rate / i, "checkpoint_dir_name": None} for i in range(1, rows + 1)]
        config = {"lr": rate, "momentum": 0.9, "layers": 3, "optimizer": "sgd"}
        write_trial(folder / "many", f"{k:05d}", tune_rows(f"{k:05d}", metrics, config=config, began=1_700_000_000 + k))


def measure(folder: Path) -> None:
    """Loads a folder, and prints what that took."""
    import resource
    import time

    from stn_tune.analysis import load

    began = time.process_time()
    frame = load(folder, metric="acc", mode="max")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{len(frame)} rows: {time.process_time() - began:.1f} s of CPU, at most {memory:.2f} GB")


if __name__ == "__main__":
    import sys

    if not Path(sys.argv[1]).exists():
        write_many(Path(sys.argv[1]))
    measure(Path(sys.argv[1]))
