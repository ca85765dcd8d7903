"""Several processes, each with its own data, train one self-tuned model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ray import tune
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import stn_tune as stn
from tests.stack import distributed_job as job

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def found(request, tmp_path_factory):
    """What each of 2 and of 4 processes came to."""
    folder = tmp_path_factory.mktemp("ddp")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.stack.distributed_job"]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(request.param), str(folder)], env=environment, stderr=subprocess.PIPE, text=True
        )
        for rank in range(request.param)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(request.param)]


@pytest.mark.parametrize(
    "case",
    ["own draws, stn", "own draws, delta", "shared draws, stn", "shared draws, delta", "accumulated", "unequal"],
)
def test_all_processes_have_the_same_weights_responses_and_lambda(found, case):
    first, *others = (one[case] for one in found)
    assert any(".lam" in key or "hyper.lam" in key for key in first)
    for other in others:
        for key, value in first.items():
            assert torch.equal(value, other[key]), key


@pytest.mark.parametrize("algorithm", ["stn", "delta"])
def test_a_shared_draw_is_one_process_with_all_the_data(found, algorithm):
    tuner = job.tuner_of(lambda model: model, 0, algorithm, bind=False)

    def of(k):
        parts = [job.batch(k, rank) for rank in range(len(found))]
        return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])

    torch.manual_seed(7)
    job.whole_steps(tuner, of)
    expected = job.state(tuner)
    for key, value in found[0][f"shared draws, {algorithm}"].items():
        assert torch.allclose(value, expected[key], atol=1e-5), key


def test_lambda_is_that_of_the_first_process_from_the_start(found):
    for one in found:
        assert one["broadcast"]["lam"].tolist() == [1.0]


@pytest.fixture
def group(tmp_path):
    """This process alone."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def test_a_model_that_is_wrapped_already_is_refused(group):
    wrapped = DistributedDataParallel(job.network(0.1))
    with pytest.raises(stn.ConversionError, match="self_tune it before"):
        stn.self_tune(wrapped, stn.Hyper({"decay": tune.loguniform(1e-4, 1.0)}))


def test_fsdp_is_refused(group):
    from torch.distributed.fsdp import fully_shard

    hyper = stn.Hyper({"decay": tune.loguniform(1e-4, 1.0)})
    model = stn.self_tune(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), hyper)
    fully_shard(model)
    with pytest.raises(ValueError, match=r"sharded by FSDP.*use DistributedDataParallel"):
        stn.SelfTuner(model, hyper, torch.optim.SGD(model.parameters(), lr=0.1))


def test_one_wrapped_process_is_the_plain_one(group):
    results = []
    for wrap in (DistributedDataParallel, lambda model: model):
        tuner = job.tuner_of(wrap, 0, "stn", bind=True)
        torch.manual_seed(3)
        job.whole_steps(tuner, lambda k: job.batch(k, 0))
        results.append(job.state(tuner))
    for key, value in results[0].items():
        assert torch.allclose(value, results[1][key], atol=1e-6), key
