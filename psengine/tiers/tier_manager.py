"""The tiers of one job: in which stage it is, who serves and who keeps the shards, and what becomes of them when nodes go. Pure.

It puts together `stages` and `layout` (what is wanted), `shardmap` (who serves) and `backups` (what is kept). It knows
neither micro-tasks nor how the job stands.

| what befalls the shards | then |
|---|---|
| nodes join, the ratio of the tiers changes | those that the layout wants elsewhere move, while the training goes on |
| nodes are told to go | the same, for those that they serve when they have done their last work |
| shards are to go from the reliable tier to the transient one | first a round of backups, so that they are never there alone |
| a server is lost | all go back to the last whole round: survivors to their own copies, the lost shards to their keepers' |
| the transient tier is lost in a wave | the same, and the keepers serve until it has passed, see `waves` |
| a copy that this needs is missing | all go back to the last checkpoint, or to the beginning |

Source: Proteus (EuroSys 2017), 3.2, 3.3.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from psengine.config import JobConfig, Stage
from psengine.membership.membership import Membership
from psengine.membership.node_record import NodeRecord
from psengine.protocol.checkpoint import Checkpoint
from psengine.protocol.instructions import Instruction
from psengine.tiers.layout import Layout, layout_for
from psengine.tiers.loss_burst import Wave
from psengine.tiers.replication import ReplicationRounds
from psengine.tiers.shard_map import ShardMap
from psengine.tiers.stages import StageThresholds, stage_for


class Tiers:
    """State of one job's tiers."""

    def __init__(self) -> None:
        self.stage: Stage = 1
        self.shards = ShardMap()
        self.backups = ReplicationRounds()
        #: losses of the transient tier
        self.wave = Wave()
        #: who is to serve and keep what; None before the shards were opened
        self.layout: Layout | None = None
        #: those who are to go, and serve on until they have done their last work
        self._serving_on: Collection[str] = ()
        #: the changes of the layout, newest last, as lines for people
        self.changes: list[list[str]] = []

    def holds(self, node: str) -> bool:
        """Return whether a node serves shards, or has copies that nobody else has."""
        return self.shards.serves(node) or self.backups.has_replica(node)

    @property
    def settled(self) -> bool:
        """Whether shards are where the layout wants them, or where they are to be until nodes go, and none moves."""
        if self.shards.moving or self.shards.opening or self.layout is None:
            return False
        both = zip(self.layout.owners, self.shards.final, strict=True)
        return all(wanted == there or there in self._serving_on for wanted, there in both)

    def choose_stage(self, config: JobConfig, members: Membership) -> None:
        """Set the stage that the job or else the nodes ask for, and who rests in it."""
        reliable, transient = _servers(members)
        if config.stage is not None:
            self.stage = config.stage if transient else 1
        elif reliable and self.wave.on:
            self.stage = 1
        elif reliable:
            thresholds = StageThresholds(config.stage_2_above, config.stage_3_above)
            self.stage = stage_for(len(transient), len(reliable), self.stage, thresholds)
        elif not transient:
            self.stage = 1
        members.resting = "reliable" if self.stage == 3 else None

    def open(
        self, config: JobConfig, servers: Sequence[NodeRecord], checkpoint: Checkpoint | None
    ) -> list[Instruction]:
        """Return the orders that open every shard on `servers`, in even runs."""
        names = [node.name for node in servers]
        owners = tuple(names[shard * len(names) // config.n_shards] for shard in range(config.n_shards))
        self.backups.forget()
        self._adopt(Layout(1, owners, owners))
        return [*self.shards.open(config, owners, {node.name: node for node in servers}, checkpoint)]

    def adapt(
        self,
        config: JobConfig,
        members: Membership,
        common: int,
        now_s: float,
        serving_on: Collection[str] = (),
        stay: bool = False,
    ) -> list[Instruction]:
        """Return the moves and copies that the layout still lacks.

        Parameters
        ----------
        serving_on : names of those who are to go
            What they serve stays where it is until they have done their last work.
        stay : bool
            Whether the layout is soon to be another one: shards stay where they are, and copies are made as before.
        """
        self._serving_on = serving_on
        if self.shards.opening:
            return []
        alive = {node.name: node for node in members.nodes.values() if not node.gone}
        sure = not self.shards.unsure  # else somebody is to take a shard back, now
        if stay and sure and self.layout is not None and {*self.layout.owners, *self.layout.keepers} <= {None, *alive}:
            return self._back_up(self.layout, members, alive, common, now_s)
        wanted = self._wanted(members)
        if wanted is None:  # nobody else can: those who may have handed shards over to somebody who is gone serve on
            return [*self.shards.move(config, self.shards.final, alive, self.shards.unsure, common)]
        self._adopt(wanted)
        may = self._may_move(wanted, members, serving_on)
        moves = self.shards.move(config, wanted.owners, alive, may, common)
        if moves:
            self.backups.abandon()
        return [*moves, *self._back_up(wanted, members, alive, common, now_s)]

    def lose(self, node: NodeRecord) -> bool:
        """Note that a process is gone; return whether shards are gone with it."""
        self.backups.lose(node.address)
        return self.shards.serves(node.name)

    def restore_from_replicas(self, config: JobConfig, members: Membership) -> tuple[int, list[Instruction]] | None:
        """Return the clock that all can go back to, and the orders that open every shard there.

        None where a copy is missing, or nobody is left to serve: then there is only a checkpoint.
        """
        alive = {node.name: node for node in members.nodes.values() if not node.gone}
        lost = self.shards.not_at({node.address for node in alive.values()})
        kept, wanted = self.backups.restore(lost), self._wanted(members)
        if kept is None or wanted is None:
            return None
        # Of what has no copy besides its server's there is nothing to give to another one.
        here = {shard: owner.node for shard, owner in enumerate(self.shards.owners) if shard not in lost}
        owners = tuple(
            heir if self.backups.keeper(shard) is not None else here[shard] for shard, heir in enumerate(wanted.owners)
        )
        self.backups.abandon()
        self._adopt(wanted)
        return kept.clock, [*self.shards.open(config, owners, alive, None, kept)]

    def abandon(self, members: Membership) -> None:
        """Forget where the shards are: they are to be opened anew, on the reliable nodes."""
        self.shards.abandon()
        self.backups.forget()
        self.layout, self.stage, members.resting = None, 1, None

    # -- inside ---------------------------------------------------------------------------------------------------

    def _wanted(self, members: Membership) -> Layout | None:
        """Return the layout for those who are there."""
        if self.layout is None:
            return None
        reliable, transient = _servers(members)
        able = {*reliable, *transient}
        # What was planned stays so, also while shards wait for their time to move.
        now = tuple(
            planned if planned in able else there
            for planned, there in zip(self.layout.owners, self.shards.final, strict=True)
        )
        return layout_for(self.stage, reliable, transient, Layout(self.stage, now, self.layout.keepers))

    def _adopt(self, wanted: Layout) -> None:
        if wanted != self.layout:
            self.changes.append(wanted.lines(self.layout))
            self.layout = wanted

    def _may_move(self, wanted: Layout, members: Membership, serving_on: Collection[str]) -> list[int]:
        """Return the shards that may move now: what is urgent at once, the rest when no copies are under way."""
        reliable, transient = _servers(members)
        able = {*reliable, *transient}
        may = []
        for shard, (heir, owner) in enumerate(zip(wanted.owners, self.shards.final, strict=True)):
            unsure = shard in self.shards.unsure
            if not unsure and (heir == owner or owner in serving_on):
                continue
            alone = heir not in reliable and self.backups.keeper(shard) is None
            if unsure or owner not in able or not (alone or self.backups.under_way):
                may.append(shard)
        return may

    def _back_up(
        self, wanted: Layout, members: Membership, alive: dict[str, NodeRecord], common: int, now_s: float
    ) -> list[Instruction]:
        """Return the orders of the next round, if one is needed and may begin."""
        reliable, _ = _servers(members)
        if all(name in reliable for name in (*wanted.owners, *self.shards.final)):
            if not self.shards.moving:
                self.backups.forget()
            return []
        keepers = {shard: name for shard, name in enumerate(wanted.keepers) if name is not None}
        new = self.backups.clock is None or common > self.backups.clock or self.backups.lacks(keepers)
        if not new or self.shards.moving or not self.backups.due(now_s) or not keepers:
            return []
        return [
            *self.backups.begin(
                common, self.shards.owners, {shard: alive[name] for shard, name in keepers.items()}, now_s
            )
        ]


def _servers(members: Membership) -> tuple[list[str], list[str]]:
    """Return the names of those who may serve, of either tier, the longest-running first."""
    reliable = [node.name for node in members.able_to_serve]
    transient = [node.name for node in members.in_state("ready") if node.tier == "transient"]
    return reliable, transient
