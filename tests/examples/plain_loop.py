"""A training loop as everybody has one: digits, a dropout, a fixed rate."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def loaders():
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    train, valid, test = torch.utils.data.random_split(data, [400, 400, 997], torch.Generator().manual_seed(0))
    return DataLoader(train, 40, shuffle=True), DataLoader(valid, 40, shuffle=True), DataLoader(test, 997)


def loss_fn(model, batch):
    x, y = batch
    return F.cross_entropy(model(x), y)


def main(epochs=30):
    torch.manual_seed(0)
    train, valid, test = loaders()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(epochs):
        model.train()
        for batch in train:
            loss_fn(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            loss = sum(loss_fn(model, batch).item() for batch in valid) / len(valid)
        print(f"epoch {epoch + 1:2}  validation loss {loss:.4f}")
    print(f"test loss {loss_fn(model, next(iter(test))).item():.4f}")


if __name__ == "__main__":
    main()
