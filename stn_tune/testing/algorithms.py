"""What every algorithm must do.

class TestMine(AlgorithmSuite):
    algorithm = "mine"                  # a name in stn_tune.algorithms.ALGORITHMS
    options = {"my_option": 3}
"""

from __future__ import annotations

import copy
import io
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

import pytest
import torch
from ray import tune
from torch import Tensor, nn

from stn_tune.algorithms.registry import algorithm_named
from stn_tune.algorithms.tuner import SelfTuner
from stn_tune.errors import NonFiniteError
from stn_tune.hyper import Hyper
from stn_tune.nn.attach import plain_state_dict, self_tune
from stn_tune.nn.response import required

Batch = tuple[Tensor, Tensor]


class AlgorithmSuite:
    """Tests of one algorithm with one set of options, on a small network with BatchNorm and dropout."""

    algorithm: ClassVar[str]
    """The name under which it is known."""
    options: ClassVar[Mapping[str, Any]] = {}
    """Options to test it with."""

    def network(self) -> nn.Module:
        """A plain network of 5 inputs and 1 output; with a dropout called ``drop``."""
        net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
        return nn.Sequential(net)

    def tuner(self, seed: int = 0, **more: Any) -> SelfTuner:
        """A tuner of a new network."""
        torch.manual_seed(seed)
        space = {"dropout": tune.uniform(0, 0.9), "decay": tune.loguniform(1e-4, 1)}
        hyper = Hyper(space, {"dropout": 0.2, "decay": 1e-2}, scale=0.5)
        model = self_tune(self.network(), hyper, bind={"0.3": "dropout"})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        return SelfTuner(model, hyper, optimizer, algorithm=self.algorithm, hyper_lr=0.05, **{**self.options, **more})

    @staticmethod
    def loss(model: nn.Module, batch: Batch, hp: Mapping[str, Any]) -> Tensor:
        """Squared error; in training with a penalty on the output."""
        output: Tensor = model(batch[0])
        loss = (output - batch[1]).square().mean()
        return loss + (hp["decay"] * output.square().mean(-1)).mean() if model.training else loss

    def batch(self, seed: int) -> Batch:
        """Eight examples."""
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(8, 5, generator=generator)
        return x, x.sum(1, keepdim=True) + 0.1 * torch.randn(8, 1, generator=generator)

    def run(self, tuner: SelfTuner, first: int, last: int) -> list[float]:
        """Weight steps and, after every second, a hyperparameter step; their losses."""
        losses = []
        for k in range(first, last):
            losses.append(float(tuner.train_step(self.loss, self.batch(k))))
            if k % 2:
                found = tuner.valid_step(self.loss, self.batch(1000 + k))
                losses.append(float("nan") if found is None else float(found))
        return losses

    def test_it_is_known_by_its_name(self) -> None:
        """``SelfTuner(algorithm=name)`` is its tuner, and its options know their algorithm."""
        tuner = self.tuner()
        assert type(tuner) is algorithm_named(self.algorithm)
        assert tuner.options.algorithm == self.algorithm
        assert tuner.schedule.algorithm == self.algorithm

    def test_weights_responses_and_hyperparameters_move(self) -> None:
        """Within ten steps."""
        tuner = self.tuner()
        tuning = required(tuner.model)
        r = tuning.responding()[0]
        watched = {"weight": r.weight, "U": r.response.U, "V": r.response.V, "λ": tuning.hyper.lam}
        before = {name: value.detach().clone() for name, value in watched.items()}
        self.run(tuner, 0, 10)
        for name, value in watched.items():
            assert not torch.equal(before[name], value), name
        assert tuner.weight_steps == 10
        assert len(tuner.schedule) > 1

    def test_it_resumes_bit_for_bit(self) -> None:
        """Six steps are three and three in a tuner of another seed, saved and loaded in between."""
        whole = self.tuner()
        expected = self.run(whole, 0, 6)
        half = self.tuner()
        losses = self.run(half, 0, 3)
        file = io.BytesIO()
        torch.save(half.state_dict(), file)
        file.seek(0)
        resumed = self.tuner(seed=7)
        resumed.load_state_dict(torch.load(file, weights_only=True))
        assert losses + self.run(resumed, 3, 6) == expected
        for key, value in whole.model.state_dict().items():
            assert not isinstance(value, Tensor) or torch.equal(value, resumed.model.state_dict()[key]), key

    def test_a_state_of_another_algorithm_is_refused(self) -> None:
        """In one line, and nothing is changed."""
        tuner = self.tuner()
        self.run(tuner, 0, 2)
        other = tuner.state_dict()
        other["schedule"] = {**other["schedule"], "algorithm": "another"}
        before = copy.deepcopy(tuner.state_dict())
        with pytest.raises(ValueError, match=f"is of algorithm 'another', but this tuner is '{self.algorithm}'"):
            tuner.load_state_dict(other)
        for key, value in before["model"].items():
            assert not isinstance(value, Tensor) or torch.equal(value, tuner.model.state_dict()[key]), key

    def test_outside_of_steps_the_model_is_plain(self) -> None:
        """A plain network that loads the weights computes the same."""
        tuner = self.tuner()
        self.run(tuner, 0, 6)
        plain = self.network()
        plain.load_state_dict(plain_state_dict(tuner.model))
        x, _ = self.batch(99)
        tuner.model.eval()
        plain.eval()
        assert torch.equal(tuner.model(x), plain(x))
        assert all(type(a) is type(b) for a, b in zip(plain.modules(), self.network().modules(), strict=True))

    def test_nothing_moves_in_warm_up(self) -> None:
        """λ and σ stay where they are, and weights move."""
        tuner = self.tuner(warmup_steps=4)
        lam, sigma = tuner.hyper.lam.clone(), tuner.hyper.raw_sigma.clone()
        self.run(tuner, 0, 3)
        assert torch.equal(tuner.hyper.lam, lam)
        assert torch.equal(tuner.hyper.raw_sigma, sigma)
        self.run(tuner, 3, 8)
        assert not torch.equal(tuner.hyper.lam, lam)

    def test_a_step_that_is_not_finite_changes_nothing(self) -> None:
        """Neither weights nor responses, running statistics, λ, σ or the count of steps."""
        tuner = self.tuner()
        self.run(tuner, 0, 4)
        before = copy.deepcopy(tuner.model.state_dict())
        x, y = self.batch(0)
        for step, of in ((tuner.train_step, (x * float("nan"), y)), (tuner.valid_step, (x, y * float("inf")))):
            with pytest.raises(NonFiniteError, match="not applied"):
                step(self.loss, of)
        for key, value in tuner.model.state_dict().items():
            assert not isinstance(value, Tensor) or torch.equal(value, before[key]), key
        assert tuner.weight_steps == 4
        required(tuner.model).check_idle()

    def test_options_are_documented_and_checked(self) -> None:
        """Every field has a line in the source, and an unknown option is named."""
        kind = algorithm_named(self.algorithm).options_type
        assert kind.__doc__
        with pytest.raises(TypeError, match="did you mean 'hyper_lr'"):
            kind.of({"hyper_lrr": 1})
        assert {f.name for f in fields(kind)} >= {"hyper_lr", "train_steps", "valid_steps", "warmup_steps", "draw"}
