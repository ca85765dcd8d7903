"""The README's task, small: scikit-learn's digits. Imported by tests and by their Ray workers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch
from ray import tune
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import stn_tune as stn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.drop = stn.nn.Dropout("dropout")
        self.fc = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        return self.fc(self.drop(x.flatten(1)))


class Digits(stn.Task):
    def model(self, config):
        return Net()

    def optimizer(self, model, config):
        return torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)

    def loaders(self, config):
        images, labels = load_digits(return_X_y=True)
        x, y = torch.tensor(images / 16, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(labels)
        return stn.Loaders(
            train=DataLoader(TensorDataset(x[:400], y[:400]), batch_size=40, shuffle=True),
            valid=DataLoader(TensorDataset(x[400:800], y[400:800]), batch_size=60, shuffle=True),
            test=DataLoader(TensorDataset(x[800:1200], y[800:1200]), batch_size=400),
        )

    def loss(self, model, batch, hp):
        x, y = batch
        if model.training:
            x = stn.augment.cutout(x, holes=1, length=hp["cutout"])
        return F.cross_entropy(model(x), y)

    def evaluate(self, trainer, batches):
        wrong = total = 0
        loss = 0.0
        with trainer.evaluation():
            for x, y in batches:
                logits = trainer.model(x)
                loss += F.cross_entropy(logits, y, reduction="sum").item()
                wrong += (logits.argmax(1) != y).sum().item()
                total += len(y)
        return {"loss": loss / total, "error": wrong / total}


SPACE = {"dropout": tune.uniform(0, 0.75), "cutout": tune.randint(0, 5), "lr": tune.loguniform(1e-3, 1e-1)}
ONLINE = {name: SPACE[name] for name in ("dropout", "cutout")}
CONFIG = {"dropout": 0.1, "cutout": 1, "lr": 0.02}


class Killed(Digits):
    """Kills its own process in the middle of the third pass, once: the folder ``config["marks"]`` remembers."""

    def loaders(self, config):
        loaders = super().loaders(config)
        self.mark = Path(config["marks"], f"killed-{config['lr']}")
        return loaders

    def loss(self, model, batch, hp):
        self.batches = getattr(self, "batches", 0) + model.training
        if self.batches == 25 and model.training and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(model, batch, hp)

    def state_dict(self):
        return {"batches": self.batches}

    def load_state_dict(self, state):
        self.batches = state["batches"]


class Slow(Digits):
    """Takes its time, so that a test can interfere."""

    def loss(self, model, batch, hp):
        time.sleep(0.02)
        return super().loss(model, batch, hp)


class Diverging(Digits):
    """Blows up where the learning rate is large."""

    def loss(self, model, batch, hp):
        loss = super().loss(model, batch, hp)
        return loss * float("nan") if hp["lr"] > 0.05 and model.training else loss
