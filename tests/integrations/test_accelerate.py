"""A loop with Accelerate: its optimizers, its state files, exact resume; and that the examples run."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from ray import tune
from torch import nn

import stn_tune as stn

accelerate = pytest.importorskip("accelerate")
pytest.importorskip("sklearn")

accelerate_loop = importlib.import_module("examples.accelerate_loop")
ROOT = Path(__file__).parents[2]


def make(order=("rate", "decay")):
    torch.manual_seed(0)
    domains = {"rate": tune.uniform(0, 0.9), "decay": tune.loguniform(1e-5, 1)}
    hyper = stn.Hyper({name: domains[name] for name in order})
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3))
    model = stn.self_tune(model, hyper, bind={"2": "rate"})
    return model, hyper, torch.optim.SGD(model.parameters(), lr=0.1)


def test_the_optimizer_that_accelerate_wraps_is_found():
    model, hyper, optimizer = make()
    model, wrapped = accelerate.Accelerator(cpu=True).prepare(model, optimizer)
    assert wrapped is not optimizer
    tuner = stn.SelfTuner(model, hyper, wrapped)
    assert tuner.optimizer is optimizer
    with tuner.training(torch.ones(2, 6)):
        model(torch.ones(2, 6)).sum().backward()
    wrapped.step()
    assert tuner.weight_steps == 1


@pytest.mark.parametrize("safe_serialization", [True, False])
def test_a_self_tuned_model_is_saved_whole_in_either_format(safe_serialization, tmp_path):
    accelerator = accelerate.Accelerator(cpu=True)
    model, hyper, optimizer = make()
    model, optimizer = accelerator.prepare(model, optimizer)
    with torch.no_grad():
        hyper.lam.add_(torch.tensor([1.0, -2.0]))
    expected = {k: v.clone() for k, v in model.state_dict().items()}
    accelerator.save_state(str(tmp_path), safe_serialization=safe_serialization)
    with torch.no_grad():
        hyper.lam.zero_()
        for p in model.parameters():
            p.zero_()
    accelerator.load_state(str(tmp_path))
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in expected.items())


def test_a_file_of_safetensors_whose_space_has_another_order(tmp_path):
    from safetensors.torch import load_file, save_file

    model, hyper, _ = make()
    with torch.no_grad():
        hyper.lam.add_(torch.tensor([1.0, -2.0]))
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other, reordered, _ = make(order=("decay", "rate"))
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert reordered.values_now() == hyper.values_now()
    assert torch.equal(reordered.lam, hyper.lam.flip(0))


def test_the_loop_of_the_example_resumes_bit_for_bit(tmp_path, capsys):
    whole = accelerate_loop.main(3).state_dict()
    accelerate_loop.main(1, str(tmp_path / "state"))
    resumed = accelerate_loop.main(2, str(tmp_path / "state")).state_dict()
    assert all(torch.equal(value, resumed[key]) for key, value in whole.items())
    rates = [line.split()[-1] for line in capsys.readouterr().out.splitlines() if "dropout" in line]
    assert rates[:3] == rates[3:]
    assert len(set(rates[:3])) == 3


@pytest.mark.slow
def test_the_example_of_transformers(tmp_path, capsys, monkeypatch):
    transformers = pytest.importorskip("transformers")
    hf_trainer = importlib.import_module("examples.hf_trainer")
    monkeypatch.setattr("sys.argv", ["hf_trainer.py"])
    transformers.logging.disable_progress_bar()
    trainer = hf_trainer.main(str(tmp_path), epochs=20)
    assert trainer.tuner.weight_steps == 80
    assert "test loss" in capsys.readouterr().out
    plain = transformers.AutoModelForCausalLM.from_pretrained(str(tmp_path))
    assert not [key for key in plain.state_dict() if "_stn" in key]
    monkeypatch.setattr("sys.argv", ["hf_trainer.py", "--resume"])
    assert hf_trainer.main(str(tmp_path), epochs=21).tuner.weight_steps == 84
