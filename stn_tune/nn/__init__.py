"""Hyper layers, regularisers and the conversion of ordinary models."""

from stn_tune.nn import augment
from stn_tune.nn.conv import HyperConv1d, HyperConv2d
from stn_tune.nn.convert import ConversionError, describe, fix, self_tune
from stn_tune.nn.embedding import HyperEmbedding
from stn_tune.nn.layer import HyperLayer, LayoutError
from stn_tune.nn.linear import HyperLinear
from stn_tune.nn.losses import linear_cross_entropy
from stn_tune.nn.lstm import LSTM, HyperLSTM
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
    "augment",
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
