"""Self-tuning in Lightning: one callback, for Trainers of ``lightning`` and of ``pytorch_lightning``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.optim import Optimizer

from stn_tune import rng
from stn_tune.algorithms.tuner import SelfTuner
from stn_tune.hyper import Hyper, HyperSample
from stn_tune.integrations.lightning_steps import Passes, callback_base, check_strategy, valid_batches
from stn_tune.nn.response import required
from stn_tune.stream import Stream
from stn_tune.training import Batch, LossFn

if TYPE_CHECKING:
    Callback = object
else:
    Callback = callback_base()


def hyperparameters(module: Any) -> HyperSample:
    """The hyperparameters of a self-tuned module by name, for ``training_step``: λ+ε in training, λ outside."""
    return required(module).hyper.current


class SelfTuning(Callback):
    """Tunes the hyperparameters of a self-tuned LightningModule while the Trainer fits it.

    ::

        space, bind = stn.dropouts(module)
        hyper = stn.Hyper(space)
        stn.self_tune(module, hyper, bind=bind)  # before fit; at the end of module.setup, if it builds layers there
        trainer = L.Trainer(callbacks=[SelfTuning(hyper, valid_dataloader=valid)])

    ``training_step`` and its backward pass run at λ+ε. After every ``train_steps`` steps of the (first) optimizer come
    ``valid_steps`` hyperparameter steps. In all hooks but ``on_before_zero_grad`` and ``on_before_backward`` the module
    is the plain one at λ. ``hp/<name>``, ``scale/<name>`` and ``step``, the number of weight steps, which loggers take
    for their x-axis, are logged by ``self.log``. Checkpoints hold everything that training continues from: bit for bit
    in one process, if the training loader gives the same batches; with several processes, draws start anew.

    Args:
        hyper: what the module was self-tuned with.
        valid_dataloader: batches for hyperparameter steps, taken in endless passes; a function that returns them; or
            "val", for those of the Trainer's own validation.
        loss: ``loss(module, batch, hp)`` of a hyperparameter step. By default it is that of ``training_step`` (what it
            returns, or its "loss") in eval mode, with ``trainer.validating`` true; what ``self.log`` gets there is
            dropped, and torchmetrics keep their state. Needed with manual optimisation, where ``training_step`` steps.
        algorithm: "stn" or "delta", which computes the loss of a batch twice in every K-th step.
        prog_bar: whether the progress bar shows ``hp/<name>``.
        options: those of :class:`stn_tune.SelfTuner`, such as ``hyper_lr``, ``train_steps`` and ``warmup_steps``.
    """

    tuner: SelfTuner | None = None
    """Of the last fit; its ``schedule`` is what was found."""

    def __init__(
        self,
        hyper: Hyper,
        *,
        valid_dataloader: Iterable[Batch] | Callable[[], Iterable[Batch]] | Literal["val"] | None = None,
        loss: LossFn | None = None,
        algorithm: str = "stn",
        prog_bar: bool = False,
        **options: Any,
    ):
        if valid_dataloader is None or (isinstance(valid_dataloader, str) and valid_dataloader != "val"):
            raise ValueError(
                f"valid_dataloader is {valid_dataloader!r}; hyperparameters are tuned on its batches: give a loader, a "
                f"function that returns one, or 'val' for the Trainer's own validation loader"
            )
        if "clip" in options:
            raise TypeError("clip is no option of SelfTuning: use Trainer(gradient_clip_val=...)")
        self.hyper, self.options = hyper, {"algorithm": algorithm, **options}
        self._valid, self._loss, self._prog_bar = valid_dataloader, loss, prog_bar
        self._module: Any = None
        self._passes: Passes | None = None
        self._stream: Stream | None = None
        self._fitting = False
        self._saved: dict[str, Any] | None = None  # a state that is not loaded yet
        self._done = 0  # the weight steps that hyperparameter steps have been taken for
        self._unlogged = True

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Refuses what cannot be self-tuned."""
        self._fitting = stage == "fit"
        if not self._fitting:
            return
        name, self._saved = type(pl_module).__name__, None
        check_strategy(trainer.strategy)
        if self._module not in (None, pl_module):
            raise ValueError(f"this SelfTuning belongs to another module than this {name}: make a new one, and a Hyper")
        if not pl_module.automatic_optimization and self._loss is None:
            raise ValueError(f"{name} optimises manually: give SelfTuning(loss=...), a function (module, batch, hp)")
        if self.options["algorithm"] == "delta" and getattr(trainer.precision_plugin, "scaler", None) is not None:
            raise ValueError("algorithm is 'delta', whose second pass no scaler scales: use precision='bf16-mixed'")
        if "dataloader_iter" in inspect.signature(pl_module.training_step).parameters:
            raise ValueError(f"training_step of {name} takes dataloader_iter; it must take a batch to be self-tuned")

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Makes the tuner, with the optimizers that Lightning has made."""
        if self._saved is None and trainer.global_step:  # the Trainer goes on with what it has fitted
            self._saved = self.state_dict() or None
        self._module, self._stream, self._done = pl_module, None, 0
        self.tuner = SelfTuner(trainer.strategy.model, self.hyper, trainer.optimizers, **self.options)
        with torch.random.fork_rng(devices=()):  # whatever else draws gets what it would without self-tuning
            seed = int(torch.randint(2**31, ())) + trainer.global_rank
        self._passes, self._seed = Passes(trainer, self.tuner, self._loss, rng.derived(seed, 0)), rng.derived(seed, 1)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Lightning has restored model and optimizers; the rest of a saved state is ours."""
        tuner, passes = self._parts()
        self._stream = Stream(valid_batches(self._valid, trainer), self._seed)
        state, self._saved = self._saved, None
        if state is not None:
            own = {"model": tuner.model.state_dict(), "optimizer": [one.state_dict() for one in tuner.optimizers]}
            tuner.load_state_dict({**state["tuner"], **own, "rng": rng.get_state()})
            self._done = state["done"]
            if trainer.world_size == 1:
                passes.generators.load_state_dict(state["generators"])
                self._stream.load_state_dict(state["valid"])
        self._unlogged = True
        passes.begin()

    def _parts(self) -> tuple[SelfTuner, Passes]:
        assert self.tuner is not None
        assert self._passes is not None
        return self.tuner, self._passes

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """The module is the plain one again."""
        self._parts()[1].after_backward()

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Optimizer) -> None:
        """The module is the plain one, also with manual optimisation."""
        self._parts()[1].before_step(optimizer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        """Hyperparameter steps where they are due, and what is logged."""
        tuner, passes = self._parts()
        every, steps, o = tuner.options.train_steps, tuner.weight_steps, tuner.options
        due, self._done = (steps // every - self._done // every) * o.valid_steps, steps
        if due and steps >= o.warmup_steps:
            assert self._stream is not None
            for _ in range(due):
                passes.tune(next(self._stream))
            self._unlogged = True
        if not trainer.barebones:
            self._log(pl_module, steps)

    def _log(self, pl_module: Any, steps: int) -> None:
        """Lightning keeps what was logged until the epoch ends, and a call costs it a millisecond or so."""
        pl_module.log("step", float(steps))
        if self._unlogged:
            now, names = self.hyper.mean(), self.hyper.space.names  # tensors, so that nothing waits for the device
            values = {f"hp/{name}": torch.as_tensor(now[name], dtype=torch.float32) for name in names}
            scales = zip(names, self.hyper.sigma.unbind(), strict=True)
            pl_module.log_dict(values, prog_bar=self._prog_bar)
            pl_module.log_dict({f"scale/{name}": scale for name, scale in scales})
        self._unlogged = False

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """What was logged is forgotten."""
        self._unlogged = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The strategy is as it was."""
        self._parts()[1].end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The module is the plain one, the strategy as it was."""
        if self._passes is not None:
            self._passes.end(exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Bound dropouts hold the values at the final λ."""
        if self.tuner is not None and stage == "fit":
            required(pl_module).settle()

    def state_dict(self) -> dict[str, Any]:
        """What Lightning does not save."""
        if self.tuner is None or self._passes is None or self._stream is None:
            return self._saved or {}
        own = {k: v for k, v in self.tuner.state_dict().items() if k not in ("model", "optimizer", "rng")}
        generators, valid = self._passes.generators.state_dict(), self._stream.state_dict()
        return {"tuner": own, "done": self._done, "generators": generators, "valid": valid}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Kept until the optimizers are there."""
        if self._fitting:
            self._saved = state_dict
