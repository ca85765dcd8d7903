"""Bindings: the dropout rates of an ordinary model's own modules, following hyperparameters by name.

A binding names a module (``nn.Dropout`` and its kin, the ``dropout`` of an ``nn.LSTM`` or ``nn.MultiheadAttention``) or
an attribute that holds a rate (``"attn.dropout"``). The module's attribute follows the hyperparameter, within a step at
λ+ε and outside at λ; no class is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from stn_tune.errors import ConversionError, LayoutError
from stn_tune.hyper import HyperSample, Value
from stn_tune.nn.regularizers import Reader, alpha_dropout, dropout, feature_alpha_dropout, feature_dropout

Rate = Callable[..., Tensor]

FORWARDS: dict[type[nn.Module], Rate] = {
    nn.Dropout: dropout,
    nn.Dropout1d: feature_dropout,
    nn.Dropout2d: feature_dropout,
    nn.Dropout3d: feature_dropout,
    nn.AlphaDropout: alpha_dropout,
    nn.FeatureAlphaDropout: feature_alpha_dropout,
}
"""Dropouts of torch, and what they compute where the rate is a tensor."""

ATTRIBUTES: dict[type[nn.Module], str] = {
    nn.modules.dropout._DropoutNd: "p",
    nn.RNNBase: "dropout",
    nn.MultiheadAttention: "dropout",
}
"""Modules that hold a rate, and the attribute that holds it."""


@dataclass
class Binding:
    """One attribute of one module that follows a hyperparameter."""

    path: str
    attribute: str
    name: str
    batch_dim: int = 0
    used: bool = False
    """Whether a training step has called the module, or read the attribute."""
    _rate: Value = field(default=0.0, repr=False, compare=False)
    _installed: Callable[[Tensor], Tensor] | None = field(default=None, repr=False, compare=False)

    @property
    def where(self) -> str:
        """The attribute's path: ``"block.drop.p"``."""
        return f"{self.path}.{self.attribute}" if self.path else self.attribute

    def is_number(self, model: nn.Module) -> bool:
        """Whether the rate is a number within steps, too: torch's fused layers take nothing else."""
        return type(model.get_submodule(self.path)) not in FORWARDS

    def set(self, model: nn.Module, value: float) -> None:
        """Outside of steps: the attribute holds a plain number."""
        model.get_submodule(self.path).__dict__[self.attribute] = value

    @contextmanager
    def applied(self, model: nn.Module, sample: HyperSample) -> Iterator[None]:
        """Within a step: the attribute holds the value of the sample."""
        module = model.get_submodule(self.path)
        value = dict.__getitem__(sample, self.name)
        own = module.__dict__
        before = own[self.attribute]
        compute = FORWARDS.get(type(module))
        if compute is None and isinstance(value, Tensor):
            value = self._number(value)
        shared = value.mean() if isinstance(value, Tensor) and value.dim() else value
        replaced = compute is not None and "forward" not in own
        if compute is not None and replaced:  # always the same object: compiled code is valid for one
            self._rate = value
            self._installed = own["forward"] = self._installed or partial(self._forward, module, compute)
        watched = None if self.used or torch.compiler.is_compiling() else _Watched(module._buffers, self, shared)
        if watched is None:
            own[self.attribute] = shared
        else:  # nn.Module finds what is not in its dict among its buffers
            del own[self.attribute]
            own["_buffers"] = watched
        try:
            yield
        finally:
            if watched is not None:
                own["_buffers"] = watched.plain
            own[self.attribute] = before
            if replaced:
                own.pop("forward", None)
        if self.used and module.training:
            sample.read.add(self.name)

    def _number(self, value: Tensor) -> float:
        if value.dim():
            raise LayoutError(
                f"{self.where} is read as one number, which all examples share: name {self.name!r} in per_batch=[...], "
                f"or use draw='batch'"
            )
        return cast(float, value.tolist()) if value.is_cpu else value.item()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rate": 0.0, "_installed": None}

    def _forward(self, module: nn.Module, compute: Rate, input: Tensor) -> Tensor:
        if not module.training:
            return input
        self.used = True
        try:
            return compute(input, self._rate, True, batch_dim=self.batch_dim)
        except LayoutError as error:
            raise LayoutError(
                f"{self.path}: {error}; if another dimension is the batch, say so with batch_dim={{{self.path!r}: 1}}"
            ) from None


class _Watched(dict[str, Any]):
    """A module's buffers and the bound attribute, which notes that it was read."""

    def __init__(self, plain: dict[str, Any], binding: Binding, value: Any):
        super().__init__(plain)
        self.plain, self._binding = plain, binding
        dict.__setitem__(self, binding.attribute, value)

    def __getitem__(self, key: str) -> Any:
        if key == self._binding.attribute:
            self._binding.used = True
        return super().__getitem__(key)

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        if key != self._binding.attribute:
            self.plain[key] = value

    def items(self) -> Any:
        """The buffers alone."""
        return self.plain.items()

    def values(self) -> Any:
        """The buffers alone."""
        return self.plain.values()

    def keys(self) -> Any:
        """The buffers alone."""
        return self.plain.keys()


def matches(path: str, pattern: str) -> bool:
    """Whether a path or glob means ``path``, or a module that holds it."""
    return path == pattern or path.startswith(f"{pattern}.") or fnmatchcase(path, pattern)


def rate_attribute(module: nn.Module) -> str | None:
    """The attribute in which a module of torch holds its dropout rate."""
    return next((attribute for kind, attribute in ATTRIBUTES.items() if isinstance(module, kind)), None)


def resolve(model: nn.Module, bind: Mapping[str, str]) -> tuple[list[Binding], dict[str, str]]:
    """The bindings that ``bind`` (path or glob -> hyperparameter) asks for, and the named regularisers among them."""
    modules = dict(model.named_modules())
    bindings: dict[str, Binding] = {}
    named: dict[str, str] = {}
    for pattern, name in bind.items():
        matched = [pattern] if pattern in modules else [path for path in modules if fnmatchcase(path, pattern)]
        found = False
        for path in matched:
            module = modules[path]
            attribute = rate_attribute(module)
            if isinstance(module, Reader) and len(module.reads) == 1:
                named[path], found = name, True
            elif attribute is not None:
                own = Binding(path, attribute, name)
                bindings[own.where] = own
                found = True
        for own in _matching_attributes(modules, pattern, name):
            bindings[own.where] = own
            found = True
        if not found:
            raise ConversionError(_nothing_to_bind(pattern, matched, modules))
    return list(bindings.values()), named


def _matching_attributes(modules: Mapping[str, nn.Module], pattern: str, name: str) -> list[Binding]:
    """Attributes that hold a rate: the one whose path is given, or all that are called a dropout and match a glob."""
    owner, _, attribute = pattern.rpartition(".")
    if owner in modules and _is_rate(modules[owner], attribute):
        return [Binding(owner, attribute, name)]
    called = [Binding(path, key, name) for path, m in modules.items() for key in m.__dict__ if "drop" in key]
    return [b for b in called if fnmatchcase(b.where, pattern) and _is_rate(modules[b.path], b.attribute)]


def _is_rate(module: nn.Module, attribute: str) -> bool:
    value = module.__dict__.get(attribute)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _nothing_to_bind(pattern: str, matched: list[str], modules: Mapping[str, nn.Module]) -> str:
    can = [path or "(root)" for path, m in modules.items() if rate_attribute(m) or isinstance(m, Reader)]
    known = f"these can be bound: {', '.join(can) or 'none'}"
    if not matched:
        return f"bind: {pattern!r} matches no module and no attribute that holds a number; {known}"
    kind = type(modules[matched[0]]).__name__
    return (
        f"bind: {matched[0]} is a {kind}, which has no known dropout rate; name the attribute that holds it, as in "
        f"{matched[0]}.dropout, or bind another module; {known}"
    )
