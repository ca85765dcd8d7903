"""Any Tune experiments, compared by one call: metric ``accuracy``, mode ``max``, two learning-rate rules, three seeds.

python examples/compare_my_experiments.py; the same from a shell: stn-tune report FOLDER... --metric accuracy --mode max
"""

import random
from pathlib import Path

from ray import tune

import stn_tune as stn


def train(config):
    """Stands for your training: an accuracy that rises, faster with one rule than with the other."""
    noise = random.Random(config["seed"])
    for step in range(1, 16):
        tune.report({"accuracy": 0.9 - 0.6 * config["decay"] ** step + noise.gauss(0, 0.004)})


def main(storage, seeds=3):
    folders = []
    for name, decay in {"cosine": 0.8, "step": 0.87}.items():
        results = tune.Tuner(
            train,
            param_space={"decay": decay, "seed": tune.grid_search(list(range(seeds)))},
            tune_config=tune.TuneConfig(metric="accuracy", mode="max"),
            run_config=tune.RunConfig(name=name, storage_path=storage, verbose=0),
        ).fit()
        folders.append(results.experiment_path)
    frame = stn.analysis.load(*folders, metric="accuracy", mode="max")
    print(stn.analysis.table(frame, reference="cosine"))
    return folders


if __name__ == "__main__":
    main(str(Path("~/ray_results").expanduser()))
