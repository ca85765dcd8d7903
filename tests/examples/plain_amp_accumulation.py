"""Mixed precision, a gradient scaler, and four pieces of a batch per step."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PIECES = 4


def loaders():
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    train, valid, test = torch.utils.data.random_split(data, [400, 400, 997], torch.Generator().manual_seed(0))
    return DataLoader(train, 40, shuffle=True), DataLoader(valid, 40, shuffle=True), DataLoader(test, 997)


def loss_fn(model, batch):
    x, y = batch
    with torch.autocast(DEVICE, dtype=torch.float16, enabled=DEVICE == "cuda"):
        return F.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))


def main(epochs=30):
    torch.manual_seed(0)
    train, valid, test = loaders()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    scaler = torch.amp.GradScaler(DEVICE, enabled=DEVICE == "cuda")
    for epoch in range(epochs):
        model.train()
        for batch in train:
            for piece in zip(*(part.chunk(PIECES) for part in batch), strict=True):
                loss = loss_fn(model, piece)
                scaler.scale(loss / PIECES).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        print(f"epoch {epoch + 1:2}  training loss {loss.item():.4f}  dropout {model[2].p:.3f}")
    model.eval()
    print(f"test loss {loss_fn(model, next(iter(test))).item():.4f}")


if __name__ == "__main__":
    main()
