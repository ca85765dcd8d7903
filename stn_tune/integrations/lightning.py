"""Self-tuning in Lightning: one callback, for Trainers of ``lightning`` and of ``pytorch_lightning``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch

from stn_tune.algorithms.tuner import SelfTuner
from stn_tune.hyper import Hyper, HyperSample
from stn_tune.integrations import lightning_checks as checks
from stn_tune.integrations.packages import found_in
from stn_tune.integrations.state import Draws, load_own_state, own_state
from stn_tune.integrations.steps import Passes, hyper_steps_due, metrics_kept
from stn_tune.nn.response import required
from stn_tune.training import Batch, LossFn

__all__ = ["SelfTuning", "hyperparameters"]

PACKAGES = {"lightning": "lightning.pytorch", "pytorch-lightning": "pytorch_lightning"}
Callback: Any = object
if not TYPE_CHECKING:  # a Trainer takes callbacks of its own package alone
    Callback = type("Callback", found_in("lightning", "2.5", PACKAGES, "Callback"), {})


def hyperparameters(module: Any) -> HyperSample:
    """The hyperparameters of a self-tuned module by name, for ``training_step``: λ+ε in training, λ outside."""
    return required(module).hyper.current


class SelfTuning(Callback):  # type: ignore[misc]
    """Tunes the hyperparameters of a self-tuned LightningModule while the Trainer fits it.

    ::

        space, bind = stn.dropouts(module)
        hyper = stn.Hyper(space)
        stn.self_tune(module, hyper, bind=bind)  # before fit; at the end of module.setup, if it builds layers there
        trainer = L.Trainer(callbacks=[SelfTuning(hyper, valid_dataloader=valid)])

    ``training_step`` runs at λ+ε until its backward pass is over. After every ``train_steps`` steps of the (first)
    optimizer come ``valid_steps`` hyperparameter steps. In all hooks but ``on_before_zero_grad`` and
    ``on_before_backward`` the module is the plain one at λ. ``hp/<name>``, ``scale/<name>`` and ``step``, the number of
    weight steps (the loggers' x-axis), are logged. Checkpoints hold everything that training continues from, bit for
    bit, if the training loader gives the same batches. With another number of processes draws start anew.

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

    tuner: SelfTuner = None  # type: ignore[assignment]  # until training starts
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
        checks.check_arguments(valid_dataloader, options)
        self.hyper, self.options = hyper, {"algorithm": algorithm, **options}
        self._valid: Any = valid_dataloader
        self._loss, self._prog_bar = loss, prog_bar
        self._saved: dict[str, Any] = {}  # a state that is not loaded yet
        self._undo = ExitStack()  # after a fit
        self._version, self._logged = 0, dict[str, torch.Tensor]()  # of λ, and what was logged then

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Refuses what cannot be self-tuned."""
        self._saved = {}
        if stage == "fit":
            checks.check_strategy(trainer.strategy)
            checks.check_module(pl_module, has_loss=self._loss is not None)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Lightning has restored model and optimizers; the rest of a saved state is ours."""
        state = self._saved or (self.state_dict() if trainer.global_step else {})  # a Trainer may go on after a fit
        self._trainer, self._module, self._logged = trainer, pl_module, {}
        tuner = SelfTuner(trainer.strategy.model, self.hyper, trainer.optimizers, **self.options)
        with torch.random.fork_rng(devices=()):  # whatever else draws gets what it would without self-tuning
            draws = Draws(self._valid_batches(), int(torch.randint(2**31, ())) + trainer.global_rank)
        if state:
            load_own_state(tuner, state["tuner"])
            draws.load_state_dict(state["draws"], trainer.global_rank, trainer.world_size)
        self.tuner, self._draws, self._passes = tuner, draws, Passes(tuner, draws.passes)
        self._undo.push(self._passes)
        if not pl_module.automatic_optimization:
            self._passes.follow_forward()
        self._undo.callback(vars(trainer.strategy).pop, "training_step")
        trainer.strategy.training_step = partial(self._training_step, trainer.strategy.training_step)

    def _valid_batches(self) -> Iterable[Batch]:
        trainer, given = self._trainer, self._valid
        if not isinstance(given, str):
            return given() if callable(given) else given  # type: ignore[no-any-return]
        if trainer.enable_validation:
            trainer.validating = True
            trainer.fit_loop.epoch_loop.val_loop.setup_data()
            trainer.training = True
        return checks.only(trainer.val_dataloaders)  # type: ignore[no-any-return]

    def _training_step(self, plain: Callable[..., Any], batch: Batch, *rest: Any) -> Any:
        """At λ+ε; with automatic optimisation, it stays in force until the backward pass is over."""
        self._rest, self._before = rest, self.tuner.weight_steps
        with self._passes.of(batch, until_left=self._module.automatic_optimization):
            return plain(batch, *rest)

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """The module is the plain one again; Δ-STN trains the responses, in a pass of their own."""
        self._passes.leave()
        self._passes.respond(self._part_of_loss)

    def on_before_optimizer_step(self, *_: Any) -> None:
        """After a batch that ``training_step`` skipped there was no backward pass."""
        self._passes.leave()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Hyperparameter steps where they are due, and what is logged."""
        self._passes.leave()
        for _step in range(hyper_steps_due(self.tuner, self._before)):
            self._tune(trainer, trainer.precision_plugin)
        if not trainer.barebones:
            self._log(trainer, pl_module)

    def _log(self, trainer: Any, pl_module: Any) -> None:
        """By ``log`` in the first batch, later past it, as it takes long. Tensors: nothing waits for the device."""
        hyper, first = self.hyper, not self._logged
        if first or self._version != hyper.lam._version:
            self._version, now, sigma = hyper.lam._version, hyper.mean(), hyper.sigma
            self._logged = {f"hp/{name}": torch.as_tensor(now[name], dtype=torch.float32) for name in hyper.index}
            self._logged |= {f"scale/{name}": sigma[k] for name, k in hyper.index.items()}
        for name, value in [*self._logged.items(), ("step", hyper.lam.new_full((), self.tuner.weight_steps))]:
            if first:
                pl_module.log(name, value, prog_bar=self._prog_bar and name.startswith("hp/"))
            else:
                trainer._results.update_metrics(f"on_train_batch_end.{name}", value, 1)

    def _tune(self, trainer: Any, precision: Any) -> None:
        """A hyperparameter step; hooks and ``training_step`` find the Trainer validating."""
        trainer.validating = True
        try:
            batch = precision.convert_input(next(self._draws.batches))
            batch = self._module._on_before_batch_transfer(batch, dataloader_idx=0)
            batch = trainer.strategy.batch_to_device(batch, dataloader_idx=0)
            with self._draws.passes.lent():
                self.tuner.valid_step(self._quiet_loss, batch, getattr(precision, "scaler", None))
        finally:
            trainer.training = True

    def _quiet_loss(self, _: Any, batch: Batch, hp: Any) -> Any:
        """The user's loss, or that of ``training_step``, without a trace in logs and metrics."""
        self._module.log = lambda *_, **__: None
        try:
            with metrics_kept(self._module), self._trainer.precision_plugin.train_step_context():
                if self._loss is not None:
                    return self._loss(self._module, batch, hp)
                output = self._module.training_step(batch, *self._rest)
        finally:
            del self._module.log
        return output.get("loss") if isinstance(output, Mapping) else output

    def _part_of_loss(self, *args: Any) -> Any:
        """As Lightning scales it before the backward pass."""
        loss = self._quiet_loss(*args) / self._trainer.accumulate_grad_batches
        scaler = getattr(self._trainer.precision_plugin, "scaler", None)
        return loss if scaler is None else scaler.scale(loss)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The module is the plain one, the strategy as it was."""
        self._undo.__exit__(type(exception), exception, exception.__traceback__)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """The strategy is as it was, bound dropouts hold the values at the final λ."""
        self._undo.close()
        if stage == "fit":
            required(pl_module).settle()

    def state_dict(self) -> dict[str, Any]:
        """What Lightning does not save."""
        if self.tuner is None:
            return {}
        return {"tuner": own_state(self.tuner), "draws": self._draws.state_dict(self._trainer.world_size)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Kept until the optimizers are there."""
        self._saved = state_dict
