"""AlexNet for 32x32 images: five convolutions and three linear layers, with a dropout after each but the last."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

import stn_tune as stn

PAPER_CHANNELS = (64, 192, 384, 256, 256)
PAPER_HIDDEN = 4096


class AlexNet(nn.Module):
    """Images ``(batch, 3, 32, 32)`` -> logits ``(batch, classes)``.

    The dropouts are ``conv1_dropout`` … ``conv5_dropout``, ``fc1_dropout`` and ``fc2_dropout``.
    """

    def __init__(self, channels: Sequence[int] = PAPER_CHANNELS, hidden: int = PAPER_HIDDEN, classes: int = 10):
        super().__init__()
        inputs = [3, *channels]
        blocks: list[nn.Module] = []
        for k in range(5):
            blocks += [
                nn.Conv2d(inputs[k], inputs[k + 1], 3, stride=2 if k == 0 else 1, padding=1),
                nn.ReLU(inplace=True),
            ]
            if k in (0, 1, 4):
                blocks.append(nn.MaxPool2d(2))
            blocks.append(stn.nn.Dropout(f"conv{k + 1}_dropout"))
        self.features = nn.Sequential(*blocks)
        self.classifier = nn.Sequential(
            nn.Linear(channels[-1] * 4, hidden),
            nn.ReLU(inplace=True),
            stn.nn.Dropout("fc1_dropout"),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            stn.nn.Dropout("fc2_dropout"),
            nn.Linear(hidden, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(batch, classes)``."""
        logits: Tensor = self.classifier(self.features(x).flatten(1))
        return logits
