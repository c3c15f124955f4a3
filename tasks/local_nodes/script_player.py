"""Script of joins, notices, kills and drains: each is carried out at its time, once in the life of a job.

The job is held at the clock of the next event until the event occurs, so that an event happens at its clock, however
fast the clocks are. A kill then strikes during the work of the next clock: the node is stopped, the clock begun, the
node killed, so that its tasks are repeated elsewhere. The job does not wait for a new node to load, except for a
node that a later event addresses: the event waits until that node has joined.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from proteus_spot.infra.nodes.controller_client import ControllerClient
from proteus_spot.tasks.local_nodes.event_script import ScriptedEvent
from proteus_spot.tasks.local_nodes.local_nodes import LocalNodes

#: Actions that are sent to the node, which must have joined.
_ADDRESSED = ("notice", "drain")


def _before_kills(due: list[ScriptedEvent], clock: int | None) -> list[ScriptedEvent]:
    """Return the events up to the first kill of `clock`, where the job is held: a kill strikes during the next clock.

    All of them if a node joins after that kill: it may be the node that is waited for.
    """
    kills = [
        at for at, event in enumerate(due) if event.action == "kill" and clock is not None and event.clock == clock
    ]
    if not kills or any(event.action == "join" for event in due[kills[0] :]):
        return due
    return due[: kills[0]]


class NodeEventScript:
    """The events of a job: those carried out, with their records, and those to come.

    Parameters
    ----------
    events : the whole script.
    records : records of the events carried out before; these are the first events of `events`.
    """

    def __init__(self, events: Sequence[ScriptedEvent], records: Sequence[Mapping[str, Any]] = ()) -> None:
        self._events = tuple(events)
        self.records: list[dict[str, Any]] = [dict(record) for record in records]
        #: {node: real second at which its notice runs out}
        self._taken_at: dict[str, float] = {}
        #: {node: real second at which it is released at the latest}
        self._let_go_at: dict[str, float] = {}

    @property
    def applied_events(self) -> tuple[ScriptedEvent, ...]:
        """The events that were carried out."""
        return self._events[: len(self.records)]

    @property
    def to_come(self) -> tuple[ScriptedEvent, ...]:
        """The events that are still to come."""
        return self._events[len(self.records) :]

    @property
    def hold_at(self) -> int | None:
        """The clock at which the job is to be held: that of the next event, if it has one."""
        return self.to_come[0].clock if self.to_come else None

    def carry_out(
        self, nodes: LocalNodes, client: ControllerClient, status: Mapping[str, Any], now_s: float, threads: int
    ) -> list[str]:
        """Carry out the events that are due by `status`; return a line for each."""
        self._see_off(nodes, status, now_s)
        if not self.to_come or status["elapsed_s"] is None:
            return []
        clock, elapsed_s = int(status["clock"]), float(status["elapsed_s"])
        joined = {node["name"] for node in status["nodes"] if not node["gone"]}
        coming = set(nodes.running) - joined
        due: list[ScriptedEvent] = []
        for event in self.to_come:
            if not event.due(clock, elapsed_s):
                break
            if event.action in _ADDRESSED and event.node in coming:
                due = _before_kills(due, event.clock)
                break
            due.append(event)
            if event.action == "join":
                coming.add(event.node)
        if not due:
            return []
        joining = {event.node for event in due if event.action == "join"}
        struck = [e for e in due if e.action == "kill" and e.clock is not None and e.node not in joining]
        for event in due:
            if event not in struck:
                self._do(event, nodes, client, now_s, threads)
        self.records += [{**event.record(), "clock": clock, "elapsed_s": round(elapsed_s, 3)} for event in due]
        for event in struck:
            nodes.freeze(event.node)
        client.hold(self.hold_at)
        for event in struck:
            self._do(event, nodes, client, now_s, threads)
        return [f"clock {clock}: {event.action} {event.node}" for event in due]

    def _do(
        self, event: ScriptedEvent, nodes: LocalNodes, client: ControllerClient, now_s: float, threads: int
    ) -> None:
        match event.action:
            case "join":
                nodes.start(event.node, "transient", threads)
            case "kill":
                self._taken_at.pop(event.node, None)
                self._let_go_at.pop(event.node, None)
                nodes.kill(event.node)
            case "notice":
                client.notice(event.node, event.seconds or 0.0)
                self._taken_at[event.node] = now_s + (event.seconds or 0.0)
            case "drain":
                client.drain([event.node], event.seconds or 0.0)
                self._let_go_at[event.node] = now_s + (event.seconds or 0.0)

    def _see_off(self, nodes: LocalNodes, status: Mapping[str, Any], now_s: float) -> None:
        """End the nodes whose notice has run out, and those that have drained."""
        for name in [name for name, at_s in self._taken_at.items() if now_s >= at_s]:
            del self._taken_at[name]
            nodes.kill(name)
        drained = {node["name"] for node in status["nodes"] if node["state"] in ("drained", "lost")}
        for name in [name for name, at_s in self._let_go_at.items() if now_s >= at_s or name in drained]:
            del self._let_go_at[name]
            nodes.let_go(name)
