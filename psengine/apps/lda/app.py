"""Latent Dirichlet allocation by collapsed Gibbs sampling: the topics of a collection of documents.

A partition holds documents, and the topics of its tokens are partition-local rows; word counts by topic are shared. A
task resamples the topics of its tokens, given the counts of the previous clock and its own changes to them.
`model_parallel` uses blocks of words instead.

Source: Griffiths and Steyvers (PNAS 2004) for the sampler; Yu et al. (WWW 2015, "F+LDA") for going word by word;
Newman et al. (JMLR 2009, "AD-LDA") for partitions side by side.

Differs: sums over blocks of topics stand in place of the F+ tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.apps.lda.topic_model import I32, I64, WORTH_LEAVING, TopicModel
from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.tables.row_sets import RowSet


@dataclass(frozen=True)
class LdaData:
    """One partition: words of its tokens (tokens,) int32, document offsets, first row of `assignments`.

    `rows` (n,) are the rows of `word_topic` of its words, None if these are nearly all; `row` (tokens,) int32 is the
    index in them of each token's word. `loss_offset` is what the loss of a pass has of the documents' lengths alone.
    """

    words: I32
    offsets: I64
    token_start: int
    rows: I64 | None
    row: I32
    loss_offset: float


class LatentDirichletAllocation(TopicModel):
    """Topics of documents by collapsed Gibbs sampling.

    For the parameters see `TopicModel`.

    Notes
    -----
    Tables: `assignments` (tokens, 1), the topic of each token plus 1, 0 for none yet, partition-local; `word_topic`
    (words, k) and `topics` (1, k), the number of tokens by word and topic, and by topic. All are integers, and the sum
    of either of the last two is the number of tokens that have a topic, at any clock.
    """

    clocks_per_pass = 1

    def tables(self) -> tuple[TableSpec, ...]:
        """Return `assignments`, `word_topic` and `topics`."""
        return TableSpec("assignments", self.n_tokens, 1, self.topic_dtype, own=True), *self.count_tables()

    def prepare(self, arrays: Mapping[str, NDArray[np.generic]]) -> LdaData:
        """Return the tokens with the rows of their words; raise ValueError if an array does not fit."""
        words, offsets, start = self.checked_documents(arrays)
        distinct, row = np.unique(words, return_inverse=True)
        some = len(distinct) <= (1 - WORTH_LEAVING) * self.n_words
        log_size = np.log(np.maximum(np.diff(offsets) - 1, 0) + self.k * self.alpha)
        return LdaData(
            words,
            offsets,
            start,
            distinct.astype(np.int64) if some else None,
            row.astype(np.int32) if some else words,
            float((np.diff(offsets) * log_size).sum()),
        )

    def rows(self, data: LdaData, clock: int) -> dict[str, RowSet]:
        """Return the partition's tokens, and its words if these leave out much of the vocabulary."""
        del clock
        wanted: dict[str, RowSet] = {"assignments": slice(data.token_start, data.token_start + len(data.words))}
        if data.rows is not None:
            wanted["word_topic"] = data.rows
        return wanted

    def run(self, data: LdaData, params: Mapping[str, NDArray[np.generic]], clock: int) -> Work:
        """Resample all tokens; in the first clock, give every token a topic.

        The loss is minus the log-likelihood of each token, given all others.
        """
        from proteus_spot.psengine.apps.lda.kernels import count_in, sweep

        before = np.asarray(params["assignments"])[:, 0]
        change = np.zeros(params["word_topic"].shape, np.int32)
        topics = np.array(params["topics"][0], np.int64)
        if clock == 1:
            after = self.start(data.words, data.token_start)
            count_in(data.row, after, change, topics)
            loss = len(data.words) * float(np.log(self.n_words))
        else:
            after = before.astype(np.int32)
            key = self.key(clock, data.token_start)
            word_topic = np.ascontiguousarray(params["word_topic"], np.int32)
            none, no_lists = np.zeros(0, np.int64), np.zeros(0, np.int32)
            loss = data.loss_offset + sweep(
                data.row, data.offsets, none, no_lists, no_lists, no_lists, after, word_topic, topics, change,
                self.alpha, self.beta, self.beta * self.n_words, key,
            )  # fmt: skip
        updates = {
            "assignments": (after.astype(before.dtype) - before)[:, None],
            "word_topic": change,
            "topics": topics[None] - np.asarray(params["topics"], np.int64),
        }
        return Work(updates, loss, len(data.words))
