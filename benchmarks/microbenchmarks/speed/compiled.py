"""Steps of compiled models: the self-tuned one against the plain one, both through torch.compile, and each eager."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

import stn_tune as stn
from benchmarks.errors import SettingsError
from benchmarks.microbenchmarks.speed import cnn, lstm
from benchmarks.microbenchmarks.speed.timing import Comparison, SpeedCase, plain_step

Loss = Callable[[Any, Any, Mapping[str, Any]], torch.Tensor]


def steps(size: str) -> Iterator[Comparison]:
    """Weight and hyperparameter steps of both models."""
    if not (shutil.which("g++") or shutil.which("clang++")):
        raise SettingsError("torch.compile needs a C++ compiler, and there is none: leave out --only compile")
    image = cnn.SIZES[size]
    pictures = torch.randn(image.batch, 3, 32, 32), torch.randint(0, 10, (image.batch,))
    plain = image.plain()
    yield _comparison("ST-CNN", plain, cnn.optimizer_of(plain), image.tuner, cnn.loss, pictures, None)
    text = lstm.SIZES[size]
    model = text.plain()
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    yield _comparison("ST-LSTM", model, sgd, text.tuner, lstm.loss, text.words(), lstm.CLIP)


def _comparison(
    name: str,
    plain: nn.Module,
    optimizer: torch.optim.Optimizer,
    tuner: Callable[[], stn.SelfTuner],
    loss: Loss,
    batch: Any,
    clip: float | None,
) -> Comparison:
    eager, compiled = tuner(), tuner()
    plain.compile()
    compiled.model.compile()
    compiled = stn.SelfTuner(
        compiled.model, compiled.hyper, compiled.optimizer, clip=compiled.clip, batch_size=compiled.batch_size
    )
    cases = [
        SpeedCase(f"{name} compiled, weight step", partial(compiled.train_step, loss, batch), 1.15),
        SpeedCase(f"{name} compiled, hyper step", partial(compiled.valid_step, loss, batch), 1.05),
        SpeedCase(f"{name} eager, weight step", partial(eager.train_step, loss, batch), 1.30),
    ]
    return Comparison(f"{name} compiled", plain_step(plain, optimizer, loss, batch, clip), cases)
