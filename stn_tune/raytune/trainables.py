"""Ray Tune trainables: one task, trained at fixed values, along a schedule, or self-tuned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from stn_tune import rng
from stn_tune.algorithms import registry
from stn_tune.algorithms.fixed import FixedTrainer
from stn_tune.algorithms.registry import AlgorithmKeywords
from stn_tune.algorithms.tuner import SelfTuner
from stn_tune.hyper import Fixed
from stn_tune.nn.attach import connect
from stn_tune.raytune.task_trainable import TaskTrainable
from stn_tune.raytune.trial_config import hyper_from_config, options_of, values_of
from stn_tune.record import RESERVED
from stn_tune.schedule import History, Schedule
from stn_tune.space import HyperSpace
from stn_tune.task import Config, Task
from stn_tune.training import Batch, Trainer

if TYPE_CHECKING:
    from typing_extensions import Unpack


class FixedTrainable(TaskTrainable):
    """Trains the plain model at the values of the trial's config, or along a schedule."""

    schedule: ClassVar[Any] = None

    @classmethod
    def of(
        cls,
        task: Callable[[], Task] | Task,
        *,
        schedule: Schedule | Callable[[int], Mapping[str, float]] | None = None,
        steps_per_iteration: int | None = None,
    ) -> type[FixedTrainable]:
        """A trainable for ``tune.Tuner``.

        Args:
            schedule: a :class:`Schedule`, or any function from a training step to values; it overrides the config.
            steps_per_iteration: report after so many steps instead of after every pass over the training data.
        """
        follow = schedule.at if isinstance(schedule, Schedule) else schedule
        held = None if follow is None else staticmethod(follow)
        return cls._of(task, schedule=held, steps_per_iteration=steps_per_iteration)

    def _make_trainer(self, model: nn.Module, config: Config) -> Trainer:
        if RESERVED in config:
            raise TypeError(
                f"this trial comes from STNSearch (its config has {RESERVED!r}), but FixedTrainable would train at the "
                f"initial values: use STNTrainable.of({type(self._task).__name__})"
            )
        return _plain_trainer(self._task, model, config, self.schedule)


def _plain_trainer(
    task: Task, model: nn.Module, config: Config, schedule: Callable[[int], Mapping[str, float]] | None
) -> FixedTrainer:
    values = values_of(config)
    if schedule is not None:
        values |= schedule(0)
    source = Fixed(values)
    connect(model, source, task.bind)
    return FixedTrainer(
        model,
        source,
        task.optimizer(model, config),
        schedule=schedule,
        clip=task.clip,
        batch_size=task.batch_size,
    )


class STNTrainable(TaskTrainable):
    """Trains the same model self-tuned: the online hyperparameters move inside the trial.

    A value of an online name in the trial's config is its *initial* value.

    With ``refine=True`` a trial has two phases, and every row says in which it was: ``phase`` is "tuning" until the
    task stops or training diverges, then "refining", where a plain network is trained from the same seed along the
    schedule that was found, until the task stops again. With ``refine=3`` there are three such networks, one after the
    other, the second and third from seeds of their own; ``network`` counts them. ``epoch`` and ``step`` count within a
    network; the clocks, and ``best_val_loss`` with its ``test_*``, go on. A trial that a budget or scheduler ends while
    tuning is not refined.
    """

    space: ClassVar[HyperSpace | None] = None
    options: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def of(
        cls,
        task: Callable[[], Task] | Task,
        *,
        space: HyperSpace | Mapping[str, Any] | None = None,
        steps_per_iteration: int | None = None,
        **stn_options: Unpack[AlgorithmKeywords],
    ) -> type[STNTrainable]:
        """A trainable for ``tune.Tuner``.

        Args:
            space: what is tuned online, as Tune domains; not needed where :class:`STNSearch` provides it.
            steps_per_iteration: report after so many steps instead of after every pass over the training data.
            stn_options: ``algorithm``, and its options; see :class:`STNOptions`.
        """
        registry.options_of(stn_options)
        if space is not None:
            space = space if isinstance(space, HyperSpace) else HyperSpace(space)
            hyper_from_config({}, space, **stn_options)
        return cls._of(task, space=space, options=stn_options, steps_per_iteration=steps_per_iteration)

    def _build(self, config: dict[str, Any], new_process: bool = False) -> None:
        self._ended = False
        self._found: dict[str, Any] | None = None
        self._networks = int(options_of(config, self.options).refine)
        super()._build(config, new_process)

    def _iterate(self) -> dict[str, Any]:
        if self._ended:
            self._begin_plain()
        result = super()._iterate()
        if self._found is not None:
            result |= {f"scale/{name}": v for name, v in self._schedule.scales_at(result["step"] - 1).items()}
            result |= self._better(self._best)
        if self._networks:
            result |= {"phase": "tuning" if self._found is None else "refining", "network": self._network}
            if self._network < self._networks:
                self._ended = result.pop("done", False)
        return result

    @property
    def _network(self) -> int:
        """0 while the STN trains, then the number of the plain network."""
        return 0 if self._found is None else int(self._found["network"])

    def _better(self, best: Mapping[str, float]) -> Mapping[str, float]:
        """Of this network's best and that of the networks before, the one of the lower validation loss."""
        return best if self._found is None else min(self._found["best"], best, key=lambda b: b["best_val_loss"])

    def _begin_plain(self) -> None:
        """The next plain network, along the schedule of the STN."""
        start = self._clock.mark()
        schedule = self._trainer.state_dict()["schedule"] if self._found is None else self._found["schedule"]
        self._found = {"best": self._better(self._best), "schedule": schedule, "network": self._network + 1}
        self._ended = False
        self._begin()
        self._clock.count("setup_s", start)

    def _seed(self, given: int) -> int:
        return given if self._network < 2 else rng.derived(given, 2 + self._network)

    def _state(self) -> dict[str, Any]:
        found = {} if self._found is None else {"schedule": self._found["schedule"], "found": self._found}
        return super()._state() | {"ended": self._ended} | found

    def _prepare(self, state: Mapping[str, Any]) -> None:
        self._ended = state.get("ended", False)
        if "found" in state or self._found is not None:
            self._found = state.get("found")
            self._begin()

    def _make_trainer(self, model: nn.Module, config: Config) -> Trainer:
        if self._found is not None:
            self._schedule = History.from_state(self._found["schedule"]).schedule()
            self._initial = {name: v for name, v in values_of(config).items() if name in self._schedule.space}
            return _plain_trainer(self._task, model, config, self._schedule.at)
        if RESERVED not in config and self.space is None:
            raise TypeError(
                f"nothing is tuned online: pass space={{...}} to STNTrainable.of({type(self._task).__name__}, ...), or "
                f"search with STNSearch(online=[...])"
            )
        if RESERVED in config and self.options.get("init"):
            raise TypeError("the trial's initial values come from STNSearch: give init to it, not to STNTrainable.of")
        options = options_of(config, self.options)
        self._warmup, self._wait = options.warmup, options.wait
        hyper = hyper_from_config(config, self.space, **self.options).to(self._device)
        self._initial = {name: value for name, value in values_of(config).items() if name in hyper.index}
        model = self._task.convert(model, hyper)
        optimizer = self._task.optimizer(model, config)
        return SelfTuner.from_options(
            options,
            model,
            hyper,
            optimizer,
            clip=self._task.clip,
            batch_size=self._task.batch_size,
            carries=self._task,
        )

    def _waits(self) -> bool:
        return self._wait and isinstance(self._trainer, SelfTuner) and not self._trainer.settled()

    def _valid_batches(self) -> Iterator[Batch] | None:
        if self._found is not None:
            return None
        return self._on_device(self._streams["valid"]) if len(self._val_losses) >= self._warmup else None
