"""Ray Train inside Ray Tune, self-tuned: a trial is a TorchTrainer with two workers, λ alike in both.

python examples/ray_train.py
"""

import tempfile
from pathlib import Path

import ray.train
import torch
import torch.nn.functional as F
from ray import tune
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from ray.tune.integration.ray_train import TuneReportCallback
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import stn_tune as stn


def loaders():
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    train, valid, _ = torch.utils.data.random_split(data, [400, 400, 997], torch.Generator().manual_seed(0))
    return [prepare_data_loader(DataLoader(part, 20, shuffle=True)) for part in (train, valid)]


def loss_fn(model, batch, hp=None):
    x, y = batch
    return F.cross_entropy(model(x), y)


def worker(config):
    torch.manual_seed(config["seed"] + ray.train.get_context().get_world_rank())
    train, valid = loaders()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(config["dropout"]), nn.Linear(128, 10))
    hyper = stn.hyper_from_config(config)
    model = stn.self_tune(model, hyper, bind={"2": "dropout"})
    model = prepare_model(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    tuner = stn.tuner_from_config(config, model, hyper, optimizer)
    parts, start = {"tuner": tuner}, 0
    if saved := ray.train.get_checkpoint():
        with saved.as_directory() as folder:
            state = torch.load(Path(folder, "state.pt"), weights_only=True)
            start, _ = state["epoch"], [part.load_state_dict(state[name]) for name, part in parts.items()]
    for epoch in range(start, config["epochs"]):
        model.train()
        tuner.epoch(loss_fn, train, valid)
        model.eval()
        with torch.no_grad():
            val_loss = sum(loss_fn(model, batch).item() for batch in valid) / len(valid)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if ray.train.get_context().get_world_rank() == 0:
                state = {"epoch": epoch + 1} | {name: part.state_dict() for name, part in parts.items()}
                torch.save(state, Path(folder, "state.pt"))
                checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"val_loss": val_loss, "epoch": epoch + 1, **tuner.metrics()}, checkpoint=checkpoint)


def trial(config, loop=worker):
    TorchTrainer(
        loop,
        train_loop_config=config,
        scaling_config=ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=ray.train.RunConfig(
            name=f"train-{tune.get_context().get_trial_id()}",
            storage_path=config["storage"],
            callbacks=[TuneReportCallback()],
            failure_config=ray.train.FailureConfig(max_failures=2),
        ),
    ).fit()


def main(storage, epochs=5, trial=trial):
    space = {"lr": 0.05, "dropout": tune.uniform(0, 0.75), "epochs": epochs, "seed": 0, "storage": storage}
    return tune.Tuner(
        tune.with_resources(trial, {"CPU": 0.5}),
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="val_loss",
            mode="min",
            search_alg=stn.STNSearch(online=["dropout"]),
            num_samples=1,
        ),
        run_config=tune.RunConfig(storage_path=storage, name="tune", verbose=0),
    ).fit()


if __name__ == "__main__":
    print(main(str(Path("~/ray_results").expanduser()))[0].metrics)
