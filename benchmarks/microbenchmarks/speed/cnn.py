"""The ST-CNN against the same AlexNet on torch's kernels, both with all dropouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from ray import tune
from torch import Tensor, nn

import stn_tune as stn
from benchmarks.microbenchmarks.speed.counts import limits, traffic
from benchmarks.microbenchmarks.speed.timing import Comparison, Epoch, SpeedCase, forward_step, plain_step
from benchmarks.models.alexnet import PAPER_CHANNELS, PAPER_HIDDEN, AlexNet

NAMES = [*(f"conv{k}_dropout" for k in range(1, 6)), "fc1_dropout", "fc2_dropout"]
INIT = dict.fromkeys(NAMES, 0.05)


@dataclass(frozen=True)
class Size:
    """Of the model and its batches."""

    channels: tuple[int, ...]
    hidden: int
    batch: int

    def plain(self) -> AlexNet:
        """The model at fixed hyperparameters."""
        model = AlexNet(self.channels, self.hidden)
        stn.fix(model, INIT)
        return model

    def tuner(self, **options: Any) -> stn.SelfTuner:
        """The self-tuned model."""
        hyper = stn.Hyper(dict.fromkeys(NAMES, tune.uniform(0, 0.75)), INIT)
        model = stn.self_tune(AlexNet(self.channels, self.hidden), hyper)
        return stn.SelfTuner(model, hyper, optimizer_of(model), **options)


SIZES = {"paper": Size(PAPER_CHANNELS, PAPER_HIDDEN, 128), "smoke": Size((4, 4, 4, 4, 4), 16, 4)}


def optimizer_of(model: nn.Module) -> torch.optim.SGD:
    """The paper's, for the plain model and the self-tuned one."""
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def loss(model: nn.Module, batch: tuple[Tensor, Tensor], hp: Mapping[str, Any]) -> Tensor:
    """The classifier's."""
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def steps(size: str) -> Iterator[Comparison]:
    """Weight steps, hyperparameter steps, and epochs of both."""
    setting = SIZES[size]
    data = torch.randn(setting.batch, 3, 32, 32), torch.randint(0, 10, (setting.batch,))
    plain, example, shared = setting.plain(), setting.tuner(draw="example"), setting.tuner()
    limit, moved = limits(1.0, 0.0), traffic(1.0, 0.0, clip=False, momentum=True)
    weight, hyper = "ST-CNN weight step", "ST-CNN hyper step"
    own, own_hyper = "ST-CNN weight, per example", "ST-CNN hyper, per example"
    cases = [
        SpeedCase(weight, partial(shared.train_step, loss, data), 1.15, limit["weight, one ε"], moved["weight"]),
        SpeedCase(hyper, partial(shared.valid_step, loss, data), 1.05, limit["hyper, one λ"], moved["hyper"]),
        SpeedCase(own, partial(example.train_step, loss, data), 1.95, limit["weight"]),
        SpeedCase(own_hyper, partial(example.valid_step, loss, data), 1.10, limit["hyper"]),
    ]
    epochs = [
        Epoch("ST-CNN epoch 2:1", weight, hyper, 1 / 2, 1.70),
        Epoch("ST-CNN epoch 4:1", weight, hyper, 1 / 4, 1.70),
        Epoch("ST-CNN 2:1, per example", own, own_hyper, 1 / 2, 2.50),
        Epoch("ST-CNN 4:1, per example", own, own_hyper, 1 / 4, 2.25),
    ]
    yield Comparison("ST-CNN steps", plain_step(plain, optimizer_of(plain), loss, data, None), cases, epochs)


def forward(size: str) -> Iterator[Comparison]:
    """Inference outside of steps, where a self-tuned model is the plain one."""
    setting = SIZES[size]
    plain, tuned = setting.plain(), setting.tuner().model
    for batch in (1, 8, setting.batch):
        x = torch.randn(batch, 3, 32, 32)
        name = f"ST-CNN forward, batch {batch}"
        case = SpeedCase(name, forward_step(tuned, x), 1.02, 1.0)
        yield Comparison(name, forward_step(plain, x), [case], repeats=3 if batch == setting.batch else 20)
