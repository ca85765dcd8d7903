"""λ and σ, the hyperparameters that an STN tunes, and the samples drawn around them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stn_tune.errors import SpaceError, unknown_hyperparameter
from stn_tune.space import HyperSpace

Value = float | Tensor
"""A hyperparameter's value: a number, a 0-d tensor, or a ``(batch,)`` tensor with one value per example."""


class Source(Protocol):
    """Where a model's regularisers find the value of the hyperparameter they are named after."""

    @property
    def current(self) -> Mapping[str, Value]: ...


class Fixed:
    """A source of values that someone else chose: a black-box searcher, a schedule, the user."""

    def __init__(self, values: Mapping[str, Value]):
        self._values = dict(values)
        self.current = Named(self._values)

    def set(self, values: Mapping[str, Value]) -> None:
        """Replaces values; what is not mentioned keeps its value."""
        self._values.update(values)


class Named(Mapping[str, Value]):
    """A mapping whose missing names get an error that a user can act on; remembers what was read."""

    def __init__(self, values: Mapping[str, Value]):
        self._values = values
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Value:
        self.read.add(name)
        try:
            return self._values[name]
        except KeyError:
            raise KeyError(unknown_hyperparameter(name, self._values)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class HyperSample(Mapping[str, Value]):
    """λ+ε in both parametrisations, for one batch.

    ``unconstrained`` is what hyper layers see: ``(batch, n)`` with one draw per example, or ``(n,)`` when all
    examples share one. As a mapping it gives r(λ+ε) by name to regularisers and losses: a ``(batch,)`` tensor,
    or a 0-d tensor where the whole batch shares the value. Constants of the run are found by name, too.
    """

    def __init__(self, hyper: Hyper, unconstrained: Tensor):
        self.unconstrained = unconstrained
        self.read: set[str] = set()
        self.materialized: dict[int, tuple[Any, Any]] = {}
        self._hyper = hyper
        self._constrained: dict[str, Tensor] = {}

    @property
    def batch_size(self) -> int | None:
        """The number of examples, ``None`` when they all share one λ."""
        return self.unconstrained.shape[0] if self.unconstrained.dim() == 2 else None

    def __getitem__(self, name: str) -> Value:
        self.read.add(name)
        hyper = self._hyper
        if name not in hyper.index:
            if name in hyper.constants:
                return cast(Value, hyper.constants[name])
            raise KeyError(unknown_hyperparameter(name, self))
        if name not in self._constrained:
            column = self.unconstrained[..., hyper.index[name]]
            if column.dim() == 1 and name in hyper.per_batch:
                column = column[0]
            self._constrained[name] = hyper.space.transform(name).constrain(column + hyper.origin[hyper.index[name]])
        return self._constrained[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._hyper.space.names, *self._hyper.constants])

    def __len__(self) -> int:
        return len(self._hyper.space.names) + len(self._hyper.constants)


class Hyper(nn.Module):
    """The hyperparameters tuned online: λ (unconstrained) and the scale σ of the perturbations around it.

    Args:
        space: a ``HyperSpace``, or Ray Tune domains by name.
        init: initial values in the domain; the middle of the domain where not given.
        scale: initial σ, one for all or by name, in units of the unconstrained λ.
        tune_scale: whether σ is learned (Algorithm 1) or stays where it is (the paper's ST-LSTM).
        per_batch: names that are drawn once per batch instead of once per example.
        direct: names (or ``True`` for all) on which the validation loss depends directly (Case 2 of Section
            3.5); they get the score-function gradient.
        constants: hyperparameters of the run that are not tuned, found by name beside the tuned ones.
        centered: λ is measured from its initial value: r is shifted, so that λ starts at 0 and the converted model
            starts out as the plain one. Eq. 9 can represent the same weights either way; centered, Vλ stays small,
            and learning rates that suit the plain model suit the self-tuned one.

    >>> from ray import tune
    >>> hyper = Hyper({"dropout": tune.uniform(0, 0.75)}, init={"dropout": 0.05})
    >>> hyper.sample(batch_size=32)["dropout"].shape
    torch.Size([32])
    """

    origin: Tensor
    baseline: Tensor
    _direct_mask: Tensor
    _per_batch_mask: Tensor

    def __init__(
        self,
        space: HyperSpace | Mapping[str, Any],
        init: Mapping[str, float] | None = None,
        *,
        scale: float | Mapping[str, float] = 0.5,
        tune_scale: bool = True,
        per_batch: Sequence[str] = (),
        direct: Sequence[str] | bool = (),
        constants: Mapping[str, Any] | None = None,
        centered: bool = True,
    ):
        super().__init__()
        self.space = space if isinstance(space, HyperSpace) else HyperSpace(space)
        names = self.space.names
        self.index = {name: i for i, name in enumerate(names)}
        self.per_batch = self._names("per_batch", per_batch)
        self.direct = self._names("direct", names if direct is True else direct or ())
        self.constants = {k: v for k, v in (constants or {}).items() if k not in self.index}
        self.tune_scale = tune_scale
        initial = torch.tensor(self._initial(init or {}))
        self.register_buffer("origin", initial if centered else torch.zeros_like(initial))
        self.lam = nn.Parameter(initial - self.origin)
        self.raw_sigma = nn.Parameter(torch.tensor(self._initial_scale(scale)), requires_grad=tune_scale)
        self.register_buffer("baseline", torch.tensor(float("nan")))
        for kind in ("per_batch", "direct"):
            mask = torch.tensor([name in getattr(self, kind) for name in names])
            self.register_buffer(f"_{kind}_mask", mask, persistent=False)
        self._active: HyperSample | None = None

    def _names(self, option: str, given: Sequence[str]) -> frozenset[str]:
        for name in [given] if isinstance(given, str) else given:
            if name not in self.index:
                raise SpaceError(f"{option}: {unknown_hyperparameter(name, self.index)}")
        return frozenset([given] if isinstance(given, str) else given)

    def _initial(self, init: Mapping[str, float]) -> list[float]:
        for name in init:
            if name not in self.index:
                raise SpaceError(f"init: {unknown_hyperparameter(name, self.index)}")
        middle = self.space.constrain(torch.zeros(len(self.space), dtype=torch.float64))
        return self.space.unconstrain({name: init.get(name, float(middle[name])) for name in self.space.names})

    def _initial_scale(self, scale: float | Mapping[str, float]) -> list[float]:
        if isinstance(scale, Mapping):
            for name in self._names("scale", list(scale)) ^ set(self.index):
                raise SpaceError(f"scale: {name} is missing; give one number for all, or one for each name")
        raw = []
        for name in self.space.names:
            sigma = float(scale[name] if isinstance(scale, Mapping) else scale)
            if not 0 < sigma < math.inf:
                raise SpaceError(f"{name}: the perturbation scale is {sigma}; it must be positive and finite")
            raw.append(sigma + math.log(-math.expm1(-sigma)))
        return raw

    @property
    def sigma(self) -> Tensor:
        """σ > 0, ``(n,)``."""
        return F.softplus(self.raw_sigma)

    def sample(self, batch_size: int | None = None) -> HyperSample:
        """λ+ε with ε ~ N(0, diag σ²): one draw for each of ``batch_size`` examples, or one shared by all."""
        n = len(self.space)
        noise = torch.randn((n,) if batch_size is None else (batch_size, n), device=self.lam.device)
        if batch_size is not None and self.per_batch:
            noise = torch.where(self._per_batch_mask, noise[:1], noise)
        drawn = torch.addcmul(self.lam, self.sigma, noise.to(self.lam.dtype))
        if self.direct:
            drawn = torch.where(self._direct_mask, drawn.detach(), drawn)
        return HyperSample(self, drawn)

    def mean(self) -> HyperSample:
        """The deterministic λ, shared by all examples: what evaluation uses."""
        return HyperSample(self, self.lam if torch.is_grad_enabled() else self.lam.detach())

    @property
    def current(self) -> HyperSample:
        """The sample in use: the one set by :meth:`using`, else the deterministic λ."""
        return self._active if self._active is not None else self.mean()

    @contextmanager
    def using(self, sample: HyperSample) -> Iterator[HyperSample]:
        """Makes ``sample`` the one that hyper layers and named regularisers read.

        Under ``torch.no_grad`` a layer materialises Ŵ(λ) once for as long as the same sample is in use.
        """
        before, self._active = self._active, sample
        try:
            yield sample
        finally:
            self._active = before
            sample.materialized.clear()

    def entropy(self) -> Tensor:
        """H[p(ε|σ)] = Σ log(σ √(2πe))."""
        return (self.sigma.log() + 0.5 * math.log(2 * math.pi * math.e)).sum()

    def score(self, losses: Tensor, sample: HyperSample) -> Tensor:
        """A surrogate whose gradient is the score-function estimate of ∂E[F]/∂(λ, σ) for ``direct`` names.

        The estimate is E[(F − b) ∂ log p(λ+ε | λ, σ)]. With one loss per example, b is the mean of the *other*
        examples' losses; for a scalar loss and for per-batch draws it is a running mean over earlier steps. In
        both cases b does not depend on the draw it is used for, so the estimate stays unbiased.
        """
        if losses.dim() and losses.shape != (sample.batch_size,):
            raise ValueError(
                f"the loss has shape {tuple(losses.shape)}; with direct hyperparameters it must be a scalar, or "
                f"hold one loss for each of the {sample.batch_size} examples"
            )
        drawn = sample.unconstrained.detach()
        z = (drawn - self.lam) / self.sigma
        log_prob = torch.where(self._direct_mask, -0.5 * z.square() - self.sigma.log(), torch.zeros_like(z))
        losses = losses.detach()
        mean = losses.mean()
        advantage = torch.where(self.baseline.isnan(), torch.zeros_like(mean), mean - self.baseline)
        self.baseline.copy_(torch.where(self.baseline.isnan(), mean, 0.9 * self.baseline + 0.1 * mean))
        if log_prob.dim() == 1:
            return advantage * log_prob.sum()
        shared = torch.where(self._per_batch_mask, log_prob[0], torch.zeros_like(log_prob[0])).sum()
        own = torch.where(self._per_batch_mask, torch.zeros_like(log_prob), log_prob).sum(1)
        if losses.dim() == 0 or len(losses) == 1:
            return advantage * (shared + own.sum())
        others = (losses.sum() - losses) / (len(losses) - 1)
        return advantage * shared + ((losses - others) * own).mean()

    def values_now(self) -> dict[str, float | int]:
        """r(λ) as plain Python numbers, by name."""
        with torch.no_grad():
            constrained = self.space.constrain((self.lam + self.origin).cpu().double())
        return self.space.native({name: float(v) for name, v in constrained.items()})

    def scales_now(self) -> dict[str, float]:
        """σ as plain Python numbers, by name."""
        return dict(zip(self.space.names, self.sigma.detach().cpu().tolist(), strict=True))

    def get_extra_state(self) -> dict[str, Any]:
        return {"space": self.space.to_json()}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        ours, theirs = self.space.to_json(), state["space"]
        for name in [*ours, *theirs]:
            if ours.get(name) != theirs.get(name):
                raise SpaceError(
                    f"{name}: the saved state has {theirs.get(name, 'no such hyperparameter')}, "
                    f"this space has {ours.get(name, 'no such hyperparameter')}"
                )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_active": None}

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value:.4g}" for name, value in self.values_now().items())
