"""TaskTrainable: an iteration of any training, its evaluation, its waiting, its checkpoints."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import ray
import torch
from ray import tune
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from stn_tune import rng
from stn_tune.checkpoint import load_state, one_line, save_state
from stn_tune.errors import CheckpointError, NonFiniteError, ScheduleError, SpaceError
from stn_tune.numbers import is_number
from stn_tune.raytune.clock import COUNTED, Clock
from stn_tune.raytune.internals import count_from, last_row
from stn_tune.raytune.param_groups import apply_new_settings, group_settings
from stn_tune.raytune.trial_config import seed_of, values_of
from stn_tune.stream import Stream
from stn_tune.task import Config, Task
from stn_tune.training import Batch, Trainer

if TYPE_CHECKING:
    pass

T = TypeVar("T", bound="TaskTrainable")


class TaskTrainable(tune.Trainable):  # type: ignore[misc]  # ray has no types
    """What :class:`FixedTrainable` and :class:`STNTrainable` share. Use ``FixedTrainable.of(MyTask)``.

    One iteration is a pass over the training batches (or ``steps_per_iteration``), then an evaluation on the
    validation set, and on the test set where the validation loss is the best so far.
    """

    task: ClassVar[Any]
    steps_per_iteration: ClassVar[int | None] = None

    @classmethod
    def _of(cls: type[T], task: Callable[[], Task] | Task, **attributes: Any) -> type[T]:
        if not isinstance(task, Task) and not callable(task):
            raise TypeError(f"{cls.__name__}.of takes a Task class or object, not {task!r}")
        steps = attributes["steps_per_iteration"]
        if steps is not None and not steps >= 1:
            raise ValueError(f"steps_per_iteration is {steps}; it must be at least 1, or None for a whole pass")
        name = task.__name__ if isinstance(task, type) else type(task).__name__
        held = task if isinstance(task, Task) else staticmethod(task)
        return type(f"{cls.__name__}_{name}", (cls,), {"task": held, "__module__": cls.__module__, **attributes})

    def setup(self, config: dict[str, Any], **parameters: Any) -> None:
        """Builds task, model and trainer; what ``tune.with_parameters`` adds is given to the task's constructor."""
        if parameters and isinstance(self.task, Task):
            raise TypeError(
                f"tune.with_parameters gives {', '.join(parameters)} to the constructor of the task: pass the class "
                f"{type(self.task).__name__} to of(...), and not an object"
            )
        self._task_parameters = parameters
        self._build(config, new_process=self._trial_info is not None)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._build(copy.deepcopy(new_config))
        return True

    def _build(self, config: dict[str, Any], new_process: bool = False) -> None:
        self._device = self._assigned_device()
        own_folder = self._trial_info is not None and self.logdir is not None
        self._clock = Clock(
            Path(self.logdir, "clock.json") if own_folder else None,
            "cpu" if self._device.type == "cpu" else "device",
            new_process=new_process,
        )
        if own_folder and self._storage is not None:
            reported = last_row(self._storage)
            if set(COUNTED) <= reported.keys():
                self._clock.carry_on(reported)
        start = self._clock.mark()
        self._constants = {f"hp/{name}": v for name, v in values_of(config).items() if is_number(v) and name != "seed"}
        self._config = config
        self._last: dict[str, Any] | None = None
        self._reported_last: dict[str, Any] | None = None
        self._begin()
        self._clock.count("setup_s", start)

    def _begin(self) -> None:
        """A fresh task, model and trainer, before the first step; the same whenever the seed is the same."""
        config = self._config
        seed = self._seed(seed_of(config))
        rng.seed_all(seed)
        self._task = copy.deepcopy(self.task) if isinstance(self.task, Task) else self.task(**self._task_parameters)
        self._loaders = self._task.loaders(config)
        model = self._task.model(config).to(self._device)
        self._initial: dict[str, Any] = {}
        self._trainer = self._make_trainer(model, config)
        self._groups = group_settings(self._trainer.optimizer)
        self._scheduler = self._task.scheduler(self._trainer.optimizer, config)
        self._streams = {
            "train": Stream(self._loaders.train, rng.derived(seed, 1)),
            "valid": Stream(self._loaders.valid, rng.derived(seed, 2)),
        }
        self._val_losses: list[float] = []
        self._waited: list[bool] = []
        self._best: dict[str, float] = {"best_val_loss": math.inf, "test_loss": math.nan}

    def _seed(self, given: int) -> int:
        """The seed of the network that begins."""
        return given

    def _make_trainer(self, model: nn.Module, config: Config) -> Trainer:
        raise NotImplementedError

    @property
    def model(self) -> nn.Module:
        """The network in its present state; :func:`plain_state_dict` gives a self-tuned one's weights at its λ."""
        return self._trainer.model

    def _assigned_device(self) -> torch.device:
        """The GPU, where the trial was given one; else the CPU, with as many threads as the trial has CPUs."""
        resources = self.trial_resources
        required = resources.required_resources if resources is not None else {}
        if "CPU" in required:
            torch.set_num_threads(max(1, int(required["CPU"])))
        given = bool(required.get("GPU")) if resources is not None else ray.is_initialized() and bool(ray.get_gpu_ids())
        return torch.device("cuda" if given and torch.cuda.is_available() else "cpu")

    def step(self) -> dict[str, Any]:
        if self._reported_last is not None:
            return {**self._reported_last, **self._clock.now()}
        result = self._iterate()
        self._last = dict(result) if result.get("done") else None
        return result

    def _iterate(self) -> dict[str, Any]:
        mark = self._clock.mark()
        result: dict[str, Any] = {"diverged": ""}
        train_loss = math.nan
        try:
            train_loss = self._trainer.epoch(self._task.loss, self._train_batches(), self._valid_batches())
        except NonFiniteError as error:
            result |= {"diverged": str(error), "done": True}
        mark = self._clock.count("train_s", mark)
        valid = self._evaluate(self._loaders.valid)
        if not math.isfinite(valid["loss"]):
            reason = f"the validation loss is {valid['loss']} after {self._trainer.weight_steps} steps"
            result = {"diverged": result["diverged"] or reason, "done": True}
        if result["diverged"]:
            valid = dict.fromkeys(valid, math.nan) | {"loss": math.inf}
            self._best = {f"test_{name}": math.nan for name in valid} | self._best
        val_loss = valid["loss"]
        self._val_losses.append(val_loss)
        better = val_loss < self._best["best_val_loss"]
        self._waited.append(not better and self._may_wait() and self._waits())
        if better:
            self._best = {"best_val_loss": val_loss, "test_loss": math.nan}
            if self._loaders.test is not None:
                self._best |= {f"test_{k}": v for k, v in self._evaluate(self._loaders.test).items()}
        self._clock.count("eval_s", mark)
        if not result["diverged"]:
            self._step_scheduler(val_loss)
            if self._task.stop(self._counted_losses(), self._trainer.optimizer, self._config):
                result["done"] = True
        self._clock.write()
        return {
            **{f"val_{name}": value for name, value in valid.items()},
            **self._best,
            "train_loss": train_loss,
            "epoch": self._streams["train"].completed,
            "step": self._trainer.weight_steps,
            "lr": self._trainer.optimizer.param_groups[0]["lr"],
            **self._constants,
            **self._trainer.metrics(),
            **result,
            **self._clock.now(),
        }

    def _train_batches(self) -> Iterator[Batch]:
        stream = self._streams["train"]
        if self.steps_per_iteration is None:
            return self._on_device(stream.one_pass())
        return self._on_device(islice(stream, self.steps_per_iteration))

    def _valid_batches(self) -> Iterator[Batch] | None:
        """Endless batches for hyperparameter steps, independent of the training batches."""
        return None

    def _on_device(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            yield move(batch, self._device)

    def _evaluate(self, batches: Iterable[Batch]) -> dict[str, float]:
        metrics = dict(self._task.evaluate(self._trainer, self._on_device(batches)))
        if "loss" not in metrics:
            raise KeyError(f'{type(self._task).__name__}.evaluate must give a "loss"; it gave {", ".join(metrics)}')
        return {name: float(value) for name, value in metrics.items()}

    def _waits(self) -> bool:
        """Whether an iteration without a better validation loss is to be left out of account."""
        return False

    def _may_wait(self) -> bool:
        """Since the best loss, at most as many iterations are left out as it had taken to that loss."""
        to_best = self._val_losses.index(min(self._val_losses)) + 1
        return sum(self._waited[to_best:]) < to_best

    def _counted_losses(self) -> list[float]:
        """The validation losses; those of iterations that do not count stand in front, as the first one again."""
        counted = [loss for loss, waited in zip(self._val_losses, self._waited, strict=True) if not waited]
        return [counted[0]] * (len(self._val_losses) - len(counted)) + counted

    def _step_scheduler(self, val_loss: float) -> None:
        if isinstance(self._scheduler, ReduceLROnPlateau):
            if not self._waited[-1]:
                self._scheduler.step(val_loss)
        elif self._scheduler is not None:
            self._scheduler.step()

    def save_checkpoint(self, checkpoint_dir: str) -> str:
        """Everything that training continues from, in one file that is written atomically."""
        save_state(checkpoint_dir, self._state())
        return checkpoint_dir

    def _state(self) -> dict[str, Any]:
        trainer = self._trainer.state_dict()
        return {
            "trainer": trainer,
            "schedule": trainer.get("schedule"),
            "task": self._task.state_dict(),
            "streams": {name: stream.state_dict() for name, stream in self._streams.items()},
            "scheduler": self._scheduler.state_dict() if self._scheduler is not None else None,
            "val_losses": self._val_losses,
            "waited": self._waited,
            "best": self._best,
            "groups": self._groups,
            "initial": self._initial,
            "trial": self.trial_id,
            "iteration": self.training_iteration,
            "last": self._last,
            "clock": self._clock.state_dict(),
        }

    def load_checkpoint(self, checkpoint: str) -> None:
        """Goes on from a checkpoint; raises :class:`CheckpointError` where one is damaged or of another task."""
        start = self._clock.mark()
        state = load_state(checkpoint)
        try:
            self._restore(state)
        except (CheckpointError, SpaceError, ScheduleError):
            raise
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError) as error:
            reason = one_line(f"{type(error).__name__}: {error}")
            raise CheckpointError(f"{checkpoint} is damaged, or of another task ({reason})") from error
        self._clock.count("setup_s", start)

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._prepare(state)
        self._task.load_state_dict(move(state["task"], self._device))
        for name, stream in self._streams.items():
            stream.load_state_dict(state["streams"][name])
        if self._scheduler is not None and state["scheduler"] is not None:
            self._scheduler.load_state_dict(state["scheduler"])
        self._val_losses, self._best = list(state["val_losses"]), dict(state["best"])
        self._waited = list(state.get("waited", [False] * len(self._val_losses)))
        self._trainer.load_state_dict(state["trainer"])
        self._warn_of_new_values(state.get("initial", self._initial))
        apply_new_settings(self._trainer.optimizer, self._scheduler, self._groups, state["groups"])
        iteration = state.get("iteration", self.training_iteration)
        if state["trial"] == self.trial_id:
            self._clock.carry_on(state["clock"])
            if self._trial_info is not None and state.get("last") is not None:
                # The training has ended, but Tune does not know it: it asks for one more iteration, and gets the last.
                self._reported_last = self._last = dict(state["last"])
                iteration -= 1
        count_from(self, iteration)

    def _prepare(self, state: Mapping[str, Any]) -> None:
        """Called before ``state`` is loaded."""

    def _warn_of_new_values(self, saved: Mapping[str, Any]) -> None:
        """A scheduler such as PBT may change a name that is tuned online; its value comes from the checkpoint."""
        changed = [f"{name}={value}" for name, value in self._initial.items() if saved.get(name, value) != value]
        if changed:
            warnings.warn(
                f"{', '.join(changed)} of the config has no effect: it is tuned online, and goes on from the value in "
                f"the checkpoint; leave it out of what the scheduler changes",
                stacklevel=2,
            )


def move(batch: Batch, device: torch.device) -> Batch:
    """Every tensor of a nested batch on ``device``."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: move(value, device) for key, value in batch.items()}
    if callable(getattr(batch, "to", None)):
        return batch.to(device)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(move(part, device) for part in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(move(part, device) for part in batch)
    return batch
