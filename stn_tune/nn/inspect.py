"""What a self-tuned model consists of, and which dropouts a model has."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from torch import nn

from stn_tune.errors import ConversionError
from stn_tune.nn.bindings import rate_attribute
from stn_tune.nn.per_example import has_form
from stn_tune.nn.regularizers import Reader
from stn_tune.nn.response import self_tuning_of
from stn_tune.space import HyperSpace

HIGHEST_RATE = 0.9
LOWEST_START = 0.01
"""A dropout of rate 0 starts here: the ends of a domain are no initial values."""


def dropouts(
    model: nn.Module, names: Mapping[str, str] | None = None, *, upper: float = HIGHEST_RATE
) -> tuple[HyperSpace, dict[str, str]]:
    """A space and a ``bind`` for the dropouts of a model, so that it can be self-tuned as it is.

    Args:
        names: path or glob -> hyperparameter: dropouts that match share one. By default each has one of its own, named
            after its path, and starts at its own rate.
        upper: the highest rate of every domain.

    >>> from torch import nn
    >>> space, bind = dropouts(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.2), nn.Linear(3, 3), nn.Dropout(0.4)))
    >>> bind
    {'1': 'dropout_1', '3': 'dropout_3'}
    """
    from ray import tune

    found = {path: module for path, module in model.named_modules() if _has_dropout(module)}
    if not found:
        raise ConversionError(
            f"{type(model).__name__} has no dropout: name a rate of your own in Hyper(...) and bind it"
        )
    bind, starts, used = {}, dict[str, list[float]](), set()
    for path, module in found.items():
        if names is None:
            name = path.replace(".", "_")
            name = f"dropout_{name}" if name.isdigit() else name or "dropout"
        else:
            matching = [p for p in names if p == path or path.startswith(f"{p}.") or fnmatchcase(path, p)]
            if not matching:
                continue
            name = names[matching[0]]
            used.update(matching)
        bind[path] = name
        rate = float(getattr(module, rate_attribute(module) or "p"))
        starts.setdefault(name, []).append(min(max(rate, LOWEST_START), upper - LOWEST_START))
    for pattern in names or ():
        if pattern not in used:
            raise ConversionError(f"dropouts: {pattern!r} matches none of {', '.join(found)}")
    init = {name: sum(rates) / len(rates) for name, rates in starts.items()}
    return HyperSpace({name: tune.uniform(0.0, upper) for name in starts}, init=init), bind


def _has_dropout(module: nn.Module) -> bool:
    """A module with a rate that does something: the dropout of a recurrent layer acts between layers only."""
    if isinstance(module, nn.RNNBase):
        return module.num_layers > 1
    return rate_attribute(module) is not None


def describe(model: nn.Module) -> str:
    """What of ``model`` responds to the hyperparameters, what stays plain and why, what reads which, what it costs."""
    tuning = self_tuning_of(model)
    if tuning is None:
        raise ConversionError(f"{type(model).__name__} is not self-tuned: pass it through self_tune(model, hyper)")
    root = tuning.model
    rows = [("parameter", "shape", "")]
    inside = {id(p) for p in tuning.parameters()}
    plain = responding = 0
    for path, p in root.named_parameters():
        if id(p) in inside:
            continue
        responds = path in tuning.places
        plain += p.numel()
        responding += p.numel() if responds else 0
        what = "responds" if responds else f"plain: {tuning.reasons.get(path, 'added after self_tune')}"
        if responds:
            others = [place for place in tuning.places[path] if place != path]
            what += f", tied: {', '.join(others)}" if others else ""
            what += "" if has_form(root.get_submodule(path.rpartition(".")[0])) else ", always one draw per batch"
        rows.append((path, "×".join(map(str, p.shape)) or "scalar", what))
    rows.append(("", "", ""))
    rows.append(("read by", "", "hyperparameter"))
    for binding in tuning.bindings:
        rows.append((binding.where, type(root.get_submodule(binding.path)).__name__, binding.name))
    for path, layer in root.named_modules():
        if isinstance(layer, Reader) and layer.names:
            rows.append((path or "(root)", type(layer).__name__, ", ".join(layer.names)))
    added = sum(p.numel() for p in tuning.parameters())
    widths = [max(len(row[k]) for row in rows) for k in range(2)]
    lines = [f"{row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}".rstrip() for row in rows]
    head = (
        f"{type(root).__name__}: {responding / plain:.0%} of {plain:,} values respond to {len(tuning.hyper.space)} "
        f"hyperparameters; {added:,} values were added"
    ).replace("%", " %")
    return "\n".join([head, *lines])
