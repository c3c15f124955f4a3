"""The driver of model-parallel `lda`: it rotates blocks of words, and sums up the number of tokens in each topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from proteus_spot.psengine.apps.lda.topic_model import I64
from proteus_spot.psengine.drivers.interface import Dispatcher, Done
from proteus_spot.psengine.drivers.rotation import Rotation


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
