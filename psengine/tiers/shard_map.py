"""The server and the epoch of each shard: opening, moves to other nodes, reopening after a loss.

A move gives the shard a new epoch; it is complete when the new owner reports that it has the state. Until then the map
names the old owner, which redirects requests. A failed move is begun again, under a further epoch, even if the shard is
to stay after all: only the old owner knows whether it has handed the shard over and no longer serves it.

Opening begins a *generation*, identified by its epoch: work of earlier generations is discarded.

Invariants: a shard has one owner; epochs only rise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.membership.node_record import NodeRecord
from proteus_spot.psengine.membership.placement import Owners
from proteus_spot.psengine.protocol.checkpoint import Checkpoint
from proteus_spot.psengine.protocol.instructions import OpenShards, ReplicaSet, ShardOwner, TakeShards, UpdateShardMap


class ShardMap:
    """The map of one job: at first it is empty, then shards are being opened, then all are open."""

    def __init__(self) -> None:
        self.owners: tuple[ShardOwner, ...] = ()
        self.version = 0
        #: Epoch at which all shards were last opened.
        self.generation = 0
        self._unopened: set[int] = set()
        self._epoch = 0
        #: {shard: its next owner}.
        self._moves: dict[int, ShardOwner] = {}
        #: Names of the present and the next servers; None when they may have changed.
        self._servers: frozenset[str] | None = None
        #: Shards of which a move failed: the old owner may have handed them over, so at least it takes them back.
        self.unsure: set[int] = set()

    @property
    def opening(self) -> bool:
        """Whether shards are being opened."""
        return bool(self._unopened)

    @property
    def unopened(self) -> tuple[int, ...]:
        """The shards that are still to be opened."""
        return tuple(sorted(self._unopened))

    @property
    def moving(self) -> bool:
        """Whether shards are being moved."""
        return bool(self._moves)

    @property
    def final(self) -> Owners:
        """Name of each shard's server once all moves are complete."""
        return tuple(self._moves.get(owner.shard, owner).node for owner in self.owners)

    def serves(self, node: str) -> bool:
        """Return whether `node` serves a shard, or is to serve one."""
        if self._servers is None:
            self._servers = frozenset(owner.node for owner in (*self.owners, *self._moves.values()))
        return node in self._servers

    def not_at(self, addresses: Collection[str]) -> list[int]:
        """Return the shards whose present or next server is at none of `addresses`."""
        return sorted({o.shard for o in (*self.owners, *self._moves.values()) if o.address not in addresses})

    def open(
        self,
        config: JobConfig,
        names: Owners,
        nodes: Mapping[str, NodeRecord],
        checkpoint: Checkpoint | None = None,
        replicas: ReplicaSet | None = None,
    ) -> list[OpenShards]:
        """Return the instructions that open every shard, on the nodes that `names` gives, one per shard.

        Their values are the initial ones, those of `checkpoint`, or those of `replicas`. Moves under way are cancelled.
        """
        self._epoch += 1
        self.generation = self._epoch
        self._moves, self.unsure, self._servers = {}, set(), None
        servers = [nodes[name] for name in names if name is not None]
        self._unopened = set(range(len(servers)))
        self.owners = tuple(
            ShardOwner(shard, node.name, node.address, self._epoch) for shard, node in enumerate(servers)
        )
        return [
            OpenShards(node.name, node.address, config, shards, self._epoch, checkpoint, replicas)
            for node in {server.name: server for server in servers}.values()
            for shards in [tuple(o.shard for o in self.owners if o.node == node.name)]
        ]

    def opened(self, node: str, shards: Sequence[int], epoch: int) -> bool:
        """Note that `node` serves `shards`; return whether all shards are open by that."""
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
        """Return the instructions that move the shards `only` to the `wanted` nodes, one for each pair of nodes.

        Moves under way are not changed. `common` is the common clock.
        """
        groups: dict[tuple[str, str], list[ShardOwner]] = {}
        for owner in self.owners:
            heir = wanted[owner.shard]
            moves = heir != owner.node or owner.shard in self.unsure
            if heir is not None and moves and owner.shard in only and owner.shard not in self._moves:
                groups.setdefault((owner.address, heir), []).append(owner)
        instructions = []
        for (from_address, heir), moved in groups.items():
            self._epoch += 1
            self._servers = None
            node, shards = nodes[heir], tuple(owner.shard for owner in moved)
            for shard in shards:
                self._moves[shard] = ShardOwner(shard, node.name, node.address, self._epoch)
            epochs = tuple(owner.epoch for owner in moved)
            instructions.append(
                TakeShards(node.name, node.address, config, from_address, shards, epochs, self._epoch, common)
            )
        return instructions

    def taken(self, shards: Sequence[int], epoch: int) -> bool:
        """Note that the new owner has taken shards over under `epoch`; return whether the map has changed."""
        made = [
            move for shard in shards for move in [self._moves.get(shard)] if move is not None and move.epoch == epoch
        ]
        for move in made:
            del self._moves[move.shard]
            self.unsure.discard(move.shard)
        after = {move.shard: move for move in made}
        self.owners = tuple(after.get(owner.shard, owner) for owner in self.owners)
        self._servers = None
        self.version += bool(made)
        return bool(made)

    def not_taken(self, shards: Sequence[int], epoch: int) -> None:
        """Forget a move that failed, or of which only the answer was lost."""
        self.unsure |= {s for s in shards if s in self._moves and self._moves[s].epoch == epoch}
        self._servers = None
        self._moves = {shard: move for shard, move in self._moves.items() if shard not in shards or move.epoch != epoch}

    def abandon(self) -> None:
        """Forget the map: the shards are to be reopened."""
        self.owners, self._unopened, self._moves, self.unsure, self._servers = (), set(), {}, set(), None

    def update_for(self, node: NodeRecord) -> UpdateShardMap:
        """Return the instruction that sends the map to `node`."""
        return UpdateShardMap(node.name, node.address, self.version, self.owners, self.generation)
