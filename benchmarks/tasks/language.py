"""Word-level language modelling with seven hyperparameters: Section 4.2 and appendix D."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

import stn_tune as stn
from benchmarks.data.embedded import load_pydoc
from benchmarks.data.ptb import Corpus, load_ptb
from benchmarks.models.language_model import PLAIN_LAYERS, LanguageModel, State
from benchmarks.tasks import TaskEntry
from benchmarks.tasks.plateau import decay_on_plateau
from benchmarks.tasks.settings import Settings
from stn_tune.training import Trainer

IGNORED = -100


@dataclass(frozen=True, kw_only=True)
class LanguageSettings(Settings):
    """Of a word-level language model."""

    vocabulary: int
    """The most frequent words; all others are one."""
    layers: int
    """Of the LSTM."""
    sequence: int
    """Steps of backpropagation through time."""
    clip: float
    """The largest norm of a gradient."""
    tokens: int | None = None
    """Training tokens; None: all."""
    valid_tokens: int | None = None
    """Validation tokens; None: all."""
    test_tokens: int | None = None
    """Test tokens; None: all."""

    def check(self) -> None:
        """Sizes must be positive; a text needs a word and the word after it."""
        super().check()
        self.require_at_least(1, "vocabulary", "layers", "sequence")
        self.require_at_least(2, "tokens", "valid_tokens", "test_tokens")

    def cuts(self) -> dict[str, int | None]:
        """How much of a corpus is read."""
        names = ("vocabulary", "tokens", "valid_tokens", "test_tokens")
        return {name: getattr(self, name) for name in names}


class Chunk(NamedTuple):
    """``sequence`` steps of ``batch`` parallel texts: words and the words that follow, both ``(time, batch)``."""

    words: Tensor
    targets: Tensor
    stream: str
    first: bool


@dataclass
class Text:
    """A split of the corpus as parallel texts, cut into consecutive chunks.

    The last chunk is shorter, and where the tokens do not fill all texts, the missing targets are ignored: every
    token of the split is predicted exactly once.
    """

    tokens: Tensor
    batch: int
    sequence: int
    stream: str

    def __iter__(self) -> Iterator[Chunk]:
        inputs, targets = self.tokens[:-1], self.tokens[1:]
        steps = math.ceil(len(inputs) / self.batch)
        padding = steps * self.batch - len(inputs)
        inputs = torch.nn.functional.pad(inputs, (0, padding)).view(self.batch, steps).t().contiguous()
        targets = torch.nn.functional.pad(targets, (0, padding), value=IGNORED).view(self.batch, steps).t().contiguous()
        for start in range(0, steps, self.sequence):
            rows = slice(start, start + self.sequence)
            yield Chunk(inputs[rows], targets[rows], self.stream, start == 0)

    def __len__(self) -> int:
        return math.ceil(math.ceil((len(self.tokens) - 1) / self.batch) / self.sequence)


class LanguageTask(stn.Task):
    """An LSTM on a corpus; the hidden state is carried from chunk to chunk."""

    def __init__(self, settings: LanguageSettings, corpus: Callable[[], Corpus]):
        self.settings = settings
        self.clip = settings.clip
        self._read = corpus
        self._corpus: Corpus | None = None
        self._states: dict[str, State] = {}

    def corpus(self) -> Corpus:
        """Read when it is first needed, so that a task travels to its workers without the data."""
        if self._corpus is None:
            self._corpus = self._read()
        return self._corpus

    def loaders(self, config: Mapping[str, Any]) -> stn.Loaders:
        """The same splits for every method and seed."""
        corpus, s = self.corpus(), self.settings
        return stn.Loaders(
            **{name: Text(getattr(corpus, name), s.batch_size, s.sequence, name) for name in ("train", "valid", "test")}
        )

    def model(self, config: Mapping[str, Any]) -> LanguageModel:
        """The LSTM of the settings."""
        return LanguageModel(len(self.corpus().words), self.settings.hidden, self.settings.layers)

    def convert(self, model: nn.Module, hyper: stn.Hyper) -> nn.Module:
        """All layers but the tied embedding respond."""
        return stn.self_tune(model, hyper, exclude=PLAIN_LAYERS)

    def optimizer(self, model: nn.Module, config: Mapping[str, Any]) -> Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(model.parameters(), lr=config.get("lr", self.settings.lr))

    def scheduler(self, optimizer: Optimizer, config: Mapping[str, Any]) -> LRScheduler:
        """Decays the learning rate when the validation loss stalls."""
        return decay_on_plateau(optimizer, self.settings)

    def stop(self, val_losses: Sequence[float], optimizer: Optimizer, config: Mapping[str, Any]) -> bool:
        """When the learning rate is below ``lr_min``."""
        return bool(optimizer.param_groups[0]["lr"] < self.settings.lr_min)

    def loss(self, model: nn.Module, batch: Chunk, hp: Mapping[str, Any]) -> Tensor:
        """Cross-entropy of the next words; in training with α and β on the activations."""
        assert isinstance(model, LanguageModel)
        state = None if batch.first else self._states.get(batch.stream)
        dropped, raw, self._states[batch.stream] = model(batch.words, state)
        loss = model.loss(dropped, batch.targets)
        if model.training:
            loss = loss + stn.nn.activation_reg(dropped, hp["alpha"])
            loss = loss + stn.nn.temporal_activation_reg(raw, hp["beta"])
        return loss

    def evaluate(self, trainer: Trainer, batches: Iterable[Chunk]) -> dict[str, float]:
        """Loss per token and perplexity."""
        total, count = 0.0, 0
        with self._own_states(), trainer.evaluation() as hp:
            for batch in batches:
                tokens = int((batch.targets != IGNORED).sum())
                total += float(self.loss(trainer.model, batch, hp)) * tokens
                count += tokens
        loss = total / count
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}

    @contextmanager
    def _own_states(self) -> Iterator[None]:
        """Evaluation starts from nothing, and leaves the training's hidden states alone."""
        before, self._states = self._states, {}
        try:
            yield
        finally:
            self._states = before

    def batch_size(self, batch: Chunk) -> int:
        """The number of parallel texts."""
        return batch.words.shape[1]

    def state_dict(self) -> dict[str, Any]:
        """The hidden states."""
        return {"states": dict(self._states)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues with saved hidden states."""
        self._states = dict(state["states"])


def ptb(settings: LanguageSettings, data: Path) -> LanguageTask:
    """Penn Treebank, Mikolov's split."""
    return LanguageTask(settings, partial(load_ptb, data, **settings.cuts()))


def pydoc(settings: LanguageSettings, data: Path) -> LanguageTask:
    """The text of Python's own documentation topics: nothing to download."""
    return LanguageTask(settings, partial(load_pydoc, **settings.cuts()))


TITLES = {"alpha": "α", "beta": "β"}

ENTRIES = {
    "ptb": TaskEntry(LanguageSettings, ptb, "Penn Treebank", "nats per token", TITLES),
    "pydoc": TaskEntry(LanguageSettings, pydoc, "Python documentation", "nats per token", TITLES),
}
