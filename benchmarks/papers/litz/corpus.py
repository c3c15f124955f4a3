"""The documents on which the parts of benchmark `litz` train `lda`, drawn from its model with a fixed seed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from proteus_spot.benchmarks.training.through_engine import Arrays
from proteus_spot.infra.datasets.documents import Documents, DocumentSet, drawn_documents

_WORDS, _LENGTH, _HELD_OUT = 5000, 150.0, 200
#: Tokens of a document where a job has many and is to be prepared soon.
LONG = 1000.0


@dataclass(frozen=True)
class LdaJob:
    """An `lda` job: its parameters with the sizes of the data, its partitions, and the held-out documents."""

    params: dict[str, Any]
    parts: list[Arrays]
    heldout: Arrays


def lda_job(n_documents: int, topics: int, n_partitions: int, parallel: str, length: float = _LENGTH) -> LdaJob:
    """Return a job on drawn documents, of `length` tokens in the mean."""
    whole = _drawn(n_documents + _HELD_OUT, _WORDS, max(topics // 4, 2), length)
    train, held = whole.take(np.arange(n_documents)), whole.take(np.arange(n_documents, n_documents + _HELD_OUT))
    sets = DocumentSet(train, held, _WORDS, n_partitions)
    params = {**sets.sizes, "k": topics, "alpha": 0.05, "parallel": parallel}
    return LdaJob(params, list(sets.parts(0)), sets.heldout())


def drawn_set(n_documents: int, n_words: int, drawn_topics: int, length: float, n_partitions: int) -> DocumentSet:
    """Return documents of `length` tokens in the mean, cut into partitions; they are the held-out ones as well."""
    documents = _drawn(n_documents, n_words, drawn_topics, length)
    return DocumentSet(documents, documents, n_words, n_partitions)


@cache  # the runs of a part have the same documents, cut into others partitions
def _drawn(n_documents: int, n_words: int, drawn_topics: int, length: float) -> Documents:
    words, offsets = drawn_documents(n_documents, n_words, drawn_topics, length, 0.02, 0.1, seed=11)
    return Documents(words, offsets, np.arange(n_documents))
