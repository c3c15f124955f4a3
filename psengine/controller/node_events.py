"""Events of nodes and of the shards that they serve: joins, notices, losses, opened and moved shards."""

from __future__ import annotations

from collections.abc import Collection

from proteus_spot.psengine.controller.consequences import Consequences
from proteus_spot.psengine.controller.recovery import DAMAGED, loss_of
from proteus_spot.psengine.controller.state import ENDED, CannotContinue, Due
from proteus_spot.psengine.protocol import events


class NodeEvents(Consequences):
    """How the controller answers these events."""

    def _on_joined(self, event: events.NodeJoined) -> None:
        if self.members.process(event.node, event.address) is not None:
            return
        previous = self.members.nodes.get(event.node)
        if previous is not None and not previous.gone:  # its process was replaced before the loss was seen
            self._on_lost(events.NodesLost({previous.address: "its process was replaced"}, event.now_s))
        node = self.members.join(event.node, event.address, event.tier, event.threads, event.code_sha256, event.misfit)
        if self.state in ENDED:
            return
        if self._begun:
            self._instructions.append(self.shards.update_for(node))
        if self.members.quarantine_misfits([node]):
            self._continue_without_quarantined()
        elif self._begun and self.members.in_state("ready"):
            self._joins.add(event.now_s)
        else:  # no node works yet
            self._mark_nodes_due()

    def _on_ready(self, event: events.NodeReady) -> None:
        node = self.members.process(event.node, event.address)
        if node is None:
            return
        self.members.loaded(node, event.request, event.partitions)
        if node.state == "joining":
            node.state = "ready"
            self._joins.loaded(event.now_s)
        self.members.recover(node, event.request)
        self._mark_nodes_due()

    def _on_unfit(self, event: events.NodeUnfit) -> None:
        node = self.members.process(event.node, event.address)
        asked_again = node is not None and node.state == "unfit" and node.recovers
        if node is None or not (asked_again or node.state in ("joining", "ready", "leaving")):
            return
        self.members.quarantine(node, event.error, event.again, event.now_s)
        self.departures.note_last(self.tasks)
        self._continue_without_quarantined()

    def _on_node_failed(self, event: events.NodeFailed) -> None:
        node = self.members.process(event.node, event.address)
        if node is not None and (
            node.state in ("joining", "ready", "leaving", "unfit") or self.shards.serves(node.name)
        ):
            raise CannotContinue(f"node {event.node}: {event.error}")

    def _on_lost(self, event: events.NodesLost) -> None:
        lost = [node for address in event.reasons if (node := self.members.at(address)) is not None]
        stayed = self.members.stays("transient")
        for node in lost:
            self.members.lose(node)
        remaining = self.members.stays("transient")
        self.tiers.loss_burst.lose(stayed - remaining, remaining, event.now_s)
        if not lost or self.state in ENDED or self.tasks is None:
            return
        for node in lost:
            self.tasks.give_up(node.name)
        self._report_vanished({node.name for node in lost}, event.now_s)
        served = [node for node in lost if self.tiers.lose(node)]
        without = served or [node for node in lost if self.tasks.states.held_at(node.address)]
        if not without:
            self._mark_due(Due.NODES)
            return
        reason = loss_of([node.name for node in without], bool(served), event.reasons[without[0].address])
        if self._saving is not None and self._saving.lose_shards(reason):
            self._mark_due(Due.NODES)  # the attempt under way may have them already
        else:
            self._recover(reason, event.now_s)

    def _report_vanished(self, nodes: Collection[str], now_s: float) -> None:
        """Report the partitions of lost nodes to the driver; groups may be complete without them."""
        if self._begun and self.driver is not None:
            owners = self.members.placement.owner
            self.driver.vanished([partition for partition, owner in enumerate(owners) if owner in nodes])
            self._advance(now_s)

    def _on_shards_opened(self, event: events.ShardsOpened) -> None:
        if self.members.process(event.node, event.address) is None:
            return
        if not self.shards.opened(event.node, event.shards, event.epoch):
            return
        self._not_opened = 0
        if self._begun:  # after a rollback nothing runs
            self.members.reassign_unloaded()
        self._begun = True
        self.progress.begin(event.now_s)
        self.checkpoints.begin(event.now_s)
        self._send_maps()
        self._mark_due(Due.NODES)

    def _on_shards_not_opened(self, event: events.ShardsNotOpened) -> None:
        if event.epoch == self.shards.generation and self.shards.opening and self._reopen_s is None:
            self._open_anew(event.shards, event.error, event.again, event.now_s)

    def _on_checkpoint_damaged(self, event: events.CheckpointDamaged) -> None:
        if self.tasks is not None and self._recovery.is_damaged(event.name, event.error, self.shards.opening):
            self._roll_back_to_checkpoint(f"{DAMAGED}: {event.error}", event.now_s)

    def _on_shards_taken(self, event: events.ShardsTaken) -> None:
        if self.members.process(event.node, event.address) is not None and self.shards.taken(event.shards, event.epoch):
            self._maps_due = True
            self._mark_due(Due.SHARDS)

    def _on_measured(self, event: events.UsageMeasured) -> None:
        self.history.traffic.note(event.address, event.moved)
        if event.memory and (node := self.members.at(event.address)) is not None:
            node.memory = event.memory

    def _on_states_taken(self, event: events.StatesTaken) -> None:
        tasks, node = self.tasks, self.members.process(event.node, event.address)
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
        rounds = self.tiers.backups
        if rounds.backed_up(event.address, event.number, event.shards, event.now_s, event.partitions):
            self._save_checkpoint(event.now_s)
            self._mark_due(Due.SHARDS)
