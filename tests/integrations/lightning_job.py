"""What test_lightning.py runs in two processes: strategy="ddp" starts the second one with this same script."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path

import lightning.pytorch as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import stn_tune as stn
from stn_tune.integrations.lightning import SelfTuning

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def loss_fn(model, batch, hp=None):
    return F.cross_entropy(model(batch[0]), batch[1])


class Net(L.LightningModule):  # type: ignore[misc]
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        return loss_fn(self, batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


class Manual(Net):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        self.manual_backward(loss_fn(self, batch))
        self.optimizers().step()
        self.optimizers().zero_grad()


def data(seed):
    x = torch.randn(96, 6, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x[:, :3].argmax(1))


def run(cls, algorithm, folder, *, seed=0, resume=None):
    torch.manual_seed(seed)
    module = cls()
    space, bind = stn.dropouts(module)
    hyper = stn.Hyper(space)
    stn.self_tune(module, hyper, bind=bind)
    callback = SelfTuning(hyper, valid_dataloader=DataLoader(data(1), 6, shuffle=True), loss=loss_fn,
                          algorithm=algorithm, train_steps=2, hyper_lr=0.05)  # fmt: skip
    saving = ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1, save_on_train_epoch_end=True)
    trainer = L.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, callbacks=[callback, saving],
                        accumulate_grad_batches=2 if cls is Net else 1, logger=False, enable_progress_bar=False,
                        enable_model_summary=False)  # fmt: skip
    trainer.fit(module, DataLoader(data(0), 6, shuffle=True), ckpt_path=resume)
    assert len(callback.tuner.schedule) > 3
    return trainer, {k: v for k, v in module.state_dict().items() if isinstance(v, torch.Tensor)}


if __name__ == "__main__":
    cases = {"stn": (Net, "stn"), "delta": (Net, "delta"), "manual": (Manual, "stn")}
    found = {}
    for name, case in cases.items():
        folder = Path(sys.argv[1], name)
        trainer, found[name] = run(*case, folder)
        _, found[f"{name}, resumed"] = run(*case, folder / "again", seed=7, resume=folder / "epoch=0.ckpt")
    torch.save(found, Path(sys.argv[1], f"{trainer.global_rank}.pt"))
