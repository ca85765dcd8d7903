"""Image classification with dropouts and augmentations to tune: Section 4.3 and appendix E."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

import stn_tune as stn
from benchmarks.data import Images
from benchmarks.settings import ImageSettings, SettingsError
from benchmarks.tasks.rules import plateau
from stn_tune.training import Trainer

Batch = tuple[Tensor, Tensor]


@dataclass
class Pictures:
    """Rows of a data set of bytes, ``(n, channels, height, width)``, as batches; shuffled anew in every pass."""

    x: Tensor
    y: Tensor
    rows: Tensor
    size: int
    shuffle: bool

    def __iter__(self) -> Iterator[Batch]:
        rows = self.rows[torch.randperm(len(self.rows))] if self.shuffle else self.rows
        for part in rows.split(self.size):
            yield self.x[part], self.y[part]

    def __len__(self) -> int:
        return -(-len(self.rows) // self.size)


class ImageTask(stn.Task):
    """A CNN on pictures; every augmentation takes one strength per picture."""

    def __init__(
        self,
        settings: ImageSettings,
        images: Callable[[], Images],
        network: Callable[[ImageSettings], nn.Module],
        mean: Sequence[float],
        std: Sequence[float],
    ):
        self.settings = settings
        self._images, self._network = images, network
        self._mean, self._std = (torch.tensor(values).view(1, -1, 1, 1) for values in (mean, std))
        self._holes = int(settings.space["cutout_holes"].upper)

    def loaders(self, config: Mapping[str, Any]) -> stn.Loaders:
        """The same pictures in the same split for every method and seed."""
        data, s = self._images(), self.settings
        order = torch.randperm(len(data.train_y), generator=torch.Generator().manual_seed(0))[: s.examples]
        held_out = int(len(order) * s.valid_fraction)
        tests = torch.arange(len(data.test_y))[: s.test_examples]
        if not 0 < held_out < len(order) or not len(tests):
            raise SettingsError(
                f"{len(order)} examples with valid_fraction {s.valid_fraction:g}, and {len(tests)} test_examples: "
                f"nothing is left to train, validate or test on"
            )
        return stn.Loaders(
            train=Pictures(data.train_x, data.train_y, order[held_out:], s.batch_size, shuffle=True),
            valid=Pictures(data.train_x, data.train_y, order[:held_out], s.batch_size, shuffle=True),
            test=Pictures(data.test_x, data.test_y, tests, s.batch_size, shuffle=False),
        )

    def model(self, config: Mapping[str, Any]) -> nn.Module:
        return self._network(self.settings)

    def optimizer(self, model: nn.Module, config: Mapping[str, Any]) -> Optimizer:
        lr = config.get("lr", self.settings.lr)
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=self.settings.momentum)

    def scheduler(self, optimizer: Optimizer, config: Mapping[str, Any]) -> LRScheduler:
        return plateau(optimizer, self.settings)

    def stop(self, val_losses: Sequence[float], optimizer: Optimizer, config: Mapping[str, Any]) -> bool:
        since_best = len(val_losses) - 1 - min(range(len(val_losses)), key=val_losses.__getitem__)
        return bool(optimizer.param_groups[0]["lr"] < self.settings.lr_min) or since_best >= self.settings.patience

    def loss(self, model: nn.Module, batch: Batch, hp: Mapping[str, Any]) -> Tensor:
        return F.cross_entropy(model(self.inputs(batch[0], hp, model.training)), batch[1])

    def inputs(self, x: Tensor, hp: Mapping[str, Any], training: bool) -> Tensor:
        """Bytes to network inputs: colours in [0, 1], normalised, then what is cut out, scaled and dropped."""
        x = x.float().div_(255)
        if training:
            x = stn.augment.color_jitter(
                x,
                brightness=hp["brightness"],
                contrast=hp["contrast"],
                saturation=hp.get("saturation", 0.0),
                hue=hp.get("hue", 0.0),
            )
        x = x.sub(self._mean.to(x.device)).div_(self._std.to(x.device))
        if training:
            x = stn.augment.cutout(x, hp["cutout_holes"], hp["cutout_length"], max_holes=self._holes)
            x = stn.augment.scale_noise(x, hp["input_scale"])
            x = stn.nn.dropout(x, hp["input_dropout"])
        return x

    def evaluate(self, trainer: Trainer, batches: Iterable[Batch]) -> dict[str, float]:
        loss, right, count = 0.0, 0, 0
        with trainer.evaluation() as hp:
            for x, y in batches:
                logits = trainer.model(self.inputs(x, hp, training=False))
                loss += float(F.cross_entropy(logits, y, reduction="sum"))
                right += int((logits.argmax(1) == y).sum())
                count += len(y)
        return {"loss": loss / count, "accuracy": right / count}
