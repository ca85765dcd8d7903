"""self_tune: an ordinary model becomes a self-tuning one, in place and with its weights kept."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize

from stn_tune.errors import ConversionError, unknown_hyperparameter
from stn_tune.hyper import Fixed, Hyper, Source, Value
from stn_tune.nn.per_example.conv import HyperConv1d, HyperConv2d
from stn_tune.nn.per_example.embedding import HyperEmbedding
from stn_tune.nn.per_example.linear import HyperLinear
from stn_tune.nn.per_example.lstm import LSTM, HyperLSTM
from stn_tune.nn.regularizers import Dropout, Dropout2d, Reader
from stn_tune.nn.response import Fold, HyperLayer

log = logging.getLogger("stn_tune")

HYPER: dict[type[nn.Module], type[HyperLayer]] = {
    nn.Linear: HyperLinear,
    nn.Conv1d: HyperConv1d,
    nn.Conv2d: HyperConv2d,
    nn.Embedding: HyperEmbedding,
    nn.LSTM: HyperLSTM,
    LSTM: HyperLSTM,
}
NAMED: dict[type[nn.Module], type[Reader]] = {nn.Dropout: Dropout, nn.Dropout2d: Dropout2d}
PLAIN: tuple[type[nn.Module], ...] = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.PReLU,
)
"""Layers with parameters that stay elementary: their few weights do not depend on λ."""


FUSED = (nn.RNNCellBase, nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
"""Modules that read their children's weights directly, past the children's ``forward``."""


def self_tune(
    module: nn.Module,
    hyper: Hyper,
    *,
    bind: Mapping[str, str] | None = None,
    exclude: Sequence[str] = (),
    batch_dim: Mapping[str, int] | None = None,
    fold: Mapping[str, Fold] | None = None,
) -> nn.Module:
    """Turns the Linear, Conv, Embedding and LSTM layers of ``module`` into hyper layers, in place.

    Weights, ties, hooks and the module objects themselves stay; only parameters are added, so build the
    optimizer afterwards. Layers whose parameters are all frozen (``requires_grad=False``) stay plain.
    :func:`describe` tells what was converted.

    Args:
        bind: module path -> hyperparameter, for layers with no name of their own: ``{"block.drop": "dropout"}``.
        exclude: paths or globs (``"head"``, ``"encoder.*"``) whose layers stay as they are.
        batch_dim: path or glob -> the dimension of the layer's input that is the batch, where it is not 0; of a
            bound ``nn.Dropout`` too.
        fold: path or glob -> "inner" or "outer", where a layer's leading dimension holds several rows per
            example: ``(batch, k)`` or ``(k, batch)`` flattened.
    """
    names = dict(module.named_modules())
    used: set[str] = set()

    def match(options: Mapping[str, Any] | Sequence[str], name: str) -> Any:
        for pattern in options:
            if name == pattern or name.startswith(f"{pattern}.") or fnmatchcase(name, pattern):
                used.add(pattern)
                return options[pattern] if isinstance(options, Mapping) else True
        return None

    plan: list[tuple[str, nn.Module, type[HyperLayer]]] = []
    for name, layer in names.items():
        if match(exclude, name) or isinstance(layer, HyperLayer):
            continue
        if _frozen(layer):
            match(batch_dim or {}, name), match(fold or {}, name)
            continue
        target = HYPER.get(type(layer))
        if target is not None:
            plan.append((name, layer, target))
        else:
            _refuse_unknown(name, layer)
    layouts = [(match(batch_dim or {}, name), match(fold or {}, name)) for name, _, _ in plan]
    dropouts = {
        name: dim
        for name, layer in names.items()
        if (type(layer) is nn.Dropout and name in (bind or {}))
        or (isinstance(layer, Dropout) and name in (batch_dim or {}))
        if (dim := match(batch_dim or {}, name)) is not None
    }
    for pattern in [*exclude, *(batch_dim or {}), *(fold or {})]:
        if pattern not in used:
            raise ConversionError(
                f"{pattern!r} matches no layer of {type(module).__name__}; layers: {', '.join(filter(None, names))}"
            )
    if not plan and not any(isinstance(layer, HyperLayer) for layer in names.values()):
        raise ConversionError(
            f"{type(module).__name__} has no layer to convert (Linear, Conv1d, Conv2d, Embedding or LSTM, not frozen), "
            f"so its weights cannot respond to hyperparameters"
        )
    for (name, layer, target), (dim, how) in zip(plan, layouts, strict=True):
        target.check(layer, name, dim, how)
    connect(module, hyper, bind)
    for name, dim in dropouts.items():
        names[name].batch_dim = dim
    twins: dict[int, nn.Parameter] = {}
    for (name, layer, target), (dim, how) in zip(plan, layouts, strict=True):
        layer.__class__ = target
        assert isinstance(layer, HyperLayer)
        layer._attach(hyper, name, dim, how)
        _tie(layer, twins)
    log.info("%s", describe(module))
    return module


def fix(module: nn.Module, values: Mapping[str, Value], *, bind: Mapping[str, str] | None = None) -> Fixed:
    """Gives the named regularisers of a plain model fixed values; the result's ``set`` changes them later."""
    source = Fixed(dict(values))
    connect(module, source, bind)
    return source


def connect(module: nn.Module, source: Source, bind: Mapping[str, str] | None = None) -> None:
    """Lets every named regulariser of ``module`` read from ``source``."""
    layers = dict(module.named_modules())
    bind = bind or {}
    for path in bind:
        if path not in layers:
            raise ConversionError(f"bind: {path!r} matches no module; modules: {', '.join(filter(None, layers))}")
        if type(layers[path]) not in NAMED and len(getattr(layers[path], "reads", ())) != 1:
            raise ConversionError(
                f"bind: {path} is a {type(layers[path]).__name__}; a hyperparameter can be bound to "
                f"{', '.join(t.__name__ for t in NAMED)} and to stn_tune's own regularisers"
            )
    for path, layer in layers.items():
        for name in [bind[path]] if path in bind else layer.names if isinstance(layer, Reader) else []:
            if name not in source.current:
                raise ConversionError(f"{path or type(layer).__name__}: {unknown_hyperparameter(name, source.current)}")
    for path, layer in layers.items():
        if path in bind:
            if type(layer) in NAMED:
                layer.__class__ = NAMED[type(layer)]
                layer.batch_dim = 0
            layer.reads = dict.fromkeys(getattr(layer, "reads", ["rate"]), bind[path])
        if isinstance(layer, Reader):
            object.__setattr__(layer, "source", source)
            object.__setattr__(layer, "path", path)


def describe(module: nn.Module) -> str:
    """What of ``module`` is self-tuned, one line per layer: its path, its kind, its parameters before and after."""
    lines = []
    for name, layer in module.named_modules():
        own = sum(p.numel() for p in layer.parameters(recurse=False))
        if isinstance(layer, HyperLayer):
            added = sum(layer.get_parameter(key).numel() for key in _added(layer))
            lines.append(f"{name or '(root)'}: {type(layer).__name__}, {own - added:,} + {added:,} parameters")
        elif own:
            what = f"{own:,} {'frozen ' if _frozen(layer) else ''}parameters"
            lines.append(f"{name or '(root)'}: {type(layer).__name__} stays plain, {what}")
        if isinstance(layer, Reader) and layer.names:
            lines.append(f"{name or '(root)'}: {type(layer).__name__} reads {', '.join(layer.names)}")
    return "\n".join(lines)


@torch.no_grad()
def plain_state_dict(module: nn.Module) -> dict[str, Tensor]:
    """The state dict of a plain network that computes what the self-tuned ``module`` does at its λ.

    It has Ŵ(λ) in the place of every converted layer's weights, and fits the model as it was before ``self_tune``:
    ``net.load_state_dict(plain_state_dict(model))``. A model without hyper layers has its own.
    """
    state = {key: copy.deepcopy(value) for key, value in module.state_dict().items()}
    for path, layer in module.named_modules(remove_duplicate=False):
        if isinstance(layer, HyperLayer):
            prefix = f"{path}." if path else ""
            for key in _added(layer):
                del state[prefix + key]
            made = layer.materialize(layer.source.lam.to(next(layer.parameters(recurse=False)).dtype))
            weights = [made] if isinstance(made, Tensor) else [weight for weight in made if weight is not None]
            names = [key for key, _ in layer.named_parameters(recurse=False) if prefix + key in state]
            state |= {prefix + key: weight for key, weight in zip(names, weights, strict=True)}
    first: dict[int, str] = {}
    for key, parameter in module.named_parameters(remove_duplicate=False):
        tied = first.setdefault(id(parameter), key)
        if key in state and not torch.equal(state[key], state[tied]):
            raise ConversionError(
                f"{tied} and {key} are tied, but respond differently to the hyperparameters: no plain model with that "
                f"tie computes the same; convert with exclude=[{tied.rpartition('.')[0]!r}, {key.rpartition('.')[0]!r}]"
            )
    return state


def _frozen(layer: nn.Module) -> bool:
    """Whether the layer has parameters, and none that training moves."""
    own = list(layer.parameters(recurse=isinstance(layer, FUSED) or parametrize.is_parametrized(layer)))
    return bool(own) and not any(p.requires_grad for p in own)


def _added(layer: HyperLayer) -> list[str]:
    """The parameters that conversion gave to ``layer``."""
    return [key for key, _ in layer.named_parameters(recurse=False) if key.startswith(("hyper_", "V", "C"))]


def _tie(layer: HyperLayer, twins: dict[int, nn.Parameter]) -> None:
    """Layers that share an elementary parameter share its hyper twin."""
    for name, parameter in list(layer.named_parameters(recurse=False)):
        if name.startswith("hyper_"):
            elementary = getattr(layer, name.removeprefix("hyper_"), None)
            if elementary is not None:
                setattr(layer, name, twins.setdefault(id(elementary), parameter))


def _refuse_unknown(name: str, layer: nn.Module) -> None:
    """Raises for a layer whose weights would silently not respond, or would be bypassed."""
    where = name or "(root)"
    if isinstance(layer, LazyModuleMixin):
        raise ConversionError(
            f"{where}: {type(layer).__name__} has no weights yet; run one batch through the model before self_tune"
        )
    if parametrize.is_parametrized(layer):
        raise ConversionError(
            f"{where}: its weight is computed by a parametrization (weight_norm, spectral_norm, …), which a hyper "
            f"layer would bypass; remove it, or exclude={[name]}"
        )
    if isinstance(layer, (*HYPER, nn.RNNBase, *FUSED)) or (
        type(layer).__module__.startswith("torch.nn.")
        and next(layer.parameters(recurse=False), None) is not None
        and not isinstance(layer, (PLAIN, nn.ParameterList, nn.ParameterDict))
    ):
        raise ConversionError(
            f"{where}: {type(layer).__name__} has no hyper counterpart (there are "
            f"{', '.join(t.__name__ for t in HYPER if t is not LSTM)}); leave it plain with exclude={[name]}"
        )
