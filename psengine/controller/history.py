"""Records of a job, which decide nothing: its event log, bytes moved, evaluations.

It looks at the controller after each event, and appends to the log what differs from before. So each change of the
nodes is seen in one place, whatever its cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.evaluation_schedule import Evaluating
from proteus_spot.psengine.membership.membership import Membership
from proteus_spot.psengine.membership.node_record import NodeRecord
from proteus_spot.psengine.protocol.events import BatchDone, Evaluated, Event
from proteus_spot.psengine.protocol.instructions import Instruction
from proteus_spot.psengine.scheduling.stopping import StoppingRule
from proteus_spot.psengine.scheduling.task_table import TaskTable
from proteus_spot.psengine.telemetry import event_log
from proteus_spot.psengine.telemetry.byte_counts import Traffic
from proteus_spot.psengine.telemetry.training_progress import TrainingProgress
from proteus_spot.psengine.tiers.tier_manager import Tiers

#: (name, tier, state, gone, noticed) of a process.
_Seen = tuple[str, str, str, bool, bool]


class History:
    """The records of one job."""

    def __init__(self, members: Membership, tiers: Tiers, stopping: StoppingRule, progress: TrainingProgress) -> None:
        self._members, self._tiers, self._stopping, self._progress = members, tiers, stopping, progress
        self.log = event_log.EventLog()
        self.traffic = Traffic()
        self.evaluating = Evaluating()
        #: Changes that are not carried out yet: each with the node's address, and the group that is to be common.
        self._open: list[tuple[event_log.NodeChanged, str, int]] = []
        #: Nodes by address, the stage, and the shards' servers and backups, when it last looked.
        self._seen: dict[str, _Seen] = {}
        self._stage = 0
        self._maps: tuple[object, object] = (None, None)
        self._shards: dict[int, list[str | None]] = {}
        #: The last committed group, and the number of complete clocks, when it last looked.
        self.common = self.clock = 0
        self._idle_since: float | None = None

    def note(
        self, event: Event, job: tuple[JobConfig, TaskTable] | None, training: bool, gathering: bool
    ) -> list[Instruction]:
        """Note the effect of `event`; return the evaluations that it makes due.

        `job`: None before there is one, and once it has a result. `training` and `gathering`: see `ControllerState`.
        """
        progress = self._progress
        layouts, self._tiers.changes = self._tiers.changes, []
        for lines in layouts:
            self.log.append(event_log.LayoutChanged(tuple(lines)))
        if isinstance(event, Evaluated):
            self.evaluating.take(event.group, event.generation, event.metrics, progress.clock_at(event.group))
            return []
        if job is None:
            return []
        config, tasks = job
        if isinstance(event, BatchDone) and tasks.common == self.common and not self._members.index.has_changed:
            return []  # most events are this; their effect is noted at the end of the clock
        second = progress.seconds(event.now_s)
        nodes = self._note_nodes(tasks, training, second)
        self._note_hold(tasks, training and not gathering, second)
        self.clock = progress.clock_at(tasks.common)
        self._note_state(second, nodes)
        before, self.common = self.common, tasks.common
        if tasks.common < before:
            self.evaluating.roll_back(tasks.common, self.clock)
        return [
            *self.evaluating.instructions(
                config,
                {group: progress.complete_at(group) for group in range(before + 1, tasks.common + 1)},
                self._stopping.last_clock,
                self._tiers.shards.owners,
                self._tiers.shards.generation,
                tasks.states.at,
            )
        ]

    def note_memory(self, clock: int, memory: Mapping[str, int], n_nodes: int) -> None:
        """Note the memory of all nodes, by kind, at the end of `clock`, or after it."""
        self.log.append(event_log.MemoryUsed(clock, memory["tables"], memory["states"], memory["input"], n_nodes))

    def go_on(self, summary: Mapping[str, Any], group: int) -> None:
        """Take over the history of a job that goes on from a checkpoint of `group` (see `figures`)."""
        self.traffic.go_on(summary)
        self.evaluating.go_on(summary.get("metrics_by_clock", []))
        until = float(summary["seconds"])  # changes that were open then ended with the restart
        changes = summary.get("changes", ())
        self.log.read({**summary, "changes": [{**change, "until": change["until"] or until} for change in changes]})
        self.common, self.clock = group, int(summary.get("clocks", group))

    @property
    def changes(self) -> list[dict[str, Any]]:
        """Changes of nodes, as `stalls` has them, in order of time."""
        changes = [*self.log.of(event_log.NodeChanged), *(change for change, *_ in self._open)]
        return [change.record() for change in sorted(changes, key=attrgetter("second"))]

    def figures(self, clock: int, seconds: float) -> dict[str, Any]:
        """Return what there was at `clock`, `seconds` after the training began; JSON-able. Bytes are those of now."""
        # Of a repeated clock the last one.
        memory = {event.clock: event.record() for event in self.log.of(event_log.MemoryUsed)}
        return {
            **self.traffic.figures(),
            "bytes_by_link": self.traffic.links(),
            "metrics_by_clock": self.evaluating.series(clock),
            "changes": [change for change in self.changes if change["second"] <= seconds],
            "memory_by_clock": [memory[at] for at in sorted(memory) if at <= clock],
            "held": [event.record() for event in self.log.of(event_log.Held) if event.second <= seconds],
            "releases": [event.record() for event in self.log.of(event_log.NodeReleased) if event.second <= seconds],
            "timeline": [event.record() for event in self.log.of(event_log.StateChanged) if event.second <= seconds],
        }

    def _note_hold(self, tasks: TaskTable, training: bool, second: float) -> None:
        """Note whether the job is held: all is done that may be, and it is not the end."""
        limits = self._stopping
        held = (
            training
            and not tasks.running
            and limits.limit is not None
            and limits.limit != limits.last_clock
            and tasks.common >= limits.limit
        )
        if held and self._idle_since is None:
            self._idle_since = second
        elif not held and self._idle_since is not None:
            self.log.append(event_log.Held(self._idle_since, second))
            self._idle_since = None

    def _note_state(self, second: float, nodes: Mapping[str, list[str]]) -> None:
        """Note what the job looks like, where that differs from before."""
        owners, replicas = maps = self._tiers.shards.owners, self._tiers.backups.replicas
        moved: dict[str, list[str | None]] = {}
        if maps[0] is not self._maps[0] or maps[1] is not self._maps[1]:
            pairs = [(owner, replicas.get(owner.shard)) for owner in owners]
            shards = {owner.shard: [owner.node, None if copy is None else copy.node] for owner, copy in pairs}
            moved = {str(shard): pair for shard, pair in shards.items() if self._shards.get(shard) != pair}
            self._maps, self._shards = maps, shards
        stage = self._tiers.stage if self._tiers.stage != self._stage else 0
        self._stage = self._tiers.stage
        if stage or nodes or moved:
            self.log.append(event_log.StateChanged(round(second, 4), self.clock, stage, nodes, moved))

    def _note_nodes(self, tasks: TaskTable, training: bool, second: float) -> dict[str, list[str]]:
        """Note changes of nodes; return [tier, state] of those that look different."""
        looks: dict[str, list[str]] = {}
        for address, node in self._members.index.take_changed().items():
            was = self._seen.pop(address, None)
            now = None if node is None else (node.name, node.tier, node.state, node.gone, node.noticed)
            if now is None:
                self.traffic.forget(address)
            else:
                self._seen[address] = now
                if was is None:
                    self.traffic.joined(address, now[0])
                if was is None or _look(was) != _look(now):
                    looks[now[0]] = _look(now)
            if self._progress.started_s is not None:  # nodes that are present at the beginning do not join
                for event in _events(was, now):
                    self._begin(event, (now or was or ("",))[0], address, tasks, second)
                self._note_release(address, was, now, second)
        if self._progress.started_s is not None:
            self._settle(tasks, training, second)
        return looks

    def _note_release(self, address: str, was: _Seen | None, now: _Seen | None, second: float) -> None:
        """Note when a node is drained, and how long that is after it was asked to leave."""
        if now is None or now[2] != "drained" or (was is not None and was[2] == "drained"):
            return
        asked = [one for one, at, _ in self._open if at == address and one.event in ("notice", "drain")]
        for change in asked[:1]:
            self.log.append(event_log.NodeReleased(now[0], change.event, change.second, second - change.second))

    def _begin(self, event: str, name: str, address: str, tasks: TaskTable, second: float) -> None:
        common = tasks.last_dispatched if event in ("loss", "eviction") else 0
        self._open.append((event_log.NodeChanged(event, name, second, None), address, common))

    def _settle(self, tasks: TaskTable, training: bool, second: float) -> None:
        """Note which changes are carried out by now."""
        if not self._open or not training or not self._tiers.settled:
            return
        left = []
        for change, address, clock in self._open:
            node = self._members.index.record(address)
            if _carried_out(change.event, node) and tasks.common >= clock:
                self.log.append(replace(change, until=second))
            else:
                left.append((change, address, clock))
        self._open = left


def _look(seen: _Seen) -> list[str]:
    _, tier, state, gone, _ = seen
    return [tier, "gone" if gone else state]


def _events(was: _Seen | None, node: _Seen | None) -> list[str]:
    """Return what has happened to a process, from what it was and is."""
    if node is None:  # another process has taken its place
        return [] if was is None or was[3] else ["eviction" if was[4] else "loss"]
    *_, state, gone, noticed = node
    before_state, was_gone, was_noticed = ("", False, False) if was is None else was[2:]
    found = [] if was is not None else ["join"]
    if noticed and not was_noticed:
        found.append("notice")
    elif state in ("draining", "drained") and before_state not in ("draining", "drained") and not noticed:
        found.append("drain")
    if gone and not was_gone and (noticed or state != "drained"):
        found.append("eviction" if noticed else "loss")
    return found


def _carried_out(event: str, node: NodeRecord | None) -> bool:
    if node is None or node.gone:
        return True
    return node.state != "joining" if event == "join" else node.state in ("drained", "lost")
