"""Latent Dirichlet allocation by collapsed Gibbs sampling: the topics of a collection of documents.

A partition holds documents, and the topics of its tokens are partition-local rows; word counts by topic are shared. A
micro-task resamples the topics of some tokens, given the counts of the previous clock and its own changes to them.

Source: Griffiths and Steyvers (PNAS 2004) for the sampler; Yu et al. (WWW 2015, "F+LDA") for going word by word;
Newman et al. (JMLR 2009, "AD-LDA") for partitions side by side; Litz (ATC 2018), 2.6, for blocks of words.

Differs: sums over blocks of topics stand in place of the F+ tree; all partitions may work on one block of words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psengine.apps import kernel_cache as kernels
from psengine.apps.base import Work
from psengine.apps.parameter_checks import check_above, check_whole
from psengine.config import TableSpec
from psengine.tables.row_sets import RowSet

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F32 = NDArray[np.float32]

#: Minimum share of a table that must be unneeded for its rows to be requested by index.
_WORTH_LEAVING = 0.25
#: Number of fold-in rounds; the mixture of a document hardly changes after them.
_FOLD_IN_ROUNDS = 20
_KERNELS, _FOLD_IN = "psengine.apps.lda.kernels", "psengine.apps.lda.fold_in"
_MOST_INT16 = 2**15 - 1


@dataclass(frozen=True)
class Block:
    """The tokens of a partition that are resampled in one clock, document after document.

    `rows` are the rows of `word_topic` of their words, None for all; `order` (tokens,) is the position of each token in
    the partition, `row` (tokens,) the index in `rows` of its word; document d has `order[starts[d]:starts[d + 1]]`.
    """

    rows: RowSet | None
    order: I32
    row: I32
    starts: I64


@dataclass(frozen=True)
class LdaData:
    """One partition: number, words of its tokens (tokens,) int32, document offsets, first row of `assignments`.

    `rows` (n,) are the rows of `word_topic` of its words, None if these are nearly all; `blocks` are its tokens by
    block.
    """

    partition: int
    words: I32
    offsets: I64
    token_start: int
    rows: I64 | None
    blocks: tuple[Block, ...]
    loss_offset: tuple[float, ...]


class LatentDirichletAllocation:
    """Topics of documents by collapsed Gibbs sampling.

    Parameters
    ----------
    n_words, n_tokens : int
        Size of the vocabulary, and number of tokens of all training documents.
    k : int
        Number of topics.
    alpha, beta : float
        Weights of the symmetric Dirichlet priors: of topics in a document, of words in a topic.
    blocks : int
        Number of blocks of words. A clock resamples one block in each partition, a different one in each, so that
        `blocks` clocks are one pass. With as many blocks as partitions, these do not interfere. Each block is a run of
        words, so that it is read and updated as contiguous memory; `word_counts` (n_words,) of the data, the number of
        tokens of each word in all partitions, gives the cuts for blocks of about equally many tokens.
    start_topics : int
        Number of topics in which a word's tokens start, drawn by the word's number, the same in all partitions; `k` or
        more: any topic.
    seed : int
        Seed of all random draws.

    Notes
    -----
    Tables: `assignments` (tokens, 1), the topic of each token plus 1, 0 for none yet, partition-local; `word_topic`
    (words, k) and `topics` (1, k), the number of tokens by word and topic, and by topic. All are integers, and the sum
    of either of the last two is the number of tokens that have a topic, at any clock.
    """

    predicts = "topic"

    def __init__(
        self,
        n_words: int,
        n_tokens: int,
        *,
        k: int = 100,
        alpha: float = 0.1,
        beta: float = 0.01,
        blocks: int = 1,
        start_topics: int = 10,
        seed: int = 0,
    ) -> None:
        check_whole(2, k=k)
        check_whole(1, blocks=blocks, start_topics=start_topics)
        check_whole(0, seed=seed)
        check_above(0, alpha=alpha, beta=beta)
        self.n_words, self.n_tokens = n_words, n_tokens
        self.k, self.alpha, self.beta = k, alpha, beta
        self.blocks, self.start_topics, self.seed = blocks, min(start_topics, k), seed

    def check_sizes(self) -> None:
        """Raise ValueError if there are more blocks than words."""
        if self.blocks > self.n_words:
            raise ValueError(
                f"blocks is {self.blocks}, and there are {self.n_words} words; want at most one block each"
            )

    @property
    def clocks_per_pass(self) -> int:
        """Number of clocks in which each partition resamples all blocks of words."""
        return self.blocks

    def tables(self) -> tuple[TableSpec, ...]:
        """Return `assignments`, `word_topic` and `topics`."""
        kind = "int16" if self.k < _MOST_INT16 else "int32"
        return (
            TableSpec("assignments", self.n_tokens, 1, kind, own=True),
            TableSpec("word_topic", self.n_words, self.k, "int32"),
            TableSpec("topics", 1, self.k, "int64"),
        )

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> NDArray[np.generic]:
        """Return zeros: no token has a topic before the first clock."""
        del rng
        return np.zeros((rows[1] - rows[0], table.n_cols), table.dtype)

    def prepare(self, arrays: Mapping[str, NDArray[np.generic]]) -> LdaData:
        """Return the tokens by word and block; raise ValueError if an array does not fit."""
        for name in (_KERNELS, _FOLD_IN):  # compiled here, not during a clock
            kernels.load(name)
        words, offsets = _documents(arrays, self.n_words)
        start = int(np.asarray(arrays.get("token_start", np.zeros(1, np.int64)), np.int64).reshape(-1)[0])
        if start < 0 or start + len(words) > self.n_tokens:
            raise ValueError(f"tokens {start} to {start + len(words)}: wanted within 0 to {self.n_tokens}")
        lengths = np.diff(offsets)
        document = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        log_size = np.log(np.maximum(lengths - 1, 0) + self.k * self.alpha)
        block_of = _blocks(arrays.get("word_counts"), self.n_words, self.blocks)
        number_of = block_of[words]
        blocks, offsets_of_loss = [], []
        for number in range(self.blocks):
            order = np.flatnonzero(number_of == number).astype(np.int32)
            rows, row = self._rows_of(words[order], np.flatnonzero(block_of == number))
            starts = np.searchsorted(order, offsets).astype(np.int64)
            blocks.append(Block(rows, order, row, starts))
            offsets_of_loss.append(float(log_size[document[order]].sum()))
        distinct = np.unique(words).astype(np.int64)
        every = distinct if len(distinct) <= (1 - _WORTH_LEAVING) * self.n_words else None
        # Tokens are numbered across partitions: this estimates the number of a partition that does not state it.
        guessed = round(start / max(len(words), 1))
        partition = int(np.asarray(arrays.get("partition", guessed)).reshape(-1)[0])
        return LdaData(partition, words, offsets, start, every, tuple(blocks), tuple(offsets_of_loss))

    def _rows_of(self, words: I32, among: I64) -> tuple[RowSet | None, I32]:
        """Return the rows of `word_topic` of a block's words, None for all rows, and the index in them of each word.

        `among` (n,) are the words of the block.
        """
        low, high = (int(among[0]), int(among[-1]) + 1) if len(among) else (0, 0)
        distinct, row = np.unique(words, return_inverse=True)
        if len(distinct) <= (1 - _WORTH_LEAVING) * (high - low):
            return distinct.astype(np.int64), row.astype(np.int32)
        return (None if (low, high) == (0, self.n_words) else slice(low, high)), (words - low).astype(np.int32)

    def rows(self, data: LdaData, clock: int) -> dict[str, RowSet]:
        """Return the partition's tokens, and the words it resamples if these leave out much of the vocabulary."""
        wanted: dict[str, RowSet] = {"assignments": slice(data.token_start, data.token_start + len(data.words))}
        rows = data.rows if clock == 1 else data.blocks[self._block(data, clock)].rows
        if rows is not None:
            wanted["word_topic"] = rows
        return wanted

    def run(self, data: LdaData, params: Mapping[str, NDArray[np.generic]], clock: int) -> Work:
        """Resample the tokens of this clock's block; in the first clock, give every token a topic.

        The loss is minus the log-likelihood of each resampled token, given all others.
        """
        from psengine.apps.lda.kernels import count_in, sweep

        before = np.asarray(params["assignments"])[:, 0]
        change = np.zeros(params["word_topic"].shape, np.int32)
        topics = np.array(params["topics"][0], np.int64)
        if clock == 1:
            after = self._start(data)
            row = data.words if data.rows is None else np.searchsorted(data.rows, data.words).astype(np.int32)
            count_in(row, after, change, topics)
            loss, drawn = len(data.words) * float(np.log(self.n_words)), len(data.words)
        else:
            number = self._block(data, clock)
            block = data.blocks[number]
            after = before.astype(np.int32)
            key = np.random.SeedSequence([self.seed, clock, data.token_start]).generate_state(1, np.uint64)[0]
            word_topic = np.ascontiguousarray(params["word_topic"], np.int32)
            loss = sweep(
                block.row, block.order, block.starts, data.offsets, after, word_topic, topics, change,
                self.alpha, self.beta, self.beta * self.n_words, key,
            )  # fmt: skip
            loss, drawn = loss + data.loss_offset[number], len(block.order)
        updates = {
            "assignments": (after.astype(before.dtype) - before)[:, None],
            "word_topic": change,
            "topics": topics[None] - np.asarray(params["topics"], np.int64),
        }
        return Work(updates, loss, drawn)

    def evaluate(
        self, params: Mapping[str, NDArray[np.generic]], heldout: Mapping[str, NDArray[np.generic]]
    ) -> dict[str, float]:
        """Return `perplexity` by document completion, and `log_likelihood`, the mean over its tokens.

        Half of each document's tokens, drawn with a fixed seed, give its topic mixture; the others are evaluated.
        """
        words, offsets = _documents(heldout, self.n_words)
        lengths = np.diff(offsets)
        document = np.repeat(np.arange(len(lengths)), lengths)
        order = np.lexsort((np.random.default_rng(len(words)).random(len(words)), document))
        seen = (np.arange(len(words)) - offsets[document]) % 2 == 0
        phi = self._phi(params)
        given = np.concatenate([[0], np.cumsum(np.bincount(document[seen], minlength=len(lengths)))])
        theta = self._mixtures(words[order][seen], given, phi)
        hidden_words, hidden_in = words[order][~seen], document[~seen]
        likelihoods = np.concatenate(
            [
                np.einsum("tk,tk->t", theta[hidden_in[low : low + 4096]], phi[hidden_words[low : low + 4096]])
                for low in range(0, len(hidden_words), 4096)
            ]
            or [np.ones(0, np.float32)]
        )
        mean = float(np.log(likelihoods.astype(np.float64)).mean()) if len(likelihoods) else 0.0
        return {"perplexity": float(np.exp(-mean)), "log_likelihood": mean}

    def predict(self, params: Mapping[str, NDArray[np.generic]], arrays: Mapping[str, NDArray[np.generic]]) -> F32:
        """Return the topic mixture of each document, shape (documents, k); each row sums to 1."""
        words, offsets = _documents(arrays, self.n_words)
        return self._mixtures(words, offsets, self._phi(params))

    def top_words(self, params: Mapping[str, NDArray[np.generic]], n: int) -> list[I64]:
        """Return up to `n` words of each topic, those with the most tokens first; words without tokens are left out."""
        found = []
        for counts in np.asarray(params["word_topic"]).T:
            present = np.flatnonzero(counts)
            found.append(present[np.argsort(-counts[present], kind="stable")[:n]])
        return found

    def joint_log_likelihood(self, words: I32, offsets: I64, assignments: NDArray[Any]) -> float:
        """Return log p(words, topics) per token, of documents whose tokens have the topics `assignments` - 1."""
        counts = np.zeros((self.n_words, self.k), np.int64)
        np.add.at(counts, (words, assignments - 1), 1)
        lengths = np.diff(offsets)
        document = np.repeat(np.arange(len(lengths)), lengths)
        _, in_document = np.unique(document * np.int64(self.k) + assignments - 1, return_counts=True)
        of_words = _log_dirichlet(counts[counts > 0], counts.sum(axis=0), self.beta, self.n_words)
        return (of_words + _log_dirichlet(in_document, lengths, self.alpha, self.k)) / len(words)

    def _phi(self, params: Mapping[str, NDArray[np.generic]]) -> F32:
        phi = np.asarray(params["word_topic"], np.float32) + np.float32(self.beta)
        phi /= np.asarray(params["topics"], np.float32) + np.float32(self.beta * self.n_words)
        return phi

    def _mixtures(self, words: I32, offsets: I64, phi: F32) -> F32:
        kernels.load(_FOLD_IN)
        from psengine.apps.lda.fold_in import fold_in

        theta = np.empty((len(offsets) - 1, self.k), np.float32)
        fold_in(np.ascontiguousarray(words), offsets, phi, self.alpha, _FOLD_IN_ROUNDS, theta)
        return theta

    def _start(self, data: LdaData) -> I32:
        """Return the initial topics plus 1: each word in few topics, the same in all partitions."""
        rng = np.random.default_rng([self.seed, data.token_start, 1])
        chosen = rng.integers(0, self.start_topics, len(data.words))
        if self.start_topics == self.k:
            return (chosen + 1).astype(np.int32)
        of_words = np.random.default_rng([self.seed, 0]).integers(1, self.k + 1, (self.n_words, self.start_topics))
        start: I32 = of_words.astype(np.int32)[data.words, chosen]
        return start

    def _block(self, data: LdaData, clock: int) -> int:
        return (data.partition + clock) % self.blocks


def _blocks(counts: NDArray[Any] | None, n_words: int, n_blocks: int) -> I64:
    """Return the block of each word, (n_words,): runs of about equally many tokens, each of at least one word.

    Without counts, as in data sets of an earlier format, words are dealt out in turn: in a vocabulary sorted by
    frequency, one run would have nearly all tokens.
    """
    if counts is None:
        return np.arange(n_words) % n_blocks
    if np.shape(counts) != (n_words,):
        raise ValueError(f"word_counts have shape {np.shape(counts)}: wanted ({n_words},)")
    tokens = np.cumsum(counts, dtype=np.float64)
    numbers = np.arange(1, n_blocks)
    cuts = np.searchsorted(tokens, tokens[-1] * numbers / n_blocks) + 1
    cuts = np.maximum.accumulate(cuts - numbers) + numbers  # strictly increasing
    cuts = np.minimum(cuts, n_words - n_blocks + numbers)
    return np.repeat(np.arange(n_blocks), np.diff([0, *cuts, n_words]))


def _documents(arrays: Mapping[str, NDArray[np.generic]], n_words: int) -> tuple[I32, I64]:
    for name in ("words", "offsets"):
        if name not in arrays:
            raise ValueError(f"the partition has no array {name!r}, only {sorted(arrays)}")
    words = np.ascontiguousarray(arrays["words"], np.int32)
    offsets = np.ascontiguousarray(arrays["offsets"], np.int64)
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(words) or (np.diff(offsets) < 0).any():
        raise ValueError(f"offsets end at {offsets[-1:]} of {len(words)} tokens: wanted to rise from 0 to that")
    if len(words) and (words.min() < 0 or words.max() >= n_words):
        raise ValueError(f"words from {words.min()} to {words.max()}: wanted 0 to {n_words - 1}")
    return words, offsets


def _log_dirichlet(counts: NDArray[Any], totals: NDArray[Any], weight: float, size: int) -> float:
    """Return the sum of log Dirichlet-multinomials of positive `counts` with these `totals`, `weight` and `size`."""
    gains = _log_gamma(counts + weight) - _log_gamma(np.array([weight]))
    losses = _log_gamma(totals + weight * size) - _log_gamma(np.array([weight * size]))
    return float(gains.sum() - losses.sum())


def _log_gamma(x: NDArray[Any]) -> NDArray[np.float64]:
    """Return log Gamma(x) for x > 0: Stirling's series at x + 8, taken back by the recurrence."""
    x = np.asarray(x, np.float64)
    product = np.ones_like(x)
    for step in range(8):
        product *= x + step
    y = x + 8
    inverse = 1 / (y * y)
    series = (1 / 12 - inverse * (1 / 360 - inverse * (1 / 1260 - inverse / 1680))) / y
    value: NDArray[np.float64] = (y - 0.5) * np.log(y) - y + 0.5 * np.log(2 * np.pi) + series - np.log(product)
    return value
