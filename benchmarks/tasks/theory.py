"""Theorems 1 and 2: linear regression whose best response to its penalty is known, beside the one that is learned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.optim.lr_scheduler import StepLR

import stn_tune as stn
from benchmarks.errors import SettingsError
from benchmarks.tasks import TaskEntry
from benchmarks.tasks.settings import Settings
from stn_tune.hyper import HyperSample
from stn_tune.nn.response import required
from stn_tune.training import Trainer, evaluating

Batch = tuple[Tensor, Tensor]
Response = Callable[[Tensor], Tensor]
"""λ, unconstrained, ``(1,)`` -> the weights u ``(D,)`` of the prediction uᵀx."""

SPLITS = {"train": 60, "valid": 200}
WEIGHTS, NOISE = 6.0, 3.0
"""The norm of the true weights, and the noise on the targets."""
MOMENTUM = 0.9
POINTS, SPAN = 25, 2.5
"""At how many places the responses are reported, evenly from ``first`` to ``last``, and how far out from λ₀."""


@dataclass(frozen=True, kw_only=True)
class TheorySettings(Settings):
    """``hidden`` is D of Theorem 1: the inputs, and the hidden units of the gated network."""

    network: str
    """ridge: ridge regression; gated: two linear layers with an L2 penalty on the Jacobian."""
    steps: int
    """Updates in an iteration."""

    def check(self) -> None:
        """The network must be one whose best response is known."""
        super().check()
        self.require_at_least(1, "steps")
        if self.network not in EXACT:
            raise SettingsError(f"network is {self.network!r}; it must be {' or '.join(EXACT)}")


def make_data(features: int) -> dict[str, Batch]:
    """The same examples for every network, seed and neighbourhood; variances of the inputs from 1/e to e."""
    g = torch.Generator().manual_seed(0)
    spread = torch.linspace(0.5, -0.5, features).exp()
    basis = torch.linalg.qr(torch.randn(features, features, generator=g)).Q
    weights = WEIGHTS * F.normalize(torch.randn(features, generator=g), dim=0)
    splits = {}
    for name, size in SPLITS.items():
        x = torch.randn(size, features, generator=g) * spread @ basis.t()
        splits[name] = x, x @ weights + NOISE * torch.randn(size, generator=g)
    return splits


def ridge_response(x: Tensor, t: Tensor, penalty: Tensor) -> Tensor:
    """argmin of mean (uᵀx − t)² + penalty ‖u‖²."""
    weights: Tensor = torch.linalg.solve(x.t() @ x + len(t) * penalty * torch.eye(x.shape[1]).to(x), x.t() @ t)
    return weights


def gated_response(x: Tensor, t: Tensor, penalty: Tensor) -> Tensor:
    """Theorem 1: Q₀ᵀ(σ(−λ + 2 log d) ⊙ s₀). Its exp(λ) is N times the penalty, as the loss here is a mean."""
    d, basis, outputs = components(x, t)
    return basis.t() @ (torch.sigmoid(2 * d.log() - (len(t) * penalty).log()) * outputs)


def components(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Singular values d, principal components Q₀ and unregularised output weights s₀ of the training data."""
    u, d, basis = torch.linalg.svd(x, full_matrices=False)
    return d, basis, u.t() @ t / d


EXACT = {"ridge": ridge_response, "gated": gated_response}


def _jacobian(response: Response, lam: Tensor) -> Tensor:
    """dw/dλ ``(D,)``."""
    found: Tensor = torch.autograd.functional.jacobian(response, lam)  # type: ignore[no-untyped-call]
    return found[:, 0]


class Network(nn.Module):
    """y = wᵀx for ridge regression; y = sᵀQx, D hidden units, for the gated network."""

    def __init__(self, kind: str, features: int):
        super().__init__()
        self.hidden = nn.Linear(features, features, bias=False) if kind == "gated" else nn.Identity()
        self.output = nn.Linear(features, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Predictions ``(batch,)``."""
        y: Tensor = self.output(self.hidden(x))
        return y.squeeze(-1)


class TheoryTask(stn.Task):
    """Only weights move: λ stays at λ₀, σ where it is, and what is learned is compared with the closed form."""

    clip = 10.0
    """Reached only at the start, where a wide neighbourhood could make the first steps diverge."""

    def __init__(self, settings: TheorySettings):
        self.settings = settings
        self._data = make_data(settings.hidden)

    def loaders(self, config: Mapping[str, Any]) -> stn.Loaders:
        """Every batch is the whole training set, repeated: each copy of an example has an ε of its own.

        There is no test set: nothing is chosen here that one would have to confirm.
        """
        x, t = self._data["train"]
        rows = torch.arange(self.settings.batch_size) % len(t)
        return stn.Loaders(train=[(x[rows], t[rows])] * self.settings.steps, valid=[self._data["valid"]])

    def model(self, config: Mapping[str, Any]) -> nn.Module:
        """The network of the settings."""
        return Network(self.settings.network, self.settings.hidden)

    def convert(self, model: nn.Module, hyper: stn.Hyper) -> nn.Module:
        """Hidden units are gated, and the weights s above them do not respond: Theorem 1."""
        return stn.self_tune(model, hyper, exclude=["output"] if self.settings.network == "gated" else [])

    def optimizer(self, model: nn.Module, config: Mapping[str, Any]) -> Optimizer:
        """SGD with momentum."""
        return torch.optim.SGD(model.parameters(), lr=config.get("lr", self.settings.lr), momentum=MOMENTUM)

    def scheduler(self, optimizer: Optimizer, config: Mapping[str, Any]) -> StepLR:
        """Decays the learning rate every ``lr_patience`` iterations."""
        return StepLR(optimizer, self.settings.lr_patience, self.settings.lr_decay)

    def stop(self, val_losses: Sequence[float], optimizer: Optimizer, config: Mapping[str, Any]) -> bool:
        """When the learning rate is below ``lr_min``."""
        return bool(optimizer.param_groups[0]["lr"] < self.settings.lr_min)

    def loss(self, model: nn.Module, batch: Batch, hp: Mapping[str, Any]) -> Tensor:
        """Mean squared error, with the penalty in training."""
        x, t = batch
        if not model.training:
            return F.mse_loss(model(x), t)
        if self.settings.network == "ridge":
            return F.mse_loss(model(x), t) + stn.nn.l2(model, 2 * hp["penalty"])
        x = x.detach().requires_grad_()
        y = model(x)
        (jacobian,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        penalty: Tensor = (hp["penalty"] * jacobian.square().sum(1)).mean()
        return F.mse_loss(y, t) + penalty

    def evaluate(self, trainer: Trainer, batches: Iterable[Batch]) -> dict[str, float]:
        """The loss, and for a self-tuned network how far its response is from the exact one."""
        batches = list(batches)
        metrics = {"loss": trainer.evaluate(self.loss, batches)}
        return metrics | (self._compared(trainer, batches[0]) if isinstance(trainer, stn.SelfTuner) else {})

    def exact(self, hyper: stn.Hyper) -> Response:
        """w*(λ), in double precision; differentiable."""
        x, t = (part.double() for part in self._data["train"])
        constrain = hyper.space.transform("penalty").constrain
        return lambda lam: EXACT[self.settings.network](x, t, constrain(lam).squeeze())

    def learned(self, tuner: stn.SelfTuner) -> Response:
        """ŵ(λ): what the network makes of unit vectors at that λ."""
        hyper, tuning = tuner.hyper, required(tuner.model)
        units = torch.eye(self.settings.hidden, device=hyper.lam.device)

        def response(lam: Tensor) -> Tensor:
            with tuning.applied(HyperSample(hyper, lam.to(units) - hyper.lam)):
                weights: Tensor = tuner.model(units)
                return weights.cpu().double()

        return response

    def _compared(self, tuner: stn.SelfTuner, batch: Batch) -> dict[str, float]:
        """The errors at λ₀, and both responses around it, as the coordinate that is drawn."""
        exact, learned = self.exact(tuner.hyper), self.learned(tuner)
        lam = tuner.hyper.lam.detach().cpu().double()
        jacobian, estimate = (_jacobian(w, lam) for w in (exact, learned))
        x, t = (part.cpu().double() for part in batch)
        at = lam.clone().requires_grad_()
        gradient = float(torch.autograd.grad((x @ exact(at) - t).square().mean(), at)[0])
        found = self._hypergradient(tuner, batch)
        view = self._view(jacobian)
        with torch.no_grad():
            weights, approximation = exact(lam), learned(lam)
            middle, curves = float(lam), {"exact": exact, "learned": learned}
            return {
                "response/gradient": found,
                "response/gradient_exact": gradient,
                "response/gradient_error": abs(found - gradient) / abs(gradient),
                "response/weight_error": float((approximation - weights).norm() / weights.norm()),
                "response/jacobian_error": float((estimate - jacobian).norm() / jacobian.norm()),
                "response/slope": float(view @ estimate),
                "response/slope_exact": float(view @ jacobian),
                "response/first": middle - SPAN,
                "response/last": middle + SPAN,
                **{
                    f"response/{name}_{k:02}": float(view @ w(lam + delta))
                    for name, w in curves.items()
                    for k, delta in enumerate(torch.linspace(-SPAN, SPAN, POINTS).to(lam))
                },
            }

    def _hypergradient(self, tuner: stn.SelfTuner, batch: Batch) -> float:
        """∂F(λ, ŵ(λ))/∂λ as a hyperparameter step without a draw sees it."""
        sample = tuner.hyper.mean(differentiable=True)
        assert sample.lam is not None
        with evaluating(tuner.model), required(tuner.model).applied(sample):
            return float(torch.autograd.grad(self.loss(tuner.model, batch, sample), sample.lam)[0])

    def _view(self, jacobian: Tensor) -> Tensor:
        """What is drawn of the weights: v with vᵀu a number.

        For ridge regression the coordinate along the exact Jacobian; for the gated network the gate of one hidden unit,
        the one that responds most.
        """
        if self.settings.network == "ridge":
            return F.normalize(jacobian, dim=0)
        _, basis, outputs = components(*(part.double() for part in self._data["train"]))
        unit = int((basis @ jacobian).abs().argmax())
        return basis[unit] / outputs[unit]


def theory(settings: TheorySettings, data: Path) -> TheoryTask:
    """Linear networks whose best response is known: nothing to download."""
    return TheoryTask(settings)


ENTRIES = {"theory": TaskEntry(TheorySettings, theory, "theory")}
