"""An experiment's clocks, from those of its trials where the logs have nothing better."""

from __future__ import annotations

import pandas as pd

from stn_tune.analysis.stats import floats

TRIAL = ("_place", "trial")


def with_clocks(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame sorted by compute-seconds, with ``elapsed_s``, ``compute_s``, ``epoch`` and ``epochs`` filled in.

    A trial's compute-seconds are its ``trial_compute_s``, else ``wall_s`` and ``start_s``, else Tune's
    ``time_total_s``. ``_place`` numbers the experiments; ``_gaps`` marks trials with unreadable lines.
    """
    clocks = frame[["_place", "trial", "_gaps"]].copy()
    names = ("training_iteration", "elapsed_s", "compute_s", "trial_compute_s", "wall_s", "start_s", "epoch")
    for name in (*names, "time_total_s"):
        clocks[name] = floats(frame, name)
    if "timestamp" in frame:
        took = floats(frame, "time_this_iter_s").fillna(0.0)
        now = floats(frame, "timestamp")
        first = (now - took).where(now == now.groupby(clocks["_place"]).transform("min"))
        clocks["elapsed_s"] = clocks["elapsed_s"].fillna(now - first.groupby(clocks["_place"]).transform("min"))
    held = clocks["wall_s"].fillna(clocks["time_total_s"]) + clocks["start_s"].fillna(0.0)
    clocks["used_s"] = clocks["trial_compute_s"].fillna(held)
    clocks["own_clock"] = clocks["trial_compute_s"].notna() | clocks["wall_s"].notna()
    clocks["epoch"] = clocks["epoch"].fillna(clocks["training_iteration"])
    clocks["network"] = floats(frame, "network").fillna(0.0)
    if "phase" in frame:
        clocks["network"] = clocks["network"].clip(lower=(frame["phase"] == "refining").astype(float))
    clocks = clocks.sort_values(["_place", "elapsed_s", "trial", "training_iteration"], kind="stable")
    iterations = clocks["training_iteration"].groupby([clocks[name] for name in TRIAL]).diff().fillna(1.0)
    jumped = (iterations != 1.0) & (clocks["_gaps"] == 0)
    restarted = jumped | (clocks["network"].groupby([clocks[name] for name in TRIAL]).diff() == 1)
    clocks["compute_s"] = clocks["compute_s"].fillna(_total(clocks, "used_s", jumped & ~clocks["own_clock"]))
    clocks["epochs"] = _total(clocks, "epoch", restarted)
    clocks = clocks.sort_values(["_place", "compute_s", "trial", "training_iteration"], kind="stable")
    known = {name: clocks[name] for name in ("elapsed_s", "compute_s", "epoch", "epochs")}
    return frame.loc[clocks.index].assign(**known).reset_index(drop=True)


def _total(clocks: pd.DataFrame, name: str, jumped: pd.Series) -> pd.Series:
    """Row by row, the sum over the experiment's trials of what each had gained by then; none where none is reported.

    A trial that ``jumped`` to another's checkpoint or started a second network, or whose count fell, reports another
    count: the row counts as the trial's median gain instead.
    """
    trial = [clocks[part] for part in TRIAL]
    latest = clocks[name].groupby(trial).ffill().fillna(0.0)
    gained = latest.groupby(trial).diff().fillna(latest)
    gained = gained.mask(jumped | (gained < 0.0))
    gained = gained.fillna(gained.groupby(trial).transform("median")).fillna(0.0)
    return gained.groupby(clocks["_place"]).cumsum().where(clocks[name].notna())
