"""Who serves which shard, under which epoch: opened on the reliable nodes, and moved where a server is told to go. Pure.

A move gives the shard a new epoch; it is made when the new owner says that it has the state. Until then the map names the
old owner, who sends on whoever comes to it. One that failed is begun again, under a further epoch.

Invariants: a shard has one owner; epochs only rise.

Differs: shards stay on reliable nodes in this version (AgileML's stage 1).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from psengine.checkpointing import Checkpoint
from psengine.instructions import OpenShards, ShardOwner, TakeShards, UpdateShardMap
from psengine.model import JobConfig
from psengine.nodes import NodeRecord


class ShardMap:
    """The map of one job: nobody serves, then shards are being opened, then all are open."""

    def __init__(self) -> None:
        self.owners: tuple[ShardOwner, ...] = ()
        self.version = 0
        self._unopened: set[int] = set()
        self._epoch = 0
        #: {shard: its owner to be}
        self._moves: dict[int, ShardOwner] = {}

    @property
    def opening(self) -> bool:
        """Whether shards are waited for."""
        return bool(self._unopened)

    @property
    def moving(self) -> bool:
        """Whether shards are on their way."""
        return bool(self._moves)

    def serves(self, node: str) -> bool:
        """Return whether `node` serves a shard, or was told to."""
        return any(owner.node == node for owner in (*self.owners, *self._moves.values()))

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

    def clear(self, config: JobConfig, leaving: Collection[str], heirs: Sequence[NodeRecord]) -> list[TakeShards]:
        """Return the orders that move what the nodes `leaving` serve to `heirs`, the least laden first.

        What is on its way already stays so. Without an heir nothing moves.
        """
        laden = {node.name: sum(owner.node == node.name for owner in self._final()) for node in heirs}
        if not laden:
            return []
        groups: dict[tuple[str, str], list[ShardOwner]] = {}
        for owner in self.owners:
            if owner.node in leaving and owner.shard not in self._moves:
                heir = min(laden, key=lambda name: laden[name])
                laden[heir] += 1
                groups.setdefault((owner.address, heir), []).append(owner)
        by_name = {node.name: node for node in heirs}
        orders = []
        for (from_address, heir), moved in groups.items():
            self._epoch += 1
            node, shards = by_name[heir], tuple(owner.shard for owner in moved)
            for shard in shards:
                self._moves[shard] = ShardOwner(shard, node.name, node.address, self._epoch)
            under = tuple(owner.epoch for owner in moved)
            orders.append(TakeShards(node.name, node.address, config, from_address, shards, under, self._epoch))
        return orders

    def taken(self, shards: Sequence[int], epoch: int) -> bool:
        """Note that shards have come to their new owner under `epoch`; return whether the map is another one now."""
        made = [
            move for shard in shards for move in [self._moves.get(shard)] if move is not None and move.epoch == epoch
        ]
        for move in made:
            del self._moves[move.shard]
        after = {move.shard: move for move in made}
        self.owners = tuple(after.get(owner.shard, owner) for owner in self.owners)
        self.version += bool(made)
        return bool(made)

    def not_taken(self, shards: Sequence[int], epoch: int) -> None:
        """Forget a move that came to nothing."""
        self._moves = {shard: move for shard, move in self._moves.items() if shard not in shards or move.epoch != epoch}

    def _final(self) -> list[ShardOwner]:
        """Return who serves what once everything has moved."""
        return [self._moves.get(owner.shard, owner) for owner in self.owners]

    def abandon(self) -> None:
        """Forget a map that was being made: one of its nodes is gone."""
        self.owners, self._unopened = (), set()

    def update_for(self, node: NodeRecord) -> UpdateShardMap:
        """Return the order that tells `node` the map."""
        return UpdateShardMap(node.name, node.address, self.version, self.owners)
