"""The ST-LSTM against the same LSTM on torch's kernels; both with the fused softmax and all dropouts."""

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
from benchmarks.models.language_model import PLAIN_LAYERS, LanguageModel

CLIP = 0.25
RATES = ("input_dropout", "hidden_dropout", "output_dropout", "embedding_dropout", "weight_dropout")
PENALTIES = ("alpha", "beta")
PER_BATCH = ["embedding_dropout", "weight_dropout", *PENALTIES]


@dataclass(frozen=True)
class Size:
    """Of the model and its batches."""

    vocabulary: int
    hidden: int
    batch: int
    time_steps: int

    def words(self, batch: int | None = None) -> Tensor:
        """Random text."""
        return torch.randint(0, self.vocabulary, (self.time_steps + 1, batch or self.batch))

    def plain(self) -> LanguageModel:
        """The model at fixed hyperparameters."""
        model = LanguageModel(self.vocabulary, self.hidden)
        stn.fix(model, dict.fromkeys((*RATES, *PENALTIES), 0.05))
        return model

    def tuner(self, n: int = 7, **options: Any) -> stn.SelfTuner:
        """The self-tuned model; hyperparameters beyond the paper's 7 are weights of a penalty that is a constant."""
        extra = [f"extra{k}" for k in range(n - 7)]
        space = dict.fromkeys(RATES, tune.uniform(0, 0.95)) | dict.fromkeys((*PENALTIES, *extra), tune.uniform(0, 4))
        init = dict.fromkeys(space, 0.05)
        hyper = stn.Hyper(space, init, scale=1.0, tune_scale=False, per_batch=[*PER_BATCH, *extra])
        model = stn.self_tune(LanguageModel(self.vocabulary, self.hidden), hyper, exclude=PLAIN_LAYERS)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        return stn.SelfTuner(model, hyper, optimizer, clip=CLIP, batch_size=lambda b: b.shape[1], **options)


SIZES = {"paper": Size(10_000, 650, 40, 70), "smoke": Size(50, 8, 4, 5)}


def loss(model: nn.Module, words: Tensor, hp: Mapping[str, Any]) -> Tensor:
    """The language model's, with the two penalties on activations; every further hyperparameter is added."""
    assert isinstance(model, LanguageModel)
    dropped, raw, _ = model(words[:-1])
    value = model.loss(dropped, words[1:])
    if model.training:
        value = value + stn.nn.activation_reg(dropped, hp.get("alpha", 0.05))
        value = value + stn.nn.temporal_activation_reg(raw, hp.get("beta", 0.05))
        extra = [hp[name] for name in hp if name.startswith("extra")]
        if extra:
            value = value + 1e-3 * torch.stack(extra).sum()
    return value


def steps(size: str) -> Iterator[Comparison]:
    """Weight steps, hyperparameter steps, and epochs of both."""
    setting = SIZES[size]
    words, plain = setting.words(), setting.plain()
    example, shared = setting.tuner(draw="example"), setting.tuner()
    tokens, hidden = setting.batch * setting.time_steps, setting.hidden
    limit = limits(tokens * 2 * 8 * hidden * hidden, tokens * hidden * setting.vocabulary)
    moved = traffic(2 * 8 * hidden * hidden, hidden * setting.vocabulary, clip=True, momentum=False)
    weight, hyper, own = "ST-LSTM weight step", "ST-LSTM hyper step", "ST-LSTM weight, per example"
    cases = [
        SpeedCase(weight, partial(shared.train_step, loss, words), 1.05, limit["weight, one ε"], moved["weight"]),
        SpeedCase(hyper, partial(shared.valid_step, loss, words), 0.80, limit["hyper, one λ"], moved["hyper"]),
        SpeedCase(own, partial(example.train_step, loss, words), 1.50, limit["weight"]),
    ]
    epochs = [
        Epoch("ST-LSTM epoch 2:1", weight, hyper, 1 / 2, 1.40),
        Epoch("ST-LSTM epoch 4:1", weight, hyper, 1 / 4, 1.40),
        Epoch("ST-LSTM 2:1, per example", own, hyper, 1 / 2, 1.90),
        Epoch("ST-LSTM 4:1, per example", own, hyper, 1 / 4, 1.70),
    ]
    optimizer = torch.optim.SGD(plain.parameters(), lr=1.0)
    yield Comparison("ST-LSTM steps", plain_step(plain, optimizer, loss, words, CLIP), cases, epochs)


def forward(size: str) -> Iterator[Comparison]:
    """Inference outside of steps, where a self-tuned model is the plain one."""
    setting = SIZES[size]
    plain, tuned = setting.plain(), setting.tuner().model
    for batch in (1, 8, setting.batch):
        words = setting.words(batch)
        name = f"ST-LSTM forward, batch {batch}"
        case = SpeedCase(name, forward_step(tuned, words), 1.02, 1.0)
        yield Comparison(name, forward_step(plain, words), [case], repeats=3 if batch == setting.batch else 20)


def growth(size: str) -> Iterator[Comparison]:
    """Steps with many hyperparameters, against the same with the paper's 7."""
    setting = SIZES[size]
    words = setting.words()
    few, *many = (setting.tuner(n) for n in (7, 50, 200))
    for tuner in (few, *many):
        tuner.train_step(loss, words)
    weight = [
        SpeedCase(f"ST-LSTM weight, n = {len(t.hyper.space)}", partial(t.train_step, loss, words), 1.25, 1.0)
        for t in many
    ]
    hyper = [
        SpeedCase(f"ST-LSTM hyper, n = {len(t.hyper.space)}", partial(t.valid_step, loss, words), 1.25, 1.0)
        for t in many
    ]
    yield Comparison("ST-LSTM weight, n = 7", partial(few.train_step, loss, words), weight)
    yield Comparison("ST-LSTM hyper, n = 7", partial(few.valid_step, loss, words), hyper)
