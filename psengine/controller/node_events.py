"""Events of nodes and of the shards that they serve: joins, notices, losses, opened and moved shards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from proteus_spot.psengine.controller.reconciler import Reconciler
from proteus_spot.psengine.controller.recovery import loss_of
from proteus_spot.psengine.controller.state import ENDED, CannotContinue, ControllerState, Due
from proteus_spot.psengine.protocol import events


class NodeEvents:
    """How the controller answers these events: `handlers` by the kind of event."""

    def __init__(self, job: ControllerState, reconciler: Reconciler) -> None:
        self._job, self._reconciler = job, reconciler
        self.handlers: Mapping[type[events.Event], Callable[[Any], None]] = MappingProxyType(
            {
                events.NodeJoined: self._on_joined,
                events.NodeReady: self._on_ready,
                events.NodeFailed: self._on_node_failed,
                events.NodeUnfit: self._on_unfit,
                events.NoticeReceived: job.departures.told,
                events.DrainRequested: self._on_drain,
                events.NodesLost: self._on_lost,
                events.ShardsOpened: self._on_shards_opened,
                events.ShardsNotOpened: self._on_shards_not_opened,
                events.ShardsTaken: self._on_shards_taken,
                events.ShardsNotTaken: self._on_shards_not_taken,
                events.BackedUp: self._on_backed_up,
                events.NotBackedUp: self._on_not_backed_up,
                events.StatesTaken: self._on_states_taken,
                events.UsageMeasured: self._on_measured,
            }
        )

    def _on_joined(self, event: events.NodeJoined) -> None:
        job = self._job
        if job.members.process(event.node, event.address) is not None:
            return
        previous = job.members.nodes.get(event.node)
        if previous is not None and not previous.gone:  # its process was replaced before the loss was seen
            self._on_lost(events.NodesLost({previous.address: "its process was replaced"}, event.now_s))
        node = job.members.join(event.node, event.address, event.tier, event.threads, event.code_sha256, event.misfit)
        if job.state in ENDED:
            return
        if job.begun:
            job.instructions.append(job.shards.update_for(node))
        if job.members.quarantine_misfits([node]):
            self._reconciler.continue_without_quarantined()
        elif job.begun and job.members.in_state("ready"):
            job.joins.add(event.now_s)
        else:  # no node works yet
            self._reconciler.mark_nodes_due()

    def _on_ready(self, event: events.NodeReady) -> None:
        job = self._job
        node = job.members.process(event.node, event.address)
        if node is None:
            return
        job.members.loaded(node, event.request, event.partitions)
        if node.state == "joining":
            node.state = "ready"
            job.joins.loaded(event.now_s)
        job.members.recover(node, event.request)
        self._reconciler.mark_nodes_due()

    def _on_unfit(self, event: events.NodeUnfit) -> None:
        job = self._job
        node = job.members.process(event.node, event.address)
        asked_again = node is not None and node.state == "unfit" and node.recovers
        if node is None or not (asked_again or node.state in ("joining", "ready", "leaving")):
            return
        job.members.quarantine(node, event.error, event.again, event.now_s)
        job.departures.note_last(job.tasks)
        self._reconciler.continue_without_quarantined()

    def _on_node_failed(self, event: events.NodeFailed) -> None:
        node = self._job.members.process(event.node, event.address)
        if node is not None and (
            node.state in ("joining", "ready", "leaving", "unfit") or self._job.shards.serves(node.name)
        ):
            raise CannotContinue(f"node {event.node}: {event.error}")

    def _on_lost(self, event: events.NodesLost) -> None:
        job = self._job
        lost = [node for address in event.reasons if (node := job.members.at(address)) is not None]
        stayed = job.members.stays("transient")
        for node in lost:
            job.members.lose(node)
        remaining = job.members.stays("transient")
        job.tiers.loss_burst.lose(stayed - remaining, remaining, event.now_s)
        if not lost or job.state in ENDED or job.tasks is None:
            return
        for node in lost:
            job.tasks.give_up(node.name)
        self._report_vanished({node.name for node in lost}, event.now_s)
        served = [node for node in lost if job.tiers.lose(node)]
        without = served or [node for node in lost if job.tasks.states.held_at(node.address)]
        if not without:
            job.mark_due(Due.NODES)
            return
        reason = loss_of([node.name for node in without], bool(served), event.reasons[without[0].address])
        if job.saving is not None and job.saving.lose_shards(reason):
            job.mark_due(Due.NODES)  # the attempt under way may have them already
        else:
            self._reconciler.recover(reason, event.now_s)

    def _report_vanished(self, nodes: Collection[str], now_s: float) -> None:
        """Report the partitions of lost nodes to the driver; groups may be complete without them."""
        job = self._job
        if job.begun and job.driver is not None:
            owners = job.members.placement.owner
            job.driver.vanished([partition for partition, owner in enumerate(owners) if owner in nodes])
            self._reconciler.advance(now_s)

    def _on_shards_opened(self, event: events.ShardsOpened) -> None:
        job = self._job
        if job.members.process(event.node, event.address) is None:
            return
        if not job.shards.opened(event.node, event.shards, event.epoch):
            return
        job.not_opened = 0
        if job.begun:  # after a rollback nothing runs
            job.members.reassign_unloaded(job.have_states)
        job.begun = True
        job.progress.begin(event.now_s)
        job.checkpoints.begin(event.now_s)
        self._reconciler.send_maps()
        job.mark_due(Due.NODES)

    def _on_shards_not_opened(self, event: events.ShardsNotOpened) -> None:
        job = self._job
        if event.epoch == job.shards.generation and job.shards.opening and job.reopen_s is None:
            self._reconciler.open_anew(event.shards, event.error, event.again, event.now_s)

    def _on_shards_taken(self, event: events.ShardsTaken) -> None:
        job = self._job
        if job.members.process(event.node, event.address) is not None and job.shards.taken(event.shards, event.epoch):
            job.maps_due = True
            job.mark_due(Due.SHARDS)

    def _on_measured(self, event: events.UsageMeasured) -> None:
        self._job.history.traffic.note(event.address, event.moved)
        if event.memory and (node := self._job.members.at(event.address)) is not None:
            node.memory = event.memory

    def _on_states_taken(self, event: events.StatesTaken) -> None:
        tasks, node = self._job.tasks, self._job.members.process(event.node, event.address)
        if tasks is not None and node is not None and not node.gone:
            # A late report may be of states that the node has dropped since: those of the present attempts count.
            running = {state: tasks.running.get(state.partition) for state in event.states}
            present = [
                state
                for state, attempt in zip(event.states, event.attempts, strict=True)
                if (task := running[state]) is not None and (task.node, task.attempt) == (event.node, attempt)
            ]
            tasks.states.taken(present, event.address)

    def _on_backed_up(self, event: events.BackedUp) -> None:
        rounds = self._job.tiers.backups
        if rounds.backed_up(event.address, event.number, event.shards, event.now_s, event.partitions):
            self._reconciler.save_checkpoint(event.now_s)
            self._job.mark_due(Due.SHARDS)

    def _on_not_backed_up(self, event: events.NotBackedUp) -> None:
        self._job.tiers.backups.not_backed_up(event.number, event.now_s)

    def _on_shards_not_taken(self, event: events.ShardsNotTaken) -> None:
        self._job.shards.not_taken(event.shards, event.epoch)

    def _on_drain(self, event: events.DrainRequested) -> None:
        self._job.departures.drain(event, self._job.tasks)
        self._job.mark_due(Due.NODES)
