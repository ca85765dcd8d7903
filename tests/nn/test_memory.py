"""Memory is used again, and never while somebody holds it."""

from __future__ import annotations

import copy

import pytest
import torch
from ray import tune
from torch import nn

import stn_tune as stn
from stn_tune.nn.kernels import memory
from stn_tune.nn.kernels.memory import Memory


@pytest.fixture
def _everything_is_large(monkeypatch):
    monkeypatch.setattr(memory, "LARGE", 0)


@pytest.mark.usefixtures("_everything_is_large")
def test_it_is_used_again_when_nobody_holds_it():
    kept, like = Memory(), torch.zeros(3, 4, dtype=torch.float64)
    first = kept.empty_like(like, "value")
    assert (first.shape, first.dtype, first.is_contiguous()) == (like.shape, like.dtype, True)
    other = kept.empty_like(like, "gradient")
    second = kept.empty_like(like, "value")
    assert len({t.data_ptr() for t in (first, other, second)}) == 3
    where = second.data_ptr()
    view = second[1:]
    del second
    assert kept.empty_like(like, "value").data_ptr() != where, "a view holds it"
    del view
    third = kept.empty_like(like, "value")
    where = third.data_ptr()
    del third
    assert kept.empty_like(like, "value").data_ptr() == where
    assert kept.empty_like(like.float(), "value").dtype == torch.float32
    assert copy.deepcopy(kept)._kept == {}


@pytest.mark.usefixtures("_everything_is_large")
def test_steps_are_the_same_to_the_bit_and_what_is_kept_stays(monkeypatch):
    """Gradients that a user keeps, and those that add up over several batches."""

    def train():
        torch.manual_seed(0)
        hyper = stn.Hyper({"rate": tune.uniform(0, 0.9)})
        net = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.3), nn.Conv1d(1, 3, 2), nn.Flatten(), nn.Linear(12, 2))
        model = stn.self_tune(nn.Sequential(nn.Unflatten(1, (1, 6)), *net), hyper, bind={"2": "rate"})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        tuner = stn.SelfTuner(model, hyper, optimizer, hyper_lr=0.1)
        kept, outputs = [], []
        for k in range(4):
            for _ in range(2):
                with tuner.training(torch.randn(4, 6)):
                    outputs.append(model(torch.randn(4, 6)))
                    outputs[-1].square().mean().backward()
            kept.append([p.grad for p in model.parameters()])
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if k:
                tuner.valid_step(lambda model, x, hp: model(x).square().mean(), torch.randn(4, 6))
        return [[g.clone() for g in grads] for grads in kept], kept, list(model.state_dict().values())

    again = train()
    monkeypatch.setattr(memory, "LARGE", 1 << 60)
    plain = train()
    for grads, held, expected in zip(again[0], again[1], plain[0], strict=True):
        for g, h, e in zip(grads, held, expected, strict=True):
            assert torch.equal(g, e)
            assert torch.equal(h, e)
    for a, b in zip(again[2], plain[2], strict=True):
        assert not isinstance(a, torch.Tensor) or torch.equal(a, b)
