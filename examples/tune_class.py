"""A Task, trained by any tuner: random search over fixed rates beside one self-tuned trial of the same budget.

python examples/tune_class.py
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from ray import tune
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import stn_tune as stn

SPACE = {"dropout": tune.uniform(0, 0.75), "noise": tune.uniform(0, 0.5)}


class Digits(stn.Task):
    def loaders(self, config):
        images, labels = load_digits(return_X_y=True)
        data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
        train, valid, test = torch.utils.data.random_split(data, [300, 300, 1197], torch.Generator().manual_seed(0))
        return stn.Loaders(
            DataLoader(train, 30, shuffle=True), DataLoader(valid, 30, shuffle=True), DataLoader(test, 399)
        )

    def model(self, config):
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), stn.nn.Dropout("dropout"), nn.Linear(128, 10))

    def optimizer(self, model, config):
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def loss(self, model, batch, hp):
        x, y = batch
        if model.training:  # hp["noise"]: a number at fixed values, a tensor where it is tuned
            x = x + hp["noise"] * torch.randn_like(x)
        return F.cross_entropy(model(x), y)


def main(storage, trials=8, iterations=20):
    run = {"storage_path": storage, "stop": {"training_iteration": iterations}, "verbose": 0}
    random = tune.Tuner(
        stn.FixedTrainable.of(Digits),
        param_space=SPACE,
        tune_config=tune.TuneConfig(metric="val_loss", mode="min", num_samples=trials),
        run_config=tune.RunConfig(name="digits-random", **run),
    ).fit()
    tuned = tune.Tuner(
        stn.STNTrainable.of(Digits),
        param_space=SPACE,
        tune_config=tune.TuneConfig(metric="val_loss", mode="min", search_alg=stn.STNSearch(online=list(SPACE))),
        run_config=tune.RunConfig(name="digits-stn", **run),
    ).fit()
    for name, results in {f"best of {trials} random": random, "one self-tuned": tuned}.items():
        best = results.get_best_result("val_loss", "min").metrics
        found = {key: round(best.get(f"hp/{key}", 0.0), 3) for key in SPACE}
        print(f"{name:>16}: validation {best['best_val_loss']:.3f}, test {best['test_loss']:.3f}, at the end {found}")
    return random, tuned


if __name__ == "__main__":
    main(str(Path("~/ray_results").expanduser()))
