"""What all tests share: one thread, a fixed seed, a small space."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray
import torch
from ray import tune

import stn_tune as stn

SLOWEST = (
    "test_run",
    "test_tune",
    "test_studies",
    "test_cluster",
    "test_faults",
    "test_pipelines",
    "test_skopt_search",
)
"""Modules that start Ray. `make test` gives modules to two workers; these begin, so that none is left for last."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {module: k for k, module in enumerate(SLOWEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(SLOWEST)))


@pytest.fixture(autouse=True)
def _reproducible():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def hyper() -> stn.Hyper:
    """Three hyperparameters of different kinds, in double precision and away from λ = 0."""
    space = {"rate": tune.uniform(0, 0.9), "holes": tune.randint(0, 5), "decay": tune.loguniform(1e-5, 1)}
    return stn.Hyper(space, init={"rate": 0.3, "holes": 1, "decay": 1e-3}, scale=0.7).double()


@pytest.fixture(scope="session")
def ray_session():
    """One Ray for all tests that need it, quiet, with workers that can import the tests' own modules."""
    environment = {"PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONWARNINGS": "ignore"}
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": environment})
    yield
    ray.shutdown()
