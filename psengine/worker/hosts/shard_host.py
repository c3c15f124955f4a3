"""The shards of a node: opened, taken over from other servers, and copied to their backups."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.protocol import events
from proteus_spot.psengine.protocol.answers import HandedOver
from proteus_spot.psengine.protocol.instructions import BackUp, OpenShards, ReplicaSet, TakeShards
from proteus_spot.psengine.protocol.moved_state import PartitionState, ShardState
from proteus_spot.psengine.rpc.transport import Transfers, Unreachable
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.server.shard_store import StaleReadError
from proteus_spot.psengine.tables.sharding import Arrays, Sharding
from proteus_spot.psengine.telemetry.byte_counts import arrays_bytes, count_moved, state_bytes
from proteus_spot.psengine.worker.hosts.resident_host import ResidentHost


class ReplicaStore:
    """Replicas of shards that a node stores, of those it serves and of those of others, by replication round.

    A replica is the state of one common group. At most two rounds of a shard are stored: the last complete one, and the
    one under way.
    """

    def __init__(self) -> None:
        self._held: dict[int, dict[int, ShardState]] = {}
        #: Shards of which this node is the backup.
        self._for_others: set[int] = set()

    def put(self, number: int, last_complete: int, states: Mapping[int, ShardState], is_backup: bool) -> None:
        """Store the states of round `number`; of earlier rounds only `last_complete`, the last complete one, stays.

        `is_backup`: this node is the shards' backup, and stores their replicas also when others serve them.
        """
        for shard, state in states.items():
            rounds = self._held.get(shard, {})
            # Rounds in between failed; a later one is present if this message was delayed.
            stored = {n: replica for n, replica in rounds.items() if n == last_complete or n > number}
            self._held[shard] = stored | {number: state}
            (self._for_others.add if is_backup else self._for_others.discard)(shard)

    def get(self, shards: Collection[int], number: int) -> dict[int, ShardState]:
        """Return the replicas of `shards` of round `number` that are stored here."""
        return {shard: self._held[shard][number] for shard in shards if number in self._held.get(shard, {})}

    def forget(self, served_elsewhere: Collection[int]) -> None:
        """Drop replicas stored only because this node served the shards, now that others serve them."""
        for shard in served_elsewhere:
            if shard not in self._for_others:
                self._held.pop(shard, None)

    def __len__(self) -> int:
        """Return the number of replicas."""
        return sum(len(rounds) for rounds in self._held.values())


logger = logging.getLogger(__name__)

#: (what is read, checkpoint, shard) -> rows of every table of the shard.
ReadShard = Callable[[str, str, int], Awaitable[Mapping[str, NDArray[np.generic]]]]

_HAND_OVER_DEADLINE_S = 60.0
_COPY_DEADLINE_S = 60.0
#: Factor on the size of a shard that is handed over: the updates of groups that are not common yet travel with it.
_WITH_UPDATES = 4


class Unreadable(Exception):
    """Data could not be read on this node in any attempt; another node, or a later attempt, may be able to.

    `lasting`: it is not there, or damaged, so that no later attempt can succeed; `checkpoint`: the one that it is in.
    """

    def __init__(self, line: str, lasting: bool, checkpoint: str = "") -> None:
        super().__init__(line)
        self.lasting, self.checkpoint = lasting, checkpoint


class ShardHost:
    """Shards of one process.

    Parameters
    ----------
    adopt : callable
        Returns the job's configuration and sharding, making the application if this is the first instruction.
    make_shards : callable
        Returns the initial values of shards.
    read_shard : callable
        Reads a shard of a checkpoint; raises `Unreadable`.
    report : callable
        Reports to the controller.
    line_of : callable
        Returns an error as one line.
    moved : Counter
        Bytes moved by kind; it is added to.
    """

    def __init__(
        self,
        node: str,
        address: str,
        server: ShardServer,
        residents: ResidentHost,
        transfers: Transfers,
        adopt: Callable[[JobConfig], Awaitable[tuple[JobConfig, Sharding]]],
        make_shards: Callable[[Sequence[int]], Awaitable[dict[int, Arrays]]],
        read_shard: ReadShard,
        report: Callable[[events.Event], Awaitable[None]],
        line_of: Callable[[BaseException], str],
        moved: Counter[str],
    ) -> None:
        self._node, self._address, self.server = node, address, server
        self._residents, self._transfers = residents, transfers
        self._adopt, self._make_shards, self._read_shard = adopt, make_shards, read_shard
        self._report, self._line, self._moved = report, line_of, moved
        self.replicas = ReplicaStore()
        #: Number of the last replication round, and what is being copied to backups for it.
        self._copying: tuple[int, asyncio.Future[Any]] | None = None

    async def open(self, instruction: OpenShards) -> None:
        """Create shards, and serve them."""
        config, sharding = await self._adopt(instruction.config)
        if instruction.replicas is not None:
            try:
                states = await self._find_replicas(sharding, instruction.shards, instruction.replicas)
            except (Unreachable, KeyError) as error:
                again = isinstance(error, Unreachable)
                await self._report(self._not_opened(instruction, error, again))
                return
        elif instruction.checkpoint is None:
            initial = await self._make_shards(instruction.shards)
            states = {shard: ShardState({**arrays}, 0, 0) for shard, arrays in initial.items()}
        else:
            saved, states = instruction.checkpoint, {}
            for shard in instruction.shards:
                try:
                    what = f"shard {shard} of {saved.name}"
                    arrays = await self._read_shard(what, saved.name, shard)
                except Unreadable as error:
                    if error.lasting:
                        found = saved.name, self._line(error), 0.0
                        await self._report(events.CheckpointDamaged(self._node, self._address, *found))
                    else:
                        await self._report(self._not_opened(instruction, error, True))
                    return
                rows = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
                self._moved["restore"] += arrays_bytes([rows])
                states[shard] = ShardState({**rows}, saved.group, saved.n_updates(config.n_partitions))
        await self.server.open(states, config.n_partitions, instruction.epoch)
        await self._report(events.ShardsOpened(self._node, self._address, instruction.shards, instruction.epoch, 0.0))

    async def _find_replicas(
        self, sharding: Sharding, shards: Sequence[int], replicas: ReplicaSet
    ) -> dict[int, ShardState]:
        """Return replicas of shards: local ones, and if absent, those of the backups."""
        states = self.replicas.get(shards, replicas.number)
        addresses = dict(replicas.at)
        wanted: dict[str, list[int]] = {}
        for shard in shards:
            if shard not in states:
                wanted.setdefault(addresses[shard], []).append(shard)
        for address, missing in wanted.items():
            n_bytes, wanted_round = sharding.all_bytes(missing), {"shards": missing, "number": replicas.number}
            answer = await self._transfers.call(
                address, "proteus_backups", _COPY_DEADLINE_S, n_bytes, again=True, **wanted_round
            )
            sent = dict(answer.states)
            count_moved(self._moved, "restore", address, state_bytes(sent.values()))
            states |= sent
        if lost := [shard for shard in shards if shard not in states]:
            raise KeyError(f"no replica of round {replicas.number} of shards {lost}")
        return states

    async def back_up(self, instruction: BackUp) -> None:
        """Copy the served shards, and states of partitions, to their backups.

        Their arrays are never written again, so nothing waits.
        """
        number, last_complete = instruction.number, instruction.last_complete
        try:
            epochs = dict(zip(instruction.shards, instruction.epochs, strict=True))
            states = await self.server.copy(epochs, instruction.group)
            partitions = self._residents.copies(instruction.states)
            self.replicas.put(number, last_complete, states, is_backup=False)
            self._residents.states.replicate(
                number, last_complete, [state for copy in partitions.values() for state in copy]
            )
            shards: dict[str, dict[int, ShardState]] = {}
            for shard, owner in zip(instruction.shards, instruction.backups, strict=True):
                shards.setdefault(owner, {})[shard] = states[shard]
            copying = asyncio.gather(
                *(
                    self._send_replicas(instruction, owner, shards.get(owner, {}), partitions.get(owner, []))
                    for owner in shards.keys() | partitions.keys()
                    if owner
                )
            )
            self._copying = number, copying
            await copying
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr] # this runs in a task
                raise
            logger.info("replication round %d was broken off", number)
        except (StaleReadError, Unreachable) as error:
            at = error.address if isinstance(error, Unreachable) else ""
            await self._report(events.NotBackedUp(self._node, self._address, number, self._line(error), 0.0, at))
        else:
            copied = tuple(ref.partition for ref, _ in instruction.states)
            await self._report(events.BackedUp(self._node, self._address, number, instruction.shards, 0.0, copied))

    def stop_back_up(self, number: int) -> None:
        """Copy nothing more for a replication round."""
        if self._copying is not None and self._copying[0] == number:
            self._copying[1].cancel()

    async def _send_replicas(
        self,
        instruction: BackUp,
        backup: str,
        states: dict[int, ShardState],
        partitions: list[PartitionState],
    ) -> None:
        if backup == self._address:
            self.replicas.put(instruction.number, instruction.last_complete, states, is_backup=True)
            return
        n_bytes = state_bytes(states.values()) + arrays_bytes(state.arrays for state in partitions)
        message: dict[str, Any] = {"number": instruction.number, "last_complete": instruction.last_complete}
        message |= {"states": states, "partitions": partitions}
        await self._transfers.call(backup, "proteus_store_backup", _COPY_DEADLINE_S, n_bytes, **message)
        count_moved(self._moved, "copy", backup, n_bytes)

    def keep_replicas(
        self, number: int, last_complete: int, states: dict[int, ShardState], partitions: Sequence[PartitionState]
    ) -> None:
        """Store what another node has copied here in the replication round `number`."""
        self.replicas.put(number, last_complete, states, is_backup=True)
        self._residents.states.replicate(number, last_complete, partitions)

    async def take(self, instruction: TakeShards) -> None:
        """Take shards over from their server."""
        config, sharding = await self._adopt(instruction.config)
        epochs = dict(zip(instruction.shards, instruction.served_under, strict=True))
        to: dict[str, Any] = {"to_node": self._node, "to_address": self._address, "epoch": instruction.epoch}
        to["committed"] = instruction.committed
        try:
            if instruction.from_address == self._address:  # taken back: another node may have been the next owner
                answer: Any = await self.server.hand_over(epochs, **to)
            else:
                n_bytes = _WITH_UPDATES * sharding.all_bytes(instruction.shards)
                answer = await self._transfers.call(
                    instruction.from_address, "proteus_hand_over", _HAND_OVER_DEADLINE_S, n_bytes, epochs=epochs, **to
                )
            error = "" if isinstance(answer, HandedOver) else answer.error
        except Unreachable as unreachable:
            error = str(unreachable)
        if error:
            self.server.cancel_expected(instruction.shards, instruction.epoch)
            await self._report(
                events.ShardsNotTaken(self._node, self._address, instruction.shards, instruction.epoch, error, 0.0)
            )
            return
        states = dict(answer.states)
        if instruction.from_address != self._address:
            count_moved(self._moved, "hand_over", instruction.from_address, state_bytes(states.values()))
        await self.server.take(config.n_partitions, states, instruction.epoch)
        await self._report(events.ShardsTaken(self._node, self._address, instruction.shards, instruction.epoch, 0.0))

    def _not_opened(self, instruction: OpenShards, error: Exception, again: bool) -> events.ShardsNotOpened:
        what = instruction.shards, instruction.epoch, self._line(error)
        return events.ShardsNotOpened(self._node, self._address, *what, 0.0, again)
