"""What a trial's config says of its hyperparameters: which are online, from where, and with which options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim import Optimizer

from stn_tune.algorithms import registry
from stn_tune.algorithms.options import Options
from stn_tune.algorithms.registry import AlgorithmKeywords
from stn_tune.algorithms.tuner import SelfTuner
from stn_tune.hyper import Hyper
from stn_tune.nested import flatten
from stn_tune.record import REPEAT, RESERVED
from stn_tune.space import HyperSpace
from stn_tune.task import Config
from stn_tune.training import Batch, Stateful, batch_size

if TYPE_CHECKING:
    from typing_extensions import Unpack


def values_of(config: Config) -> dict[str, Any]:
    """The values of a trial's config by path, without the reserved key and the number of a repeat."""
    return flatten({key: value for key, value in config.items() if key not in (RESERVED, REPEAT)})


def seed_of(config: Config) -> int:
    """The seed of a trial: ``"seed"`` of its config, else that of STNSearch, else 0; repeats count on from it."""
    seed = config.get("seed", config.get(RESERVED, {}).get("seed", 0))
    return int(seed) + int(config.get(REPEAT, 0))


def options_of(config: Config, options: Mapping[str, Any]) -> Options:
    """``options``, overridden by those that :class:`STNSearch` left in the trial's config."""
    return registry.options_of({**options, **config.get(RESERVED, {}).get("options", {})})


def hyper_from_config(
    config: Config, space: HyperSpace | Mapping[str, Any] | None = None, **stn_options: Unpack[AlgorithmKeywords]
) -> Hyper:
    """The online hyperparameters of a trial, for a training loop of your own.

    They are those that :class:`STNSearch` left in the config, else ``space``. A value of an online name in the config
    is its initial value; all others can be read by name as constants.
    """
    reserved = config.get(RESERVED, {})
    if reserved:
        space = HyperSpace.from_json(reserved["space"])
    elif space is None:
        raise TypeError("nothing is tuned online: pass space={...}, or search with STNSearch(online=[...])")
    options = options_of(config, stn_options)
    values = values_of(config)
    return Hyper(
        space,
        {**options.init, **{name: values[name] for name in space if name in values}},
        scale=options.scale,
        tune_scale=options.tune_scale,
        per_batch=options.per_batch,
        direct=options.direct,
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
    carries: Stateful | None = None,
) -> SelfTuner:
    """The tuner of a trial, for a training loop of your own: with the options that :class:`STNSearch` left for it.

    Args:
        model, hyper: what ``self_tune(model, hyper)`` made of a model and of :func:`hyper_from_config`.
        clip, batch_size, carries: as of :class:`SelfTuner`.
    """
    options = options_of(config, {})
    if options.warmup:
        raise ValueError(
            f"warmup is {options.warmup}, but only STNTrainable counts iterations: in a loop of your own use "
            f"warmup_steps, the number of weight steps"
        )
    if options.refine:
        raise ValueError(
            f"refine is {options.refine}, but only STNTrainable trains a second time: leave it out, or use STNTrainable"
        )
    return SelfTuner.from_options(options, model, hyper, optimizer, clip=clip, batch_size=batch_size, carries=carries)
