"""What a trial's config says of its hyperparameters: which are online, from where, and with which options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from torch import nn
from torch.optim import Adam, Optimizer

from stn_tune.hyper import Hyper, nearest
from stn_tune.space import HyperSpace
from stn_tune.task import Config
from stn_tune.training import Batch, batch_size
from stn_tune.tuner import Draw, SelfTuner, check_settings

RESERVED = "stn"
"""The key of a trial's config under which STNSearch leaves the online space and its options."""


@dataclass(frozen=True)
class STNOptions:
    """What an STN needs beside task and space; plain JSON. The paper's choices are the benchmark's presets."""

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
        check_settings(
            train_steps=self.train_steps,
            valid_steps=self.valid_steps,
            warmup_steps=self.warmup_steps,
            entropy_weight=self.entropy_weight,
            train_draw=self.train_draw,
            valid_draw=self.valid_draw,
        )
        if not self.warmup >= 0:
            raise ValueError(f"warmup is {self.warmup}; it must be at least 0")
        for name in ("hyper_lr", "scale_lr"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> STNOptions:
        known = [f.name for f in fields(cls)]
        for name in options:
            if name not in known:
                raise TypeError(f"{name} is not an option of STN (there are {', '.join(known)}){nearest(name, known)}")
        return cls(**options)

    @classmethod
    def from_config(cls, config: Config, options: Mapping[str, Any]) -> STNOptions:
        """``options``, with those that :class:`STNSearch` left in the trial's config in front."""
        return cls.of({**options, **config.get(RESERVED, {}).get("options", {})})

    def tuner(
        self,
        model: nn.Module,
        hyper: Hyper,
        optimizer: Optimizer,
        clip: float | None = None,
        batch_size: Callable[[Batch], int] = batch_size,
    ) -> SelfTuner:
        """A tuner with these options, all but ``warmup``, which counts iterations that it knows nothing of."""
        return SelfTuner(
            model,
            hyper,
            optimizer,
            Adam([hyper.lam], lr=self.hyper_lr),
            Adam([hyper.raw_sigma], lr=self.hyper_lr if self.scale_lr is None else self.scale_lr),
            train_steps=self.train_steps,
            valid_steps=self.valid_steps,
            warmup_steps=self.warmup_steps,
            entropy_weight=self.entropy_weight,
            clip=clip,
            train_draw=self.train_draw,
            valid_draw=self.valid_draw,
            batch_size=batch_size,
        )


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
    options = STNOptions.from_config(config, stn_options)
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


def tuner_from_config(
    config: Config,
    model: nn.Module,
    hyper: Hyper,
    optimizer: Optimizer,
    *,
    clip: float | None = None,
    batch_size: Callable[[Batch], int] = batch_size,
) -> SelfTuner:
    """The tuner of a trial, for a training loop of your own: with the options that :class:`STNSearch` left for it.

    Args:
        model, hyper: what ``self_tune(model, hyper)`` made of a model and of :func:`hyper_from_config`.
        clip, batch_size: as of :class:`SelfTuner`.
    """
    options = STNOptions.from_config(config, {})
    if options.warmup:
        raise ValueError(
            f"warmup is {options.warmup}, but only STNTrainable counts iterations: in a loop of your own use "
            f"warmup_steps, the number of weight steps"
        )
    return options.tuner(model, hyper, optimizer, clip, batch_size)


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested configs by path, without the reserved key: ``{"model": {"rate": 0.1}}`` -> ``{"model/rate": 0.1}``."""
    result: dict[str, Any] = {}
    for key, value in config.items():
        if key == RESERVED and not prefix:
            continue
        name = f"{prefix}{key}"
        result.update(flat(value, f"{name}/") if isinstance(value, Mapping) else {name: value})
    return result
