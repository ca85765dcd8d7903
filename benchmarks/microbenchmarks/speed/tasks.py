"""Augmentation and evaluation as the benchmark's tasks do them, against the same without self-tuning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

import stn_tune as stn
from benchmarks.microbenchmarks.speed.timing import Comparison, SpeedCase, plain_step

PRESETS = {"paper": "small", "smoke": "smoke"}


def augmentation(size: str) -> Iterator[Comparison]:
    """Augmentation of the CIFAR-10 task on random pictures, against its plain training step."""
    task, plain, tuned = _images(PRESETS[size])
    x, y = torch.randint(0, 256, (128, 3, 32, 32), dtype=torch.uint8), torch.randint(0, 10, (128,))
    strengths = tuned.hyper.sample(128)
    step = plain_step(
        plain.model,
        plain.optimizer,
        lambda model, batch, _: task.loss(model, batch, plain.source.current),
        (x, y),
        None,
    )
    name = "CIFAR-10 augmentation"
    yield Comparison(name, step, [SpeedCase(name, lambda: task.inputs(x, strengths, training=True), 0.15)])


def evaluation(size: str) -> Iterator[Comparison]:
    """Evaluating a self-tuned model of the CIFAR-10 task against evaluating the plain one."""
    task, plain, tuned = _images(PRESETS[size])
    batches = [(torch.randint(0, 256, (128, 3, 32, 32), dtype=torch.uint8), torch.randint(0, 10, (128,)))] * 10
    name = "STN evaluation, CIFAR-10"
    case = SpeedCase(name, lambda: task.evaluate(tuned, batches), 1.10, 1.0)
    yield Comparison(name, lambda: task.evaluate(plain, batches), [case])


def language_evaluation(size: str) -> Iterator[Comparison]:
    """The same for the language model."""
    from benchmarks.data.ptb import Corpus
    from benchmarks.tasks.language import LanguageSettings, LanguageTask
    from benchmarks.tasks.settings import load_settings

    settings = load_settings("ptb", PRESETS[size], LanguageSettings)
    tokens = torch.randint(0, settings.vocabulary, (5_000,))
    task = LanguageTask(settings, lambda: Corpus(tokens, tokens, tokens, [str(i) for i in range(settings.vocabulary)]))
    plain, tuned, loaders = _trainers(task)
    name = "STN evaluation, PTB"
    case = SpeedCase(name, lambda: task.evaluate(tuned, loaders.valid), 1.10, 1.0)
    yield Comparison(name, lambda: task.evaluate(plain, loaders.valid), [case])


def _images(preset: str) -> tuple[Any, Any, Any]:
    from benchmarks.data.cifar10 import Images
    from benchmarks.tasks.images import CIFAR10_MEAN, CIFAR10_STD, ImageSettings, ImageTask, alexnet
    from benchmarks.tasks.settings import load_settings

    settings = load_settings("cifar10", preset, ImageSettings)
    x, y = torch.zeros(500, 3, 32, 32, dtype=torch.uint8), torch.zeros(500, dtype=torch.long)
    task = ImageTask(settings, lambda: Images(x, y, x, y), alexnet, CIFAR10_MEAN, CIFAR10_STD)
    plain, tuned, _ = _trainers(task)
    return task, plain, tuned


def _trainers(task: Any) -> tuple[Any, Any, stn.Loaders]:
    """A task's plain and self-tuned trainer, as its trainables make them."""
    settings = task.settings
    fixed = stn.FixedTrainable.of(task)(config=settings.initial())
    tuned = stn.STNTrainable.of(task, space=settings.domains(), **settings.stn_options())(config={})
    return fixed._trainer, tuned._trainer, fixed._loaders
