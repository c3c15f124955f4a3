"""The tiers of one job: its stage, the servers and backups of its shards, and what happens when nodes leave.

It combines `stages` and `layout` (the wanted state), `shard_map` (the servers) and `replication` (the replicas). It
knows neither tasks nor the state of the job.

| change | effect on the shards |
|---|---|
| nodes join, the ratio of the tiers changes | shards move to the servers of the new layout during the training |
| nodes are to leave | the same, for the shards that they serve, once they have done their last work |
| shards are to move from the reliable tier to the transient one | first a replication round, so that replicas exist |
| a server is lost | rollback to the last complete round: to the own replicas of survivors, else to the backups' |
| the transient tier is lost in a burst | the same, and the backups serve until it has passed, see `event_batch` |
| a replica that this needs is missing | rollback to the last checkpoint, or to the beginning |

Source: Proteus (EuroSys 2017), 3.2, 3.3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from proteus_spot.psengine.config import JobConfig, Stage
from proteus_spot.psengine.membership.event_batch import LossBurst
from proteus_spot.psengine.membership.membership import Membership
from proteus_spot.psengine.membership.node_record import NodeRecord
from proteus_spot.psengine.membership.state_refs import StateRefs
from proteus_spot.psengine.protocol.checkpoint import Checkpoint
from proteus_spot.psengine.protocol.instructions import Instruction
from proteus_spot.psengine.tiers.layout import Layout, half_of, kept_by_others, layout_for
from proteus_spot.psengine.tiers.measured_stage import ClockTime, Footprint, StageTimes
from proteus_spot.psengine.tiers.replication import Backup, ReplicationRounds, StateReplica
from proteus_spot.psengine.tiers.scale_in import JobMemory
from proteus_spot.psengine.tiers.shard_map import ShardMap
from proteus_spot.psengine.tiers.stages import StageThresholds, stage_for


class Tiers:
    """State of one job's tiers."""

    def __init__(self) -> None:
        self.stage: Stage = 1
        self.shards = ShardMap()
        self.backups = ReplicationRounds()
        #: Losses of the transient tier.
        self.loss_burst = LossBurst()
        #: Measured clocks of stages 2 and 3.
        self.times = StageTimes()
        #: Wanted servers and backups of the shards; None before the shards were opened.
        self.layout: Layout | None = None
        #: Names of leaving nodes that serve until they have done their last work.
        self._serving_on: Collection[str] = ()
        #: Number of ActivePSs that the job fixes, None: half of the transient nodes; and their maximum, None: no limit.
        self.fixed_servers: int | None = None
        self.most_servers: int | None = None
        #: Changes of the layout that are not in the event log yet, as lines of text.
        self.changes: list[list[str]] = []

    def holds(self, node: str) -> bool:
        """Return whether a node serves shards, or stores the replicas of the last complete round."""
        return self.shards.serves(node) or self.backups.has_replica(node)

    def awaits_copies(self, node: str, members: Membership, states: StateRefs) -> bool:
        """Return whether a node that is to leave has replicas that a loss may need before the next round is complete.

        Those of what transient nodes have: they may be lost at any moment. If reliable nodes have all, the next round
        begins when the node has handed over, and until it is complete the loss of another one rolls the job back to the
        last checkpoint.
        """
        return self.backups.has_replica(node) and any(
            other.tier == "transient" and (self.shards.serves(other.name) or states.held_at(other.address) > 0)
            for other in members.present.values()
        )

    @property
    def settled(self) -> bool:
        """Whether no shard moves, and each is where the layout wants it or on a leaving node that still serves."""
        if self.shards.moving or self.shards.opening or self.layout is None:
            return False
        both = zip(self.layout.owners, self.shards.final, strict=True)
        return all(wanted == server or server in self._serving_on for wanted, server in both)

    def choose_stage(self, config: JobConfig, members: Membership) -> None:
        """Set the job's configured stage, or else the stage for the nodes, and which tier rests in it."""
        reliable, transient = _servers(members)
        if config.stage is not None:
            self.stage = config.stage if transient else 1
        elif reliable and self.loss_burst.on:
            self.stage = 1
        elif reliable:
            thresholds = StageThresholds(config.stage_2_above, config.stage_3_above)
            before = 2 if self.times.prefers_3 else self.stage
            by_ratio = stage_for(len(transient), len(reliable), before, thresholds)
            self.stage = self.times.choose(self._footprint(config, members), by_ratio)
        elif not transient:
            self.stage = 1
        members.resting = "reliable" if self.stage == 3 else None

    def note_clock(self, config: JobConfig, members: Membership, clock: ClockTime) -> bool:
        """Note a committed clock; return whether another stage is wanted by what was measured."""
        if self.stage == 1:
            return False
        if self.shards.moving or self.shards.opening:
            self.interrupt()
            return False
        by_ratio = config.stage is not None or (self.stage == 3 and not self.times.prefers_3)
        if by_ratio:
            return False
        nodes = self._footprint(config, members)
        self.times.note(self.stage, nodes, clock)
        return self.times.faster(nodes) != self.stage

    def interrupt(self) -> None:
        """Note that the clocks of now are not typical."""
        self.times.interrupt()

    def holding(self, config: JobConfig, members: Membership, memory: Mapping[str, int]) -> JobMemory:
        """Return what the job holds (`memory` by kind); nodes that serve no shards are to be released first."""
        reliable, transient = _servers(members)
        serves = [name for name in transient if self.shards.serves(name)]
        above = config.stage_3_above if self.stage == 3 else config.stage_2_above
        if len(transient) <= above * len(reliable):  # stage 3 was chosen by its times
            above = config.stage_2_above
        least = 0 if self.stage == 1 else int(above * len(reliable)) + 1
        names = [*(name for name in reversed(transient) if name not in serves), *reversed(serves)]
        return JobMemory(len(reliable), names, sum(memory.values()), memory["tables"], len(serves), least)

    def open(
        self, config: JobConfig, servers: Sequence[NodeRecord], checkpoint: Checkpoint | None
    ) -> list[Instruction]:
        """Return the instructions that open every shard on `servers`, in even runs."""
        names = [node.name for node in servers]
        owners = tuple(names[shard * len(names) // config.n_shards] for shard in range(config.n_shards))
        self.backups.forget()
        self._adopt(Layout(1, owners, kept_by_others(owners, names)))
        restored = None if checkpoint is None else checkpoint.for_nodes()
        return [*self.shards.open(config, owners, {node.name: node for node in servers}, restored)]

    def adapt(
        self,
        config: JobConfig,
        members: Membership,
        common: int,
        now_s: float,
        serving_on: Collection[str] = (),
        stay: bool = False,
        states: StateRefs | None = None,
    ) -> list[Instruction]:
        """Return the moves and replications that the layout still lacks.

        Parameters
        ----------
        states : StateRefs, optional
            States of partitions, to be replicated in the same rounds.
        serving_on : collection of str
            Names of leaving nodes. The shards that they serve stay until they have done their last work.
        stay : bool
            Whether the layout will change soon: shards stay where they are, and are replicated as before.
        """
        self._serving_on = serving_on
        if self.shards.opening:
            return []
        alive = {node.name: node for node in members.present.values()}
        sure = not self.shards.unsure  # else a node has to take a shard back now
        layout = self.layout
        if stay and sure and layout is not None and {*layout.owners, *layout.backups} <= {None, *alive}:
            return self._back_up(layout, members, alive, common, now_s, states)
        wanted = self._wanted(members)
        if wanted is None:  # no other node can serve: owners that may have handed shards over to a lost node serve on
            return [*self.shards.move(config, self.shards.final, alive, self.shards.unsure, common)]
        self._adopt(wanted)
        movable = self._movable(wanted, members, serving_on)
        moves = self.shards.move(config, wanted.owners, alive, movable, common)
        broken_off = self.backups.abandon() if moves else []
        return [*broken_off, *moves, *self._back_up(wanted, members, alive, common, now_s, states)]

    def lose(self, node: NodeRecord) -> bool:
        """Note that a process was lost; return whether shards were lost with it."""
        self.backups.lose(node.address)
        return self.shards.serves(node.name)

    def restore_from_replicas(self, config: JobConfig, members: Membership) -> tuple[int, list[Instruction]] | None:
        """Return the clock that the job can roll back to, and the instructions that reopen every shard there.

        None if a replica is missing, or no node is left to serve: then only a checkpoint helps.
        """
        alive = {node.name: node for node in members.present.values()}
        lost = self.shards.not_at({node.address for node in alive.values()})
        replicas, wanted = self.backups.restore(lost), self._wanted(members)
        if replicas is None or wanted is None:
            return None
        # A shard whose only replica is its server's cannot move to another node.
        servers = {shard: owner.node for shard, owner in enumerate(self.shards.owners) if shard not in lost}
        owners = tuple(
            heir if self.backups.backup(shard) is not None else servers[shard]
            for shard, heir in enumerate(wanted.owners)
        )
        broken_off = self.backups.abandon()
        self._adopt(wanted)
        return replicas.group, [*broken_off, *self.shards.open(config, owners, alive, None, replicas)]

    def abandon(self, members: Membership) -> None:
        """Forget where the shards are: they are to be reopened on the reliable nodes."""
        self.shards.abandon()
        self.backups.forget()
        self.layout, self.stage, members.resting = None, 1, None

    # -- inside ---------------------------------------------------------------------------------------------------

    def _wanted(self, members: Membership) -> Layout | None:
        """Return the layout for the present nodes."""
        if self.layout is None:
            return None
        reliable, transient = _servers(members)
        able = {*reliable, *transient}
        # Planned servers stay planned, also while their shards wait to move.
        now = tuple(
            planned if planned in able else server
            for planned, server in zip(self.layout.owners, self.shards.final, strict=True)
        )
        before = Layout(self.stage, now, self.layout.backups)
        return layout_for(self.stage, reliable, transient, before, self._n_servers(len(transient), len(now)))

    def _n_servers(self, transient: int, n_shards: int) -> int:
        count = half_of(transient) if self.fixed_servers is None else self.fixed_servers
        wanted = min(transient, n_shards, count)
        return wanted if self.most_servers is None else min(wanted, self.most_servers)

    def _footprint(self, config: JobConfig, members: Membership) -> Footprint:
        reliable, transient = _servers(members)
        of_reliable, of_transient = (
            sum(members.nodes[name].threads for name in names) for names in (reliable, transient)
        )
        servers = max(1, self._n_servers(len(transient), config.n_shards))
        return Footprint(len(reliable), len(transient), of_reliable, of_transient, servers)

    def _adopt(self, wanted: Layout) -> None:
        if wanted != self.layout:
            self.changes.append(wanted.lines(self.layout))
            self.layout = wanted

    def _movable(self, wanted: Layout, members: Membership, serving_on: Collection[str]) -> list[int]:
        """Return the shards that may move now: urgent ones at once, the others when no round is under way."""
        if not self.shards.unsure and wanted.owners == self.shards.final:
            return []
        reliable, transient = map(set, _servers(members))
        able = reliable | transient
        movable = []
        for shard, (heir, owner) in enumerate(zip(wanted.owners, self.shards.final, strict=True)):
            unsure = shard in self.shards.unsure
            if not unsure and (heir == owner or owner in serving_on):
                continue
            alone = heir not in reliable and self.backups.backup(shard) is None
            if unsure or owner not in able or not (alone or self.backups.under_way):
                movable.append(shard)
        return movable

    def _back_up(
        self,
        wanted: Layout,
        members: Membership,
        alive: dict[str, NodeRecord],
        common: int,
        now_s: float,
        states: StateRefs | None,
    ) -> list[Instruction]:
        """Return the instructions of the next round, if one is needed and may begin."""
        reliable = _servers(members)[0]
        on_reliable = {*wanted.owners, *self.shards.final} <= set(reliable)
        at_risk = bool(states) and any(
            states is not None and states.held_at(node.address) for name, node in alive.items() if name not in reliable
        )
        if on_reliable and not at_risk and wanted.owners == wanted.backups:
            if not self.shards.moving:
                self.backups.forget()
            return []
        names = {shard: name for shard, name in enumerate(wanted.backups) if name is not None}
        lacks = self.backups.lacks(names, reliable)
        new = self.backups.group is None or common > self.backups.group or lacks
        nothing_done = on_reliable and not common
        if not new or nothing_done or self.shards.moving or not names:
            return []
        if not self.backups.under_way and not self.backups.due(now_s, rarely=on_reliable and not lacks):
            return []
        if _hands_over(self.shards, members, states) and self.backups.gives_way(now_s):
            return [*self.backups.abandon()]
        if self.backups.under_way:
            return []
        backups = {shard: alive[name] for shard, name in names.items()}
        processes = {node.address: node.name for node in alive.values()}
        copies = []
        for ref in states.at(common) if states is not None else ():
            if ref.checkpoint:
                copies.append(StateReplica(ref, None))
                continue
            holder = processes.get(ref.address)
            others = [name for name in reliable if name != holder] or reliable
            if holder is None or not others:
                return []  # the loss of that process is about to be processed, or no node can keep the state
            owner = alive[others[ref.partition % len(others)]]
            copies.append(StateReplica(ref, Backup(owner.name, owner.address)))
        return [*self.backups.begin(common, self.shards.owners, backups, now_s, copies, processes)]


def _hands_over(shards: ShardMap, members: Membership, states: StateRefs | None) -> bool:
    """Return whether a node that is to leave, and begins nothing more, has shards or states that others are to have."""
    return any(
        shards.serves(node.name) or (states is not None and states.held_at(node.address) > 0)
        for node in members.in_state("draining")
    )


def _servers(members: Membership) -> tuple[list[str], list[str]]:
    """Return the names of the reliable and of the transient nodes that may serve, the longest-running first."""
    reliable = [node.name for node in members.able_to_serve]
    transient = [node.name for node in members.in_state("ready") if node.tier == "transient"]
    return reliable, transient
