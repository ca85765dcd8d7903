"""Three Ray nodes on this machine, one of which is lost while trials run on it. Run by test_faults.py."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import ray
from ray import tune
from ray.cluster_utils import Cluster
from ray.tune import CheckpointConfig, FailureConfig, RunConfig, TuneConfig

import stn_tune as stn
from tests.digits_task import ONLINE, Slow


def main(folder: str) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    doomed = cluster.add_node(num_cpus=1)
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    environment = {"PYTHONPATH": str(Path(__file__).parents[1])}
    ray.init(cluster.address, log_to_driver=False, runtime_env={"env_vars": environment})
    lost: list[str] = []

    def remove_a_busy_node() -> None:
        while len(list(Path(folder).glob("run/*/checkpoint_000001"))) < 2:
            time.sleep(0.2)
        lost.append(doomed.node_id)
        cluster.remove_node(doomed, allow_graceful=False)

    watcher = threading.Thread(target=remove_a_busy_node, daemon=True)
    watcher.start()
    results = tune.Tuner(
        stn.STNTrainable.of(Slow, space=ONLINE),
        param_space={"lr": tune.grid_search([0.01, 0.02, 0.03])},
        tune_config=TuneConfig(metric="val_loss", mode="min"),
        run_config=RunConfig(
            storage_path=folder,
            name="run",
            stop={"training_iteration": 6},
            failure_config=FailureConfig(max_failures=2),
            checkpoint_config=CheckpointConfig(checkpoint_frequency=1),
            verbose=0,
        ),
    ).fit()
    report = {
        "errors": len(results.errors),
        "nodes_lost": len(lost),
        "iterations": [r.metrics_dataframe["training_iteration"].tolist() for r in results],
        "val_loss": {str(r.config["lr"]): r.metrics_dataframe["val_loss"].tolist() for r in results},
        "pids": [r.metrics_dataframe["pid"].nunique() for r in results],
    }
    print("REPORT " + json.dumps(report))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
