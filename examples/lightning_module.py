"""A LightningModule whose dropout tunes itself while the Trainer fits it: python examples/lightning_module.py."""

import lightning as L
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import stn_tune as stn
from stn_tune.integrations.lightning import SelfTuning


def loaders():
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    train, valid, test = torch.utils.data.random_split(data, [400, 400, 997], torch.Generator().manual_seed(0))
    return DataLoader(train, 40, shuffle=True), DataLoader(valid, 40, shuffle=True), DataLoader(test, 997)


class Digits(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def test_step(self, batch, batch_idx):
        x, y = batch
        self.log("test_loss", F.cross_entropy(self(x), y))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def main(epochs=30):
    L.seed_everything(0)
    train, valid, test = loaders()
    module = Digits()
    space, bind = stn.dropouts(module)
    hyper = stn.Hyper(space)
    stn.self_tune(module, hyper, bind=bind)
    tuning = SelfTuning(hyper, valid_dataloader=valid, hyper_lr=0.05, prog_bar=True)
    trainer = L.Trainer(max_epochs=epochs, logger=False, enable_checkpointing=False, callbacks=tuning)
    trainer.fit(module, train)
    result = trainer.test(module, test, verbose=False)
    print(f"test loss {result[0]['test_loss']:.4f}, dropout {module.net[2].p:.3f}")
    return result


if __name__ == "__main__":
    main()
