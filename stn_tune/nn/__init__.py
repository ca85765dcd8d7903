"""Layers whose weights respond to hyperparameters, regularisers, and the conversion of ordinary models."""

from stn_tune.errors import ConversionError, LayoutError
from stn_tune.nn.attach import describe, fix, self_tune
from stn_tune.nn.kernels.cross_entropy import linear_cross_entropy
from stn_tune.nn.per_example.conv import HyperConv1d, HyperConv2d
from stn_tune.nn.per_example.embedding import HyperEmbedding
from stn_tune.nn.per_example.linear import HyperLinear
from stn_tune.nn.per_example.lstm import LSTM, HyperLSTM
from stn_tune.nn.regularizers import (
    Dropout,
    Dropout2d,
    EmbeddingDropout,
    LockedDropout,
    activation_reg,
    drop_connect,
    dropout,
    dropout2d,
    embedding_dropout,
    l2,
    locked_dropout,
    temporal_activation_reg,
)
from stn_tune.nn.response import HyperLayer

__all__ = [
    "LSTM",
    "ConversionError",
    "Dropout",
    "Dropout2d",
    "EmbeddingDropout",
    "HyperConv1d",
    "HyperConv2d",
    "HyperEmbedding",
    "HyperLSTM",
    "HyperLayer",
    "HyperLinear",
    "LayoutError",
    "LockedDropout",
    "activation_reg",
    "describe",
    "drop_connect",
    "dropout",
    "dropout2d",
    "embedding_dropout",
    "fix",
    "l2",
    "linear_cross_entropy",
    "locked_dropout",
    "self_tune",
    "temporal_activation_reg",
]
