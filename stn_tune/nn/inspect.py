"""What a self-tuned model consists of, and which dropouts a model has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torch import nn

from stn_tune.errors import ConversionError
from stn_tune.nn.bindings import matches, rate_attribute
from stn_tune.nn.per_example import has_form
from stn_tune.nn.regularizers import Reader
from stn_tune.nn.response import SelfTuning, required
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
            matching = [pattern for pattern in names if matches(path, pattern)]
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
    """What of ``model`` responds to the hyperparameters, what stays plain and why, what reads which, what it costs.

    Parameters of repeated layers are one line: ``h.{0..11}.attn.weight``.
    """
    tuning = required(model)
    parameters = _parameter_rows(tuning)
    lines = [*_head(tuning), "", *_table(("parameter", "shape", "response"), parameters)]
    if any(response.startswith(f"responds{MEAN_DRAW}") for _, _, response in parameters):
        lines.append(f"{MEAN_DRAW} has no per-example form: with draw='example' it gets the mean of the draws")
    return "\n".join([*lines, "", *_table(("hyperparameter", "value", "read by"), _hyperparameter_rows(tuning))])


MEAN_DRAW = "*"


def _head(tuning: SelfTuning) -> list[str]:
    inside = {id(p) for p in tuning.parameters()}
    own = {path: p for path, p in tuning.model.named_parameters() if id(p) not in inside}
    before, added = sum(p.numel() for p in own.values()), sum(p.numel() for p in tuning.parameters())
    responding = [own[path] for path in tuning.places if path in own]
    share = sum(p.numel() for p in responding) / before
    size, more = (sum(p.numel() * p.element_size() for p in ps) for ps in (own.values(), tuning.parameters()))
    within = sum(p.numel() * p.element_size() for p in responding)
    return [
        f"{type(tuning.model).__name__}: {share:.0%} of {before:,} parameters respond".replace("%", " %"),
        f"parameters: {before:,} before, {before + added:,} after",
        f"memory: {_bytes(size)} before, {_bytes(size + more)} after, {_bytes(within)} more within a step",
    ]


def _parameter_rows(tuning: SelfTuning) -> list[tuple[str, str, str]]:
    inside = {id(p) for p in tuning.parameters()}
    rows = []
    for path, p in tuning.model.named_parameters():
        if id(p) not in inside:
            rows.append((path, "×".join(map(str, p.shape)) or "scalar", _response(tuning, path, p)))
    return _folded(rows)


def _response(tuning: SelfTuning, path: str, parameter: nn.Parameter) -> str:
    if path not in tuning.places:
        return f"plain: {tuning.reasons.get(path, 'added after self_tune')}"
    if not parameter.requires_grad:
        return "plain: frozen after self_tune"
    ties = "".join(f", tied to {place}" for place in tuning.places[path] if place != path)
    owner = tuning.model.get_submodule(path.rpartition(".")[0])
    return f"responds{'' if has_form(owner) else MEAN_DRAW}{ties}"


def _hyperparameter_rows(tuning: SelfTuning) -> list[tuple[str, str, str]]:
    root = tuning.model
    reads = [(b.where, type(root.get_submodule(b.path)).__name__, b.name) for b in tuning.bindings]
    for path, layer in root.named_modules():
        if isinstance(layer, Reader):
            reads += [(path or "(root)", type(layer).__name__, name) for name in layer.names]
    rows = []
    for name, value in tuning.hyper.values_now().items():
        readers = [f"{path} ({kind})" for path, kind, read in _folded(reads) if read == name]
        for k, reader in enumerate(readers or ["no module; use it in the loss"]):
            rows.append((name, f"{value:.4g}", reader) if k == 0 else ("", "", reader))
    return rows


def _table(head: tuple[str, str, str], rows: Sequence[tuple[str, str, str]]) -> list[str]:
    widths = [max(len(row[k]) for row in (head, *rows)) for k in range(2)]
    return [f"{a:{widths[0]}}  {b:{widths[1]}}  {c}".rstrip() for a, b, c in (head, *rows)]


def _folded(rows: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Rows that differ in the numbers of their paths alone become one: ``h.{0..11}.weight``."""
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for path, *rest in rows:
        parts = path.split(".")
        key = (".".join("*" if part.isdigit() else part for part in parts), *rest)
        groups.setdefault(key, []).append(parts)
    result = []
    for (_, second, third), paths in groups.items():
        columns = [list(dict.fromkeys(column)) for column in zip(*paths, strict=True)]
        if math.prod(map(len, columns)) == len(paths):
            result.append((".".join(map(_range, columns)), second, third))
        else:
            result += [(".".join(parts), second, third) for parts in paths]
    return result


def _range(values: Sequence[str]) -> str:
    if len(values) == 1:
        return values[0]
    numbers = [int(value) for value in values]
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return f"{{{numbers[0]}..{numbers[-1]}}}"
    shown = values if len(values) <= 5 else [*values[:2], "…", values[-1]]
    return f"{{{','.join(shown)}}}"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
