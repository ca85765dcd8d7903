"""Self-Tuning Networks for PyTorch and Ray Tune.

Names are imported on first use: ``import stn_tune`` loads neither torch nor Ray nor pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stn_tune import analysis as analysis
    from stn_tune import augment as augment
    from stn_tune import nn as nn
    from stn_tune.algorithms.options import DeltaOptions as DeltaOptions
    from stn_tune.algorithms.options import STNOptions as STNOptions
    from stn_tune.algorithms.tuner import SelfTuner as SelfTuner
    from stn_tune.domains import positive as positive
    from stn_tune.domains import real as real
    from stn_tune.dry_run import Findings as Findings
    from stn_tune.dry_run import check as check
    from stn_tune.errors import CheckpointError as CheckpointError
    from stn_tune.errors import ConversionError as ConversionError
    from stn_tune.errors import NonFiniteError as NonFiniteError
    from stn_tune.errors import ScheduleError as ScheduleError
    from stn_tune.errors import SpaceError as SpaceError
    from stn_tune.errors import UnusedError as UnusedError
    from stn_tune.hyper import Fixed as Fixed
    from stn_tune.hyper import Hyper as Hyper
    from stn_tune.hyper import HyperSample as HyperSample
    from stn_tune.nn.attach import fix as fix
    from stn_tune.nn.attach import plain_state_dict as plain_state_dict
    from stn_tune.nn.attach import release as release
    from stn_tune.nn.attach import self_tune as self_tune
    from stn_tune.nn.inspect import describe as describe
    from stn_tune.nn.inspect import dropouts as dropouts
    from stn_tune.raytune.search import STNSearch as STNSearch
    from stn_tune.raytune.skopt_search import SkOptSearch as SkOptSearch
    from stn_tune.raytune.trainables import FixedTrainable as FixedTrainable
    from stn_tune.raytune.trainables import STNTrainable as STNTrainable
    from stn_tune.raytune.trial_config import hyper_from_config as hyper_from_config
    from stn_tune.raytune.trial_config import tuner_from_config as tuner_from_config
    from stn_tune.schedule import Schedule as Schedule
    from stn_tune.space import HyperSpace as HyperSpace
    from stn_tune.task import Loaders as Loaders
    from stn_tune.task import Task as Task

__version__ = "0.1.0"

_WHERE = {
    "algorithms.options": ("DeltaOptions", "STNOptions"),
    "algorithms.tuner": ("SelfTuner",),
    "domains": ("positive", "real"),
    "dry_run": ("Findings", "check"),
    "errors": (
        "CheckpointError",
        "ConversionError",
        "NonFiniteError",
        "ScheduleError",
        "SpaceError",
        "UnusedError",
    ),
    "hyper": ("Fixed", "Hyper", "HyperSample"),
    "nn.attach": ("fix", "plain_state_dict", "release", "self_tune"),
    "nn.inspect": ("describe", "dropouts"),
    "raytune.search": ("STNSearch",),
    "raytune.skopt_search": ("SkOptSearch",),
    "raytune.trainables": ("FixedTrainable", "STNTrainable"),
    "raytune.trial_config": ("hyper_from_config", "tuner_from_config"),
    "schedule": ("Schedule",),
    "space": ("HyperSpace",),
    "task": ("Loaders", "Task"),
}
_MODULE_OF = {name: f"stn_tune.{module}" for module, names in _WHERE.items() for name in names}
_SUBMODULES = ("analysis", "augment", "nn")

_OPTIONAL = {"SkOptSearch"}
"""Names that need an extra: ``from stn_tune import *`` leaves them out."""

__all__ = sorted({*_MODULE_OF, *_SUBMODULES} - _OPTIONAL)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _SUBMODULES:
            return import_module(f"stn_tune.{name}")
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'stn_tune' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_OPTIONAL})
