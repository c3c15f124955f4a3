"""Events of nodes and of the shards that they serve: joins, notices, losses, opened and moved shards."""

from __future__ import annotations

from collections.abc import Collection

from psengine.controller.consequences import Consequences
from psengine.controller.recovery import loss_of
from psengine.controller.state import ENDED
from psengine.protocol import events
from psengine.protocol.instructions import Instruction


class NodeEvents(Consequences):
    """How the controller answers these events."""

    def _on_joined(self, event: events.NodeJoined) -> list[Instruction]:
        if self.members.process(event.node, event.address) is not None:
            return []
        instructions: list[Instruction] = []
        previous = self.members.nodes.get(event.node)
        if previous is not None and not previous.gone:  # its process was replaced before the loss was seen
            instructions += self._on_lost(events.NodesLost({previous.address: "its process was replaced"}, event.now_s))
        node = self.members.join(event.node, event.address, event.tier, event.threads, event.code_sha256, event.misfit)
        if self.state in ENDED:
            return instructions
        if self._begun:
            instructions.append(self.shards.update_for(node))
        if self.members.quarantine_misfits([node]):
            return instructions + self._continue_without_quarantined(event.now_s)
        if self._begun and self.members.in_state("ready"):
            self._joins.add(event.now_s)
            return instructions
        if self._put_off_plan():
            return instructions
        return instructions + self.members.replan(self._begun)  # no node works yet

    def _plan_for_arrivals(self, now_s: float) -> list[Instruction]:
        """Return the loads of all nodes that have joined, together, when no more are waited for."""
        return self._replan() if self.state not in ENDED and self._joins.due(now_s) else []

    def _on_ready(self, event: events.NodeReady) -> list[Instruction]:
        node = self.members.process(event.node, event.address)
        if node is None:
            return []
        self.members.loaded(node, event.request, event.partitions)
        if node.state == "joining":
            node.state = "ready"
            self._joins.loaded(event.now_s)
        self.members.recover(node, event.request)
        return [] if self._put_off_plan() else self._go_on(event.now_s)

    def _on_unfit(self, event: events.NodeUnfit) -> list[Instruction]:
        node = self.members.process(event.node, event.address)
        asked_again = node is not None and node.state == "unfit" and node.recovers
        if node is None or not (asked_again or node.state in ("joining", "ready", "leaving")):
            return []
        self.members.quarantine(node, event.error, event.again, event.now_s)
        self.leaving.note_last(self.book)
        return self._continue_without_quarantined(event.now_s)

    def _on_node_failed(self, event: events.NodeFailed) -> list[Instruction]:
        node = self.members.process(event.node, event.address)
        if node is None or (
            node.state not in ("joining", "ready", "leaving", "unfit") and not self.shards.serves(node.name)
        ):
            return []
        return self._fail(f"node {event.node}: {event.error}")

    def _on_notice(self, event: events.NoticeReceived) -> list[Instruction]:
        if not self.leaving.told(event):
            return []
        self.members.settle(self._busy)
        return self._answer_notices(event.now_s)

    def _drain(self, names: tuple[str, ...], seconds: float, now_s: float) -> list[Instruction]:
        self.leaving.drain(names, now_s + seconds, now_s, self.book)
        self.members.settle(self._busy)
        return self._go_on(now_s)

    def _on_lost(self, event: events.NodesLost) -> list[Instruction]:
        lost = [node for address in event.reasons if (node := self.members.at(address)) is not None]
        stayed = self.members.stays("transient")
        for node in lost:
            self.members.lose(node)
        remaining = self.members.stays("transient")
        self.tiers.loss_burst.lose(stayed - remaining, remaining, event.now_s)
        if not lost or self.state in ENDED or self.book is None:
            return []
        for node in lost:
            self.book.give_up(node.name)
        self._report_vanished({node.name for node in lost}, event.now_s)
        served = [node for node in lost if self.tiers.lose(node)]
        without = served or [node for node in lost if self.book.states.held_at(node.address)]
        if not without:
            return self._go_on(event.now_s)
        reason = loss_of([node.name for node in without], bool(served), event.reasons[without[0].address])
        if self._saving is not None and self._saving.lose_shards(reason):
            return self._replan()  # the attempt under way may have them already
        return self._recover(reason, event.now_s)

    def _report_vanished(self, nodes: Collection[str], now_s: float) -> None:
        """Report the executors of lost nodes to the driver; groups may be complete without them."""
        if self._begun and self.driver is not None:
            owners = self.members.placement.owner
            self.driver.vanished([executor for executor, owner in enumerate(owners) if owner in nodes])
            self._advance(now_s)

    def _on_shards_opened(self, event: events.ShardsOpened) -> list[Instruction]:
        if self.members.process(event.node, event.address) is None:
            return []
        if not self.shards.opened(event.node, event.shards, event.epoch):
            return []
        self._not_opened = 0
        if self._begun:  # after a rollback nothing runs
            self.members.reassign_unloaded()
        self._begun = True
        self.progress.begin(event.now_s)
        self.checkpoints.begin(event.now_s)
        return self._maps() + self._go_on(event.now_s)

    def _on_shards_not_opened(self, event: events.ShardsNotOpened) -> list[Instruction]:
        if event.epoch != self.shards.generation or not self.shards.opening or self._reopen_s is not None:
            return []
        return self._open_anew(event.shards, event.error, event.again, event.now_s)

    def _on_shards_taken(self, event: events.ShardsTaken) -> list[Instruction]:
        if self.members.process(event.node, event.address) is None or not self.shards.taken(event.shards, event.epoch):
            return []
        # Servers redirect what comes to them for shards that have moved. One that may leave by now does not for long.
        may_leave = self.members.settle(self._busy)
        self._maps_due = True
        maps = self._maps() if may_leave or not self.shards.moving else []
        return maps + self._adapt(event.now_s) + self._dispatch(event.now_s)

    def _on_memory_measured(self, event: events.MemoryMeasured) -> list[Instruction]:
        node = self.members.at(event.address)
        if node is not None:
            node.memory = event.memory
        return []

    def _on_states_taken(self, event: events.StatesTaken) -> list[Instruction]:
        book, node = self.book, self.members.process(event.node, event.address)
        if book is not None and node is not None and not node.gone:
            # A late report may be of states that the node has dropped since: those of the present attempts count.
            running = {state: book.running.get(state.executor) for state in event.states}
            present = [
                state
                for state, attempt in zip(event.states, event.attempts, strict=True)
                if (task := running[state]) is not None and (task.node, task.attempt) == (event.node, attempt)
            ]
            book.states.taken(present, event.address)
            self.members.settle(self._busy)
        return []

    def _on_backed_up(self, event: events.BackedUp) -> list[Instruction]:
        rounds = self.tiers.backups
        if not rounds.backed_up(event.address, event.number, event.shards, event.now_s, event.executors):
            return []
        self.members.settle(self._busy)
        return self._keep(event.now_s) + self._adapt(event.now_s)
