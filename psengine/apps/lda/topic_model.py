"""What the two parallel ways of latent Dirichlet allocation have in common: parameters, likelihoods, prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps import kernel_cache as kernels
from proteus_spot.psengine.apps.parameter_checks import check_above, check_whole
from proteus_spot.psengine.config import TableSpec

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F32 = NDArray[np.float32]

#: Minimum share of a table that must be unneeded for its rows to be requested by index.
WORTH_LEAVING = 0.25
#: Number of fold-in rounds; the mixture of a document hardly changes after them.
_FOLD_IN_ROUNDS = 20
_KERNELS, _FOLD_IN = "proteus_spot.psengine.apps.lda.kernels", "proteus_spot.psengine.apps.lda.fold_in"
_MOST_INT16 = 2**15 - 1


@dataclass(eq=False)
class TopicModel:
    """Topics of documents: tables `word_topic` and `topics`, and what follows from them.

    Parameters
    ----------
    n_words, n_tokens : int
        Size of the vocabulary, and number of tokens of all training documents.
    k : int
        Number of topics.
    alpha, beta : float
        Weights of the symmetric Dirichlet priors: of topics in a document, of words in a topic.
    start_topics : int
        Number of topics in which a word's tokens start, drawn by the word's number, the same in all partitions; `k` or
        more: any topic.
    seed : int
        Seed of all random draws.
    """

    predicts = "topic"
    #: Counts of words by topic turn sparse.
    memory_falls = True

    n_words: int
    n_tokens: int
    _: KW_ONLY
    k: int = 100
    alpha: float = 0.1
    beta: float = 0.01
    start_topics: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole(2, k=self.k)
        check_whole(1, start_topics=self.start_topics)
        check_whole(0, seed=self.seed)
        check_above(0, alpha=self.alpha, beta=self.beta)
        self.start_topics = min(self.start_topics, self.k)

    @property
    def topic_dtype(self) -> str:
        """Type of a token's topic plus 1."""
        return "int16" if self.k < _MOST_INT16 else "int32"

    def count_tables(self) -> tuple[TableSpec, TableSpec]:
        """Return `word_topic` and `topics`: numbers of tokens by word and topic, and by topic."""
        return TableSpec("word_topic", self.n_words, self.k, "int32"), TableSpec("topics", 1, self.k, "int64")

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> NDArray[np.generic]:
        """Return zeros: no token has a topic before the first clock."""
        del rng
        return np.zeros((rows[1] - rows[0], table.n_cols), table.dtype)

    def checked_documents(self, arrays: Mapping[str, NDArray[np.generic]]) -> tuple[I32, I64, int]:
        """Return words of the tokens, document offsets, and the number of the first token; compile the kernels.

        Raises
        ------
        ValueError
            If an array does not fit.
        """
        for name in (_KERNELS, _FOLD_IN):  # compiled here, not during a clock
            kernels.load(name)
        words, offsets = _documents(arrays, self.n_words)
        start = int(np.asarray(arrays.get("token_start", np.zeros(1, np.int64)), np.int64).reshape(-1)[0])
        if start < 0 or start + len(words) > self.n_tokens:
            raise ValueError(f"tokens {start} to {start + len(words)}: wanted within 0 to {self.n_tokens}")
        return words, offsets, start

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
        from proteus_spot.psengine.apps.lda.fold_in import fold_in

        theta = np.empty((len(offsets) - 1, self.k), np.float32)
        fold_in(np.ascontiguousarray(words), offsets, phi, self.alpha, _FOLD_IN_ROUNDS, theta)
        return theta

    def start(self, words: I32, token_start: int) -> I32:
        """Return the initial topics plus 1 of tokens: each word in few topics, the same in all partitions."""
        rng = np.random.default_rng([self.seed, token_start, 1])
        chosen = rng.integers(0, self.start_topics, len(words))
        if self.start_topics == self.k:
            return (chosen + 1).astype(np.int32)
        of_words = np.random.default_rng([self.seed, 0]).integers(1, self.k + 1, (self.n_words, self.start_topics))
        topics: I32 = of_words.astype(np.int32)[words, chosen]
        return topics

    def key(self, clock: int, token_start: int) -> np.uint64:
        """Return the key of the random stream of a task."""
        return np.uint64(np.random.SeedSequence([self.seed, clock, token_start]).generate_state(1, np.uint64)[0])


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
