"""The paper's language model: an LSTM with a tied embedding and five kinds of dropout, each tunable by name."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import stn_tune as stn

State = list[tuple[Tensor, Tensor]]

PLAIN_LAYERS = ["encoder", "decoder_bias"]
"""Stays elementary in an ST-LSTM: the tied softmax reads the embedding matrix directly."""


class LanguageModel(nn.Module):
    """Words ``(time, batch)`` -> outputs ``(time, batch, hidden)``; :meth:`loss` is the tied softmax on them.

    Dropouts, all but the last two variational: ``input_dropout``, ``hidden_dropout`` (between layers),
    ``output_dropout``, ``embedding_dropout`` (whole words) and ``weight_dropout`` (DropConnect, hidden-to-hidden).
    """

    def __init__(self, vocabulary: int, hidden: int, layers: int = 2):
        super().__init__()
        self.encoder = nn.Embedding(vocabulary, hidden)
        self.embedding_dropout = stn.nn.EmbeddingDropout("embedding_dropout", vocabulary)
        self.input_dropout = stn.nn.LockedDropout("input_dropout")
        self.hidden_dropout = stn.nn.LockedDropout("hidden_dropout")
        self.output_dropout = stn.nn.LockedDropout("output_dropout")
        self.rnns = nn.ModuleList(stn.nn.LSTM(hidden, hidden, weight_dropout="weight_dropout") for _ in range(layers))
        self.decoder_bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)

    def forward(self, words: Tensor, state: State | None = None) -> tuple[Tensor, Tensor, State]:
        """The dropped-out and the raw outputs of the last layer, and the state for the next chunk."""
        x = self.input_dropout(self.embedding_dropout(self.encoder(words), words))
        after: State = []
        for k, rnn in enumerate(self.rnns):
            x, (h, c) = rnn(x if k == 0 else self.hidden_dropout(x), state[k] if state else None)
            after.append((h.detach(), c.detach()))
        return self.output_dropout(x), x, after

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of the next words, in nats."""
        return stn.nn.linear_cross_entropy(outputs, self.encoder.weight, targets, self.decoder_bias)
