"""What is told of a job and decides nothing: bytes moved, changes of its nodes, what it looked like, evaluations.

It looks at the controller after each event. So whatever comes or goes, however it comes about, is seen in one place:
the nodes as they are, beside what they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from psengine.config import JobConfig, Stage
from psengine.controller.evaluation_schedule import Evaluating
from psengine.membership.membership import Membership
from psengine.membership.node_record import NodeRecord
from psengine.protocol.events import BatchDone, BytesMoved, Evaluated, Event
from psengine.protocol.instructions import Instruction
from psengine.scheduling.micro_tasks import MicroTaskTable
from psengine.scheduling.stopping import StoppingRule
from psengine.telemetry.byte_counts import Traffic
from psengine.telemetry.timeline import Timeline
from psengine.telemetry.training_progress import TrainingProgress
from psengine.tiers.shard_map import ShardMap
from psengine.tiers.tier_manager import Tiers

#: Number of changes beyond which half of the older ones that are carried out are dropped.
MOST_CHANGES = 4000


class Observed(Protocol):
    """What the history looks at: the state of a controller after an event."""

    config: JobConfig | None
    book: MicroTaskTable | None
    members: Membership
    tiers: Tiers
    stopping: StoppingRule
    progress: TrainingProgress
    result: dict[str, object] | None

    @property
    def shards(self) -> ShardMap:
        """Which node serves which shard."""
        ...

    @property
    def stage(self) -> Stage:
        """The stage of AgileML."""
        ...

    @property
    def gathering(self) -> bool:
        """Whether the model is being gathered."""
        ...

    @property
    def training(self) -> bool:
        """Whether the shards are open and the job has not ended."""
        ...


class History:
    """The history of one job."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.timeline = Timeline()
        self.evaluating = Evaluating()
        #: as `stalls` wants them: event, node, second, until
        self.changes: list[dict[str, Any]] = []
        #: [clock, bytes of tables, of states, of input, number of nodes] of common clocks
        self.memory: list[list[int]] = []
        #: (begin, end) of the times in which the job was held
        self.held: list[tuple[float, float]] = []
        #: Of each node that was asked to go and is drained: node, event, second of the event, seconds until drained.
        self.releases: list[dict[str, Any]] = []
        #: {address: (notice or drain, second) of a node that was asked to go}.
        self._asked: dict[str, tuple[str, float]] = {}
        self._open: list[tuple[dict[str, Any], str, int]] = []  # change, address, clock that is to be common
        #: {address: (name, state, gone, noticed)} when it last looked.
        self._seen: dict[str, tuple[str, str, bool, bool]] = {}
        #: What the shards' servers and replicas were seen in.
        self._seen_shards: tuple[object, object] = (None, None)
        #: The last committed group, and the number of complete clocks, when it last looked.
        self.common = self.clock = 0
        self._idle_since: float | None = None

    def note(self, event: Event, controller: Observed) -> list[Instruction]:
        """Note what `event` has come to; return what is to be evaluated by that."""
        if isinstance(event, BytesMoved):
            self.traffic.note(event.address, event.moved)
            return []
        book, config = controller.book, controller.config
        if isinstance(event, Evaluated):
            clock = controller.progress.clock_at(event.clock)
            self.evaluating.take(event.clock, event.generation, event.metrics, clock)
            return []
        if book is None or config is None or controller.result is not None:
            return []
        if isinstance(event, BatchDone) and book.common == self.common and not controller.members.index.has_changed:
            return []  # most events are this, and the end of the clock tells what they have come to
        second = controller.progress.seconds(event.now_s)
        changed = controller.members.index.take_changed()
        self._note_changes(controller, second, changed)
        self._note_hold(controller, second)
        nodes = {
            node.name: (node.tier, "gone" if node.gone else node.state) for node in changed.values() if node is not None
        }
        progress = controller.progress
        self.clock = progress.clock_at(book.common)
        self.timeline.look(second, self.clock, controller.stage, nodes, self._shards(controller))
        before, self.common = self.common, book.common
        if book.common < before:
            self.evaluating.roll_back(book.common, self.clock)
        return [
            *self.evaluating.instructions(
                config,
                {group: progress.completed_by(group) for group in range(before + 1, book.common + 1)},
                controller.stopping.last_clock,
                controller.shards.owners,
                controller.shards.generation,
                book.states.at,
            )
        ]

    def note_memory(self, clock: int, memory: Mapping[str, int], n_nodes: int) -> None:
        """Note the memory of all nodes, by kind, at the end of `clock`, or after it."""
        while self.memory and self.memory[-1][0] >= clock:
            self.memory.pop()  # the job has rolled back since
        self.memory.append([clock, memory["tables"], memory["states"], memory["input"], n_nodes])
        if len(self.memory) > MOST_CHANGES:
            half = len(self.memory) // 2
            self.memory = self.memory[:half:2] + self.memory[half:]

    def go_on(self, summary: Mapping[str, Any], group: int) -> None:
        """Take over the history of a job that goes on from a checkpoint of `group` (see `figures`)."""
        self.traffic.go_on(summary)
        self.timeline.go_on(summary.get("timeline", []))
        self.evaluating.go_on(summary.get("metrics_by_clock", []))
        until = float(summary["seconds"])  # whoever came or went then, all began anew
        self.changes = [
            {**change, "until": until if change["until"] is None else change["until"]}
            for change in summary.get("changes", [])
        ]
        self.memory = [list(entry) for entry in summary.get("memory_by_clock", [])]
        self.held = [(float(begin), float(end)) for begin, end in summary.get("held", [])]
        self.releases = [dict(release) for release in summary.get("releases", [])]
        self.common, self.clock = group, int(summary.get("clocks", group))

    def figures(self, clock: int, seconds: float) -> dict[str, Any]:
        """Return what there was at `clock`, `seconds` after the training began; JSON-able. Bytes are those of now."""
        return {
            **self.traffic.figures(),
            "bytes_by_link": self.traffic.links(),
            "metrics_by_clock": self.evaluating.series(clock),
            "changes": [dict(change) for change in self.changes if change["second"] <= seconds],
            "memory_by_clock": [list(entry) for entry in self.memory if entry[0] <= clock],
            "held": [list(span) for span in self.held if span[0] <= seconds],
            "releases": [dict(release) for release in self.releases if release["second"] <= seconds],
            "timeline": [dict(entry) for entry in self.timeline.entries if entry["second"] <= seconds],
        }

    def _note_hold(self, controller: Observed, second: float) -> None:
        """Note whether the job is held: all is done that may be, and it is not the end."""
        limits, book = controller.stopping, controller.book
        assert book is not None
        held = (
            controller.training
            and not controller.gathering
            and not book.running
            and limits.limit is not None
            and limits.limit != limits.last_clock
            and book.common >= limits.limit
        )
        if held and self._idle_since is None:
            self._idle_since = second
        elif not held and self._idle_since is not None:
            self.held.append((self._idle_since, second))
            self._idle_since = None

    def _note_changes(self, controller: Observed, second: float, changed: Mapping[str, NodeRecord | None]) -> None:
        for address, node in changed.items():
            was = self._seen.pop(address, None)
            now = None if node is None else (node.name, node.state, node.gone, node.noticed)
            if now is None:
                self.traffic.forget(address)
            else:
                self._seen[address] = now
                if was is None:
                    self.traffic.joined(address, now[0])
            if controller.progress.started_s is None:
                continue  # nodes that are present at the beginning do not join
            self._note_release(address, was, now, second)
            for event in _events(was, now):
                self._begin(event, (now or was or ("",))[0], address, controller, second)
        if controller.progress.started_s is not None:
            self._settle(controller, second)

    def _note_release(
        self,
        address: str,
        was: tuple[str, str, bool, bool] | None,
        now: tuple[str, str, bool, bool] | None,
        second: float,
    ) -> None:
        """Note when a node was asked to go, and how long after that it was drained."""
        if now is not None and address not in self._asked:
            asked = [event for event in _events(was, now) if event in ("notice", "drain")]
            self._asked.update((address, (event, second)) for event in asked[:1])
        if now is None or (now[1] == "drained" and (was is None or was[1] != "drained")) or now[2]:
            event, since = self._asked.pop(address, ("", 0.0))
            if event and now is not None and now[1] == "drained":
                self.releases.append({"node": now[0], "event": event, "second": since, "seconds": second - since})
                del self.releases[:-MOST_CHANGES]

    def _shards(self, controller: Observed) -> tuple[tuple[str | None, str | None], ...] | None:
        """Return the server and the backup owner of each shard; None if neither map has changed."""
        seen = controller.shards.owners, controller.tiers.backups.replicas
        if seen[0] is self._seen_shards[0] and seen[1] is self._seen_shards[1]:
            return None
        self._seen_shards = seen
        owners, replicas = seen
        return tuple(
            (owner.node, None if (backup := replicas.get(owner.shard)) is None else backup.node) for owner in owners
        )

    def _begin(self, event: str, name: str, address: str, controller: Observed, second: float) -> None:
        assert controller.book is not None
        change = {"event": event, "node": name, "second": second, "until": None}
        self.changes.append(change)
        if len(self.changes) > MOST_CHANGES:
            self.changes = _thinned(self.changes)
        lost = event in ("loss", "eviction")
        self._open.append((change, address, controller.book.last_dispatched if lost else 0))

    def _settle(self, controller: Observed, second: float) -> None:
        """Note which changes are carried out by now."""
        if not self._open or not controller.training or not controller.tiers.settled:
            return
        assert controller.book is not None
        left = []
        for change, address, clock in self._open:
            node = controller.members.index.record(address)
            if _carried_out(change["event"], node) and controller.book.common >= clock:
                change["until"] = second
            else:
                left.append((change, address, clock))
        self._open = left


def _thinned(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the changes without every second one of the older half, of those that are carried out."""
    half = len(changes) // 2
    over = [change for change in changes[:half] if change["until"] is not None]
    dropped = {id(change) for change in over[::2]}
    return [change for change in changes if id(change) not in dropped]


def _events(was: tuple[str, str, bool, bool] | None, node: tuple[str, str, bool, bool] | None) -> list[str]:
    """Return what has happened to a process, by (name, state, gone, noticed) before and after."""
    if node is None:  # another process has taken its place
        return [] if was is None or was[2] else ["eviction" if was[3] else "loss"]
    _, state, gone, noticed = node
    before_state, was_gone, was_noticed = ("", False, False) if was is None else was[1:]
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
