"""Who serves which shard, under which epoch: opened, moved where the layout wants them elsewhere, opened anew after a loss. Pure.

A move gives the shard a new epoch; it is made when the new owner says that it has the state. Until then the map names the
old owner, who sends on whoever comes to it. One that failed is begun again, under a further epoch; also where the shard is
to stay after all, for nobody but the old owner knows whether it has handed the shard over, and serves it no more.

Opening begins a *generation*, told by its epoch: what was under way before it is of no use any more.

Invariants: a shard has one owner; epochs only rise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from psengine.config import JobConfig
from psengine.membership.node_record import NodeRecord
from psengine.membership.placement import Owners
from psengine.protocol.checkpoint import Checkpoint
from psengine.protocol.instructions import OpenShards, ReplicaSet, ShardOwner, TakeShards, UpdateShardMap


class ShardMap:
    """The map of one job: nobody serves, then shards are being opened, then all are open."""

    def __init__(self) -> None:
        self.owners: tuple[ShardOwner, ...] = ()
        self.version = 0
        #: the epoch at which all shards were opened for the last time
        self.generation = 0
        self._unopened: set[int] = set()
        self._epoch = 0
        #: {shard: its owner to be}
        self._moves: dict[int, ShardOwner] = {}
        #: shards of which a move failed: their owners may take them for moved, and are to take them back at least
        self.unsure: set[int] = set()

    @property
    def opening(self) -> bool:
        """Whether shards are waited for."""
        return bool(self._unopened)

    @property
    def moving(self) -> bool:
        """Whether shards are on their way."""
        return bool(self._moves)

    @property
    def final(self) -> Owners:
        """Who serves what once everything has moved, by node name."""
        return tuple(self._moves.get(owner.shard, owner).node for owner in self.owners)

    def serves(self, node: str) -> bool:
        """Return whether `node` serves a shard, or was told to."""
        return bool(self.of(node))

    def of(self, node: str) -> list[int]:
        """Return the shards that `node` serves, or was told to."""
        return sorted({owner.shard for owner in (*self.owners, *self._moves.values()) if owner.node == node})

    def not_at(self, addresses: Collection[str]) -> list[int]:
        """Return the shards whose server, or server to be, is at none of `addresses`."""
        return sorted({o.shard for o in (*self.owners, *self._moves.values()) if o.address not in addresses})

    def open(
        self,
        config: JobConfig,
        names: Owners,
        nodes: Mapping[str, NodeRecord],
        checkpoint: Checkpoint | None = None,
        kept: ReplicaSet | None = None,
    ) -> list[OpenShards]:
        """Return the orders that open every shard, on the nodes that `names` gives, one a shard.

        They are opened as they began, as `checkpoint` has them, or as they were `kept`. Whatever moved is on its way no more.
        """
        self._epoch += 1
        self.generation = self._epoch
        self._moves, self.unsure = {}, set()
        servers = [nodes[name] for name in names if name is not None]
        self._unopened = set(range(len(servers)))
        self.owners = tuple(
            ShardOwner(shard, node.name, node.address, self._epoch) for shard, node in enumerate(servers)
        )
        return [
            OpenShards(node.name, node.address, config, shards, self._epoch, checkpoint, kept)
            for node in {server.name: server for server in servers}.values()
            for shards in [tuple(o.shard for o in self.owners if o.node == node.name)]
        ]

    def opened(self, node: str, shards: Sequence[int], epoch: int) -> bool:
        """Note that `node` serves `shards`; return whether these were the last that were waited for."""
        if not self._unopened or epoch != self.generation:
            return False
        self._unopened -= {o.shard for o in self.owners if o.node == node and o.shard in shards}
        if self._unopened:
            return False
        self.version += 1
        return True

    def move(
        self, config: JobConfig, wanted: Owners, nodes: Mapping[str, NodeRecord], only: Collection[int], common: int
    ) -> list[TakeShards]:
        """Return the orders that move the shards `only` to the nodes that `wanted` gives, one message a pair of nodes.

        What is on its way already stays so. `common` is the common clock.
        """
        groups: dict[tuple[str, str], list[ShardOwner]] = {}
        for owner in self.owners:
            heir = wanted[owner.shard]
            goes = heir != owner.node or owner.shard in self.unsure
            if heir is not None and goes and owner.shard in only and owner.shard not in self._moves:
                groups.setdefault((owner.address, heir), []).append(owner)
        orders = []
        for (from_address, heir), moved in groups.items():
            self._epoch += 1
            node, shards = nodes[heir], tuple(owner.shard for owner in moved)
            for shard in shards:
                self._moves[shard] = ShardOwner(shard, node.name, node.address, self._epoch)
            under = tuple(owner.epoch for owner in moved)
            orders.append(TakeShards(node.name, node.address, config, from_address, shards, under, self._epoch, common))
        return orders

    def taken(self, shards: Sequence[int], epoch: int) -> bool:
        """Note that shards have come to their new owner under `epoch`; return whether the map is another one now."""
        made = [
            move for shard in shards for move in [self._moves.get(shard)] if move is not None and move.epoch == epoch
        ]
        for move in made:
            del self._moves[move.shard]
            self.unsure.discard(move.shard)
        after = {move.shard: move for move in made}
        self.owners = tuple(after.get(owner.shard, owner) for owner in self.owners)
        self.version += bool(made)
        return bool(made)

    def not_taken(self, shards: Sequence[int], epoch: int) -> None:
        """Forget a move that came to nothing, or of which only the answer was lost."""
        self.unsure |= {s for s in shards if s in self._moves and self._moves[s].epoch == epoch}
        self._moves = {shard: move for shard, move in self._moves.items() if shard not in shards or move.epoch != epoch}

    def abandon(self) -> None:
        """Forget the map: the shards are to be opened anew."""
        self.owners, self._unopened, self._moves, self.unsure = (), set(), {}, set()

    def update_for(self, node: NodeRecord) -> UpdateShardMap:
        """Return the order that tells `node` the map."""
        return UpdateShardMap(node.name, node.address, self.version, self.owners, self.generation)
