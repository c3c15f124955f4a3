"""Documents as a kind of data: read and check word counts, hold out a tenth, partition the rest.

Source: the forms are those of Blei's ``lda-c`` and of the UCI collection "Bag of Words".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.infra.datasets.data_files import read_content
from proteus_spot.infra.datasets.formats.reading import PLAIN, Reading, check_plain
from proteus_spot.infra.datasets.formats.word_counts import as_arrays, first_word_from, read_bags
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import read_text

#: Endings of a file of documents, each also compressed; the content decides the form.
DOCUMENT_ENDINGS = (".ldac", ".lda-c", ".dat", ".txt")
#: Name of the generated set.
TOPICS = "topics"
_HELD_OUT_SHARE = 10
#: Seed of the held-out part, which is the same for every job.
_SPLIT_SEED = 20061115
#: The generated set: documents, words, topics, mean length, then the Dirichlet weights of words in a topic and of
#: topics in a document.
_GENERATED = (1200, 1000, 10, 100.0, 0.05, 0.2)

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents of words.

    `words` (tokens,) int32; document d has the words from `offsets[d]` to `offsets[d + 1]`; `ids` (documents,).
    """

    words: I32
    offsets: I64
    ids: I64

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, which: I64) -> "Documents":
        """Return the documents at these indices, in this order."""
        lengths = np.diff(self.offsets)[which]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        tokens = np.repeat((self.offsets[which] - offsets[:-1]).astype(np.int32), lengths)
        tokens += np.arange(offsets[-1], dtype=np.int32)  # there are no more than an int32 counts
        return Documents(self.words[tokens], offsets, self.ids[which])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of a data file."""
        return {"words": self.words, "offsets": self.offsets, "ids": self.ids}


@dataclass(frozen=True, slots=True)
class DocumentSet:
    """The training and the held-out part of a source of documents (an `infra.datasets.kinds.Prepared`)."""

    train: Documents
    held: Documents
    n_words: int
    n_partitions: int

    @property
    def rows(self) -> int:
        """Number of documents to train on."""
        return len(self.train)

    @property
    def heldout_rows(self) -> int:
        """Number of held-out documents."""
        return len(self.held)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of words in the vocabulary, of tokens and of documents to train on, and of partitions."""
        return {
            "n_words": self.n_words,
            "n_tokens": len(self.train.words),
            "n_documents": len(self.train),
            "n_partitions": self.n_partitions,
        }

    @property
    def about(self) -> dict[str, Any]:
        """Empty: documents need no further facts in the manifest."""
        return {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Nothing: the forms leave nothing open."""
        return ()

    def parts(self, seed: int) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield the arrays of each partition.

        They are `words`, `offsets`, `ids` (see `Documents`), `partition` (1,), its number, `token_start` (1,) int64,
        and `word_counts` (n_words,) int32, the counts over all partitions. A seeded permutation of the documents is cut
        so that partitions have about equal numbers of tokens. Tokens are numbered in that order: those of a partition
        from `token_start` on.
        """
        counts = np.bincount(self.train.words, minlength=self.n_words).astype(np.int32)
        order = np.random.default_rng(seed).permutation(len(self.train))
        start = 0
        for partition, which in enumerate(_runs(order, np.diff(self.train.offsets), self.n_partitions)):
            part = self.train.take(which)
            numbers = {"partition": np.array([partition]), "token_start": np.array([start], np.int64)}
            yield {**part.arrays(), **numbers, "word_counts": counts}
            start += len(part.words)

    def heldout(self) -> dict[str, NDArray[Any]]:
        """Return `words`, `offsets` and `ids` of the held-out documents."""
        return self.held.arrays()


def read(source: str, n_partitions: int, app: str | None = None, how: Reading = PLAIN) -> DocumentSet:
    """Return the documents of a source, a tenth of them held out, the same for every seed.

    Documents without words are ignored; held-out documents have at least two words.

    Raises
    ------
    InputError
        For a file that cannot be read or used, or fewer documents to train on than partitions.
    """
    del app
    check_plain(source, how, "documents")
    whole, n_words = _whole(source)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(whole))
    long = order[np.diff(whole.offsets)[order] > 1]
    held = np.sort(long[: -(-len(whole) // _HELD_OUT_SHARE)])
    train = np.setdiff1d(np.arange(len(whole)), held)
    if not len(held):
        raise InputError(f"data {source}: no document has two words; there is none to hold out")
    if n_partitions > len(train):
        raise InputError(
            f"data {source}: has {len(train)} documents to train on, too few for {n_partitions} parts; "
            f"give --partitions {len(train)} or fewer (partitions of a job)"
        )
    return DocumentSet(whole.take(train), whole.take(held), n_words, n_partitions)


def read_new(source: str, n_words: int) -> Documents:
    """Return the documents of a source, less those without words, for a model of `n_words` words.

    Raises
    ------
    InputError
        For a file that cannot be read or used; with its line, for a word that the model does not have.
    """
    documents, _ = _whole(source)
    if len(documents.words) and (most := documents.words.max()) >= n_words:
        place = None if source == TOPICS else first_word_from(_content(source), n_words)
        raise InputError(
            f"{source}: {place or f'has a word {most}; want 0 to {n_words - 1}'}, as the model was trained"
        )
    return documents


def read_vocabulary(source: str, n_words: int) -> list[str]:
    """Return the words of a vocabulary file, one per line, in the order of their ids.

    Raises
    ------
    InputError
        If it cannot be read or has fewer lines than there are words.
    """
    words = read_text(source).splitlines()
    if len(words) < n_words:
        raise InputError(f"{source}: has {len(words)} words and the documents {n_words}; write one a line for each id")
    return [word.strip() for word in words]


def _whole(source: str) -> tuple[Documents, int]:
    if source == TOPICS:
        words, offsets = drawn_documents(*_GENERATED, seed=_SPLIT_SEED)
        n_words = _GENERATED[1]
    else:
        bags = read_bags(source, _content(source))
        words, offsets = as_arrays(bags)
        n_words = bags.n_words
        del bags
    whole = Documents(words, offsets, np.arange(len(offsets) - 1))
    filled = np.flatnonzero(np.diff(offsets))
    return whole if len(filled) == len(whole) else whole.take(filled), n_words


def _content(source: str) -> bytes:
    return read_content(source, DOCUMENT_ENDINGS, [TOPICS])


def _runs(order: I64, lengths: I64, n_partitions: int) -> list[I64]:
    """Cut documents in this order into runs of about equal numbers of tokens, each with at least one document."""
    tokens = np.cumsum(lengths[order])
    goals = tokens[-1] * np.arange(1, n_partitions) / n_partitions
    cuts = np.searchsorted(tokens, goals) + 1
    places = np.arange(1, n_partitions)
    cuts = np.maximum.accumulate(cuts - places) + places  # one after the other
    return np.split(order, np.minimum(cuts, len(order) - n_partitions + places))


def drawn_documents(
    n_documents: int, n_words: int, n_topics: int, length: float, word_weight: float, topic_weight: float, seed: int
) -> tuple[I32, I64]:
    """Return words and offsets of documents drawn from the model of LDA, with about `length` tokens each.

    `word_weight` and `topic_weight` are the weights of the Dirichlet priors of words in a topic and of topics in a
    document.
    """
    rng = np.random.default_rng(seed)
    by_topic = np.cumsum(rng.dirichlet(np.full(n_words, word_weight), n_topics), axis=1)
    by_document = np.cumsum(rng.dirichlet(np.full(n_topics, topic_weight), n_documents), axis=1)
    lengths = np.maximum(rng.poisson(length, n_documents), 2)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    # One search for all documents: the sums of document d are shifted to between d and d + 1.
    moved = (by_document + np.arange(n_documents)[:, None]).ravel()
    places = np.repeat(np.arange(n_documents), lengths)
    topic = np.clip(np.searchsorted(moved, rng.random(offsets[-1]) + places) - n_topics * places, 0, n_topics - 1)
    draw = rng.random(offsets[-1])
    words = np.empty(offsets[-1], np.int32)
    for k in range(n_topics):
        of_topic = topic == k
        words[of_topic] = np.minimum(np.searchsorted(by_topic[k], draw[of_topic]), n_words - 1)
    document_order = np.lexsort((words, places))  # as in a file of counts
    return words[document_order], offsets
