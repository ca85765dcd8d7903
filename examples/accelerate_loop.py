"""A loop with Accelerate, accumulated gradients and checkpoints, self-tuned: python examples/accelerate_loop.py."""

import os

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import send_to_device
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import stn_tune as stn
from stn_tune.stream import Stream


def loaders():
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    train, valid, test = torch.utils.data.random_split(data, [400, 400, 997], torch.Generator().manual_seed(0))
    return DataLoader(train, 20, shuffle=True), DataLoader(valid, 40, shuffle=True), DataLoader(test, 997)


def loss_fn(model, batch, hp=None):
    x, y = batch
    return F.cross_entropy(model(x), y)


def main(epochs=30, folder=None):
    torch.manual_seed(0)
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=not torch.cuda.is_available())
    train, valid, test = loaders()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
    space, bind = stn.dropouts(model)
    hyper = stn.Hyper(space)
    model = stn.self_tune(model, hyper, bind=bind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)
    tuner = stn.SelfTuner(model, hyper, optimizer, hyper_lr=0.05)
    tuning = Stream(
        valid, seed=accelerator.process_index
    )  # not prepared: accumulate() watches the last prepared loader
    accelerator.register_for_checkpointing(tuner, tuning)
    if folder and os.path.exists(folder):
        accelerator.load_state(folder)
    for epoch in range(epochs):
        model.train()
        for batch in train:
            with accelerator.accumulate(model):
                with tuner.training(batch):
                    accelerator.backward(loss_fn(model, batch))
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients and tuner.weight_steps % 2 == 0:
                tuner.valid_step(loss_fn, send_to_device(next(tuning), accelerator.device), accelerator.scaler)
        model.eval()
        with torch.no_grad():
            batches = [send_to_device(batch, accelerator.device) for batch in valid]
            loss = sum(loss_fn(model, batch).item() for batch in batches) / len(batches)
        accelerator.print(
            f"epoch {epoch + 1:2}  validation loss {loss:.4f}  dropout {tuner.metrics()['hp/dropout_2']:.3f}"
        )
        if folder:
            accelerator.save_state(folder)
    accelerator.print(f"test loss {loss_fn(model, next(iter(test))).item():.4f}")
    return model


if __name__ == "__main__":
    main()
