"""A small CNN for 8x8 images: two convolutions and two linear layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

import stn_tune as stn


class SmallCNN(nn.Module):
    """Images ``(batch, 1, 8, 8)`` -> logits; the dropouts are ``conv1_dropout``, ``conv2_dropout``, ``fc1_dropout``."""

    def __init__(self, channels: Sequence[int], hidden: int, classes: int = 10):
        super().__init__()
        first, second = channels
        self.layers = nn.Sequential(
            nn.Conv2d(1, first, 3, padding=1),
            nn.ReLU(inplace=True),
            stn.nn.Dropout("conv1_dropout"),
            nn.Conv2d(first, second, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            stn.nn.Dropout("conv2_dropout"),
            nn.Flatten(),
            nn.Linear(second * 16, hidden),
            nn.ReLU(inplace=True),
            stn.nn.Dropout("fc1_dropout"),
            nn.Linear(hidden, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(batch, classes)``."""
        logits: Tensor = self.layers(x)
        return logits
