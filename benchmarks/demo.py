"""A self-tuning network on scikit-learn's digits, in about a minute, with nothing to download."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import count

import torch
from ray import tune
from rich.console import Console
from rich.live import Live
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import stn_tune as stn

SPACE = {
    "conv_dropout": tune.uniform(0, 0.75),
    "fc_dropout": tune.uniform(0, 0.75),
    "cutout": tune.randint(0, 6),
    "input_scale": tune.uniform(0, 1),
}
INIT = {"conv_dropout": 0.05, "fc_dropout": 0.05, "cutout": 1, "input_scale": 0.05}
Batch = tuple[Tensor, Tensor]


class Net(nn.Module):
    """An ordinary small CNN for 8x8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.conv_dropout, self.fc_dropout = stn.nn.Dropout("conv_dropout"), stn.nn.Dropout("fc_dropout")
        self.fc1, self.fc2 = nn.Linear(32 * 4 * 4, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = F.relu(self.fc1(self.conv_dropout(x.flatten(1))))
        return self.fc2(self.fc_dropout(x))


def loss(model: nn.Module, batch: Batch, hp: Mapping[str, Tensor]) -> Tensor:
    x, y = batch
    if model.training:
        x = stn.augment.cutout(x, holes=1, length=hp["cutout"])
        x = stn.augment.scale_noise(x, hp["input_scale"])
    return F.cross_entropy(model(x), y)


def splits(seed: int) -> dict[str, Batch]:
    """500 digits to train on, 500 to tune on, the rest to test: few enough to overfit."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    x, y = (
        torch.tensor(images / 16, dtype=torch.float32).view(-1, 1, 8, 8)[order],
        torch.tensor(labels)[order],
    )
    ends = {"train": (0, 500), "valid": (500, 1000), "test": (1000, len(y))}
    return {name: (x[a:b], y[a:b]) for name, (a, b) in ends.items()}


def shuffled(data: Batch, size: int) -> Iterator[Batch]:
    for rows in torch.randperm(len(data[1])).split(size):
        yield data[0][rows], data[1][rows]


def endless(data: Batch, size: int) -> Iterator[Batch]:
    for _ in count():
        yield from shuffled(data, size)


def run(epochs: int, seed: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    data = splits(seed)
    hyper = stn.Hyper(SPACE, init=INIT)
    model = stn.self_tune(Net(), hyper)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    tuner = stn.SelfTuner(model, hyper, optimizer, warmup_steps=2 * 20)
    console = Console()
    console.print("[bold]A network that tunes its own regularisation[/] (scikit-learn's digits)\n")
    console.print(stn.describe(model), highlight=False)
    table = Table(caption="every row is one network at one moment: there is no search")
    for column in ("epoch", "train loss", "valid loss", "test loss", *SPACE):
        table.add_column(column.replace("_", " "), justify="right")
    start = time.perf_counter()
    valid = endless(data["valid"], 100)
    with Live(table, console=console, refresh_per_second=4):
        for epoch in range(1, epochs + 1):
            train_loss = tuner.epoch(loss, shuffled(data["train"], 25), valid)
            valid_loss, test_loss = (tuner.evaluate(loss, [data[name]]) for name in ("valid", "test"))
            losses = [f"{value:.3f}" for value in (train_loss, valid_loss, test_loss)]
            values = [f"{v:.2f}" if isinstance(v, float) else str(v) for v in hyper.values_now().values()]
            table.add_row(str(epoch), *losses, *values)
    console.print(f"{epochs} epochs in {time.perf_counter() - start:.0f} s. {tuner.schedule}", highlight=False)
