"""Eq. 10: layers that compute with one λ+ε per example. One layer, one file, registered by ``@per_example(nn.Linear)``.

For the length of a step with one draw per example such a layer's ``forward`` is the registered function; its class and
its parameters stay. A layer without one computes with the weights at the mean of the batch's draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from stn_tune.errors import ConversionError, LayoutError

if TYPE_CHECKING:
    from stn_tune.nn.response import Responding, Response, SelfTuning

Fold = Literal["inner", "outer"]
"""How a layer's leading dimension holds more rows than the batch has examples: ``(batch, k)`` flattened keeps an
example's rows together (``inner``), ``(k, batch)`` flattened repeats the batch k times (``outer``)."""


@dataclass(frozen=True)
class Layout:
    """Where the examples are in a layer's input."""

    batch_dim: int | None = None
    fold: Fold | None = None


@dataclass
class Draws:
    """What Eq. 10 needs of a layer's responses: U by name, and Vδ for every example."""

    delta: Tensor
    responses: Mapping[str, Response]
    layout: Layout
    path: str

    def u(self, name: str) -> Tensor | None:
        """The U of a parameter; None where it does not respond."""
        return self.responses[name].U if name in self.responses else None

    def scale(self, name: str) -> Tensor:
        """Vδ of a parameter, ``(batch, rows)``."""
        return self.responses[name].scale(self.delta)

    @cached_property
    def batch_size(self) -> int:
        """The number of examples."""
        return len(self.delta)

    def spread(self, scale: Tensor, x: Tensor, channel_dim: int = -1) -> Tensor:
        """``(batch, rows)`` scalars, shaped to broadcast against the layer's output for the input x."""
        dim = self.layout.batch_dim or 0
        per_row = self._rows(scale, x.shape[dim] if x.dim() else 0, dim)
        shape = [1] * x.dim()
        shape[dim] = per_row.shape[0]
        shape[channel_dim] = per_row.shape[1]
        return per_row.view(shape)

    def _rows(self, scale: Tensor, rows: int, dim: int) -> Tensor:
        batch = len(scale)
        if rows == batch:
            return scale
        if self.layout.fold is not None and rows % batch == 0:
            k = rows // batch
            return scale.repeat_interleave(k, 0) if self.layout.fold == "inner" else scale.repeat(k, 1)
        raise LayoutError(
            f"{self.path}: dimension {dim} of its input has size {rows}, but the batch has {batch} examples; if it "
            f"holds several rows per example, say so with fold={{'{self.path}': 'inner'}} ('outer' if the batch is "
            f"repeated as a whole), if the batch is another dimension, with batch_dim={{'{self.path}': 1}}; or use "
            f"draw='batch'"
        )


Forward = Callable[..., Any]
Supports = Callable[[nn.Module], bool]

FORMS: dict[type[nn.Module], tuple[Forward, Supports]] = {}
"""Kind of layer -> its forward pass by Eq. 10, and whether it has one with the settings of a given layer."""


def per_example(*kinds: type[nn.Module], supports: Supports = lambda layer: True) -> Callable[[Forward], Forward]:
    """Registers ``forward(layer, draws, *inputs)`` as the Eq. 10 form of layers of these kinds."""

    def register(forward: Forward) -> Forward:
        for kind in kinds:
            FORMS[kind] = forward, supports
        return forward

    return register


@dataclass(frozen=True)
class Form:
    """A layer's Eq. 10 form, ready to be put in the place of its forward pass."""

    forward: Forward
    responses: Mapping[str, Response]
    layout: Layout
    path: str

    @contextmanager
    def installed(self, module: nn.Module, draws: Draws, watch: bool) -> Iterator[None]:
        """For the length of a step, the module's forward pass is this one; reads past it are found with ``watch``."""
        own, plain = module.__dict__, module._parameters
        forward = partial(self.forward, module, draws)
        if watch:
            own["_parameters"] = watched = _Watched(plain, self)
            forward = partial(watched.inside, forward)
        own["forward"] = forward
        try:
            yield
        finally:
            del own["forward"]
            own["_parameters"] = plain


class _Watched(dict[str, Any]):
    """A module's parameters: one that is read outside its forward pass must not take part in the loss.

    Its dtype or device may be read; but what is computed with it has no draw per example.
    """

    def __init__(self, plain: dict[str, Any], form: Form):
        super().__init__(plain)
        self._plain, self._form, self._inside = plain, form, False

    def inside(self, forward: Forward, *args: Any, **kwargs: Any) -> Any:
        """Runs the module's own forward pass."""
        self._inside = True
        try:
            return forward(*args, **kwargs)
        finally:
            self._inside = False

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if self._inside or name not in self._form.responses or not (torch.is_grad_enabled() and value.requires_grad):
            return value
        read = value.view_as(value)
        read.register_hook(partial(_read_past_its_layer, f"{self._form.path}.{name}"))
        return read

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self._plain[name] = value


def _read_past_its_layer(path: str, gradient: Tensor) -> None:
    raise ConversionError(
        f"{path} is read past its layer, as in F.linear(h, layer.weight), where it has no draw per example: "
        f"exclude=[{path!r}], or use draw='batch'"
    )


def has_form(module: nn.Module) -> bool:
    """Whether a layer can compute with one draw per example: of a registered kind, with that kind's own forward."""
    return _registered(module) is not None


def _registered(module: nn.Module) -> Forward | None:
    for kind in type(module).__mro__:
        if kind in FORMS and type(module).forward is kind.forward and "forward" not in module.__dict__:
            forward, supports = FORMS[kind]
            return forward if supports(module) else None
    return None


def form_of(tuning: SelfTuning, responding: list[Responding]) -> dict[nn.Module, Form]:
    """The layers that compute per example; a tied parameter needs a form of the same kind in all its places."""
    responses: dict[nn.Module, dict[str, Response]] = {}
    forwards: dict[nn.Module, Forward] = {}
    paths: dict[nn.Module, str] = {}
    for r in responding:
        found = {place.module: _registered(place.module) for place in r.places}
        if None in found.values() or len(set(found.values())) > 1:
            continue
        for place in r.places:
            forwards[place.module] = found[place.module]  # type: ignore[assignment]
            responses.setdefault(place.module, {})[place.name] = r.response
            paths[place.module] = r.path.rpartition(".")[0]
    layouts = tuning.layouts
    return {
        module: Form(forward, responses[module], layouts.get(paths[module], Layout()), paths[module])
        for module, forward in forwards.items()
    }


from stn_tune.nn.per_example import conv, embedding, linear, lstm  # noqa: E402, F401  # they register themselves
