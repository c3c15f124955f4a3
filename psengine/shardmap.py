"""Who serves which shard: opened once on the reliable nodes, under an epoch. Pure.

Differs: servers do not move in this version (AgileML's stage 1), so the map changes only while it is being made.
"""

from __future__ import annotations

from collections.abc import Sequence

from psengine.checkpointing import Checkpoint
from psengine.instructions import OpenShards, ShardOwner, UpdateShardMap
from psengine.model import JobConfig
from psengine.nodes import NodeRecord


class ShardMap:
    """The map of one job: nobody serves, then shards are being opened, then all are open."""

    def __init__(self) -> None:
        self.owners: tuple[ShardOwner, ...] = ()
        self.version = 0
        self._unopened: set[int] = set()
        self._epoch = 0

    @property
    def opening(self) -> bool:
        """Whether shards are waited for."""
        return bool(self._unopened)

    def serves(self, node: str) -> bool:
        """Return whether `node` serves a shard, or was told to."""
        return any(owner.node == node for owner in self.owners)

    def open(
        self, config: JobConfig, nodes: Sequence[NodeRecord], checkpoint: Checkpoint | None = None
    ) -> list[OpenShards]:
        """Return the orders that open every shard, as it began or as `checkpoint` has it, in even runs on `nodes`."""
        self._epoch += 1
        count = config.n_shards
        self._unopened = set(range(count))
        self.owners = tuple(
            ShardOwner(shard, node.name, node.address, self._epoch)
            for shard in range(count)
            for node in [nodes[shard * len(nodes) // count]]
        )
        return [
            OpenShards(node.name, node.address, config, shards, self._epoch, checkpoint)
            for node in nodes
            for shards in [tuple(o.shard for o in self.owners if o.node == node.name)]
            if shards
        ]

    def opened(self, node: str, shards: Sequence[int]) -> bool:
        """Note that `node` serves `shards`; return whether these were the last that were waited for."""
        if not self._unopened:
            return False
        self._unopened -= {o.shard for o in self.owners if o.node == node and o.shard in shards}
        if self._unopened:
            return False
        self.version += 1
        return True

    def abandon(self) -> None:
        """Forget a map that was being made: one of its nodes is gone."""
        self.owners, self._unopened = (), set()

    def update_for(self, node: NodeRecord) -> UpdateShardMap:
        """Return the order that tells `node` the map."""
        return UpdateShardMap(node.name, node.address, self.version, self.owners)
