"""Image classification with dropouts and augmentations to tune: Section 4.3 and appendix E."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

import stn_tune as stn
from benchmarks.data.cifar10 import Images, load_cifar10
from benchmarks.data.embedded import load_digits
from benchmarks.errors import SettingsError
from benchmarks.models.alexnet import AlexNet
from benchmarks.models.small_cnn import SmallCNN
from benchmarks.tasks import TaskEntry
from benchmarks.tasks.plateau import decay_on_plateau
from benchmarks.tasks.settings import Settings
from stn_tune.training import Trainer

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class ImageSettings(Settings):
    """Of an image classifier."""

    channels: Sequence[int]
    """Of each convolution."""
    valid_fraction: float
    """The share of the training images that is held out for validation."""
    momentum: float
    """Of SGD."""
    patience: int
    """Training ends when the validation loss has not decreased for this many epochs."""
    examples: int | None = None
    """Images to train and validate on; None: all."""
    test_examples: int | None = None
    """Images to test on; None: all."""

    def check(self) -> None:
        """There must be layers, and something to train and to validate on."""
        super().check()
        if min(self.channels, default=0) < 1:
            raise SettingsError(f"channels is {list(self.channels)}; it must have at least one layer of at least 1")
        if not 0 < self.valid_fraction < 1:
            raise SettingsError(f"valid_fraction is {self.valid_fraction}; it must lie between 0 and 1")


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
        for part in torch.split(rows, self.size):
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
        self._holes = int(settings.space["cutout_holes"].upper) - 1

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
        """The network of the settings."""
        return self._network(self.settings)

    def optimizer(self, model: nn.Module, config: Mapping[str, Any]) -> Optimizer:
        """SGD with momentum."""
        lr = config.get("lr", self.settings.lr)
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=self.settings.momentum)

    def scheduler(self, optimizer: Optimizer, config: Mapping[str, Any]) -> LRScheduler:
        """Decays the learning rate when the validation loss stalls."""
        return decay_on_plateau(optimizer, self.settings)

    def stop(self, val_losses: Sequence[float], optimizer: Optimizer, config: Mapping[str, Any]) -> bool:
        """When the learning rate is below ``lr_min``, or nothing has improved for ``patience`` epochs."""
        since_best = len(val_losses) - 1 - min(range(len(val_losses)), key=val_losses.__getitem__)
        return bool(optimizer.param_groups[0]["lr"] < self.settings.lr_min) or since_best >= self.settings.patience

    def loss(self, model: nn.Module, batch: Batch, hp: Mapping[str, Any]) -> Tensor:
        """Cross-entropy, on augmented pictures in training."""
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
        """Loss and accuracy over all pictures."""
        loss, right, count = 0.0, 0, 0
        with trainer.evaluation() as hp:
            for x, y in batches:
                logits = trainer.model(self.inputs(x, hp, training=False))
                loss += float(F.cross_entropy(logits, y, reduction="sum"))
                right += int((logits.argmax(1) == y).sum())
                count += len(y)
        return {"loss": loss / count, "accuracy": right / count}


CIFAR10_MEAN, CIFAR10_STD = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)


def alexnet(settings: ImageSettings) -> AlexNet:
    """The paper's network for CIFAR-10."""
    return AlexNet(settings.channels, settings.hidden)


def small_cnn(settings: ImageSettings) -> SmallCNN:
    """A network for 8x8 images."""
    return SmallCNN(settings.channels, settings.hidden)


def cifar10(settings: ImageSettings, data: Path) -> ImageTask:
    """CIFAR-10 with AlexNet."""
    return ImageTask(settings, partial(load_cifar10, data), alexnet, CIFAR10_MEAN, CIFAR10_STD)


def digits(settings: ImageSettings, data: Path) -> ImageTask:
    """scikit-learn's digits with a small CNN: nothing to download."""
    return ImageTask(settings, load_digits, small_cnn, (0.305,), (0.376,))


UNITS = {"cutout_length": "pixels"}

ENTRIES = {
    "cifar10": TaskEntry(ImageSettings, cifar10, "CIFAR-10", "nats", hyperparameter_units=UNITS),
    "digits": TaskEntry(ImageSettings, digits, "digits", "nats", hyperparameter_units=UNITS),
}
