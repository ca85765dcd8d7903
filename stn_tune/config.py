"""What a trial's config says of its hyperparameters: which are online, from where, and with which options."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from stn_tune.hyper import Hyper
from stn_tune.space import HyperSpace
from stn_tune.task import Config
from stn_tune.tuner import Draw

RESERVED = "stn"
"""The key of a trial's config under which STNSearch leaves the online space and its options."""


@dataclass(frozen=True)
class STNOptions:
    """What an STN needs beside task and space; plain JSON. The paper's choices are in DESIGN and the presets."""

    init: Mapping[str, float] = field(default_factory=dict)
    scale: float | Mapping[str, float] = 0.5
    tune_scale: bool = True
    per_batch: Sequence[str] = ()
    direct: Sequence[str] | bool = ()
    centered: bool = True
    hyper_lr: float = 0.01
    scale_lr: float | None = None
    train_steps: int = 2
    valid_steps: int = 1
    warmup: int = 0
    """Iterations in which only weights move."""
    warmup_steps: int = 0
    entropy_weight: float = 0.001
    train_draw: Draw = "example"
    valid_draw: Draw | None = None

    def __post_init__(self) -> None:
        least = {"train_steps": 1, "valid_steps": 0, "warmup": 0, "warmup_steps": 0, "entropy_weight": 0}
        for name, bound in least.items():
            if not getattr(self, name) >= bound:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {bound}")
        for name in ("hyper_lr", "scale_lr"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive")
        for name in ("train_draw", "valid_draw"):
            if getattr(self, name) not in (None, "example", "batch", "mean"):
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be 'example', 'batch' or 'mean'")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> STNOptions:
        known = [f.name for f in fields(cls)]
        for name in options:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f": did you mean {near[0]}?" if near else ""
                raise TypeError(f"{name} is not an option of STN (there are {', '.join(known)}){hint}")
        return cls(**options)


def hyper_from_config(config: Config, space: HyperSpace | Mapping[str, Any] | None = None, **stn_options: Any) -> Hyper:
    """The online hyperparameters of a trial, for a training loop of your own.

    They are those that :class:`STNSearch` left in the config, else ``space``. A value of an online name in the config
    is its initial value; all others can be read by name as constants.
    """
    reserved = config.get(RESERVED, {})
    if reserved:
        space = HyperSpace.from_json(reserved["space"])
    elif space is None:
        raise TypeError("nothing is tuned online: pass space={...}, or search with STNSearch(online=[...])")
    options = STNOptions.of({**stn_options, **reserved.get("options", {})})
    values = flat(config)
    return Hyper(
        space,
        {**options.init, **{name: values[name] for name in space if name in values}},
        scale=options.scale,
        tune_scale=options.tune_scale,
        per_batch=options.per_batch,
        direct=options.direct,
        centered=options.centered,
        constants=values,
    )


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested configs by path, without the reserved key: ``{"model": {"rate": 0.1}}`` -> ``{"model/rate": 0.1}``."""
    result: dict[str, Any] = {}
    for key, value in config.items():
        if key == RESERVED and not prefix:
            continue
        name = f"{prefix}{key}"
        result.update(flat(value, f"{name}/") if isinstance(value, Mapping) else {name: value})
    return result
