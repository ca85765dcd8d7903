"""Writers of synthetic logs, in the benchmark runner's format and in Ray Tune's own."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


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
            "start_s": 0.0,
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


def header(label: str, seed: int, trials: Sequence[Mapping[str, Any]], **changes: Any) -> Row:
    return {
        "format": "stn_tune.run",
        "version": 1,
        "method": label.split(" ")[0],
        "label": label,
        "seed": seed,
        "task": "ptb",
        "preset": "small",
        "budget_s": 600.0,
        "workers": 1,
        "metric": "val_loss",
        "mode": "min",
        "machine": {"cpu": "abacus", "cores": 2},
        "versions": {"python": "3.11.9"},
        "note": "",
        "trials": list(trials),
        **changes,
    }


def write_run(
    folder: Path,
    label: str,
    seed: int,
    reported: Sequence[Row],
    configs: Mapping[int, Mapping[str, Any]] | None = None,
    statuses: Mapping[int, str] | None = None,
    **changes: Any,
) -> Path:
    """``<folder>/runs/<label>-<seed>.jsonl.gz``; ``configs`` may name trials that reported nothing."""
    numbers = sorted({row["trial"] for row in reported} | set(configs or {}))
    trials = [
        {
            "trial": number,
            "id": f"{seed:05x}_{number:05d}",
            "status": (statuses or {}).get(number, "TERMINATED"),
            "error": "",
            "config": {"seed": seed, **(configs or {}).get(number, {})},
        }
        for number in numbers
    ]
    lines = [header(label, seed, trials, **changes), *reported]
    path = folder / "runs" / f"{label}-{seed}.jsonl.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode(), mtime=0))
    return path


def write_config(folder: Path, experiments: Sequence[str], **changes: Any) -> Path:
    """The runner's ``config.json``: what was asked for, finished or not."""
    seeds: dict[str, list[int]] = {}
    for name in experiments:
        label, seed = name.rsplit("-", 1)
        seeds.setdefault(label, []).append(int(seed))
    go = {
        "command": "python -m benchmarks run ptb --preset small",
        "started": "2026-11-16T05:00:00+00:00",
        "git": "0" * 40,
        "dirty": False,
        "versions": {"python": "3.11.9", "torch": "2.13.0", "ray": "2.60.0"},
        "machine": {"cpu": "abacus", "cores": 2, "memory_gb": 23.4, "gpus": [], "system": "Linux"},
    }
    config = {
        "format": 1,
        "name": folder.name,
        "command": "run",
        "task": "ptb",
        "preset": "small",
        "set": [],
        "settings": {"lr": 10.0},
        "budget_s": 600.0,
        "workers": 1,
        "metric": "val_loss",
        "mode": "min",
        "seeds": seeds,
        "experiments": list(experiments),
        "goes": [go],
        **changes,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


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
