"""Replication rounds: which group of the shards has replicas, and on which nodes.

In a *round*, every server copies one common group of its shards to their backups (the BackupPSs), in the
background, and stores a local replica. A round is complete when all servers have reported that. The replicas of the
last complete round are the state to which the job rolls back when a server is lost; it is one group, the same for all
shards.

The next round begins at the common group of that time: groups in between are skipped. After a round there is a pause as
long as the round took, so that replication never saturates a slow link. Replicas of what reliable nodes serve are
needed more rarely, and their links are the busiest: there the pause is nineteen times as long, and a second at least.

Nodes that are to leave hand over first: a round under way is broken off, and the next one waits (`gives_way`). What is
copied meanwhile would be copied again, from where it has gone. A loss rolls back to the last complete round, which ages
by that; so rounds wait for a limited time.

Source: Proteus (EuroSys 2017), 3.3 (ActivePSs push to BackupPSs in the background).
Differs: the state travels, not the aggregate of its updates: then a round that was broken off is as if it had not been.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from proteus_spot.psengine.membership.node_record import NodeRecord
from proteus_spot.psengine.protocol.instructions import BackUp, ReplicaSet, ShardOwner, StopBackUp
from proteus_spot.psengine.protocol.moved_state import StateRef

#: Number of successive failed rounds from which on replication counts as failing.
_FAILING = 2
#: The long pause, in durations of the last round, and its minimum in seconds.
_RARELY, _RARELY_LEAST_S = 19.0, 1.0
#: How long rounds wait for nodes that hand over, in durations of the last round, and its minimum in seconds.
_GIVES_WAY, _GIVES_WAY_LEAST_S = 4.0, 30.0


@dataclass(frozen=True)
class Backup:
    """A process that stores the replica of a shard for its server."""

    node: str
    address: str


@dataclass(frozen=True)
class StateReplica:
    """The state of a partition at the group of a round.

    It is in the process at `ref.address` and at its backup; `owner` is None if it is in a checkpoint.
    """

    ref: StateRef
    owner: Backup | None

    def without(self, address: str) -> StateReplica | None:
        """Return what is left of it without the process at `address`; None: nothing."""
        if self.owner is None or address not in (self.ref.address, self.owner.address):
            return self
        if self.ref.address == self.owner.address:
            return None
        if address == self.ref.address:
            return replace(self, ref=replace(self.ref, address=self.owner.address))
        return replace(self, owner=Backup("", self.ref.address))


@dataclass
class _Round:
    number: int
    group: int
    since_s: float
    backups: dict[int, Backup]
    #: {shard: address of its server} of the shards whose replication is not reported yet.
    awaited: dict[int, str]
    #: (node, address) of the processes that copy.
    processes: tuple[tuple[str, str], ...]
    #: States of partitions, and {partition: address of the process} of those not reported yet.
    states: dict[int, StateReplica]
    awaited_states: dict[int, str]

    def takes_part(self, address: str) -> bool:
        """Return whether the round needs the process at `address`."""
        return (
            address in self.awaited.values()
            or address in self.awaited_states.values()
            or any(owner.address == address for owner in self.backups.values())
            or any(replica.owner is not None and replica.owner.address == address for replica in self.states.values())
        )


class ReplicationRounds:
    """Rounds of one job."""

    def __init__(self) -> None:
        #: Group of the last complete round; None if there is none to restore from.
        self.group: int | None = None
        self._number = 0
        self._last_complete = 0
        self._at: dict[int, Backup] = {}
        #: The nodes in `_at` when it was the mapping `_seen`.
        self._seen: dict[int, Backup] = self._at
        self._nodes: frozenset[str] = frozenset()
        #: States of partitions; None: one of them was lost with all of its copies.
        self._states: dict[int, StateReplica] | None = {}
        #: Number of shards replicated by the last complete round, also if replicas were lost since.
        self._n_replicated = 0
        self._round: _Round | None = None
        self._rests_until_s = 0.0
        #: Since when a round that was due waits for nodes that hand over; None: none does.
        self._waits_since_s: float | None = None
        #: Number of successive rounds that failed because a node could not copy.
        self._failed = 0
        #: Seconds that the last complete round took.
        self.took_s = 0.0

    @property
    def under_way(self) -> bool:
        """Whether a round is under way."""
        return self._round is not None

    @property
    def oldest_group(self) -> int | None:
        """The oldest group that the job may roll back to: of the last complete round, or of the one under way."""
        groups = [] if self.group is None else [self.group]
        groups += [] if self._round is None else [self._round.group]
        return min(groups, default=None)

    @property
    def failing(self) -> bool:
        """Whether successive rounds fail."""
        return self._failed >= _FAILING

    @property
    def replicas(self) -> Mapping[int, Backup]:
        """{shard: owner of its replica of the last complete round}; another mapping whenever that changes."""
        return self._at

    def backup(self, shard: int) -> Backup | None:
        """Return the owner of the shard's replica of the last complete round."""
        return self._at.get(shard)

    def has_replica(self, node: str) -> bool:
        """Return whether a node is the backup of a replica of the last complete round."""
        if self._seen is not self._at:
            self._seen, self._nodes = self._at, frozenset(owner.node for owner in self._at.values())
        states = (replica.owner for replica in (self._states or {}).values())
        return node in self._nodes or any(owner is not None and owner.node == node for owner in states)

    def lacks(self, backups: Mapping[int, str], reliable: Collection[str] = ()) -> bool:
        """Return whether a replica is not where it should be: by {shard: node}, and of states on a `reliable` node."""
        owners = [replica.owner for replica in (self._states or {}).values()]
        if self._states is None or any(owner is not None and owner.node not in reliable for owner in owners):
            return True
        return any(shard not in self._at or self._at[shard].node != node for shard, node in backups.items())

    def due(self, now_s: float, rarely: bool = False) -> bool:
        """Return whether a round may begin; `rarely`: after the long pause."""
        pause_s = max(_RARELY * self.took_s, _RARELY_LEAST_S) - self.took_s if rarely else 0.0
        return self._round is None and now_s >= self._rests_until_s + pause_s

    def gives_way(self, now_s: float) -> bool:
        """Return whether a round that is due waits while nodes hand over: for a limited time."""
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        return now_s < self._waits_since_s + max(_GIVES_WAY * self.took_s, _GIVES_WAY_LEAST_S)

    def begin(
        self,
        group: int,
        owners: Sequence[ShardOwner],
        backups: Mapping[int, NodeRecord],
        now_s: float,
        states: Sequence[StateReplica] = (),
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> list[BackUp]:
        """Begin a round and return its instructions, one per process.

        Parameters
        ----------
        states : sequence of StateReplica
            States of partitions at `group`, and the backup that each is to have.
        names : mapping
            Node of each process, by address.
        """
        self._number += 1
        at = {shard: Backup(node.name, node.address) for shard, node in backups.items()}
        copied = [replica for replica in states if replica.owner is not None]
        by_server: dict[tuple[str, str], list[ShardOwner]] = {}
        for owner in owners:
            by_server.setdefault((owner.node, owner.address), []).append(owner)
        by_process: dict[str, list[tuple[StateRef, str]]] = {}
        for replica in copied:
            assert replica.owner is not None
            to = "" if replica.owner.address == replica.ref.address else replica.owner.address
            by_process.setdefault(replica.ref.address, []).append((replica.ref, to))
        for address in by_process:
            by_server.setdefault((names[address], address), [])
        self._round = _Round(
            self._number,
            group,
            now_s,
            at,
            {owner.shard: owner.address for owner in owners},
            tuple(by_server),
            {replica.ref.partition: replica for replica in states},
            {replica.ref.partition: replica.ref.address for replica in copied},
        )
        return [
            BackUp(
                node,
                address,
                self._number,
                self._last_complete,
                group,
                tuple(owner.shard for owner in served),
                tuple(owner.epoch for owner in served),
                tuple(at[owner.shard].address if owner.shard in at else "" for owner in served),
                tuple(by_process.get(address, ())),
            )
            for (node, address), served in by_server.items()
        ]

    def backed_up(
        self, address: str, number: int, shards: Sequence[int], now_s: float, partitions: Sequence[int] = ()
    ) -> bool:
        """Note that a process and its backups have their replicas; return whether this completes the round."""
        current = self._round
        if current is None or current.number != number:
            return False
        for shard in shards:
            if current.awaited.get(shard) == address:
                del current.awaited[shard]
        for partition in partitions:
            if current.awaited_states.get(partition) == address:
                del current.awaited_states[partition]
        if current.awaited or current.awaited_states:
            return False
        self._states = current.states
        self.group, self._last_complete, self._at = current.group, current.number, current.backups
        self._n_replicated = len(current.backups)
        self._failed = 0
        self.took_s = now_s - current.since_s
        self._rests_until_s = now_s + self.took_s
        self._round = self._waits_since_s = None
        return True

    def not_backed_up(self, number: int, now_s: float) -> None:
        """Note that a server could not copy its shards: the round fails."""
        if self._round is not None and self._round.number == number:
            self._rests_until_s = now_s + (now_s - self._round.since_s)
            self._failed += 1
            self._round = None

    def abandon(self) -> list[StopBackUp]:
        """Break off the round under way, and return the instructions to copy nothing more."""
        broken_off, self._round = self._round, None
        if broken_off is None:
            return []
        return [StopBackUp(node, address, broken_off.number) for node, address in broken_off.processes]

    def lose(self, address: str) -> None:
        """Note that a process was lost with its replicas; a round that it takes part in fails."""
        self._at = {shard: owner for shard, owner in self._at.items() if owner.address != address}
        if self._states is not None:
            left = {partition: replica.without(address) for partition, replica in self._states.items()}
            present = {partition: replica for partition, replica in left.items() if replica is not None}
            self._states = present if len(present) == len(left) else None
        if self._round is not None and self._round.takes_part(address):
            self._round = None
        elif self._round is not None:  # a process that has copied its states already is not where they are any more
            states = {partition: replica.without(address) for partition, replica in self._round.states.items()}
            self._round.states = {partition: replica for partition, replica in states.items() if replica is not None}

    def forget(self) -> None:
        """Discard all replicas: they are too old, or incomplete."""
        self.group, self._at, self._round, self._states = None, {}, None, {}
        self._waits_since_s = None

    def restore(self, shards: Collection[int]) -> ReplicaSet | None:
        """Return the replicas of the last complete round; None if one of `shards`, or of a state, is missing."""
        if self.group is None or self._states is None or any(shard not in self._at for shard in shards):
            return None
        addresses = tuple((shard, owner.address) for shard, owner in self._at.items())
        return ReplicaSet(self._last_complete, self.group, addresses)

    def states(self) -> tuple[StateRef, ...]:
        """Return where the states of partitions in the last complete round are now.

        Raises
        ------
        LookupError
            If one of them was lost.
        """
        if self._states is None:
            raise LookupError("a state of the last round was lost")
        return tuple(replica.ref for _, replica in sorted(self._states.items()))

    def state_replicas(self) -> tuple[StateRef, ...]:
        """Return the states of partitions in the last complete round, at their backups."""
        replicas = sorted((self._states or {}).items())
        return tuple(r.ref if r.owner is None else replace(r.ref, address=r.owner.address) for _, r in replicas)

    def saved(self, checkpoint: str, carried: Collection[tuple[int, str]]) -> None:
        """Note that a new checkpoint has replaced the earlier ones.

        `carried` are the (partition, earlier checkpoint) whose states it includes; a round with others is of no use.
        """
        self._states = _in_checkpoint(self._states, checkpoint, carried)
        if self._round is not None:
            states = _in_checkpoint(self._round.states, checkpoint, carried)
            if states is None:
                self._round = None
            else:
                self._round.states = states

    def replica_owners(self) -> tuple[ShardOwner, ...] | None:
        """Return the backup of each shard in the last complete round, with the round in place of the epoch.

        None if there is no such round, or one of its backups was lost.
        """
        if self.group is None or self._states is None or len(self._at) < self._n_replicated:
            return None
        return tuple(
            ShardOwner(shard, owner.node, owner.address, self._last_complete)
            for shard, owner in sorted(self._at.items())
        )


def _in_checkpoint(
    states: dict[int, StateReplica] | None, checkpoint: str, carried: Collection[tuple[int, str]]
) -> dict[int, StateReplica] | None:
    """Return the states with `checkpoint` in place of earlier ones; None if it does not include one of them."""
    found = dict(states or {})
    for partition, replica in found.items():
        ref = replica.ref
        if ref.checkpoint and ref.checkpoint != checkpoint:
            if (partition, ref.checkpoint) not in carried:
                return None
            found[partition] = replace(replica, ref=replace(ref, checkpoint=checkpoint))
    return None if states is None else found
