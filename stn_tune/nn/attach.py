"""self_tune: an ordinary model gets responses beside its parameters; its classes, objects and weights stay its own."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils.parametrize import ParametrizationList

from stn_tune.errors import ConversionError, LayoutError, unknown_hyperparameter
from stn_tune.hyper import Fixed, Hyper, Source, Value
from stn_tune.nn.bindings import Binding, matches, resolve
from stn_tune.nn.per_example import Fold, Layout, has_form
from stn_tune.nn.regularizers import Reader
from stn_tune.nn.response import NAME, Response, SelfTuning, required, self_tuning_of

log = logging.getLogger("stn_tune")

NORMS: tuple[type[nn.Module], ...] = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Of which a parameter can be: others cannot be added to."""
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
"""Modules that do something with all of their children: nothing is added to them."""

DISTRIBUTED = {"DistributedDataParallel", "FSDPModule", "FullyShardedDataParallel"}
"""Wrappers that note a model's parameters when they are made."""

M = TypeVar("M", bound=nn.Module)

RESPONDS = ""
"""The reason of a parameter that responds."""


def self_tune(
    model: M,
    hyper: Hyper,
    *,
    bind: Mapping[str, str] | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    batch_dim: Mapping[str, int] | None = None,
    fold: Mapping[str, Fold] | None = None,
) -> M:
    """Makes ``model`` respond to the hyperparameters; returns the same model.

    Its modules stay what they are, and outside of steps it computes what it
    did. It gets one more submodule, ``_stn``, whose parameters are the
    responses: build the optimizer afterwards. Weights and biases respond,
    unless they are frozen, a norm's, an embedding's or tied to one.
    :func:`describe` lists what responds, and why the rest does not.

    Args:
        model: any module; it is changed in place.
        hyper: the hyperparameters that it responds to.
        bind: module path or glob -> hyperparameter, for dropouts that are not
            named after one: ``{"*.drop": "dropout"}``. A path may also lead to
            an attribute that holds a rate: ``"attn.dropout"``.
        include: paths or globs of modules or parameters that respond although
            they would not by default.
        exclude: paths or globs (``"head"``, ``"encoder.*"``) whose parameters
            stay plain.
        batch_dim: only for ``draw="example"``: path or glob -> the dimension of
            a layer's input that is the batch, where it is not 0.
        fold: only for ``draw="example"``: path or glob -> "inner" or "outer",
            where the leading dimension of a layer's input holds several rows
            per example: ``(batch, k)`` or ``(k, batch)`` flattened.
    """
    there = self_tuning_of(model)
    if there is not None:
        options = {"bind": bind, "include": include, "exclude": exclude, "batch_dim": batch_dim, "fold": fold}
        _require_the_same(model, there, hyper, [name for name, given in options.items() if given])
        return model
    _refuse_distributed(model)
    match = _Patterns(model, include=include, exclude=exclude, batch_dim=batch_dim or {}, fold=fold or {})
    reasons = plan(model, match)
    if not any(reason == RESPONDS for reason in reasons.values()):
        raise ConversionError(_nothing_responds(model, reasons))
    layouts = _layouts(model, match, batch_dim or {}, fold or {})
    bindings, named = resolve(model, bind or {})
    for binding in bindings:
        binding.batch_dim = match.value(batch_dim or {}, binding.path) or 0
    match.check_all_used()
    _check_names(model, hyper, bindings, named)
    n = len(hyper.space)
    places = _places(model)
    chosen = {path: p for path, p in _parameters(model).items() if reasons[path] == RESPONDS}
    with torch.no_grad():
        responses = {path: _response(model, path, p, n) for path, p in chosen.items()}
    own = {path: tuple(places[id(p)]) for path, p in chosen.items()}
    _connect_readers(model, hyper, named)
    device = next(iter(chosen.values())).device
    tuning = SelfTuning(model, hyper.to(device), responses, own, tuple(bindings), layouts, reasons)
    _holder(model).add_module(NAME, tuning)
    tuning.settle()
    from stn_tune.nn.inspect import describe

    log.info("%s", describe(model))
    return model


def _require_the_same(model: nn.Module, there: SelfTuning, hyper: Hyper, options: Sequence[str]) -> None:
    """A model that is self-tuned already stays as it is, if that is what is asked for."""
    name = type(model).__name__
    if there.hyper is not hyper:
        raise ConversionError(f"{name} is self-tuned already, with another Hyper: release(model) first")
    part = {id(p) for p in there.model.parameters()}
    if any(id(p) not in part for p in model.parameters()):
        path = next(path for path, module in model.named_modules() if module is there.model)
        raise ConversionError(
            f"{path} is self-tuned already, but not the whole {name}: release the part, and self_tune the whole, with "
            f"exclude=[...] for what should not respond"
        )
    if options:
        raise ConversionError(f"{name} is self-tuned already: {', '.join(options)} has no effect; release(model) first")


def _refuse_distributed(model: nn.Module) -> None:
    for name, module in model.named_modules():
        kinds = DISTRIBUTED & {kind.__name__ for kind in type(module).__mro__}
        if kinds:
            raise ConversionError(
                f"{name or type(model).__name__} is wrapped by {kinds.pop()}, which would not exchange the gradients "
                f"of responses: self_tune it before you wrap it"
            )


def release(model: M) -> M:
    """Takes off what :func:`self_tune` added: the user's own model, its dropouts at the final values."""
    tuning = required(model)
    tuning.settle()
    values = Fixed(tuning.hyper.values_now() | tuning.hyper.constants)
    for module in tuning.model.modules():
        if isinstance(module, Reader) and module.source is tuning.hyper:
            object.__setattr__(module, "source", values)
    for module in tuning.model.modules():
        if module._modules.get(NAME) is tuning:
            del module._modules[NAME]
            break
    return model


def plain_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """The state dict of ``model`` without what :func:`self_tune` added, copied: the plain model's own.

    ``net.load_state_dict(plain_state_dict(model))`` for a plain instance of the same class; it computes the same.
    """
    prefixes = tuple(f"{path}." for path, m in model.named_modules(remove_duplicate=False) if isinstance(m, SelfTuning))
    state = model.state_dict()
    return {
        key: value.detach().clone() if isinstance(value, Tensor) else value
        for key, value in state.items()
        if not prefixes or not key.startswith(prefixes)
    }


def fix(model: nn.Module, values: Mapping[str, Value], *, bind: Mapping[str, str] | None = None) -> Fixed:
    """Gives the named regularisers and bound dropouts of a plain model fixed values; ``set`` changes them later."""
    source = Fixed(dict(values))
    connect(model, source, bind)
    return source


def connect(model: nn.Module, source: Fixed, bind: Mapping[str, str] | None = None) -> None:
    """Lets the named regularisers and bound dropouts of a plain model read from ``source``."""
    bindings, named = resolve(model, bind or {})
    _check_names(model, source, bindings, named)
    _connect_readers(model, source, named)
    source.follow([(model.get_submodule(b.path), b.attribute, b.name) for b in bindings])


def _check_names(model: nn.Module, source: Source, bindings: Iterable[Binding], named: Mapping[str, str]) -> None:
    known = source.current
    for binding in bindings:
        if binding.name not in known:
            raise ConversionError(f"{binding.where}: {unknown_hyperparameter(binding.name, known)}")
    for path, layer in model.named_modules():
        if isinstance(layer, Reader):
            for name in [named[path]] if path in named else layer.names:
                if name not in known:
                    raise ConversionError(f"{path or type(layer).__name__}: {unknown_hyperparameter(name, known)}")


def _connect_readers(model: nn.Module, source: Source, named: Mapping[str, str]) -> None:
    for path, layer in model.named_modules():
        if isinstance(layer, Reader):
            if path in named:
                layer.reads = dict.fromkeys(layer.reads, named[path])
            object.__setattr__(layer, "source", source)
            object.__setattr__(layer, "path", path)


def plan(model: nn.Module, match: _Patterns) -> dict[str, str]:
    """Every parameter by path, with the reason why it does not respond; empty where it does."""
    places = _places(model)
    owners = {path: model.get_submodule(path.rpartition(".")[0]) for paths in places.values() for path in paths}
    reasons = {}
    for path, parameter in _parameters(model).items():
        if isinstance(parameter, UninitializedParameter):
            kind = type(owners[path]).__name__
            raise ConversionError(
                f"{path}: {kind} has no weights yet; run one batch through the model before self_tune"
            )
        paths = places[id(parameter)]
        asked = any(match.value(match.include, p) for p in paths)
        refused = any(match.value(match.exclude, p) for p in paths)
        kinds = [owners[p] for p in paths]
        if refused:
            reasons[path] = "excluded"
        elif parameter.dtype not in DTYPES:
            reasons[path] = f"of type {str(parameter.dtype).removeprefix('torch.')}"
        elif not parameter.requires_grad:
            reasons[path] = "frozen"
        elif not parameter.numel():
            reasons[path] = "empty"
        elif any(_has_signs(owner) for owner in kinds):
            reasons[path] = "signs on its diagonal"
        elif asked:
            reasons[path] = RESPONDS
        elif any(isinstance(owner, EMBEDDINGS) for owner in kinds):
            reasons[path] = "tied embedding" if len(paths) > 1 else "embedding"
        elif any(_is_norm(owner) for owner in kinds):
            reasons[path] = "norm"
        elif any(isinstance(owner, nn.PReLU) for owner in kinds):
            reasons[path] = "slope of an activation"
        else:
            reasons[path] = RESPONDS
    return reasons


def _has_signs(module: nn.Module) -> bool:
    """torch's orthogonal parametrization by reflections keeps ±1 on a diagonal, and nothing between them."""
    return isinstance(module, ParametrizationList) and any(
        getattr(getattr(p, "orthogonal_map", None), "name", "") == "householder" for p in module
    )


def _is_norm(module: nn.Module) -> bool:
    """Norms of torch, and modules that are called one and have nothing but vectors."""
    vectors = all(p.dim() <= 1 for p in module.parameters(recurse=False))
    return isinstance(module, NORMS) or ("Norm" in type(module).__name__ and vectors)


def _parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Every parameter once, by its first path."""
    return dict(model.named_parameters())


def _places(model: nn.Module) -> dict[int, list[str]]:
    """The id of every parameter -> all paths at which modules hold it."""
    result: dict[int, list[str]] = {}
    seen: set[tuple[int, str]] = set()
    for path, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and (id(module), name) not in seen:
                seen.add((id(module), name))
                result.setdefault(id(parameter), []).append(f"{path}.{name}" if path else name)
    return result


def _response(model: nn.Module, path: str, parameter: nn.Parameter, n: int) -> Response:
    owner_path, _, name = path.rpartition(".")
    owner = model.get_submodule(owner_path)
    axis = _row_axis(owner, parameter)
    fan_in = None
    if parameter.dim() < 2:
        sibling = owner._parameters.get(name.replace("bias", "weight"))
        if sibling is not None and sibling.dim() > 1:
            fan_in = sibling.numel() // sibling.shape[_row_axis(owner, sibling)]
        else:
            fan_in = max(1, parameter.numel())
    response = Response(parameter, n, axis, fan_in)
    padding = getattr(owner, "padding_idx", None)
    if isinstance(owner, EMBEDDINGS) and padding is not None:
        response.U[padding].zero_()
    return response


def _row_axis(owner: nn.Module, parameter: Tensor) -> int:
    """Along which axis of a weight the layer's outputs lie."""
    if parameter.dim() < 2:
        return 0
    output_last = type(owner).__name__ == "Conv1D" and getattr(owner, "nf", None) == parameter.shape[1]
    return 1 if isinstance(owner, (*EMBEDDINGS, *TRANSPOSED)) or output_last else 0


def _holder(model: nn.Module) -> nn.Module:
    """The module that gets the submodule: the model, or the first module in it that is no container of others."""
    for module in model.modules():
        if not isinstance(module, CONTAINERS):
            return module
    raise ConversionError(f"{type(model).__name__} has no module but containers")


def _layouts(
    model: nn.Module, match: _Patterns, batch_dim: Mapping[str, int], fold: Mapping[str, Fold]
) -> dict[str, Layout]:
    layouts = {}
    for path, layer in model.named_modules():
        dim, how = match.value(batch_dim, path), match.value(fold, path)
        if how not in (None, "inner", "outer"):
            raise LayoutError(f"{path}: fold={how!r}; it must be 'inner' or 'outer'")
        if isinstance(layer, nn.RNNBase):
            if path in batch_dim or path in fold:
                raise LayoutError(f"{path}: an LSTM's batch dimension is set by its batch_first")
        elif (dim is not None or how is not None) and has_form(layer):
            layouts[path] = Layout(dim, how)
        if isinstance(layer, Reader) and path in batch_dim and hasattr(layer, "batch_dim"):
            cast(Any, layer).batch_dim = batch_dim[path]
    return layouts


class _Patterns:
    """Paths and globs of the options, and which of them matched anything."""

    def __init__(self, model: nn.Module, **options: Mapping[str, Any] | Sequence[str]):
        for option, given in options.items():
            if isinstance(given, str):
                raise TypeError(f"{option} is {given!r}; it must be a list of paths or globs, such as [{given!r}]")
        self.include = cast("Sequence[str]", options["include"])
        self.exclude = cast("Sequence[str]", options["exclude"])
        self._model = model
        self._all = [pattern for given in options.values() for pattern in given]
        self._used: set[str] = set()

    def value(self, given: Mapping[str, Any] | Sequence[str], path: str) -> Any:
        """What the first pattern says that matches ``path``; True for a list."""
        for pattern in given:
            if matches(path, pattern):
                self._used.add(pattern)
                return given[pattern] if isinstance(given, Mapping) else True
        return None

    def check_all_used(self) -> None:
        """Raises for a pattern that matched nothing."""
        names = [name for name, _ in self._model.named_modules() if name]
        for path in names:
            for pattern in self._all:
                self.value([pattern], path)
        for pattern in self._all:
            if pattern not in self._used:
                raise ConversionError(
                    f"{pattern!r} matches no layer of {type(self._model).__name__}; layers: {', '.join(names)}"
                )


def _nothing_responds(model: nn.Module, reasons: Mapping[str, str]) -> str:
    what = ", ".join(f"{path} ({reason})" for path, reason in list(reasons.items())[:5]) or "it has none"
    return (
        f"no parameter of {type(model).__name__} would respond to the hyperparameters: {what}; unfreeze some, or name "
        f"them in include=[...]"
    )
