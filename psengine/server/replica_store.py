"""The copies of shards that a node keeps, its own servers' and those of others, each of one round of backups. Plain.

A copy is the state of one common clock. At most two rounds are kept of a shard: the last one that every server and keeper has
finished, and the one under way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from psengine.protocol.shard_state import ShardState


class ReplicaStore:
    """Copies of one process."""

    def __init__(self) -> None:
        self._held: dict[int, dict[int, ShardState]] = {}
        #: shards that are kept here for others, or would be for them
        self._for_others: set[int] = set()

    def put(self, number: int, whole: int, states: Mapping[int, ShardState], keeper: bool) -> None:
        """Keep the states of round `number`, and of earlier ones that of `whole` alone, the last one that is whole.

        `keeper`: this node is the shards' keeper, and has their copies also when others serve them.
        """
        for shard, state in states.items():
            older = self._held.get(shard, {})
            # What lies between came to nothing; a later one is there where this message was long on its way.
            self._held[shard] = {of: kept for of, kept in older.items() if of == whole or of > number} | {number: state}
            (self._for_others.add if keeper else self._for_others.discard)(shard)

    def get(self, shards: Collection[int], number: int) -> dict[int, ShardState]:
        """Return those of the shards' copies of a round that are here."""
        return {shard: self._held[shard][number] for shard in shards if number in self._held.get(shard, {})}

    def forget(self, served_elsewhere: Collection[int]) -> None:
        """Drop what was copied only because this node served it, now that others do."""
        for shard in served_elsewhere:
            if shard not in self._for_others:
                self._held.pop(shard, None)

    def __len__(self) -> int:
        """Return how many copies are held."""
        return sum(len(rounds) for rounds in self._held.values())
