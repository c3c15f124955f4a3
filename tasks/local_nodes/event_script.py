"""Scripts of joins, notices, kills and drains of the nodes of a local training: a CSV that a user writes.

The script is read and checked as a whole: the check walks through the rows, and the nodes that exist at each row are
known beforehand. Rows are carried out from top to bottom, each at its time, once in the life of a job.

The job is held at the clock of the next event until the event occurs, so that an event happens at its clock, however
fast the clocks are. A kill then strikes during the work of the next clock: the node is stopped, the clock begun, the
node killed, so that its tasks are repeated elsewhere. The job does not wait for a new node to load, except for a
node that a later event addresses: the event waits until that node has joined.
"""

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, Literal, get_args

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import Source, read_text
from proteus_spot.infra.nodes.controller_client import ControllerClient
from proteus_spot.tasks.local_nodes.local_nodes import CONTROLLER, LocalNodes

Action = Literal["join", "notice", "kill", "drain"]

COLUMNS = ("at", "action", "node", "seconds", "count")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
#: Real seconds that a drained node has to finish its tasks, if its row gives none.
DRAIN_S = 30.0
#: Actions that are sent to the node, which must have joined.
_ADDRESSED = ("notice", "drain")


@dataclass(frozen=True)
class ScriptedEvent:
    """A scripted event of a node.

    Attributes
    ----------
    clock, second : its time: the common clock, or the real seconds since the start of the training; the other is None.
    seconds : seconds of warning (`notice`), or to finish tasks (`drain`); None for the other actions.
    """

    clock: int | None
    second: float | None
    action: Action
    node: str
    seconds: float | None = None

    @property
    def at(self) -> str:
        """The time, as written in the file."""
        return f"clock:{self.clock}" if self.clock is not None else f"second:{self.second:g}"

    def due(self, clock: int, elapsed_s: float) -> bool:
        """Return whether the event is due at this clock and after these real seconds."""
        return clock >= self.clock if self.clock is not None else elapsed_s >= (self.second or 0.0)

    def record(self) -> dict[str, Any]:
        """Return the event as a JSON object."""
        return {"at": self.at, **{name: value for name, value in asdict(self).items() if name in COLUMNS}}


def transient_name(number: int) -> str:
    """Return the default name of a transient node."""
    return f"t{number}"


def read_script(source: Source, tiers: Mapping[str, str], clocks: int | None) -> tuple[ScriptedEvent, ...]:
    """Return the events of a file, in its order.

    Parameters
    ----------
    tiers : {node: tier} of the nodes at the start.
    clocks : the job's last clock; None if it has another stopping criterion.

    Raises
    ------
    InputError
        Naming the file, the line, and the fix.
    """
    validator = _ScriptValidator(tiers, clocks)
    events: list[ScriptedEvent] = []
    for line, row in _rows(source):
        try:
            events += validator.take(row)
        except ValueError as error:
            raise InputError(f"{source}: line {line}: {error}") from None
    if not events:
        raise InputError(f"{source}: has no events; write lines of {','.join(COLUMNS[:3])}, or leave it out")
    return tuple(events)


def there_after(tiers: Mapping[str, str], events: Sequence[ScriptedEvent]) -> dict[str, str]:
    """Return {node: tier} of the nodes that remain after `events`."""
    remaining = dict(tiers)
    for event in events:
        if event.action == "join":
            remaining[event.node] = "transient"
        else:
            remaining.pop(event.node, None)
    return remaining


def _rows(source: Source) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line, row by column) of each line that is neither empty nor a comment; a header line is optional."""
    columns: Sequence[str] = COLUMNS
    reader = csv.reader(read_text(source).splitlines(), strict=True)
    first = True
    try:
        for cells in reader:
            row = [cell.strip() for cell in cells]
            if not any(row) or row[0].startswith("#"):
                continue
            line = reader.line_num
            if first and "at" in row:
                columns, first = row, False
                bad = [name for name in row if name not in COLUMNS or row.count(name) > 1]
                if bad:
                    raise InputError(f"{source}: line {line}: column {bad[0]!r}; the columns are {', '.join(COLUMNS)}")
                continue
            first = False
            if len(row) > len(columns):
                raise InputError(f"{source}: line {line}: has {len(row)} cells; the columns are {', '.join(columns)}")
            yield line, dict(zip(columns, row, strict=False))
    except csv.Error as error:
        raise InputError(f"{source}: line {reader.line_num}: is not CSV ({error}); fix the line") from None


class _ScriptValidator:
    """Checks the rows in order; tracks the present and the leaving nodes, and the earliest possible time."""

    def __init__(self, tiers: Mapping[str, str], clocks: int | None) -> None:
        self._present = dict(tiers)
        self._reliable = frozenset(name for name, tier in tiers.items() if tier == "reliable")
        self._used_names = set(tiers)
        self._leaving: set[str] = set()
        self._clocks = clocks
        self._clock, self._second = 0, 0.0

    def take(self, row: Mapping[str, str]) -> list[ScriptedEvent]:
        """Return the events of a row; `ValueError` if it is invalid."""
        clock, second = self._time(row.get("at", ""))
        action: Any = row.get("action", "")
        if action not in get_args(Action):
            raise ValueError(f"action {action!r} is unknown; there are {', '.join(get_args(Action))}")
        seconds = self._seconds(action, row.get("seconds", ""))
        if action == "join":
            names = self._join(row.get("node", ""), row.get("count", ""))
        else:
            if row.get("count"):
                raise ValueError(f"count {row['count']}: only a join has one; leave it empty, and write a line a node")
            names = [self._leave(action, row.get("node", ""))]
        return [ScriptedEvent(clock, second, action, name, seconds) for name in names]

    def _time(self, text: str) -> tuple[int | None, float | None]:
        kind, _, value = text.partition(":")
        if kind == "clock" and value.isdecimal():
            clock = int(value)
            if self._clocks is not None and clock >= self._clocks:
                raise ValueError(f"{text} never comes: the job ends at clock {self._clocks}; give an earlier one")
            if clock < self._clock:
                raise ValueError(f"{text} comes after clock:{self._clock}; put the lines in order of time")
            self._clock = clock
            return clock, None
        if kind == "second":
            try:
                second = float(value)
            except ValueError:
                second = math.nan
            if math.isfinite(second) and second >= 0:
                if second < self._second:
                    raise ValueError(f"{text} comes after second:{self._second:g}; put the lines in order of time")
                self._second = second
                return None, second
        raise ValueError(f"at {text!r} is not a time; write clock:N or second:S")

    def _seconds(self, action: str, text: str) -> float | None:
        if action not in ("notice", "drain"):
            if text:
                raise ValueError(f"seconds {text}: only notice and drain have them; leave it empty")
            return None
        if not text and action == "drain":
            return DRAIN_S
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if not math.isfinite(seconds) or seconds < 0:
            raise ValueError(f"seconds {text!r}: a {action} needs a number of seconds from 0, as in 30")
        return seconds

    def _join(self, name: str, text: str) -> list[str]:
        if name and text:
            raise ValueError("a join has a node's name or a count, not both")
        if text and (not text.isdecimal() or not 1 <= int(text) <= 64):
            raise ValueError(f"count {text!r}: want a number from 1 to 64")
        names = [name] if name else []
        if not name:
            free = (transient_name(number) for number in count(1) if transient_name(number) not in self._used_names)
            names = [next(free) for _ in range(int(text or 1))]
        elif not _NAME.fullmatch(name) or name == CONTROLLER:
            raise ValueError(f"node {name!r}: want up to 40 lower-case letters, digits and dashes, as in t9")
        elif name in self._present:
            raise ValueError(f"node {name} exists already; give another name, or none")
        elif name in self._leaving:
            raise ValueError(f"node {name} may still be leaving; give the new node another name, or none")
        elif name in self._reliable:
            raise ValueError(f"node {name} was a reliable one and nodes that join are transient; give another name")
        for joined in names:
            self._present[joined] = "transient"
            self._used_names.add(joined)
        return names

    def _leave(self, action: str, name: str) -> str:
        if not name:
            raise ValueError(f"a {action} needs a node's name")
        if name in self._leaving and action == "kill":
            self._leaving.discard(name)
            return name
        if name not in self._present:
            present = ", ".join(self._present) or "none"
            raise ValueError(f"node {name} does not exist at that time; there are {present}")
        if name in self._reliable and action != "kill":
            raise ValueError(f"node {name} is reliable and serves the model: it can only be killed")
        del self._present[name]
        if action != "kill":
            self._leaving.add(name)
        return name


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
