"""Schedule: the hyperparameter values that were found, step by step; saved, loaded, replayed, drawn."""

from __future__ import annotations

import json
import math
import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from stn_tune.atomic import write_atomic
from stn_tune.checkpoint import STATE_FILE, check_version, read
from stn_tune.errors import ScheduleError, SpaceError, unknown_hyperparameter
from stn_tune.pbt_log import best_lineage
from stn_tune.plain_json import parse_json
from stn_tune.schedule_file import ScheduleFile
from stn_tune.space import HyperSpace

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


HISTORY = "stn_tune.history"


class Schedule:
    """Values of hyperparameters over the course of training.

    ``steps[k]`` is the number of weight steps done when ``values[name][k]`` came into force; values before the
    first entry are the first entry's. ``total_steps`` is the length of the training it was found in, ``algorithm`` the
    name of what found it, if known.
    """

    def __init__(
        self,
        space: HyperSpace | Mapping[str, Any],
        steps: Sequence[int],
        values: Mapping[str, Sequence[float]],
        scales: Mapping[str, Sequence[float]] | None = None,
        total_steps: int | None = None,
        algorithm: str | None = None,
    ):
        self.space = space if isinstance(space, HyperSpace) else HyperSpace(space)
        self.steps = [int(s) for s in steps]
        self.values = {name: list(values.get(name, ())) for name in self.space.names}
        self.scales = {name: list(column) for name, column in (scales or {}).items()}
        self.total_steps = self.steps[-1] if total_steps is None and self.steps else int(total_steps or 0)
        self.algorithm = algorithm
        self._validate(values)

    def _validate(self, values: Mapping[str, Sequence[float]]) -> None:
        for name in [*values, *self.scales]:
            if name not in self.space:
                raise ScheduleError(unknown_hyperparameter(name, self.space.names))
        self._file().check()
        for name, column in self.values.items():
            for step, value in zip(self.steps, column, strict=True):
                try:
                    self.space.check(name, value)
                except SpaceError as error:
                    raise ScheduleError(f"{error} (at step {step})") from None

    @classmethod
    def from_result(cls, result: Any, space: HyperSpace | Mapping[str, Any] | None = None) -> Schedule:
        """What a Tune trial found: ``Schedule.from_result(results.get_best_result())``.

        Every update, where the trial left a checkpoint with a ``"schedule"`` (that of our trainables; in a loop of your
        own, ``SelfTuner.state_dict()`` saved as ``state.pt``); else one entry per reported iteration, in ``space``, or
        in unbounded domains where none is given.
        """
        if result.checkpoint is not None:
            with result.checkpoint.as_directory() as folder:
                path = Path(folder, STATE_FILE)
                state = read(path) if path.exists() else None
            if isinstance(state, dict) and {"trainer", "version"} <= set(state):
                check_version(state, path)
            if isinstance(state, dict) and History.is_state(state.get("schedule")):
                return History.from_state(state["schedule"]).schedule()
            if isinstance(state, dict) and "schedule" in state:
                raise ScheduleError(f"{result.path}: this trial was not self-tuned, so it has no schedule")
        frame = result.metrics_dataframe
        names = [
            c.removeprefix("scale/") for c in (frame.columns if frame is not None else ()) if c.startswith("scale/")
        ]
        if not names:
            raise ScheduleError(f"{result.path}: the trial reported no scale/<name>, so it has no schedule")
        if "step" not in frame:
            raise ScheduleError(
                f"{result.path}: the trial reported no step, the number of weight steps: report **SelfTuner.metrics()"
            )
        if "phase" in frame:
            frame = frame[frame["phase"] != "refining"]
        frame = frame.drop_duplicates("step", keep="last")
        space = _unbounded(names) if space is None else space
        values = {name: frame[f"hp/{name}"].tolist() for name in names}
        scales = {name: frame[f"scale/{name}"].tolist() for name in names}
        return cls(space, frame["step"].tolist(), values, scales)

    @classmethod
    def from_pbt(
        cls,
        folder: str | os.PathLike[str],
        space: HyperSpace | Mapping[str, Any] | None = None,
        *,
        metric: str = "val_loss",
        mode: Literal["min", "max"] = "min",
    ) -> Schedule:
        """What the winner of population-based training was trained with, its ancestors' time included.

        Args:
            folder: the experiment's, with the policy logs that Ray's ``PopulationBasedTraining`` writes. Steps are the
                weight steps that trials reported as ``step``, else training iterations.
            space: which hyperparameters, and their domains, into which values are moved (PBT multiplies by factors);
                by default all numbers that PBT has changed, in unbounded domains. Nested ones are named ``"a/b"``. For
                a replay with ``FixedTrainable`` give those that model and loss read, and no learning rate.
            metric, mode: the member whose last report is the best has won.
        """
        if mode not in ("min", "max"):
            raise ScheduleError(f"mode is {mode!r}; it must be 'min' or 'max'")
        lineage = best_lineage(Path(folder), metric, mode)
        if space is None and not lineage.changed:
            raise ScheduleError(f"{folder}: no number was ever perturbed; give the space")
        space = _unbounded(lineage.changed) if space is None else space
        space = space if isinstance(space, HyperSpace) else HyperSpace(space)
        columns: dict[str, list[float]] = {name: [] for name in space}
        for values in lineage.values:
            for name in space:
                if name not in values:
                    raise ScheduleError(unknown_hyperparameter(name, values))
                try:
                    columns[name] += space.native({name: values[name]}).values()
                except SpaceError as error:
                    raise ScheduleError(f"{folder}: {error}") from None
        return cls(space, lineage.steps, columns, total_steps=lineage.total_steps, algorithm="pbt")

    def __len__(self) -> int:
        return len(self.steps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        ends = ", ".join(f"{name}: {v[0]:.4g} → {v[-1]:.4g}" for name, v in self.values.items())
        by = f" by {self.algorithm}" if self.algorithm else ""
        return f"Schedule({len(self)} updates{by} over {self.total_steps} steps; {ends})"

    def at(
        self, step: float | None = None, *, fraction: float | None = None, interpolate: bool = False
    ) -> dict[str, float]:
        """The values in force at a step, or at a fraction of the whole training (0 to 1).

        Past the last entry its values stay. With ``interpolate`` continuous values move linearly between entries;
        discrete ones never do.
        """
        if (step is None) == (fraction is None):
            raise ScheduleError("give either a step or a fraction of training")
        where = step if step is not None else (fraction or 0.0) * self.total_steps
        if not math.isfinite(where) or where < 0 or (fraction is not None and fraction > 1):
            given = f"step {step}" if step is not None else f"fraction {fraction}"
            raise ScheduleError(f"{given} is outside the schedule: steps start at 0, fractions lie in [0, 1]")
        k = self._place(where)
        last = k + 1 == len(self.steps) or where < self.steps[0]
        weight = 0.0 if last else (where - self.steps[k]) / (self.steps[k + 1] - self.steps[k])
        result = {}
        for name, column in self.values.items():
            value = column[k]
            if interpolate and weight and not self.space.transform(name).discrete:
                value += weight * (column[k + 1] - value)
            result[name] = value
        return result

    def scales_at(self, step: float) -> dict[str, float]:
        """The scales σ at a step, of hyperparameters that have one; past the last entry they stay."""
        return {name: column[self._place(step)] for name, column in self.scales.items()}

    def _place(self, step: float) -> int:
        """The index of the entry in force at a step."""
        return max(bisect_right(self.steps, step) - 1, 0)

    def fitted(self, space: HyperSpace | Mapping[str, Any]) -> Schedule:
        """The same values in another space, that of the task to train: every name and value has to be in it."""
        space = space if isinstance(space, HyperSpace) else HyperSpace(space)
        for name in self.values:
            if name not in space:
                raise ScheduleError(unknown_hyperparameter(name, space.names))
        own = HyperSpace({name: space.domain(name) for name in self.values})
        return Schedule(own, self.steps, self.values, self.scales, self.total_steps, self.algorithm)

    def to_json(self) -> dict[str, Any]:
        """The documented, versioned format: plain JSON that needs nothing but this text to be read."""
        return self._file().to_json()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Schedule:
        """What :meth:`to_json` gave; raises :class:`ScheduleError` for anything else."""
        file = ScheduleFile.parse(data)
        space = HyperSpace.from_json(file.space)
        return cls(space, file.steps, file.values, file.scales, file.total_steps, file.algorithm)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the schedule as JSON, atomically."""
        write_atomic(Path(path), (json.dumps(self.to_json()) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schedule:
        """What :meth:`save` wrote; raises :class:`ScheduleError` for any other file."""
        try:
            data = parse_json(Path(path).read_bytes())
        except ValueError:
            raise ScheduleError(f"{path} is not a schedule: it is not JSON") from None
        try:
            return cls.from_json(data)
        except (ScheduleError, SpaceError) as error:
            raise ScheduleError(f"{path}: {error}") from None

    def to_frame(self) -> pd.DataFrame:
        """One row per update: step, hp/<name>, scale/<name>."""
        import pandas as pd

        return pd.DataFrame(self._file().columns())

    def plot(self, names: Sequence[str] | None = None, ax: Axes | None = None) -> Axes:
        """Draws the values over training steps, a line per hyperparameter.

        Args:
            names: which hyperparameters; by default all.
            ax: where to draw all of them; by default a new figure, with a panel for rates, one for other numbers, and
                one for every whole number.

        Returns the first axes; ``.figure`` is the whole figure.
        """
        return self._file().plot(names, ax)

    def _file(self) -> ScheduleFile:
        return ScheduleFile(
            self.space.to_json(), self.steps, self.values, self.scales, self.total_steps, self.algorithm
        )


def _unbounded(names: Iterable[str]) -> HyperSpace:
    from stn_tune.domains import real

    return HyperSpace({name: real() for name in names})


class History:
    """λ and σ after every update of a run, as tensors on their device until somebody asks."""

    def __init__(self, space: HyperSpace, algorithm: str | None = None):
        self.space = space
        self.algorithm = algorithm
        """The name of what tunes, for the schedule."""
        self.steps: list[int] = []
        self.total_steps = 0
        self._rows: list[Tensor] = []

    def record(self, step: int, lam: Tensor, sigma: Tensor) -> None:
        """λ and σ when ``step`` weight steps had been done; the last of several updates in one step stays.

        The count goes back where steps turn out not to have been applied: what was recorded past it is replaced.
        """
        while self.steps and self.steps[-1] >= step:
            self.steps.pop(), self._rows.pop()
        self.steps.append(step)
        self._rows.append(torch.stack([lam, sigma]).detach())

    def __len__(self) -> int:
        return len(self.steps)

    def moved(self, rows: int) -> float:
        """The largest distance that a λ has covered during the last so many rows, or all that there are."""
        if not self._rows:
            return 0.0
        now, then = self._rows[-1][0], self._rows[max(len(self._rows) - 1 - rows, 0)][0]
        return float((now.double() - then.to(now.device).double()).abs().max())

    def _columns(self) -> Tensor:
        """``(updates, 2, n)``; what was fetched once stays on the CPU."""
        if self._rows:
            self._rows = list(torch.stack(self._rows).double().cpu())
        return torch.stack(self._rows) if self._rows else torch.zeros(0, 2, len(self.space), dtype=torch.float64)

    def schedule(self) -> Schedule:
        """The values in the domain."""
        lam, sigma = self._columns().unbind(1)
        values = {
            name: [self.space.transform(name).native(v) for v in column.tolist()]
            for name, column in self.space.constrain(lam).items()
        }
        scales = dict(zip(self.space.names, sigma.t().tolist(), strict=True))
        total_steps = max(self.total_steps, self.steps[-1])
        return Schedule(self.space, self.steps, values, scales, total_steps, self.algorithm)

    def reordered(self, space: HyperSpace) -> History:
        """The same values for the same hyperparameters in another order."""
        columns = torch.tensor([self.space.names.index(name) for name in space.names])
        self._rows = [row[:, columns] for row in self._rows]
        self.space = space
        return self

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values."""
        lam, sigma = self._columns().unbind(1)
        return {
            "format": HISTORY,
            "space": self.space.to_json(),
            "steps": torch.tensor(self.steps),
            "lam": lam.clone(),
            "sigma": sigma.clone(),
            "total_steps": self.total_steps,
            "algorithm": self.algorithm,
        }

    @staticmethod
    def is_state(data: Any) -> bool:
        """Whether :meth:`state_dict` wrote it."""
        return isinstance(data, Mapping) and data.get("format") == HISTORY

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> History:
        """What :meth:`state_dict` gave."""
        history = cls(HyperSpace.from_json(state["space"]), state.get("algorithm"))
        history.steps = state["steps"].tolist()
        history.total_steps = int(state["total_steps"])
        history._rows = list(torch.stack([state["lam"], state["sigma"]], 1))
        return history
