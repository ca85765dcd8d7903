"""What all tests share: one thread, a fixed seed, a small space."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray
import torch
from ray import tune

import stn_tune as stn

RAY_FIXTURES = {"ray_session", "nodes"}
"""Fixtures that start Ray: tests that use one are marked ``ray``."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that start Ray, and puts modules with slow or Ray tests first: two workers then end together."""
    for item in items:
        if RAY_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("ray")
    first = {item.path for item in items if item.get_closest_marker("ray") or item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in first)


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
