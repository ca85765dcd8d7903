"""The algorithms by name. A new one is one file, with its options and its tuner, and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stn_tune.algorithms.delta import DeltaSTN
from stn_tune.algorithms.options import DeltaKeywords, OptionKeywords, Options, TunerKeywords
from stn_tune.algorithms.stn import STN
from stn_tune.algorithms.tuner import SelfTuner
from stn_tune.errors import unknown

ALGORITHMS: dict[str, type[SelfTuner]] = {
    "stn": STN,
    "delta": DeltaSTN,
}
"""Name -> the tuner that runs it."""


class TunerOptions(TunerKeywords, DeltaKeywords, total=False):
    """Options of all algorithms as typed keyword arguments of a tuner."""


class AlgorithmKeywords(OptionKeywords, DeltaKeywords, total=False):
    """The algorithm and its options as typed keyword arguments of trainables and searchers."""

    algorithm: str


def algorithm_named(name: str) -> type[SelfTuner]:
    """The tuner of an algorithm; raises for an unknown one."""
    if name not in ALGORITHMS:
        raise ValueError(unknown("algorithm", name, ALGORITHMS))
    return ALGORITHMS[name]


def options_of(keywords: Mapping[str, Any]) -> Options:
    """The options of the algorithm that ``keywords["algorithm"]`` names, Algorithm 1 by default; checked."""
    own = dict(keywords)
    return algorithm_named(own.pop("algorithm", "stn")).options_type.of(own)
