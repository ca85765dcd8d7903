"""Penn Treebank as token ids, and the numbering of words for any corpus."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.data.cache import Arrays, cached
from benchmarks.data.download import require
from benchmarks.errors import DataError

EOS, UNKNOWN = "<eos>", "<unk>"
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Corpus:
    """Three splits of one text, each a 1-D int64 tensor of indices into ``words``."""

    train: Tensor
    valid: Tensor
    test: Tensor
    words: list[str]


def load_ptb(
    folder: str | os.PathLike[str],
    *,
    vocabulary: int | None = None,
    tokens: int | None = None,
    valid_tokens: int | None = None,
    test_tokens: int | None = None,
) -> Corpus:
    """Penn Treebank from ``folder/ptb``, every line ended by ``<eos>``; memory-mapped from the second call on.

    ``tokens``, ``valid_tokens`` and ``test_tokens`` keep only that many tokens of a split; ``vocabulary`` as in
    :func:`build_corpus`, counted on what is left of the training split.
    """
    data = Path(folder).expanduser().absolute()
    paths = require("ptb", data)
    limits = dict(zip(SPLITS, (tokens, valid_tokens, test_tokens), strict=True))
    for split, limit in limits.items():
        if limit is not None and limit < 1:
            raise DataError(f"ptb: {limit} {split} tokens leave nothing: at least 1 is needed")

    def build() -> Arrays:
        train, valid, test = (read_words(path)[:limit] for path, limit in zip(paths, limits.values(), strict=True))
        corpus = build_corpus(train, valid, test, vocabulary)
        words = np.frombuffer("\n".join(corpus.words).encode(), np.uint8)
        return {"words": words, **{split: getattr(corpus, split).numpy() for split in SPLITS}}

    tensors = cached(data, "ptb", paths, {"vocabulary": vocabulary, **limits}, (*SPLITS, "words"), build)
    words = tensors.pop("words").numpy().tobytes().decode().split("\n")
    return Corpus(**tensors, words=words)


def read_words(path: Path) -> list[str]:
    """The words of a text file, with ``<eos>`` after each line."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path} as UTF-8 text: {error}") from error
    if "\0" in text:
        raise DataError(f"{path} is not UTF-8 text: it contains NUL bytes")
    if not text.strip():
        raise DataError(f"{path} is empty")
    return [word for line in text.removesuffix("\n").split("\n") for word in (*line.split(), EOS)]


def build_corpus(
    train_words: Iterable[str],
    valid_words: Iterable[str],
    test_words: Iterable[str],
    vocabulary: int | None = None,
) -> Corpus:
    """Numbers the words of a text; words without a number become ``<unk>``.

    The training split's words are numbered by falling frequency, equally frequent ones by first appearance. Of these
    the first ``vocabulary`` are kept (None: all); ``<unk>`` and ``<eos>`` are always among them, and counted.
    """
    if vocabulary is not None and vocabulary < 2:
        raise DataError(f"a vocabulary of {vocabulary} is too small: {UNKNOWN} and {EOS} alone are 2")
    train_words = list(train_words)
    counts = Counter(train_words)
    counts.update({UNKNOWN: 0, EOS: 0})
    words = [word for word, _ in counts.most_common()]
    if vocabulary is not None:
        kept = {UNKNOWN, EOS, *[word for word in words if word not in (UNKNOWN, EOS)][: vocabulary - 2]}
        words = [word for word in words if word in kept]
    number = {word: index for index, word in enumerate(words)}
    unknown = number[UNKNOWN]

    def encode(split: str, text: Iterable[str]) -> Tensor:
        ids = np.fromiter((number.get(word, unknown) for word in text), np.int64)
        if not len(ids):
            raise DataError(f"the corpus has no {split} words")
        return torch.from_numpy(ids)

    return Corpus(encode("train", train_words), encode("valid", valid_words), encode("test", test_words), words)
