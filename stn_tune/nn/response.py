"""Responses: how parameters depend on the hyperparameters (Eq. 9), kept beside the parameters of an ordinary model."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from stn_tune.errors import ConversionError
from stn_tune.hyper import Hyper, HyperSample, saved_space
from stn_tune.nn.bindings import Binding
from stn_tune.nn.first_order import is_dual
from stn_tune.nn.kernels.autocast import full_precision
from stn_tune.nn.kernels.memory import Memory

NAME = "_stn"
"""Under which name the model holds what ``self_tune`` adds."""

PER_EXAMPLE: dict[int, tuple[Response, Tensor]] = {}
"""In a step with one draw per example: the id of each parameter that has one weight per example -> its response, δ."""


class Response(nn.Module):
    """Ŵ(λ+δ) = W + (Vδ) ⊙row U, for one parameter W (Eq. 9, centred on the current λ).

    U has the shape of W; V is ``(rows, n)``, one scalar per row of W and hyperparameter, where the rows are the slices
    of W along ``axis``: the outputs of a layer.
    """

    def __init__(self, like: Tensor, n: int, axis: int = 0, fan_in: int | None = None):
        super().__init__()
        rows = like.shape[axis] if like.dim() else 1
        self.axis = axis
        self._bound = 1 / math.sqrt(fan_in or max(1, like.numel() // rows))
        self._memory = Memory()
        self.U = nn.Parameter(torch.empty_like(like, requires_grad=False))
        self.V = nn.Parameter(torch.empty(rows, n, dtype=like.dtype, device=like.device))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Fresh U and V, as torch's modules have fresh weights: after ``to_empty`` they have no values."""
        self.U.uniform_(-self._bound, self._bound)
        self.V.normal_(std=0.01)

    def extra_repr(self) -> str:
        """The shapes of U and V."""
        return f"U={tuple(self.U.shape)}, V={tuple(self.V.shape)}"

    def scale(self, delta: Tensor) -> Tensor:
        """Vδ: ``(rows,)`` for one δ, ``(batch, rows)`` for one per example."""
        with full_precision(self.V.device):
            return delta.to(self.V.dtype) @ self.V.t()

    def at(self, weight: Tensor, delta: Tensor) -> Tensor:
        """Ŵ for one δ ``(n,)``."""
        return row_scaled(weight, self.scale(delta), self.U, self._memory, self.axis)

    def term(self, delta: Tensor) -> Tensor:
        """(Vδ) ⊙row U, what Ŵ adds to W."""
        return _spread(self.scale(delta), self.U, self.axis) * self.U

    def squared_norm(self, weight: Tensor, delta: Tensor) -> Tensor:
        """‖Ŵ‖², ``(batch,)`` for one δ per example."""
        w, u = self._rows(weight), self._rows(self.U)
        s = self.scale(delta)
        return (w.square().sum(1) + 2 * s * (w * u).sum(1) + s.square() * u.square().sum(1)).sum(-1)

    @torch.no_grad()
    def subtract_gradient(self, weight_gradient: Tensor, delta: Tensor) -> None:
        """Takes ∂⟨G, Ŵ(λ+δ)⟩/∂(U, V), for a gradient G of W and one δ ``(n,)``, from the gradients of U and V."""
        if self.U.grad is not None:
            self.U.grad.addcmul_(_spread(self.scale(delta), self.U, self.axis), weight_gradient, value=-1)
        if self.V.grad is not None:
            rows = torch.linalg.vecdot(self._rows(weight_gradient), self._rows(self.U))
            self.V.grad.addr_(rows, delta.to(rows), alpha=-1)

    @torch.no_grad()
    def precondition(self, sigma: Tensor, damping: float) -> None:
        """Scales the gradients of U and V so that V ⊙row U moves as far as training would move W.

        A response to ε ~ N(0, σ²) is a product of two factors: each step is divided by the square of the other's size.
        """
        sigma = sigma.to(self.V)
        if self.U.grad is not None:
            size = (self.V * sigma).square().sum(1)
            self.U.grad.div_(_spread(size + damping, self.U, self.axis))
        if self.V.grad is not None:
            size = self._rows(self.U).square().sum(1, keepdim=True)
            self.V.grad.div_((size + damping) * sigma.square())

    def _rows(self, weight: Tensor) -> Tensor:
        """``(rows, the rest)``"""
        return weight.movedim(self.axis, 0).flatten(1) if weight.dim() > 1 else weight.view(-1, 1)

    @torch.no_grad()
    def absorb(self, weight: Tensor, shift: Tensor) -> None:
        """λ moved by ``shift``: W takes up the response, so that Ŵ stays the same function of λ."""
        weight.addcmul_(_spread(self.scale(shift), weight, self.axis), self.U)


def _spread(scale: Tensor, weight: Tensor, axis: int) -> Tensor:
    """One scalar per row, shaped to broadcast against the weight."""
    return scale.view([-1 if d == axis else 1 for d in range(weight.dim())])


class _RowScaled(torch.autograd.Function):
    """``addcmul`` with a backward pass that reads the weights once, block by block, and needs no large buffer."""

    BLOCK = 1 << 18

    @staticmethod
    def forward(ctx: Any, weight: Tensor, scale: Tensor, u: Tensor, memory: Memory) -> Tensor:
        ctx.save_for_backward(scale, u)
        ctx.memory = memory
        return torch.addcmul(weight, scale.view(-1, *[1] * (u.dim() - 1)), u, out=memory.empty_like(u, "value"))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        scale, u = ctx.saved_tensors
        need, need_scale, need_u, _ = ctx.needs_input_grad
        d_u = ctx.memory.empty_like(u, "gradient") if need_u else None
        d_scale = torch.empty_like(scale) if need_scale else None
        rows = max(1, _RowScaled.BLOCK // u[0].numel()) if u.is_cpu else len(u)
        flat, flat_u = d.reshape(len(d), -1), u.reshape(len(u), -1)
        for start in range(0, len(u), rows):
            block = slice(start, start + rows)
            if d_scale is not None:
                torch.sum(flat[block] * flat_u[block], 1, out=d_scale[block])
            if d_u is not None:
                torch.mul(flat[block], scale[block, None], out=d_u.view(len(u), -1)[block])
        return d if need else None, d_scale, d_u, None


def row_scaled(weight: Tensor, scale: Tensor, u: Tensor, memory: Memory, axis: int = 0) -> Tensor:
    """W + scale ⊙row U."""
    if axis or weight.dim() < 2 or is_dual(scale):
        return torch.addcmul(weight, _spread(scale, weight, axis), u)
    return cast(Tensor, _RowScaled.apply(weight, scale, u, memory))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Place:
    """Where a module holds a parameter."""

    module: nn.Module
    name: str

    def put(self, value: Tensor) -> None:
        """Lets the module compute with ``value``; the order of its parameters stays."""
        self.module._parameters[self.name] = cast(nn.Parameter, value)
        if isinstance(self.module, nn.RNNBase) and self.name in self.module._flat_weights_names:
            self.module._flat_weights[self.module._flat_weights_names.index(self.name)] = value


@dataclass(frozen=True)
class Responding:
    """A parameter, its response, and all places that hold it (several where it is tied)."""

    path: str
    weight: nn.Parameter
    response: Response
    places: tuple[Place, ...]


@dataclass(frozen=True)
class _Found:
    """The responding parameters, and the way to each through the model: valid as long as nothing was replaced."""

    responding: list[Responding]
    links: list[tuple[nn.Module, str, nn.Module]]

    def still(self) -> bool:
        """Whether the model holds all of them where they were."""
        return all(parent._modules.get(name) is child for parent, name, child in self.links) and all(
            place.module._parameters.get(place.name) is r.weight for r in self.responding for place in r.places
        )


def _links(model: nn.Module, places: Iterable[str]) -> list[tuple[nn.Module, str, nn.Module]]:
    """Every step from a module to its child on the way to these places, once."""
    result: dict[str, tuple[nn.Module, str, nn.Module]] = {}
    for place in places:
        module, path = model, ""
        for name in place.split(".")[:-1]:
            path = f"{path}.{name}"
            child = cast(nn.Module, module._modules[name])
            result[path] = module, name, child
            module = child
    return list(result.values())


class SelfTuning(nn.Module):
    """What ``self_tune`` adds to a model, as one submodule of it: λ and σ, and a response per responding parameter.

    Outside a step it does nothing: the model is the plain model, its weights are those at λ. Within :meth:`applied`
    every responding parameter's place holds Ŵ(λ+ε).
    """

    def __init__(
        self,
        model: nn.Module,
        hyper: Hyper,
        responses: Mapping[str, Response],
        places: Mapping[str, tuple[str, ...]],
        bindings: tuple[Binding, ...],
        layouts: Mapping[str, Any],
        reasons: Mapping[str, str],
    ):
        super().__init__()
        self.hyper = hyper
        self.responses = nn.ModuleDict({_key(path): response for path, response in responses.items()})
        self.places = dict(places)
        self.bindings = bindings
        self.layouts = dict(layouts)
        self.reasons = dict(reasons)
        object.__setattr__(self, "_model", model)  # no submodule: the model holds this one
        self._found: _Found | None = None
        self._applied = False
        self._settled: int | None = None
        self.passes = 0
        """How often tuners have given the model for a training pass."""
        self.register_state_dict_pre_hook(_refuse_within_a_step)  # type: ignore[no-untyped-call]
        self._register_load_state_dict_pre_hook(_reorder, with_module=True)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_post_hook(_settle)  # type: ignore[no-untyped-call]

    _model: nn.Module

    @property
    def model(self) -> nn.Module:
        """The model that this belongs to."""
        return self._model

    def forward(self, *inputs: Any) -> Any:
        """Passes on what it gets: a container may call all of its children."""
        return inputs[0] if len(inputs) == 1 else inputs

    def __prepare_scriptable__(self) -> nn.Module:
        """torch.jit.script takes what this gives for the model's own, for good."""
        raise ConversionError(
            "torch.jit.script cannot read a self-tuned model: script a plain one with the same weights, "
            "torch.jit.script(stn_tune.release(copy.deepcopy(model)))"
        )

    def train(self, mode: bool = True) -> SelfTuning:
        """Bound dropouts follow a λ that was written to from outside, as averages of models do."""
        lam = self.hyper.lam
        if mode and not self._applied and lam.is_cpu and self._settled != lam._version:
            self.settle()
        return super().train(mode)

    def responding(self) -> list[Responding]:
        """Every responding parameter that is not frozen, as the model holds it now; raises where one was replaced.

        Responses are frozen and unfrozen together with their parameters; U or V alone may be frozen.
        """
        if self._found is None or not self._found.still():
            self._found = self._find()
        for r in self._found.responding:
            if r.weight.requires_grad != (r.response.U.requires_grad or r.response.V.requires_grad):
                r.response.requires_grad_(r.weight.requires_grad)
        return [r for r in self._found.responding if r.weight.requires_grad]

    def _find(self) -> _Found:
        result = []
        for path, places in self.places.items():
            response = cast(Response, self.responses[_key(path)])
            found = [Place(*_locate(self._model, place)) for place in places]
            weight = found[0].module._parameters.get(found[0].name)
            if weight is None or weight.shape != response.U.shape:
                now = "is gone" if weight is None else f"now has the shape {tuple(weight.shape)}"
                raise ConversionError(
                    f"{path} {now}, but its response was made for {tuple(response.U.shape)}: a module was replaced "
                    f"after self_tune; replace it before, or release(model) and self_tune it again"
                )
            for place, name in zip(found, places, strict=True):
                if place.module._parameters.get(place.name) is not weight:
                    raise ConversionError(
                        f"{name} is no longer tied to {path}: tie parameters before self_tune, or untie them before it"
                    )
            result.append(Responding(path, weight, response, tuple(found)))
        return _Found(result, _links(self._model, (place for places in self.places.values() for place in places)))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_found": None, "_settled": None}

    def check_idle(self) -> None:
        """Raises within a step."""
        if self._applied:
            raise RuntimeError("a step is under way already: training, responding and tuning cannot be nested")

    @contextmanager
    def applied(
        self,
        sample: HyperSample,
        responding: list[Responding] | None = None,
        *,
        watch: bool = False,
        offset: Tensor | None = None,
    ) -> Iterator[dict[str, Tensor]]:
        """The model computes with λ+ε: its responding parameters, bound dropouts and named regularisers.

        Gives Ŵ by path, of those that all examples share. With ``watch``, a parameter that has one draw per example and
        is read past its layer is an error, and so is a read of the gradient of Ŵ, or a write to it. With an ``offset``,
        responses are a function of offset + δ, and W − the response to the offset is what the gradient of a weight
        belongs to; the values are the same.
        """
        from stn_tune.nn.per_example import Draws, form_of

        self.check_idle()
        responding = self.responding() if responding is None else responding
        delta = sample.delta if offset is None else sample.delta + offset
        per_example = delta.dim() == 2
        shared = delta.mean(0) if per_example else delta
        own = form_of(self, responding) if per_example else {}
        values: dict[str, Tensor] = {}
        made: list[tuple[Responding, Tensor, Tensor]] = []
        with ExitStack() as stack:
            self._applied = True
            stack.callback(setattr, self, "_applied", False)
            stack.enter_context(self.hyper.using(sample))
            for module, form in own.items():
                draws = Draws(delta, form.responses, form.layout, form.path)
                stack.enter_context(form.installed(module, draws, watch))
            for r in responding:
                weight: Tensor = r.weight
                if offset is not None:
                    weight = weight - r.response.term(offset).detach()
                if all(place.module in own and place.name in own[place.module].responses for place in r.places):
                    PER_EXAMPLE[id(weight)] = r.response, delta
                    stack.callback(PER_EXAMPLE.pop, id(weight))
                    value = weight
                else:
                    value = values[r.path] = r.response.at(weight, shared)
                    made.append((r, weight, value))
                if value is r.weight:
                    continue
                for place in r.places:
                    stack.callback(place.put, r.weight)
                    place.put(value)
            stack.enter_context(self.bound(sample))
            if watch:
                stack.enter_context(_no_gradients_read())
            versions = [(r.weight._version, value._version) for r, _, value in made]
            yield values
            for (r, weight, value), before in zip(made, versions, strict=True):
                written = before != (r.weight._version, value._version)
                if written or (watch and not is_dual(shared) and not _same(value, r.response.at(weight, shared))):
                    raise ConversionError(
                        f"{r.path} was written to within the step, which computes with a copy of it: write to it "
                        f"before or after, run an initialisation by data before self_tune, or exclude=[{r.path!r}]"
                    )

    @contextmanager
    def bound(self, sample: HyperSample) -> Iterator[None]:
        """The bound dropouts alone hold the values of the sample."""
        with ExitStack() as stack:
            for binding in self.bindings:
                stack.enter_context(binding.applied(self._model, sample))
            yield

    @contextmanager
    def plain(self, sample: HyperSample) -> Iterator[None]:
        """The plain weights, with the sample in force for bound dropouts and named regularisers."""
        self.check_idle()
        self._applied = True
        try:
            with self.hyper.using(sample), self.bound(sample):
                yield
        finally:
            self._applied = False

    def absorb(self, shift: Tensor) -> None:
        """λ has moved by ``shift``: every responding parameter takes up its response."""
        for r in self.responding():
            r.response.absorb(r.weight, shift)

    def settle(self) -> None:
        """Bound dropouts hold the values at the current λ, as plain numbers."""
        self._settled = self.hyper.lam._version
        if self.bindings:
            values = self.hyper.values_now() | self.hyper.constants
            for binding in self.bindings:
                binding.set(self._model, values[binding.name])


def _key(path: str) -> str:
    """Under which name the response of a parameter is held: without dots, and not that of a method."""
    key = path.replace(".", "/")
    return f"/{key}" if hasattr(nn.ModuleDict, key) else key


@torch.no_grad()
def _same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.nan_to_num(), b.nan_to_num())


NOT_A_LEAF = "The .grad attribute of a Tensor that is not a leaf"
"""What torch warns of when the gradient of Ŵ is read."""


@contextmanager
def _no_gradients_read() -> Iterator[None]:
    """Raises where a gradient of Ŵ is read: it has none, W has it, so clipping and zeroing would have no effect."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", NOT_A_LEAF, UserWarning, r"(?!torch\._)")  # torch.compile looks at it, too
            yield
    except UserWarning as warning:
        if not str(warning).startswith(NOT_A_LEAF):
            raise
        raise RuntimeError(
            "the gradient of a weight is read within the step, where model.parameters() are the weights at λ+ε: clip, "
            "zero or log gradients after `with tuner.training(batch)`"
        ) from None


def _refuse_within_a_step(tuning: SelfTuning, *_: Any) -> None:
    if tuning._applied:
        raise RuntimeError(
            "state_dict within a step would hold the weights at λ+ε: call it after `with tuner.training(batch)`"
        )


def _reorder(tuning: SelfTuning, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """A saved space may have the same names in another order: the columns of V follow."""
    saved = state_dict.get(f"{prefix}hyper._extra_state")
    names = [] if saved is None else list(saved_space(saved))
    if set(names) != set(tuning.hyper.space.names):
        return
    order = [names.index(name) for name in tuning.hyper.space.names]
    if order != sorted(order):
        for key in [k for k in state_dict if k.startswith(f"{prefix}responses.") and k.endswith(".V")]:
            state_dict[key] = state_dict[key][:, order]


def _settle(tuning: SelfTuning, _: Any) -> None:
    """Bound dropouts follow a λ that was loaded."""
    tuning.settle()


def _locate(model: nn.Module, path: str) -> tuple[nn.Module, str]:
    module, _, name = path.rpartition(".")
    try:
        return model.get_submodule(module), name
    except AttributeError:
        raise ConversionError(
            f"{path} is gone: a module was replaced after self_tune; replace it before, or release(model) and "
            f"self_tune it again"
        ) from None


def required(model: nn.Module) -> SelfTuning:
    """What ``self_tune`` added to ``model``; raises for a plain one."""
    tuning = self_tuning_of(model)
    if tuning is None:
        raise ConversionError(f"{type(model).__name__} is not self-tuned: pass it through self_tune(model, hyper)")
    return tuning


def self_tuning_of(model: nn.Module) -> SelfTuning | None:
    """What ``self_tune`` added to ``model`` or to the model it wraps; None for a plain one."""
    return next((module for module in model.modules() if isinstance(module, SelfTuning)), None)
