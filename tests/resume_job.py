"""Trains a small STN and prints, per epoch, losses, λ and σ to the last bit. Run by test_tuner.py."""

from __future__ import annotations

import argparse
from itertools import cycle

import torch
from ray import tune
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import stn_tune as stn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.rnn = stn.nn.LSTM(8 * 4, 16, batch_first=True, weight_dropout="connect")
        self.drop = stn.nn.Dropout("drop")
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        x, _ = self.rnn(x.transpose(1, 2).flatten(2))
        return self.fc(self.drop(x[:, -1]))


def loss_fn(model, batch, hp):
    x, y = batch
    if model.training:
        x = stn.augment.cutout(x, holes=1, length=hp["cutout"], max_holes=1)
    return F.cross_entropy(model(x), y)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("epochs", type=int)
    parser.add_argument("--save")
    parser.add_argument("--load")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(labels)
    space = {"drop": tune.uniform(0, 0.9), "connect": tune.uniform(0, 0.9), "cutout": tune.randint(0, 5)}
    hyper = stn.Hyper(space, per_batch=["connect"])
    model = stn.self_tune(Net(), hyper)
    tuner = stn.SelfTuner(model, hyper, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), clip=1.0)
    if arguments.load:
        tuner.load_state_dict(torch.load(arguments.load, weights_only=True))
    for _ in range(arguments.epochs):
        order = torch.randperm(600)
        train = ((x[rows], y[rows]) for rows in order.split(50))
        valid = cycle([(x[600:650], y[600:650]), (x[650:700], y[650:700])])
        train_loss = tuner.epoch(loss_fn, train, valid)
        valid_loss = tuner.evaluate(loss_fn, [(x[600:900], y[600:900])])
        exact = [train_loss, valid_loss, *hyper.lam.tolist(), *hyper.sigma.tolist()]
        print(" ".join(float(value).hex() for value in exact))
    if arguments.save:
        torch.save(tuner.state_dict(), arguments.save)


if __name__ == "__main__":
    main()
