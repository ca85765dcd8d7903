"""Every algorithm, with its options, against the suite that users' own can inherit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

import stn_tune as stn
from stn_tune.algorithms.options import Options
from stn_tune.algorithms.registry import ALGORITHMS
from stn_tune.algorithms.tuner import SelfTuner
from stn_tune.testing.algorithms import AlgorithmSuite


class TestSTN(AlgorithmSuite):
    algorithm = "stn"


class TestSTNPerExample(AlgorithmSuite):
    algorithm = "stn"
    options: ClassVar = {"draw": "example"}


class TestSTNInMirroredGroups(AlgorithmSuite):
    algorithm = "stn"
    options: ClassVar = {"draw": "example", "groups": 4, "antithetic": True}


class TestDelta(AlgorithmSuite):
    algorithm = "delta"


@pytest.mark.parametrize("draw", ["batch", "example"])
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize("linearised", [True, False])
class TestDeltaCombinations(AlgorithmSuite):
    algorithm = "delta"

    @pytest.fixture(autouse=True)
    def _options(self, draw, centred, separate, linearised):
        self.options = {"draw": draw, "centred": centred, "separate": separate, "linearised": linearised}


@dataclass(frozen=True)
class ToyOptions(Options):
    """A toy's."""

    algorithm: ClassVar[str] = "toy"

    shrink: float = 0.5
    """What its hyperparameter gradient is multiplied with."""


class Toy(SelfTuner):
    """Algorithm 1 with smaller hyperparameter gradients."""

    options_type = ToyOptions

    def step(self):
        self.hyper.lam.grad *= self.options.shrink
        super().step()


class TestToy(AlgorithmSuite):
    """One file and one line."""

    algorithm = "toy"
    options: ClassVar = {"shrink": 0.1}

    @pytest.fixture(autouse=True)
    def _one_line(self, monkeypatch):
        monkeypatch.setitem(ALGORITHMS, "toy", Toy)

    def test_it_is_an_option_everywhere(self):
        from tests.digits_task import Digits

        trainable = stn.STNTrainable.of(Digits, space={"dropout": stn.positive()}, algorithm="toy", shrink=0.2)
        assert trainable.options["algorithm"] == "toy"
        assert stn.STNSearch(algorithm="toy", shrink=0.3).options["shrink"] == 0.3


def test_what_makes_no_sense_is_said():
    model = torch.nn.Linear(2, 1)
    hyper = stn.Hyper({"rate": stn.positive()})
    model = stn.self_tune(model, hyper)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="unknown algorithm 'detla'; known: stn, delta; did you mean 'delta'"):
        stn.SelfTuner(model, hyper, optimizer, algorithm="detla")
    with pytest.raises(TypeError, match="unknown stn option 'response_every'"):
        stn.SelfTuner(model, hyper, optimizer, response_every=3)
    with pytest.raises(TypeError, match=r"scale is no option of a tuner: give it to Hyper"):
        stn.SelfTuner(model, hyper, optimizer, scale=1.0)
    with pytest.raises(TypeError, match=r"warmup is no option of a tuner.*warmup_steps"):
        stn.SelfTuner(model, hyper, optimizer, warmup=1)
    with pytest.raises(ValueError, match="response_every is 0; it must be a number, at least 1"):
        stn.SelfTuner(model, hyper, optimizer, algorithm="delta", response_every=0)
    with pytest.raises(ValueError, match="groups is 2, but draw is 'batch'; it needs draw='example'"):
        stn.SelfTuner(model, hyper, optimizer, groups=2)
    tuner = stn.SelfTuner(model, hyper, optimizer)
    with (
        pytest.raises(RuntimeError, match="algorithm 'stn' trains the responses together with the weights"),
        tuner.responding(torch.ones(1, 2)),
    ):
        pass
