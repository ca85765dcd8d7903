"""A plain PyTorch + Tune script of the kind found in Ray's examples: function trainable, CNN, OptunaSearch."""

import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from ray import tune
from ray.tune.search.optuna import OptunaSearch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ConvNet(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, kernel_size=3)
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(72, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        return self.fc(self.drop(x.view(-1, 72)))


def get_data_loaders():
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(labels))
    train, valid = torch.utils.data.Subset(data, range(400)), torch.utils.data.Subset(data, range(400, 800))
    return DataLoader(train, batch_size=40, shuffle=True), DataLoader(valid, batch_size=40, shuffle=True)


def loss_fn(model, batch):
    data, target = batch
    return F.cross_entropy(model(data), target)


def train_mnist(config):
    train_loader, valid_loader = get_data_loaders()
    model = ConvNet(config["dropout"])
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    for _ in range(config["epochs"]):
        model.train()
        for batch in train_loader:
            optimizer.zero_grad()
            loss_fn(model, batch).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            val_loss = sum(loss_fn(model, batch).item() for batch in valid_loader) / len(valid_loader)
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.state_dict(), Path(folder, "model.pt"))
            tune.report({"val_loss": val_loss}, checkpoint=tune.Checkpoint.from_directory(folder))


def main(storage, num_samples, epochs):
    space = {"dropout": tune.uniform(0, 0.75), "lr": tune.loguniform(1e-3, 1e-1), "epochs": epochs}
    tuner = tune.Tuner(
        train_mnist,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="val_loss",
            mode="min",
            search_alg=OptunaSearch(),
            num_samples=num_samples,
        ),
        run_config=tune.RunConfig(storage_path=storage, name="mnist", verbose=0),
    )
    return tuner.fit()


if __name__ == "__main__":
    print(main(storage=str(Path("~/ray_results").expanduser()), num_samples=4, epochs=10).get_best_result().metrics)
