"""Self-Tuning Networks for PyTorch and Ray Tune."""

from stn_tune import nn
from stn_tune.hyper import Fixed, Hyper, HyperSample
from stn_tune.nn import augment
from stn_tune.nn.convert import ConversionError, describe, fix, self_tune
from stn_tune.schedule import Schedule, ScheduleError
from stn_tune.space import HyperSpace, SpaceError, positive, real
from stn_tune.training import NonFiniteError
from stn_tune.tuner import SelfTuner, UnusedError

__version__ = "0.1.0"

__all__ = [
    "ConversionError",
    "Fixed",
    "Hyper",
    "HyperSample",
    "HyperSpace",
    "NonFiniteError",
    "Schedule",
    "ScheduleError",
    "SelfTuner",
    "SpaceError",
    "UnusedError",
    "augment",
    "describe",
    "fix",
    "nn",
    "positive",
    "real",
    "self_tune",
]
