"""What one process of test_distributed.py does: it trains with DistributedDataParallel and saves what came out."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import torch
from ray import tune
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import stn_tune as stn

STEPS = 50


def network(dropout: float) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 3))


def tuner_of(wrap, seed: int, algorithm: str, bind: bool) -> stn.SelfTuner:
    torch.manual_seed(seed)
    space = {"decay": tune.loguniform(1e-4, 1.0)} | ({"dropout": tune.uniform(0, 0.9)} if bind else {})
    hyper = stn.Hyper(space, scale=0.5)
    model = wrap(stn.self_tune(network(0.1 if bind else 0.0), hyper, bind={"3": "dropout"} if bind else None))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return stn.SelfTuner(model, hyper, optimizer, algorithm=algorithm, hyper_lr=0.05)


def batch(seed: int, rank: int, n: int = 8):
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    x = torch.randn(n, 6, generator=generator)
    return x, x[:, :3].argmax(1)


def loss_fn(model, batch, hp):
    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
    return loss + hp["decay"] * stn.nn.l2(model, 1.0) if model.training else loss


def whole_steps(tuner, of):
    """T_train : T_valid of 2:1, on batches ``of(step)``."""
    for k in range(STEPS):
        tuner.train_step(loss_fn, of(k))
        if k % 2:
            tuner.valid_step(loss_fn, of(5000 + k))


def accumulated(tuner, of, pieces=2):
    """Gradients of several pieces, exchanged with the last alone."""
    for k in range(10):
        tuner.optimizer.zero_grad()
        for j in range(pieces):
            held = tuner.model.no_sync() if j < pieces - 1 else torch.enable_grad()
            with held, tuner.training(of(2 * k + j)) as hp:
                (loss_fn(tuner.model, of(2 * k + j), hp) / pieces).backward()
        tuner.optimizer.step()
        with tuner.tuning(of(5000 + k)) as hp:
            tuner.backward(loss_fn(tuner.model, of(5000 + k), hp))
        tuner.step()


def state(tuner):
    saved = {k.removeprefix("module."): v for k, v in tuner.model.state_dict().items() if isinstance(v, torch.Tensor)}
    return copy.deepcopy(saved)


def main(rank: int, size: int, folder: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    found = {}
    for algorithm in ("stn", "delta"):
        own = tuner_of(DistributedDataParallel, rank, algorithm, bind=True)
        torch.manual_seed(100 + rank)
        whole_steps(own, lambda k: batch(k, rank))
        found[f"own draws, {algorithm}"] = state(own)

        shared = tuner_of(DistributedDataParallel, 0, algorithm, bind=False)
        torch.manual_seed(7)
        whole_steps(shared, lambda k: batch(k, rank))
        found[f"shared draws, {algorithm}"] = state(shared)
    pieces = tuner_of(DistributedDataParallel, rank, "stn", bind=True)
    torch.manual_seed(100 + rank)
    accumulated(pieces, lambda k: batch(k, rank))
    found["accumulated"] = state(pieces)

    unequal = tuner_of(DistributedDataParallel, rank, "stn", bind=True)
    torch.manual_seed(100 + rank)
    whole_steps(unequal, lambda k: batch(k, rank, 8 if k % 5 else 3 + rank))
    found["unequal"] = state(unequal)

    torch.manual_seed(0)
    hyper = stn.Hyper({"decay": tune.loguniform(1e-4, 1.0)})
    model = DistributedDataParallel(stn.self_tune(network(0.0), hyper))
    hyper.lam.fill_(float(rank + 1))
    stn.SelfTuner(model, hyper, torch.optim.SGD(model.parameters(), lr=0.1))
    found["broadcast"] = {"lam": hyper.lam.clone()}
    torch.save(found, Path(folder) / f"{rank}.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
