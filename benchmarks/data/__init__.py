"""The benchmark's data: fetched once per machine, cached once per node, memory-mapped by every trial."""

from benchmarks.data import cifar10, ptb
from benchmarks.data.cache import cached
from benchmarks.data.cifar10 import Images
from benchmarks.data.download import SOURCES, DataError, data_dir, fetch
from benchmarks.data.ptb import Corpus, build_corpus

__all__ = [
    "SOURCES",
    "Corpus",
    "DataError",
    "Images",
    "build_corpus",
    "cached",
    "cifar10",
    "data_dir",
    "fetch",
    "ptb",
]
