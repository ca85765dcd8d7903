"""Epochs of Transformers' Trainer, plain and self-tuned, against loops of one's own on the same model and data."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Semaphore, Thread
from typing import Any

import torch
from torch.utils.data import DataLoader

import stn_tune as stn
from benchmarks.microbenchmarks.speed.timing import Comparison, SpeedCase, Step

WORDS, BATCH = 1000, 8
RATE, CLIP = 1e-4, 1.0


@dataclass(frozen=True)
class Size:
    """A GPT-2 and the number of weight steps in an epoch."""

    width: int
    layers: int
    length: int
    steps: int

    def model(self) -> Any:
        """From a config: nothing is downloaded."""
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(
            vocab_size=WORDS, n_positions=self.length, n_embd=self.width, n_layer=self.layers, n_head=4, bos_token_id=0,
            eos_token_id=0,
        )  # fmt: skip
        return GPT2LMHeadModel(config)

    def data(self) -> list[dict[str, torch.Tensor]]:
        """One epoch of random words."""
        words = torch.randint(0, WORDS, (self.steps * BATCH, self.length))
        return [{"input_ids": row, "labels": row} for row in words]


SIZES = {"paper": Size(128, 4, 64, 20), "smoke": Size(16, 1, 8, 4)}


def epochs(size: str) -> Iterator[Comparison]:
    """Self-tuned epochs of the Trainer against those of ``tuner.epoch``; plain ones against those of a plain loop.

    The second shows what the Trainer itself costs.
    """
    own = SIZES[size]
    train, tuning = own.data(), own.data()
    with tempfile.TemporaryDirectory() as folder:
        with _trainer(own, folder, train, tuning) as epoch:
            case = SpeedCase("Transformers: self-tuned epoch", epoch, 1.05)
            yield Comparison("Transformers, self-tuned", _self_tuned_loop(own, train, tuning), [case])
        with _trainer(own, folder, train) as epoch:
            case = SpeedCase("Transformers: plain epoch", epoch, 1.05)
            yield Comparison("Transformers, plain", _plain_loop(own, train), [case])


def _plain_loop(size: Size, train: list[Any]) -> Step:
    model = size.model().train()
    optimizer, loader = _optimizer(model), _loader(train)

    def epoch() -> None:
        for batch in loader:
            model(**batch).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()

    return epoch


def _self_tuned_loop(size: Size, train: list[Any], tuning: list[Any]) -> Step:
    model = size.model().train()
    space, bind = stn.dropouts(model)
    hyper = stn.Hyper(space)
    stn.self_tune(model, hyper, bind=bind)
    tuner, valid = stn.SelfTuner(model, hyper, _optimizer(model), clip=CLIP), _loader(tuning)
    return lambda: tuner.epoch(lambda m, batch, hp: m(**batch).loss, _loader(train), valid)


def _loader(data: Any) -> DataLoader[Any]:
    return DataLoader(data, BATCH, shuffle=True)


def _optimizer(model: Any) -> torch.optim.Optimizer:
    """The Trainer's default."""
    return torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0, fused=True)


@contextmanager
def _trainer(size: Size, folder: str, train: list[Any], tuning: list[Any] | None = None) -> Iterator[Step]:
    """One epoch of a Trainer per call. It trains in a thread, which waits between epochs: to start costs extra."""
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments
    from transformers.utils import logging

    from stn_tune.integrations.huggingface import SelfTuningTrainer

    logging.set_verbosity_error()
    go, done, failures = Semaphore(0), Semaphore(0), list[BaseException]()

    class Wait(TrainerCallback):  # type: ignore[misc]
        def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            go.acquire()
            return control

        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            control.should_training_stop = ended
            done.release()
            return control

    args = TrainingArguments(
        folder, num_train_epochs=1_000_000, per_device_train_batch_size=BATCH, learning_rate=RATE, max_grad_norm=CLIP,
        lr_scheduler_type="constant", logging_strategy="no", save_strategy="no", report_to="none", use_cpu=True,
        disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip
    given: dict[str, Any] = {"model": size.model(), "args": args, "train_dataset": train, "callbacks": [Wait()]}
    if tuning is None:
        trainer = Trainer(**given)
    else:
        space, bind = stn.dropouts(given["model"])
        trainer = SelfTuningTrainer(**given, hyper=stn.Hyper(space), bind=bind, tuning_dataset=tuning)
    trainer.remove_callback(PrinterCallback)
    ended, threads = False, torch.get_num_threads()

    def run() -> None:
        torch.set_num_threads(threads)
        try:
            trainer.train()
        except BaseException as error:
            failures.append(error)
            done.release()

    def epoch() -> None:
        go.release()
        done.acquire()
        if failures:
            raise failures[0]

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield epoch
    finally:
        ended = True
        go.release()
        thread.join()
