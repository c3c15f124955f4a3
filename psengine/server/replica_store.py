"""Replicas of shards that a node stores, of those it serves and of those of others, by replication round.

A replica is the state of one common group. At most two rounds of a shard are stored: the last complete one, and the one
under way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from proteus_spot.psengine.protocol.shard_state import ShardState


class ReplicaStore:
    """Replicas of one process."""

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
