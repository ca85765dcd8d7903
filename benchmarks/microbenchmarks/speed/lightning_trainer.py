"""Epochs of Lightning's Trainer, plain and self-tuned, against loops of one's own on the same model and data."""

from __future__ import annotations

import copy
import logging
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import stn_tune as stn
from benchmarks.microbenchmarks.speed.timing import Comparison, SpeedCase

TARGET = 1.05


@dataclass(frozen=True)
class Perceptron:
    """A perceptron with a dropout after each hidden layer, and an epoch of batches for it."""

    width: int
    batch: int
    steps: int

    def model(self) -> nn.Sequential:
        """At the paper's size, a weight step takes some 20 ms on a core."""
        w = self.width
        hidden = [nn.Linear(784, w), nn.ReLU(), nn.Dropout(0.1), nn.Linear(w, w), nn.ReLU(), nn.Dropout(0.1)]
        return nn.Sequential(*hidden, nn.Linear(w, 10))

    def batches(self) -> list[tuple[Tensor, Tensor]]:
        """Random pictures and labels."""
        return [(torch.randn(self.batch, 784), torch.randint(0, 10, (self.batch,))) for _ in range(self.steps)]


SIZES = {"paper": Perceptron(512, 256, 20), "smoke": Perceptron(16, 8, 8)}


def loss(model: Any, batch: tuple[Tensor, Tensor], hp: Any = None) -> Tensor:
    """Of the own loops, and of the module's ``training_step``."""
    return F.cross_entropy(model(batch[0]), batch[1])


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """The same everywhere."""
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def epochs(size: str) -> Iterator[Comparison]:
    """Lightning against own loops: plain models, then self-tuned ones, T_train : T_valid of 4:1."""
    from stn_tune.integrations.lightning import SelfTuning

    work = SIZES[size]
    train, valid = work.batches(), work.batches()
    loader: DataLoader[Any] = DataLoader(train, batch_size=None)  # type: ignore[arg-type]  # as the Trainer's
    plain = work.model()
    optimizer = optimizer_of(plain)

    def plain_epoch() -> None:
        for batch in loader:
            optimizer.zero_grad()
            torch.autograd.backward([loss(plain, batch)])
            optimizer.step()

    epochs = _Epochs(_module(copy.deepcopy(plain)), train, [])
    yield Comparison("plain Lightning", plain_epoch, [SpeedCase("Lightning, plain epoch", epochs.step, TARGET)])

    model = work.model()
    space, bind = stn.dropouts(model)
    hyper = stn.Hyper(space)
    tuner = stn.SelfTuner(stn.self_tune(model, hyper, bind=bind), hyper, optimizer_of(model))
    module = _module(copy.deepcopy(plain))
    space, bind = stn.dropouts(module)
    own = stn.Hyper(space)
    stn.self_tune(module, own, bind=bind)
    epochs = _Epochs(module, train, [SelfTuning(own, valid_dataloader=valid)])
    case = SpeedCase("Lightning, self-tuned epoch", epochs.step, TARGET)
    yield Comparison("self-tuned Lightning", lambda: tuner.epoch(loss, loader, valid), [case])


def _module(model: nn.Module) -> Any:
    import lightning.pytorch as L

    class Module(L.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            return self.model(x)  # type: ignore[no-any-return]

        def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
            return loss(self, batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer_of(self)

    return Module()


class _Epochs:
    """A Trainer that fits in a thread of its own, one epoch at a time: what starts a fit is not timed."""

    def __init__(self, module: Any, batches: Any, callbacks: list[Any]):
        self._module, self._batches, self._callbacks = module, batches, callbacks
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._threads = torch.get_num_threads()
        self._fitting: threading.Thread | None = None
        self._error: BaseException | None = None

    def step(self) -> None:
        """One epoch, from its start to the start of the next."""
        if self._fitting is None:
            self._fitting = threading.Thread(target=self._fit, daemon=True)
            self._fitting.start()
            self._done.acquire()
        self._go.release()
        self._done.acquire()
        if self._error is not None:
            raise self._error

    def _fit(self) -> None:
        import lightning.pytorch as L

        torch.set_num_threads(self._threads)
        logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.ERROR)
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                callbacks = [*self._callbacks, self._pausing(L)]
                trainer = L.Trainer(max_epochs=-1, accelerator="cpu", logger=False, callbacks=callbacks, **quiet)
                trainer.fit(self._module, DataLoader(self._batches, batch_size=None))
        except BaseException as error:  # told in the thread that waits
            self._error = error
            self._done.release()

    def _pausing(self, package: Any) -> Any:
        """A callback that waits at the start of every epoch."""
        go, done = self._go, self._done

        class Pausing(package.Callback):  # type: ignore[misc]
            def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
                done.release()
                go.acquire()

        return Pausing()
