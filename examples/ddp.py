"""DistributedDataParallel, self-tuned: λ moves alike in every process. python examples/ddp.py."""

import os
import tempfile

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import stn_tune as stn


def loaders():
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    train, valid, test = torch.utils.data.random_split(data, [400, 400, 997], torch.Generator().manual_seed(0))
    own = [DataLoader(part, 20, sampler=DistributedSampler(part)) for part in (train, valid)]
    return *own, DataLoader(test, 997)


def loss_fn(model, batch, hp=None):
    x, y = batch
    return F.cross_entropy(model(x), y)


def worker(rank, processes, store, epochs):
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=processes)
    torch.manual_seed(rank)
    train, valid, test = loaders()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
    space, bind = stn.dropouts(model)
    hyper = stn.Hyper(space)
    model = stn.self_tune(model, hyper, bind=bind)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    tuner = stn.SelfTuner(model, hyper, optimizer, hyper_lr=0.05)
    for epoch in range(epochs):
        train.sampler.set_epoch(epoch)
        tuner.epoch(loss_fn, train, valid)
        print(f"process {rank}, epoch {epoch + 1:2}: dropout {model.module[2].p:.6f}")
    model.eval()
    print(f"process {rank}: test loss {loss_fn(model, next(iter(test))).item():.4f}")
    distributed.destroy_process_group()


def main(processes=2, epochs=20):
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(worker, (processes, f"{folder}/store", epochs), nprocs=processes)


if __name__ == "__main__":
    main()
