"""The states of partitions that a node has: of its own partitions, and replicas for other nodes.

A state is identified by its partition, the group of the task that left it and the attempt at that task. A node keeps
those from the committed group on, since the job may need each of them; the marked ones, for evaluations; and those of
the last complete replication round and of the one under way, its own and those that it is the backup of.

Source: Litz (2017), 3.1 and 3.2: partitions with state, which is moved with them and is in the checkpoints.
Differs: Litz rolls back to checkpoints only, by restarting; replicas make that a few groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from proteus_spot.psengine.protocol.moved_state import PartitionState

#: Maximum number of marked groups.
_MARKS = 2


class PartitionStates:
    """States of one process."""

    def __init__(self) -> None:
        #: Number of groups between two marked ones; None: none is marked.
        self.mark_every: int | None = None
        self._present: dict[tuple[int, int, int], PartitionState] = {}
        #: {number of the round: its states by partition}.
        self._rounds: dict[int, dict[int, PartitionState]] = {}
        #: Events that are set when a state is here.
        self._awaited: dict[tuple[int, int, int], asyncio.Event] = {}

    def put(self, state: PartitionState) -> None:
        """Keep a state."""
        key = state.partition, state.group, state.attempt
        self._present[key] = state
        if (awaited := self._awaited.pop(key, None)) is not None:
            awaited.set()

    async def until_here(self, partition: int, group: int, attempt: int) -> None:
        """Return when a state is here, which a task that is under way is to leave."""
        if self.find(partition, group, attempt) is None:
            await self._awaited.setdefault((partition, group, attempt), asyncio.Event()).wait()

    def find(self, partition: int, group: int, attempt: int) -> PartitionState | None:
        """Return a state if it is here, under exactly this group and attempt."""
        found = self._present.get((partition, group, attempt))
        if found is not None:
            return found
        for states in self._rounds.values():
            replica = states.get(partition)
            if replica is not None and (replica.group, replica.attempt) == (group, attempt):
                return replica
        return None

    def replicate(self, number: int, last_complete: int, states: Iterable[PartitionState]) -> None:
        """Keep states of the replication round `number`; of earlier rounds only `last_complete` stays."""
        self._rounds = {n: round_ for n, round_ in self._rounds.items() if n == last_complete or n >= number}
        self._rounds.setdefault(number, {}).update((state.partition, state) for state in states)

    def drop_before(self, committed: int) -> None:
        """Drop states of groups before `committed`, but the marked ones; replicas stay."""
        marked: set[int] = set()
        if self.mark_every is not None:
            marks = sorted({group for _, group, _ in self._present if group % self.mark_every == 0})
            marked = set(marks[-_MARKS:])
        # The last state of each partition stays: with groups of few members it may be old.
        last: dict[int, int] = {}
        for partition, group, _ in self._present:
            if group <= committed:
                last[partition] = max(group, last.get(partition, 0))
        self._present = {
            key: state
            for key, state in self._present.items()
            if key[1] >= committed or key[1] in marked or key[1] == last[key[0]]
        }

    def __len__(self) -> int:
        """Return the number of states, replicas not counted."""
        return len(self._present)
