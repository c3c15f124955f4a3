"""Model-parallel latent Dirichlet allocation: blocks of words rotate among the partitions.

In a group no two partitions resample tokens of one word, so that a pass is worth as much as one on a single machine.
The topics of a partition's tokens and the topics of its documents are the state of its partition.

Source: Litz (2017), section 2.6.

Differs: the numbers of tokens by topic are those of a group that was committed when the task was dispatched, with the
task's own changes to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps.base import Parameters
from proteus_spot.psengine.apps.lda.topic_model import I32, I64, WORTH_LEAVING, TopicModel
from proteus_spot.psengine.apps.parameter_checks import check_whole
from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.drivers.interface import Dispatcher, Done
from proteus_spot.psengine.drivers.rotation import Rotation
from proteus_spot.psengine.tables.row_sets import RowSet
from proteus_spot.psengine.tables.sharding import Arrays


@dataclass(frozen=True)
class BlockTask:
    """Arguments of a task: resample the tokens of words of `block`, None: give all tokens a topic.

    `topics` (k,) is the number of tokens in each topic after a group that was committed when the task was dispatched.
    """

    block: int | None
    topics: I64


class TopicRotation(Rotation):
    """Gives every token a topic in the first group, and rotates the blocks from then on.

    The numbers of tokens by topic are changed by every task, and so belong to no block: they come with the tasks, as of
    the last group that is committed when these are dispatched.

    Parameters
    ----------
    k : int
        Number of topics.
    """

    def __init__(self, k: int) -> None:
        super().__init__()
        self._topics = np.zeros(k, np.int64)
        #: {group: changes of `_topics`} of groups that are not committed.
        self._changes: dict[int, I64] = {}

    def start(self, to: Dispatcher, partitions: int, seed: int) -> None:
        """Dispatch the first group alone: the next one needs the topics that it gives."""
        self._partitions = partitions
        self._dispatch_until(to, 1)

    def completed(self, to: Dispatcher, done: Done) -> None:
        """Add what a task has changed; whole numbers, so that the order makes no difference."""
        change: I64 = done.result
        self._changes[done.task.group] = self._changes.get(done.task.group, 0) + change

    def committed(self, to: Dispatcher, group: int) -> None:
        """Dispatch the next group."""
        self._topics = self._topics + self._changes.pop(group)
        super().committed(to, group)

    def args(self, group: int, block: int) -> BlockTask:
        """Return the arguments of the task that has `block` in `group`."""
        return BlockTask(None if group == 1 else block, self._topics)

    def passes(self, group: int, examples: int) -> float:
        """Return the number of passes after the first group."""
        return max(group - 1, 0) / self._partitions

    def writers(self, group: int, partition: int) -> tuple[int, ...]:
        """Return all partitions for the second group: in the first one each writes rows of all words."""
        return tuple(range(self._partitions)) if group == 2 else super().writers(group, partition)

    def snapshot(self) -> Any:
        """Return the whole state."""
        return super().snapshot(), self._topics, dict(self._changes)

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        rotation, self._topics, changes = state
        super().restore(rotation)
        self._changes = dict(changes)


#: The list of a document has free room for so many topics, and for one more for each so many that it has.
_ROOM, _TOPICS_OF_ONE_MORE = 4, 4


@dataclass(frozen=True)
class WordBlock:
    """The tokens of a partition whose words are in one block, document after document.

    Attributes
    ----------
    row : int32 of shape (tokens,)
        Index in `rows` of the word of each token.
    rows : rows of `word_topic`
    starts : int64 of shape (documents + 1,)
        Document d has the tokens from `starts[d]` to `starts[d + 1]`.
    loss_offset : float
        What the loss of these tokens has of the documents' lengths alone.
    """

    row: I32
    rows: RowSet
    starts: I64
    loss_offset: float

    @property
    def words(self) -> I32:
        """The word of each token, int32 of shape (tokens,)."""
        if isinstance(self.rows, slice):
            return self.row + np.int32(self.rows.start)
        return self.rows[self.row].astype(np.int32)


@dataclass(frozen=True)
class BlockedDocuments:
    """One partition: its tokens by block of words.

    Attributes
    ----------
    token_start : number of its first token.
    slots : int64 of shape (documents + 1,)
        Room for the list of all topics that each document can have.
    """

    token_start: int
    blocks: tuple[WordBlock, ...]
    slots: I64


@dataclass(eq=False)
class ModelParallelLda(TopicModel):
    """Topics of documents by collapsed Gibbs sampling, with as many blocks of words as partitions.

    For the other parameters see `TopicModel`. The first group gives every token a topic; P groups after it are a pass.

    Parameters
    ----------
    n_partitions : int
        Number of partitions, P.

    Notes
    -----
    Tables: `word_topic` (words, k) and `topics` (1, k), the number of tokens by word and topic, and by topic.
    """

    _: KW_ONLY
    n_partitions: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(1, n_partitions=self.n_partitions)

    def check_sizes(self) -> None:
        """Raise ValueError if there are more blocks than words."""
        if self.n_partitions > self.n_words:
            raise ValueError(
                f"there are {self.n_partitions} partitions and {self.n_words} words; want at least one word for each "
                "partition with parallel=model"
            )

    def tables(self) -> tuple[TableSpec, ...]:
        """Return `word_topic` and `topics`."""
        return self.count_tables()

    def driver(self) -> TopicRotation:
        """Return a driver."""
        return TopicRotation(self.k)

    def prepare(self, arrays: Mapping[str, NDArray[np.generic]]) -> BlockedDocuments:
        """Return the tokens by block; raise ValueError if an array does not fit."""
        words, offsets, token_start = self.checked_documents(arrays)
        lengths = np.diff(offsets)
        document = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        log_size = np.log(np.maximum(lengths - 1, 0) + self.k * self.alpha)
        block_of = blocks_of_words(arrays.get("word_counts"), self.n_words, self.n_partitions)
        number_of = block_of[words]
        blocks = []
        for number in range(self.n_partitions):
            order = np.flatnonzero(number_of == number)
            rows, row = _rows_of(words[order], np.flatnonzero(block_of == number))
            starts = np.searchsorted(order, offsets).astype(np.int64)
            blocks.append(WordBlock(row, rows, starts, float(log_size[document[order]].sum())))
        slots = np.concatenate([[0], np.cumsum(np.minimum(lengths, self.k))]).astype(np.int64)
        return BlockedDocuments(token_start, tuple(blocks), slots)

    def executor(self, data: BlockedDocuments, partition: int, n_partitions: int) -> BlockSampler:
        """Return the executor of a partition."""
        del partition, n_partitions
        return BlockSampler(self, data)


@dataclass(frozen=True)
class DocumentLists:
    """The topics of each document's tokens, with free room for some more (see `kernels.list_topics`).

    Attributes
    ----------
    slots : int64 of shape (documents + 1,)
        The list of document d has room from `slots[d]` to `slots[d + 1]`.
    topics, counts, lengths : int32
        Kernels update them in place.
    """

    slots: I64
    topics: I32
    counts: I32
    lengths: I32

    @property
    def is_whole(self) -> bool:
        """Whether every document has room for its topics."""
        return bool((self.lengths <= np.diff(self.slots)).all())

    def fitted(self, most: I64) -> DocumentLists:
        """Return the lists with room for a quarter as many topics again and some, and with the room `most` at most.

        Documents come to have fewer topics while a model converges, so their lists take less memory.
        """
        from proteus_spot.psengine.apps.lda.kernels import move_lists

        room = np.minimum(self.lengths + self.lengths // _TOPICS_OF_ONE_MORE + _ROOM, np.diff(most))
        slots = np.concatenate([[0], np.cumsum(room)]).astype(np.int64)
        moved = np.empty(slots[-1], np.int32), np.empty(slots[-1], np.int32)
        for values, into in zip((self.topics, self.counts), moved, strict=True):
            move_lists(self.slots, slots, self.lengths, values, into)
        return DocumentLists(slots, *moved, self.lengths)


class BlockSampler:
    """Resamples the tokens of a partition, a block of words in each task.

    Its state is the topics of its tokens, an array for each block, which a task replaces. The topics of its documents
    follow from them: they stay here, are updated in place, and are counted again when a state is taken over.
    """

    def __init__(self, model: ModelParallelLda, data: BlockedDocuments) -> None:
        self._model, self._data = model, data
        #: Topic plus 1 of each token, by block.
        self._topics: list[NDArray[Any]] = []
        #: The topics of the documents; None: to be counted.
        self._lists: DocumentLists | None = None

    @property
    def blocks(self) -> tuple[WordBlock, ...]:
        """The tokens, in the order of the arrays of the state."""
        return self._data.blocks

    def reads(self, args: BlockTask, group: int) -> Mapping[str, RowSet | None]:
        """Return the rows of the block's words."""
        del group
        return {} if args.block is None else {"word_topic": self._data.blocks[args.block].rows}

    def run(self, args: BlockTask, params: Parameters, rng: np.random.Generator) -> tuple[I64, float, int]:
        """Resample the tokens of a block; return the change of the numbers of tokens by topic.

        The loss is minus the log-likelihood of each token, given all others.
        """
        del rng
        return self._begin(params) if args.block is None else self._resample(args, args.block, params)

    def snapshot(self) -> Arrays:
        """Return the topics of the tokens."""
        return {f"topics of block {number}": topics for number, topics in enumerate(self._topics)}

    def restore(self, state: Arrays) -> None:
        """Take over topics."""
        self._topics = [state[f"topics of block {number}"] for number in range(len(state))]
        self._lists = None

    def _begin(self, params: Parameters) -> tuple[I64, float, int]:
        from proteus_spot.psengine.apps.lda.kernels import count_in

        model, blocks = self._model, self._data.blocks
        words = np.concatenate([block.words for block in blocks])
        topic = model.start(words, self._data.token_start)
        rows, row = _rows_of(words, np.arange(model.n_words))
        change = np.zeros((model.n_words if isinstance(rows, slice) else len(rows), model.k), np.int32)
        in_topic = np.zeros(model.k, np.int64)
        count_in(row, topic, change, in_topic)
        params.add("word_topic", change, rows)
        params.add("topics", in_topic[None])
        ends = np.cumsum([len(block.words) for block in blocks])[:-1]
        self._topics = [part.astype(model.topic_dtype) for part in np.split(topic, ends)]
        self._lists = None
        return in_topic, len(words) * float(np.log(model.n_words)), len(words)

    def _resample(self, args: BlockTask, number: int, params: Parameters) -> tuple[I64, float, int]:
        from proteus_spot.psengine.apps.lda.kernels import sweep

        model, data, block = self._model, self._data, self._data.blocks[number]
        lists = self._listed() if self._lists is None else self._lists
        if number == 0:
            lists = lists.fitted(data.slots)  # once a pass
        word_topic = np.ascontiguousarray(params.get("word_topic", block.rows), np.int32)
        change = np.zeros(word_topic.shape, np.int32)
        topic, in_topic = self._topics[number].astype(np.int32), args.topics.copy()
        loss = sweep(
            block.row, block.starts, lists.slots, lists.topics, lists.counts, lists.lengths,
            topic, word_topic, in_topic, change,
            model.alpha, model.beta, model.beta * model.n_words, model.key(params.group, data.token_start),
        )  # fmt: skip
        self._lists = lists if lists.is_whole else None
        moved: I64 = in_topic - args.topics
        params.add("word_topic", change, block.rows)
        params.add("topics", moved[None])
        self._topics = [
            topic.astype(model.topic_dtype) if other == number else topics for other, topics in enumerate(self._topics)
        ]
        return moved, loss + block.loss_offset, len(topic)

    def _listed(self) -> DocumentLists:
        from proteus_spot.psengine.apps.lda.kernels import list_topics

        slots = self._data.slots
        lists = np.zeros(slots[-1], np.int32), np.zeros(slots[-1], np.int32), np.zeros(len(slots) - 1, np.int32)
        for block, topics in zip(self._data.blocks, self._topics, strict=True):
            list_topics(block.starts, topics.astype(np.int32), self._model.k, slots, *lists)
        return DocumentLists(slots, *lists).fitted(slots)


def blocks_of_words(counts: NDArray[Any] | None, n_words: int, n_blocks: int) -> I64:
    """Return the block of each word, (n_words,): runs of about equally many tokens, each of at least one word.

    Parameters
    ----------
    counts : (n_words,), optional
        Number of tokens of each word in all partitions. Without them, as in data sets of an earlier format, words are
        dealt out in turn: in a vocabulary sorted by frequency, one run would have nearly all tokens.

    Raises
    ------
    ValueError
        If the counts are not one for each word.
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


def _rows_of(words: I32, among: I64) -> tuple[RowSet, I32]:
    """Return the rows of `word_topic` of words, and the index in them of each word.

    `among` (n,) are the words of the block.
    """
    low, high = (int(among[0]), int(among[-1]) + 1) if len(among) else (0, 0)
    distinct, row = np.unique(words, return_inverse=True)
    if len(distinct) <= (1 - WORTH_LEAVING) * (high - low):
        return distinct.astype(np.int64), row.astype(np.int32)
    return slice(low, high), (words - low).astype(np.int32)
