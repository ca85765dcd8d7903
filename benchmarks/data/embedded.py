"""Data that every installation has: Python's documentation topics and scikit-learn's digits."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch

from benchmarks.data.cifar10 import Images
from benchmarks.data.ptb import Corpus, build_corpus
from benchmarks.errors import DataError

SHARES = {"train": 0.8, "valid": 0.1, "test": 0.1}
TOKEN = re.compile(r"[a-z_]+|\d+|[^\sa-z\d]")


def load_pydoc(
    *,
    vocabulary: int | None = None,
    tokens: int | None = None,
    valid_tokens: int | None = None,
    test_tokens: int | None = None,
) -> Corpus:
    """The text of ``pydoc_data.topics`` in words, lower case, numbers as N, one sentence end per paragraph.

    Topics, the longest first, go to the split that is furthest below its share: 80 % train, 10 % validate, 10 % test.
    The text differs a little between Python versions.
    """
    splits: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for name in sorted(topics, key=lambda name: (-len(topics[name]), name)):
        split = min(splits, key=lambda split: len(splits[split]) / SHARES[split])
        for paragraph in re.split(r"\n\s*\n", topics[name].lower()):
            words = ["N" if word.isdigit() else word for word in TOKEN.findall(paragraph)]
            if words:
                splits[split] += [*words, "<eos>"]
    cuts = {"train": tokens, "valid": valid_tokens, "test": test_tokens}
    train, valid, test = (words[: cuts[name]] for name, words in splits.items())
    return build_corpus(train, valid, test, vocabulary)


def load_digits() -> Images:
    """1,797 pictures of 8x8 as bytes: the first thousand to train and validate on, the rest to test."""
    table = np.loadtxt(_digits_file(), delimiter=",", dtype=np.float64)
    pictures, labels = table[:, :-1], table[:, -1]
    order = np.random.default_rng(0).permutation(len(labels))
    x = torch.from_numpy(np.round(pictures[order] * (255 / 16)).astype(np.uint8)).view(-1, 1, 8, 8)
    y = torch.from_numpy(labels[order].astype(np.int64))
    return Images(x[:1000], y[:1000], x[1000:], y[1000:])


def _digits_file() -> Path:
    """The table inside scikit-learn, whose import would take every trial's process a second or more."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise DataError("digits come with scikit-learn, which is not installed: pip install scikit-learn")
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
