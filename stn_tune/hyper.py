"""λ and σ, the hyperparameters that an STN tunes, and the samples drawn around them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stn_tune.errors import SpaceError, unknown_hyperparameter
from stn_tune.space import HyperSpace
from stn_tune.transform import Bounded

Value = float | Tensor
"""A hyperparameter's value: a number, a 0-d tensor, or a ``(batch,)`` tensor with one value per example."""

SMALLEST_SCALE, LARGEST_SCALE = 1e-3, 5.0
"""σ stays between these (or where it started): beyond, all draws are the same, or all saturate."""

_CONSTANTS = (
    *("_lowest", "_highest", "_raw_lowest", "_raw_highest"),
    *("_lower", "_width", "_columns", "_per_batch_mask", "_direct_mask"),
)
"""Tensors of a ``Hyper`` that never change. They are no buffers: averages over buffers would blur them."""


class Source(Protocol):
    """Where a model's regularisers find the value of the hyperparameter they are named after."""

    @property
    def current(self) -> Mapping[str, Value]:
        """The values in force, by name."""


class Named(dict[str, Value]):
    """Hyperparameters by name: unknown names get an error that a user can act on; remembers which were read.

    Copying everything at once (``dict(hp)``, ``hp.items()``) is not a use of any of them.
    """

    def __init__(self, values: Mapping[str, Value]):
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Value:
        self.read.add(name)
        return super().__getitem__(name)

    def __missing__(self, name: str) -> Value:
        raise KeyError(unknown_hyperparameter(name, self))

    def get(self, name: str, default: Any = None) -> Any:
        """The value, or ``default`` where there is no such hyperparameter."""
        return self[name] if name in self else default  # noqa: SIM401  # dict.get would not count the read


class Fixed:
    """A source of values that someone else chose: a black-box searcher, a schedule, the user."""

    def __init__(self, values: Mapping[str, Value]):
        self.current = Named(values)
        self._followers: list[tuple[nn.Module, str, str]] = []

    def set(self, values: Mapping[str, Value]) -> None:
        """Replaces values; names that are not mentioned keep theirs."""
        self.current.update(values)
        for module, attribute, name in self._followers:
            if name in values:
                module.__dict__[attribute] = values[name]

    def follow(self, attributes: Iterable[tuple[nn.Module, str, str]]) -> None:
        """Module, attribute, name: the attribute holds the value of that name from now on."""
        self._followers += attributes
        for module, attribute, name in self._followers:
            module.__dict__[attribute] = self.current[name]


class HyperSample(Named):
    """λ+ε for one forward pass, in both parametrisations.

    ``delta`` is what responses see: ε = (λ+ε) − λ, ``(n,)`` where the whole batch shares a draw, ``(batch, n)`` with
    one draw per example; ``noise`` is ε/σ, None where nothing was drawn. As a mapping it gives r(λ+ε) by name to
    regularisers and losses: a 0-d tensor, or a ``(batch,)`` tensor with one value per example. Constants of the run are
    found by name, too.
    """

    def __init__(
        self,
        hyper: Hyper,
        delta: Tensor,
        lam: Tensor | None = None,
        sigma: Tensor | None = None,
        noise: Tensor | None = None,
    ):
        self.delta = delta
        self.lam, self.sigma = lam, sigma
        self.noise = noise
        with torch.no_grad():
            self.unconstrained = hyper.lam + delta
            super().__init__({**hyper.constants, **hyper.constrain(self.unconstrained)})

    @property
    def batch_size(self) -> int | None:
        """The number of examples with draws of their own, ``None`` when they all share one."""
        return self.delta.shape[0] if self.delta.dim() == 2 else None


class Hyper(nn.Module):
    """The hyperparameters tuned online: λ (unconstrained) and the scale σ of the perturbations around it.

    Both are buffers: part of the model's state, and never moved by an optimizer of ``model.parameters()``.

    Args:
        space: a ``HyperSpace``, or Ray Tune domains by name.
        init: initial values in the domain. Where not given: the rate that ``stn.dropouts`` found, else the middle of
            the domain.
        scale: initial σ, one for all or by name, in units of the unconstrained λ.
        tune_scale: whether σ is learned (Algorithm 1) or stays where it is (the paper's ST-LSTM).
        per_batch: names that are drawn once per batch even where others are drawn once per example.
        direct: names (or ``True`` for all) on which the validation loss depends directly (Case 2 of Section
            3.5); they get the score-function gradient.
        constants: hyperparameters of the run that are not tuned, found by name beside the tuned ones.

    >>> from ray import tune
    >>> hyper = Hyper({"dropout": tune.uniform(0, 0.75)}, init={"dropout": 0.05})
    >>> hyper.sample(batch_size=32)["dropout"].shape
    torch.Size([32])
    """

    lam: Tensor
    """λ, unconstrained, ``(n,)``."""
    raw_sigma: Tensor
    """What σ is computed from, so that it stays positive, ``(n,)``."""
    baseline: Tensor
    """A running mean of the validation loss, for the score function of ``direct`` hyperparameters."""
    _lowest: Tensor
    _highest: Tensor
    _raw_lowest: Tensor
    _raw_highest: Tensor
    _lower: Tensor
    _width: Tensor
    _columns: Tensor
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
    ):
        super().__init__()
        self.space = space if isinstance(space, HyperSpace) else HyperSpace(space)
        names = self.space.names
        self.index = {name: i for i, name in enumerate(names)}
        self.per_batch = self._names("per_batch", per_batch)
        self.direct = self._names("direct", names if direct is True else direct or ())
        self.constants = {k: v for k, v in (constants or {}).items() if k not in self.index}
        self.tune_scale = tune_scale
        self.register_buffer("lam", torch.tensor(self._initial(init or {})))
        sigma = self._initial_scale(scale)
        self.register_buffer("raw_sigma", torch.tensor([_inverse_softplus(s) for s in sigma]))
        self.register_buffer("baseline", torch.zeros(2))
        held = [self.space.transform(name).held for name in names]
        for name, bound in {
            "_lowest": [min(low, u) for (low, _), u in zip(held, self.lam.tolist(), strict=True)],
            "_highest": [max(high, u) for (_, high), u in zip(held, self.lam.tolist(), strict=True)],
            "_raw_lowest": [_inverse_softplus(min(SMALLEST_SCALE, s)) for s in sigma],
            "_raw_highest": [_inverse_softplus(max(LARGEST_SCALE, s)) for s in sigma],
        }.items():
            setattr(self, name, torch.tensor(bound))
        kinds = {name: self.space.transform(name) for name in names}
        self._uniform = [name for name, t in kinds.items() if isinstance(t, Bounded) and t.kind == "uniform"]
        bounds = [kinds[name].ends for name in self._uniform]
        self._lower = torch.tensor([float(low) for low, _ in bounds])
        self._width = torch.tensor([float(high - low) for low, high in bounds])
        self._columns = torch.tensor([self.index[name] for name in self._uniform], dtype=torch.long)
        self._per_batch_mask = torch.tensor([name in self.per_batch for name in names])
        self._direct_mask = torch.tensor([name in self.direct for name in names])
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
        start = {name: float(value) for name, value in middle.items()} | self.space.init | dict(init)
        return self.space.unconstrain(start)

    def _initial_scale(self, scale: float | Mapping[str, float]) -> list[float]:
        if isinstance(scale, Mapping):
            for name in self._names("scale", list(scale)) ^ set(self.index):
                raise SpaceError(f"scale: {name} is missing; give one number for all, or one for each name")
        result = []
        for name in self.space.names:
            given = scale[name] if isinstance(scale, Mapping) else scale
            if isinstance(given, str) or not 0 < given < math.inf:
                raise SpaceError(f"{name}: the perturbation scale is {given!r}; it must be positive and finite")
            result.append(float(given))
        return result

    def constrain(self, u: Tensor) -> dict[str, Tensor]:
        """r(u) by name, u ``(n,)`` or ``(batch, n)``; per-batch names have one value. All rates in one operation."""
        result = {}
        if self._uniform:
            block = torch.addcmul(self._lower, torch.sigmoid(u[..., self._columns]), self._width)
            result = dict(zip(self._uniform, block.unbind(-1), strict=True))
        for name, k in self.index.items():
            value = result[name] if name in result else self.space.transform(name).constrain(u[..., k])
            result[name] = value[0] if value.dim() and name in self.per_batch else value
        return result

    @property
    def sigma(self) -> Tensor:
        """σ > 0, ``(n,)``."""
        return F.softplus(self.raw_sigma)

    def sample(
        self,
        batch_size: int | None = None,
        *,
        groups: int | None = None,
        antithetic: bool = False,
        differentiable: bool = False,
    ) -> HyperSample:
        """λ+ε with ε ~ N(0, diag σ²): one draw shared by all examples, or one for each of ``batch_size``.

        With ``groups``, so many groups of neighbouring examples share a draw each; with ``antithetic``, the second half
        of the draws has the noise of the first, negated. With ``differentiable``, the sample's ``delta`` has a gradient
        with respect to its ``lam`` and ``sigma``.
        """
        n, device = len(self.space), self.lam.device
        if batch_size is None:
            return self.sample_at(torch.randn(n, device=device).to(self.lam), differentiable=differentiable)
        draws = min(groups or batch_size, batch_size)
        noise = torch.randn(draws - draws // 2 if antithetic else draws, n, device=device).to(self.lam)
        if antithetic:
            noise = torch.cat([noise, -noise[: draws // 2]])
        if draws < batch_size:
            noise = noise[torch.arange(batch_size, device=device) * draws // batch_size]
        if self.per_batch:
            noise = torch.where(self._per_batch_mask, noise[:1], noise)
        return self.sample_at(noise, differentiable=differentiable)

    def sample_at(self, noise: Tensor, *, differentiable: bool = False) -> HyperSample:
        """The sample with ε = σ · noise, noise ``(n,)`` or ``(batch, n)``."""
        if not differentiable:
            with torch.no_grad():
                return HyperSample(self, self.sigma * noise, noise=noise)
        lam, raw = self.lam.detach().clone().requires_grad_(), self.raw_sigma.detach().clone()
        raw.requires_grad_(self.tune_scale)
        delta = torch.addcmul(lam - self.lam, F.softplus(raw), noise)
        if self.direct:
            delta = torch.where(self._direct_mask, delta.detach(), delta)
        return HyperSample(self, delta, lam, raw, noise)

    def mean(self, *, differentiable: bool = False) -> HyperSample:
        """The deterministic λ, shared by all examples: what evaluation uses."""
        lam = self.lam.detach().clone().requires_grad_() if differentiable else self.lam
        return HyperSample(self, lam - self.lam, lam if differentiable else None, None)

    @property
    def current(self) -> HyperSample:
        """The sample in use: the one set by :meth:`using`, else the deterministic λ."""
        return self._active if self._active is not None else self.mean()

    @contextmanager
    def using(self, sample: HyperSample) -> Iterator[HyperSample]:
        """Makes ``sample`` the one that named regularisers read."""
        before, self._active = self._active, sample
        try:
            yield sample
        finally:
            self._active = before

    def entropy(self, raw_sigma: Tensor | None = None) -> Tensor:
        """H[p(ε|σ)] = Σ log(σ √(2πe))."""
        sigma = self.sigma if raw_sigma is None else F.softplus(raw_sigma)
        return (sigma.log() + 0.5 * math.log(2 * math.pi * math.e)).sum()

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
        assert sample.lam is not None
        sigma = self.sigma if sample.sigma is None else F.softplus(sample.sigma)
        z = (sample.unconstrained - sample.lam) / sigma
        log_prob = torch.where(self._direct_mask, -0.5 * z.square() - sigma.log(), torch.zeros_like(z))
        losses = losses.detach()
        mean = losses.mean()
        total, weight = self.baseline  # a running mean is the one over the other; there is none in the first step
        advantage = torch.where(weight > 0, mean - total / weight.clamp_min(0.1), torch.zeros_like(mean))
        self.baseline.mul_(0.9).add_(0.1 * torch.stack([mean, torch.ones_like(mean)]))
        if log_prob.dim() == 1:
            return advantage * log_prob.sum()
        shared = torch.where(self._per_batch_mask, log_prob[0], torch.zeros_like(log_prob[0])).sum()
        own = torch.where(self._per_batch_mask, torch.zeros_like(log_prob), log_prob).sum(1)
        if losses.dim() == 0 or len(losses) == 1:
            return advantage * (shared + own.sum())
        others = (losses.sum() - losses) / (len(losses) - 1)
        return advantage * shared + ((losses - others) * own).mean()

    @torch.no_grad()
    def hold(self) -> None:
        """Keeps λ and σ where r and the draws still respond to them."""
        self.lam.clamp_(self._lowest, self._highest)
        self.raw_sigma.clamp_(self._raw_lowest, self._raw_highest)

    def values_now(self) -> dict[str, float | int]:
        """r(λ) as plain Python numbers, by name."""
        constrained = self.space.constrain(self.lam.detach().cpu().double())
        return self.space.native({name: cast(float, v.tolist()) for name, v in constrained.items()})

    def scales_now(self) -> dict[str, float]:
        """σ as plain Python numbers, by name."""
        return dict(zip(self.space.names, self.sigma.detach().cpu().tolist(), strict=True))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Hyper:
        """Moves in place, so that optimizers of λ and σ stay valid.

        Half precision is not for λ. Nor is a device without values: with ``to("meta")`` and ``to_empty`` λ stays.
        """
        for tensor in [*self._buffers.values(), *(getattr(self, name) for name in _CONSTANTS)]:
            assert tensor is not None
            moved = fn(tensor)
            narrow = moved.is_floating_point() and moved.dtype not in (torch.float32, torch.float64)
            if not moved.is_meta:
                tensor.data = tensor.data.to(moved.device, tensor.dtype if narrow else moved.dtype)
        return self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """One entry per name, so that a space in another order loads the right values."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for key in ("lam", "raw_sigma"):
            column = destination.pop(f"{prefix}{key}")
            for name, k in self.index.items():
                destination[f"{prefix}{key}/{name}"] = column[k].clone()  # safetensors has no views

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        saved = state_dict.get(f"{prefix}_extra_state")
        if saved is not None:
            self._check_space(saved_space(saved))
        state_dict = dict(state_dict)
        for key in ("lam", "raw_sigma"):
            columns = [state_dict.pop(f"{prefix}{key}/{name}", None) for name in self.space.names]
            if all(column is not None for column in columns):
                state_dict[f"{prefix}{key}"] = torch.stack(cast("list[Tensor]", columns))
        local_metadata = {**local_metadata, "assign_to_params_buffers": False}  # optimizers of λ and σ stay valid
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def get_extra_state(self) -> Tensor:
        """The space that λ belongs to: JSON in a tensor of bytes, so that a state consists of tensors alone."""
        return torch.tensor(list(json.dumps(self.space.to_json()).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor | Mapping[str, Any]) -> None:
        """Checks that the saved λ belongs to this space."""
        self._check_space(saved_space(state))

    def _check_space(self, saved: Mapping[str, Any]) -> None:
        own = self.space.to_json()
        for name in [*own, *saved]:
            if own.get(name) != saved.get(name):
                raise SpaceError(
                    f"{name}: the saved state has {saved.get(name, 'no such hyperparameter')}, "
                    f"this space has {own.get(name, 'no such hyperparameter')}"
                )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_active": None}

    def extra_repr(self) -> str:
        """The current values."""
        return ", ".join(f"{name}={value:.4g}" for name, value in self.values_now().items())


def saved_space(extra_state: Tensor | Mapping[str, Any]) -> dict[str, Any]:
    """The space, as JSON, of a saved :class:`Hyper`; states of earlier versions have it as a dict."""
    if isinstance(extra_state, Tensor):
        return cast("dict[str, Any]", json.loads(bytes(extra_state.tolist())))
    return dict(extra_state["space"])


def _inverse_softplus(y: float) -> float:
    return y + math.log(-math.expm1(-y))
