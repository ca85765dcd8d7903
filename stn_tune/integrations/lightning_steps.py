"""Lightning's training step at λ+ε, and what else the callback asks of a Trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from stn_tune import rng
from stn_tune.algorithms.tuner import SelfTuner
from stn_tune.hyper import HyperSample
from stn_tune.integrations.packages import require
from stn_tune.nn.response import required
from stn_tune.training import Batch, LossFn

PACKAGES = {"lightning": "lightning.pytorch", "pytorch-lightning": "pytorch_lightning"}
LOWEST = "2.5"


def callback_base() -> type:
    """The Callback of both packages, as far as they are there: a Trainer takes those of its own package alone."""
    found, errors = [], []
    for package, module in PACKAGES.items():
        try:
            require("lightning", **{package: LOWEST})
        except ImportError as error:
            errors.append(error)
        else:
            found.append(import_module(module).Callback)
    if not found:
        raise errors[0]
    return type("Callback", tuple(found), {})


def check_strategy(strategy: Any) -> None:
    """One device, or DistributedDataParallel."""
    kinds = {kind.__name__ for kind in type(strategy).__mro__}
    if "DeepSpeedStrategy" in kinds or not kinds & {"SingleDeviceStrategy", "DDPStrategy"}:
        raise ValueError(
            f"{type(strategy).__name__} exchanges or shards weights, so that their responses would be lost: use "
            f"strategy='ddp', or one device"
        )


class Passes:
    """Puts λ+ε in force for the passes of a Trainer's strategy, and off again where weights move or may be read.

    Draws, dropout's included, are from generators of their own: a resumed run continues them, whatever loaders draw.
    """

    def __init__(self, trainer: Any, tuner: SelfTuner, loss: LossFn | None, seed: int):
        self.trainer, self.tuner, self.generators = trainer, tuner, rng.Private(seed)
        self._module, self._loss = trainer.lightning_module, loss
        self._rest: tuple[Any, ...] = ()  # what Lightning gives training_step after the batch
        self._step: tuple[ExitStack, Batch, HyperSample] | None = None  # the pass that is under way
        self._moved: list[Tensor] = []  # what training_step may move
        self._held: dict[Tensor, Tensor] = {}  # gradients of responses, until the optimizer steps
        self._handles: list[Any] = []

    def begin(self) -> None:
        """The strategy's training step is this one."""
        strategy = self.trainer.strategy
        strategy.training_step = partial(self._training_step, strategy.training_step)
        for one in self.tuner.optimizers:
            self._handles += [one.register_step_pre_hook(self._before_step), one.register_step_post_hook(self._again)]

    def end(self, error: BaseException | None = None) -> None:
        """The strategy's own again; after an error, a pass may be under way."""
        vars(self.trainer.strategy).pop("training_step", None)
        for handle in self._handles:
            handle.remove()
        if self._step is not None:
            stack, *_ = self._step
            stack.__exit__(None if error is None else type(error), error, None)
        self._handles, self._held, self._step = [], {}, None

    def _training_step(self, plain: Callable[..., Any], batch: Batch, *rest: Any) -> Any:
        """With automatic optimisation λ+ε stays in force until the backward pass is over."""
        tuner, self._rest = self.tuner, rest
        every = getattr(tuner.options, "response_every", 1) if getattr(tuner.options, "separate", False) else 0
        with self.generators.lent():
            if every and tuner.weight_steps % every == 0:
                self._respond(batch)
            with ExitStack() as stack:
                if not self._module.automatic_optimization:
                    self._moved = [p for p in self._module.parameters() if p.requires_grad]
                sample = stack.enter_context(tuner.training(batch))
                self._step = stack, batch, sample
                output = plain(batch, *rest)
                self._step = None
                if self._module.automatic_optimization:
                    loss_of(output, self._module)
                    self._step = stack.pop_all(), batch, sample
        return output

    def after_backward(self) -> None:
        """The forward and backward pass of automatic optimisation is over."""
        if self._module.automatic_optimization and self._step is not None:
            (stack, *_), self._step = self._step, None
            stack.close()

    def before_step(self, optimizer: Optimizer) -> None:
        """Gradients are complete, and not yet clipped."""
        for p in [p for group in optimizer.param_groups for p in group["params"] if p in self._held]:
            held = self._held.pop(p)
            p.grad = held if p.grad is None else p.grad + held
        if self._step is not None:  # manual optimisation: weights must not move while λ+ε is in force
            self._step[0].close()

    def _before_step(self, optimizer: Optimizer, args: Any, keywords: Any) -> None:
        if len(args) == 1 and keywords.get("closure") is None:  # Lightning gives a closure, and calls its hook after it
            self.before_step(optimizer)

    def _again(self, *_: Any) -> None:
        """The rest of ``training_step``: the same draw, the weights that have moved."""
        if self._step is not None:
            stack, batch, sample = self._step
            with _trainable(self._moved):  # toggle_optimizer may have frozen what the rest trains
                stack.enter_context(self.tuner.training(batch, sample))

    def _respond(self, batch: Batch) -> None:
        """The pass of Δ-STN that trains the responses; gradients are held, as Lightning zeroes them afterwards."""
        trainer, responses = self.trainer, list(required(self._module).responses.parameters())
        before = [p.grad for p in responses]
        for p in responses:
            p.grad = None
        with self.tuner.responding(batch) as hp:
            loss = self.loss(self._module, batch, hp) / trainer.accumulate_grad_batches
            self.tuner._differentiated(lambda *_: loss, batch, hp)
        for p, old in zip(responses, before, strict=True):
            if p.grad is not None:
                mean = trainer.strategy.reduce(p.grad, reduce_op="mean")
                self._held[p] = mean + self._held[p] if p in self._held else mean
            p.grad = old

    def tune(self, batch: Batch) -> None:
        """A hyperparameter step."""
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        with self.generators.lent(), validating(self.trainer):
            self.tuner.valid_step(self.loss, on_device(self.trainer, batch), scaler)

    def loss(self, _: Any, batch: Batch, hp: Any) -> Tensor:
        """The user's, or that of ``training_step``, without a trace in logs and metrics."""
        with quiet(self._module), self.trainer.precision_plugin.train_step_context():
            if self._loss is not None:
                return self._loss(self._module, batch, hp)
            return loss_of(self._module.training_step(batch, *self._rest), self._module)


@contextmanager
def _trainable(parameters: Iterable[Tensor]) -> Iterator[None]:
    off = [p for p in parameters if not p.requires_grad]
    for p in off:
        p.requires_grad_(True)
    yield
    for p in off:
        p.requires_grad_(False)


def loss_of(output: Any, module: Any) -> Tensor:
    """What ``training_step`` returned, or its "loss"."""
    loss = output.get("loss") if isinstance(output, Mapping) else output
    if not isinstance(loss, Tensor):
        raise ValueError(
            f"training_step of {type(module).__name__} returned {loss!r} for a loss: return a tensor, or a dict with "
            f"one as its 'loss'; batches to skip are for the dataloader to leave out"
        )
    return loss


@contextmanager
def quiet(module: Any) -> Iterator[None]:
    """For a pass that is none of the training run's own: nothing is logged, and metrics keep their state."""
    metrics = [m for m in module.modules() if hasattr(m, "metric_state")]
    kept = [{**vars(m), **{name: _copied(value) for name, value in m.metric_state.items()}} for m in metrics]
    module.log = _ignore
    try:
        yield
    finally:
        del module.log
        for metric, state in zip(metrics, kept, strict=True):
            vars(metric).update(state)


def _ignore(*_: Any, **__: Any) -> None:
    pass


def _copied(state: Any) -> Any:
    return state.clone() if isinstance(state, Tensor) else list(state)


@contextmanager
def validating(trainer: Any) -> Iterator[None]:
    """Hooks that prepare batches do not take this for training, nor does ``training_step``."""
    trainer.validating = True
    try:
        yield
    finally:
        trainer.training = True


def on_device(trainer: Any, batch: Batch) -> Batch:
    """A batch as Lightning's loops prepare theirs."""
    batch = trainer.precision_plugin.convert_input(batch)
    batch = trainer.lightning_module._on_before_batch_transfer(batch, dataloader_idx=0)
    return trainer.strategy.batch_to_device(batch, dataloader_idx=0)


def valid_batches(given: Iterable[Batch] | Callable[[], Iterable[Batch]] | str, trainer: Any) -> Iterable[Batch]:
    """The loader for hyperparameter steps."""
    if not isinstance(given, str):
        return given() if callable(given) else given
    if trainer.val_dataloaders is None and trainer.enable_validation:
        with validating(trainer):
            trainer.fit_loop.epoch_loop.val_loop.setup_data()
    found = trainer.val_dataloaders
    found = [] if found is None else found if isinstance(found, list) else [found]
    if len(found) != 1:
        raise ValueError(
            f"valid_dataloader is 'val', but the Trainer has {len(found)} validation loaders: give SelfTuning a loader"
        )
    return found[0]  # type: ignore[no-any-return]
