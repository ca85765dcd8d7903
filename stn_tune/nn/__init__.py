"""Responses beside a model's parameters, named regularisers, and penalties."""

from stn_tune.errors import ConversionError, LayoutError
from stn_tune.nn.attach import fix, plain_state_dict, release, self_tune
from stn_tune.nn.inspect import describe, dropouts
from stn_tune.nn.kernels.cross_entropy import linear_cross_entropy
from stn_tune.nn.lstm import LSTM
from stn_tune.nn.penalties import l2
from stn_tune.nn.per_example import per_example
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
    locked_dropout,
    temporal_activation_reg,
)
from stn_tune.nn.response import Response

__all__ = [
    "LSTM",
    "ConversionError",
    "Dropout",
    "Dropout2d",
    "EmbeddingDropout",
    "LayoutError",
    "LockedDropout",
    "Response",
    "activation_reg",
    "describe",
    "drop_connect",
    "dropout",
    "dropout2d",
    "dropouts",
    "embedding_dropout",
    "fix",
    "l2",
    "linear_cross_entropy",
    "locked_dropout",
    "per_example",
    "plain_state_dict",
    "release",
    "self_tune",
    "temporal_activation_reg",
]
