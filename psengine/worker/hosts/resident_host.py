"""The residents of a node: the executors of its partitions, their states, and how states come here.

A task names the state that it begins with. Mostly the node has it, since it did the partition's task before. When the
partition has moved, the state is sent by the node that has it, or read from the checkpoint that the job continues from.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps.base import Application
from proteus_spot.psengine.apps.residents import Resident
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.protocol.instructions import TaskKey
from proteus_spot.psengine.protocol.moved_state import PartitionState, StateRef
from proteus_spot.psengine.rpc.transport import Transfers, Unreachable
from proteus_spot.psengine.server.shard_store import StaleReadError
from proteus_spot.psengine.tables.sharding import Arrays
from proteus_spot.psengine.telemetry.byte_counts import arrays_bytes, count_moved
from proteus_spot.psengine.worker.hosts.partition_states import PartitionStates
from proteus_spot.psengine.worker.routing import SupersededError

logger = logging.getLogger(__name__)

_DEADLINE_S = 60.0

#: (checkpoint, partition) -> arrays of its state.
ReadState = Callable[[str, int], Awaitable[Mapping[str, NDArray[np.generic]]]]


class ResidentHost:
    """The residents of one process.

    Parameters
    ----------
    partition : callable
        Returns the data of a partition, reading it if it is absent.
    read_state : callable
        Reads a state of a checkpoint.
    on_taken : callable
        Called with the states that other nodes have sent, and the attempts that they are for.
    moved : Counter
        Bytes moved by kind; it is added to.
    """

    def __init__(
        self,
        address: str,
        transfers: Transfers,
        partition: Callable[[int], Awaitable[Any]],
        read_state: ReadState,
        on_taken: Callable[[tuple[StateRef, ...], tuple[int, ...]], None],
        moved: Counter[str],
    ) -> None:
        self._address, self._transfers = address, transfers
        self._partition, self._read_state, self._on_taken, self._moved = partition, read_state, on_taken, moved
        self.states = PartitionStates()
        self._job: tuple[JobConfig, Application] | None = None
        self._residents: dict[int, tuple[Any, Resident]] = {}
        #: {partition: its state that is being sent, and an event that is set when it is here, or is not to come}.
        self._coming: dict[int, tuple[StateRef, asyncio.Event]] = {}

    def adopt(self, config: JobConfig, app: Application) -> None:
        """Begin a job."""
        self._job = config, app

    @property
    def residents(self) -> dict[int, Resident]:
        """Those that have been created, by partition."""
        return {partition: resident for partition, (_, resident) in self._residents.items()}

    async def resident(self, partition: int) -> Resident:
        """Return the resident of a partition; it is created again if the data of the partition were read again."""
        assert self._job is not None
        config, app = self._job
        data = await self._partition(partition)
        before = self._residents.get(partition)
        if before is None or before[0] is not data:
            made = Resident(app, data, partition, config.n_partitions, config.finite)
            self._residents[partition] = before = (data, made)
        return before[1]

    def drop(self, partitions: Iterable[int]) -> None:
        """Drop the residents of partitions; their states stay."""
        for partition in partitions:
            self._residents.pop(partition, None)

    async def receive(self, ref: StateRef) -> None:
        """Have a state sent once the task that leaves it has ended, before a task here begins with it."""
        ended = asyncio.Event()
        self._coming[ref.partition] = ref, ended
        try:
            for state in await self._fetch(ref.address, [ref], is_left=False):
                self.states.put(state)
        except (SupersededError, Unreachable) as error:  # the task that begins with it requests it
            logger.info("the state of partition %d after group %d did not come: %s", ref.partition, ref.group, error)
        finally:
            ended.set()

    async def find_states(self, tasks: Sequence[TaskKey]) -> dict[int, Arrays | None]:
        """Return the state that each task begins with; None: the first one of its partition.

        Raises
        ------
        SupersededError, Unreachable
            The node that had it does not have it any more, or does not answer.
        """
        found: dict[int, Arrays | None] = {task.partition: None for task in tasks}
        elsewhere: dict[str, list[StateRef]] = {}
        taken: list[StateRef] = []
        for task in tasks:
            if task.follows is not None:
                left = self.states.find(task.partition, *task.follows)
                found[task.partition] = None if left is None else left.arrays
            ref = task.state
            if ref is None:
                continue
            coming, ended = self._coming.get(ref.partition, (None, None))
            if coming == ref and ended is not None:
                await ended.wait()
            state = self.states.find(ref.partition, ref.group, ref.attempt)
            if state is not None:
                self.states.put(state)  # it may be a replica, which later rounds replace
                if ref.address not in ("", self._address):
                    taken.append(ref)
                found[task.partition] = state.arrays
            elif ref.checkpoint:
                arrays = {
                    name: np.ascontiguousarray(array)
                    for name, array in (await self._read_state(ref.checkpoint, ref.partition)).items()
                }
                self._moved["restore"] += arrays_bytes([arrays])
                self.states.put(PartitionState(ref.partition, ref.group, ref.attempt, arrays))
                found[task.partition] = arrays
            else:
                elsewhere.setdefault(ref.address, []).append(ref)
        # All at once: one after the other, the nodes of a job would read from the same one, while links of others idle.
        for states in await asyncio.gather(*(self._fetch(address, refs) for address, refs in elsewhere.items())):
            for state in states:
                self.states.put(state)
                found[state.partition] = state.arrays
        taken += [ref for refs in elsewhere.values() for ref in refs]
        if taken:
            attempts = {task.partition: task.attempt for task in tasks}
            self._on_taken(tuple(taken), tuple(attempts[ref.partition] for ref in taken))
        return found

    async def _fetch(self, address: str, refs: Sequence[StateRef], is_left: bool = True) -> list[PartitionState]:
        message: dict[str, Any] = {"wanted": [(ref.partition, ref.group, ref.attempt) for ref in refs]}
        message["is_left"] = is_left
        answer = await self._transfers.call(address, "proteus_states", _DEADLINE_S, 0, again=True, **message)
        states: list[PartitionState] = list(answer.states)
        if len(states) < len(refs):
            raise SupersededError(f"{address} does not have all of the states {message['wanted']}")
        n_bytes = sum(arrays_bytes([state.arrays]) for state in states)
        count_moved(self._moved, "hand_over", address, n_bytes)
        return states

    async def until_left(self, wanted: Iterable[Sequence[int]]) -> None:
        """Return when the tasks have ended that leave these states, each (partition, group, attempt), or late."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DEADLINE_S):
                await asyncio.gather(*(self.states.until_here(*key) for key in _keys(wanted)))

    def sent(self, wanted: Iterable[Sequence[int]]) -> list[PartitionState]:
        """Return those of the wanted states, each (partition, group, attempt), that are here."""
        found = (self.states.find(*key) for key in _keys(wanted))
        return [state for state in found if state is not None]

    def copies(self, states: Iterable[tuple[StateRef, str]]) -> dict[str, list[PartitionState]]:
        """Return states to replicate by the address of their backup; those without one are under "".

        Raises
        ------
        StaleReadError
            If one of them is not here.
        """
        by_owner: dict[str, list[PartitionState]] = {}
        for ref, owner in states:
            state = self.states.find(ref.partition, ref.group, ref.attempt)
            if state is None:
                raise StaleReadError(f"the state of partition {ref.partition} after group {ref.group} is not here")
            by_owner.setdefault(owner, []).append(state)
        return by_owner


def _keys(wanted: Iterable[Sequence[int]]) -> list[tuple[int, int, int]]:
    return [(int(partition), int(group), int(attempt)) for partition, group, attempt in wanted]
