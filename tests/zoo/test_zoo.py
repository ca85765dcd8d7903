"""Whatever model people have: it trains, λ moves, and outside of steps it is the plain model at λ."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from ray import tune
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import stn_tune as stn
from stn_tune.nn.response import required
from tests.zoo.models import CASES, Case

pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),  # peft's
    pytest.mark.filterwarnings("ignore:.* merged with others in eval mode:UserWarning"),  # said, and tested elsewhere
]


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    chosen = CASES[request.param]
    if chosen.needs:
        pytest.importorskip(chosen.needs, reason=f"{chosen.needs} is not installed, or needs torchvision")
    return chosen


def predicted(case: Case, model: nn.Module, batch) -> torch.Tensor:
    model.eval()
    with torch.no_grad():
        return case.predict(model, batch)


def plain_of(case: Case, state: dict, strict: bool = True) -> nn.Module:
    torch.manual_seed(99)
    plain = case.build().eval()
    result = plain.load_state_dict(state, strict=strict)
    assert not result.missing_keys
    assert all("_stn." in key for key in result.unexpected_keys)
    return plain


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a, b)


def test_it_trains_and_stays_the_plain_model_at_lambda(case):
    tuner = case.tuner()
    torch.manual_seed(0)
    plain = case.build()
    model, hyper = tuner.model, tuner.hyper
    assert [type(m).__name__ for m in plain.modules()] == [
        type(m).__name__ for path, m in model.named_modules() if "_stn" not in path.split(".")
    ]
    assert [n for n, _ in plain.named_parameters()] == [n for n, _ in model.named_parameters() if "_stn." not in n]
    before, start = hyper.lam.clone(), {n: p.detach().clone() for n, p in model.named_parameters()}
    case.steps(tuner)
    assert (hyper.lam != before).all()
    assert hyper.lam.isfinite().all()
    for name, p in model.named_parameters():
        if p.requires_grad and p.numel():
            assert p.isfinite().all()
        if not p.requires_grad:  # adding an update and taking it off again, as loralib does, rounds
            merges = any(getattr(m, "merge", False) for m in model.modules())
            assert torch.allclose(p, start[name], rtol=0, atol=1e-6 if merges else 0), f"{name} is frozen"
    batch = case.batch()
    expected = predicted(case, model, batch)
    assert same(predicted(case, plain_of(case, stn.plain_state_dict(model)), batch), expected)
    assert same(predicted(case, plain_of(case, model.state_dict(), strict=False), batch), expected)
    assert set(stn.plain_state_dict(model)) == set(plain.state_dict())


def test_copies_predict_the_same_and_train_on_their_own(case):
    tuner = case.tuner()
    case.steps(tuner, 1)
    batch = case.batch()
    expected = predicted(case, tuner.model, batch)
    lam = tuner.hyper.lam.clone()
    copies = [copy.deepcopy(tuner.model)]
    if not any(nn.utils.parametrize.is_parametrized(m) for m in tuner.model.modules()):  # torch pickles none of these
        copies.append(pickle.loads(pickle.dumps(tuner.model)))
    for copied in copies:
        assert same(predicted(case, copied, batch), expected)
        own = required(copied).hyper
        assert torch.equal(own.lam, lam)
        moved = [p for p in copied.train().parameters() if p.requires_grad]
        other = stn.SelfTuner(copied, own, torch.optim.Adam(moved, lr=0.1), hyper_lr=0.1)
        case.steps(other, 1)
        assert not torch.equal(own.lam, lam)
        assert torch.equal(tuner.hyper.lam, lam)
        assert same(predicted(case, tuner.model, batch), expected), "the original stays"


@pytest.mark.parametrize("use_buffers", [False, True])
def test_an_average_is_a_model_with_a_lambda_of_its_own(case, use_buffers):
    tuner = case.tuner()
    case.steps(tuner, 1)
    predicted(case, tuner.model, case.batch())  # torch copies no tensors of a graph, which hooks leave behind
    ema = AveragedModel(tuner.model.train(), multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=use_buffers)
    ema.update_parameters(tuner.model)
    first = tuner.hyper.lam.clone()
    case.steps(tuner, 1)
    ema.update_parameters(tuner.model)
    expected = torch.lerp(tuner.hyper.lam, first, 0.9) if use_buffers else tuner.hyper.lam
    assert torch.allclose(required(ema).hyper.lam, expected)
    for name, buffer in case.build().named_buffers():
        if not buffer.is_floating_point():
            ema.module.get_buffer(name).copy_(buffer)  # torch averages integers, too: BERT's position 3 becomes 2
    batch = case.batch()
    average = predicted(case, ema.module, batch)
    assert same(predicted(case, plain_of(case, stn.plain_state_dict(ema.module)), batch), average)
    assert same(predicted(case, plain_of(case, ema.module.state_dict(), strict=False), batch), average)


def test_resuming_is_exact(case):
    tuner = case.tuner()
    case.steps(tuner, 1)
    file = io.BytesIO()
    torch.save(tuner.state_dict(), file)
    case.steps(tuner, 2)
    file.seek(0)
    resumed = case.tuner(seed=7)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    case.steps(resumed, 2)
    expected = tuner.model.state_dict()
    for name, value in resumed.model.state_dict().items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(value, expected[name], rtol=0, atol=0, equal_nan=True)
    assert resumed.schedule == tuner.schedule


def test_an_average_over_buffers_reads_every_name_from_its_own_column():
    """torch averages integer buffers, and 0.9 · 3 + 0.1 · 3 truncates to 2: constants must not be buffers."""
    space = {f"rate{k}": tune.uniform(0, 0.9) for k in range(5)}
    hyper = stn.Hyper(space, init={f"rate{k}": 0.1 + 0.1 * k for k in range(5)})
    ema = AveragedModel(hyper, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    for _ in range(3):
        ema.update_parameters(hyper)
    values = ema.module.mean()
    assert [round(float(values[name]), 4) for name in space] == [0.1, 0.2, 0.3, 0.4, 0.5]
