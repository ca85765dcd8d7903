"""Self-Tuning Networks for PyTorch and Ray Tune."""

from importlib import import_module
from types import ModuleType

from stn_tune import nn
from stn_tune.checkpoint import CheckpointError
from stn_tune.config import STNOptions, hyper_from_config, tuner_from_config
from stn_tune.hyper import Fixed, Hyper, HyperSample
from stn_tune.nn import augment
from stn_tune.nn.convert import ConversionError, describe, fix, plain_state_dict, self_tune
from stn_tune.schedule import Schedule, ScheduleError
from stn_tune.search import STNSearch
from stn_tune.space import HyperSpace, SpaceError, positive, real
from stn_tune.task import Loaders, Task
from stn_tune.trainable import FixedTrainable, STNTrainable
from stn_tune.training import NonFiniteError, UnusedError
from stn_tune.tuner import SelfTuner

__version__ = "0.1.0"

__all__ = [
    "CheckpointError",
    "ConversionError",
    "Fixed",
    "FixedTrainable",
    "Hyper",
    "HyperSample",
    "HyperSpace",
    "Loaders",
    "NonFiniteError",
    "STNOptions",
    "STNSearch",
    "STNTrainable",
    "Schedule",
    "ScheduleError",
    "SelfTuner",
    "SpaceError",
    "Task",
    "UnusedError",
    "analysis",
    "augment",
    "describe",
    "fix",
    "hyper_from_config",
    "nn",
    "plain_state_dict",
    "positive",
    "real",
    "self_tune",
    "tuner_from_config",
]


def __getattr__(name: str) -> ModuleType:
    """``stn_tune.analysis``, which needs pandas, is imported when it is asked for."""
    if name == "analysis":
        return import_module("stn_tune.analysis")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
