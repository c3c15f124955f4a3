"""Events and instructions of a job in words: those that concern a node or a shard.

Tasks and copies of shards are too many for a line each: those of a node are counted, and described as counts
before anything else of it is, and after `PAGE` other lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from proteus_spot.psengine.protocol import events, instructions
from proteus_spot.psengine.telemetry.event_log import EVERYBODY, Described, EventLog
from proteus_spot.psengine.telemetry.formatting import format_ranges

#: Number of lines after which everything that is counted is described.
PAGE = 1000
#: What is counted together: tasks of one node, or rounds that copy the same shards from the first node to others.
_Subject = tuple[tuple[str, ...], tuple[int, ...]]
#: Nodes and shards that are concerned, and a text.
_Line = tuple[list[str], list[int], str]


class Describer:
    """Appends descriptions to the log of a job.

    Parameters
    ----------
    wall_s : callable
        Returns the time of day, in seconds since the Unix epoch.
    """

    def __init__(self, log: EventLog, wall_s: Callable[[], float]) -> None:
        self._log, self._wall_s = log, wall_s
        self._at = 0.0
        self._clock = self._lines = 0
        #: {address: name of the node whose process is, or was, there}.
        self._names: dict[str, str] = {}
        #: Tasks sent (or rounds) and done, and the first and last clock; and what is counted of each node.
        self._counts: dict[_Subject, tuple[int, int, int, int]] = {}
        self._subjects: dict[str, dict[_Subject, None]] = {}
        #: {shard: its server, as far as it was described}; what concerns the server concerns the shard.
        self._server: dict[int, str] = {}

    def describe(
        self, event: events.Event, orders: Sequence[instructions.Instruction], clock: int, lines: Sequence[str] = ()
    ) -> None:
        """Describe an event, lines that concern all nodes, and the instructions that followed, at a common clock."""
        self._at, self._clock = round(self._wall_s(), 3), clock
        match event:
            case events.BatchDone():  # most events are this
                self._count(((event.node,), ()), 0, len(event.results), event.group)
            case _:
                self._append(self._of_event(event))
        for line in lines:
            self.flush()
            self._append([([EVERYBODY], [], line)])
        for order in orders:
            match order:
                case instructions.Dispatch():
                    self._count(((order.node,), ()), len(order.tasks), 0, order.group)
                case instructions.BackUp():
                    backups = dict.fromkeys(self._name_of(backup) for backup in order.backups if backup)
                    self._count(((order.node, *backups), order.shards), 1, 0, order.group)
                case _:
                    self._append(self._of_instruction(order))

    def flush(self, nodes: Iterable[str] | None = None) -> None:
        """Describe what is counted of `nodes`, or of all."""
        concerned = self._subjects if nodes is None else nodes
        for subject in dict.fromkeys(subject for node in concerned for subject in self._subjects.get(node, ())):
            given, done, low, high = self._counts.pop(subject)
            (node, *backups), shards = subject
            for name in dict.fromkeys(subject[0]):
                del self._subjects[name][subject]
            clocks = f"clock {low}" if low == high else f"clocks {low}-{high}"
            text = f"{node} was given {given} task(s) and did {done}, of {clocks}"
            if shards:
                to = ", ".join(backups)
                text = f"{node} copied shards {format_ranges(shards)} to {to}: {given} round(s), of {clocks}"
            self._add((list(dict.fromkeys(subject[0])), list(shards), text))
        if nodes is None:
            self._lines = 0

    def _append(self, lines: Iterable[_Line]) -> None:
        for line in lines:
            self.flush(line[0])
            self._add(line)
        if self._lines >= PAGE:
            self.flush()

    def _add(self, line: _Line) -> None:
        self._lines += 1
        self._log.append(Described(self._at, self._clock, *line))

    def _count(self, subject: _Subject, given: int, done: int, clock: int) -> None:
        before = self._counts.get(subject)
        if before is None:
            of_node = self._subjects.get(subject[0][0], ())
            if subject[1] and any(other[1] and other[0][0] == subject[0][0] for other in of_node):
                self.flush(subject[0][:1])  # it copies otherwise from now on
            for node in subject[0]:
                self._subjects.setdefault(node, {})[subject] = None
            before = 0, 0, clock, clock
        self._counts[subject] = before[0] + given, before[1] + done, min(before[2], clock), max(before[3], clock)

    def _name_of(self, address: str) -> str:
        return self._names.get(address, address)

    def _served(self, *nodes: str) -> list[int]:
        return sorted(shard for shard, node in self._server.items() if node in nodes)

    def _of_event(self, event: events.Event) -> Iterator[_Line]:
        match event:
            case events.NodeJoined(node=node, tier=tier, threads=threads):
                self._names[event.address] = node
                yield [node], [], f"{node} ({tier}, {threads} thread(s)) joined"
            case events.NodeReady(node=node, partitions=held):
                yield [node], [], f"{node} is ready: it has loaded partitions {format_ranges(held)}"
            case events.NodeUnfit(node=node, error=error) | events.NodeFailed(node=node, error=error):
                yield [node], self._served(node), f"{node} cannot go on: {error}"
            case events.NodesLost(reasons=reasons):
                for node, reason in [(self._name_of(address), reason) for address, reason in reasons.items()]:
                    yield [node], self._served(node), f"{node} is gone: {reason}"
            case events.NoticeReceived(node=node, seconds_left=left):
                yield [node], self._served(node), f"{node} has its notice: it is taken in {left:.3g} s"
            case events.DrainRequested(nodes=nodes, deadline_s=left):
                yield list(nodes), self._served(*nodes), f"{', '.join(nodes)} to be let go, within {left:.3g} s"
            case (
                events.ShardsOpened(node=node, shards=shards, epoch=epoch)
                | events.ShardsTaken(node=node, shards=shards, epoch=epoch)
            ):
                self._server |= dict.fromkeys(shards, node)
                did = "serves" if isinstance(event, events.ShardsOpened) else "has taken over"
                yield [node], list(shards), f"{node} {did} shards {format_ranges(shards)}, epoch {epoch}"
            case events.ShardsNotOpened(node=node, shards=shards, error=error):
                yield [node], list(shards), f"{node} could not open shards {format_ranges(shards)}: {error}"
            case events.CheckpointDamaged(node=node, name=name, error=error):
                yield [node], [], f"{node} found the checkpoint {name} damaged: {error}"
            case events.ShardsNotTaken(node=node, shards=shards, error=error):
                yield [node], list(shards), f"{node} could not take over shards {format_ranges(shards)}: {error}"
            case events.NotBackedUp(node=node, number=number, error=error):
                yield [node], self._served(node), f"{node} could not have its shards copied, round {number}: {error}"
            case events.BatchFailed(node=node, group=clock, tasks=tasks, error=error, recalled=False):
                which = format_ranges(partition for partition, _ in tasks)
                yield [node], [], f"{node} could not do clock {clock} of partitions {which}: {error}"

    def _of_instruction(self, order: instructions.Instruction) -> Iterator[_Line]:
        match order:
            case instructions.OpenShards(node=node, shards=shards, epoch=epoch, checkpoint=checkpoint, replicas=kept):
                state = "as they begin"
                if kept is not None:
                    state = f"as they were kept at clock {kept.group}, round {kept.number}"
                elif checkpoint is not None:
                    state = f"as the checkpoint of group {checkpoint.group} has them"
                yield [node], list(shards), f"{node} is to serve shards {format_ranges(shards)} {state}, epoch {epoch}"
            case instructions.TakeShards(node=node, from_address=address, shards=shards, epoch=epoch):
                giver = self._name_of(address)
                text = f"{node} is to take shards {format_ranges(shards)} over from {giver}, epoch {epoch}"
                yield list(dict.fromkeys([node, giver])), list(shards), text
            case instructions.UpdateShardMap(node=node, version=version):
                yield [node], [], f"{node} receives map {version}"
            case instructions.LoadPartitions(node=node, partitions=partitions):
                yield [node], [], f"{node} is to load partitions {format_ranges(partitions)}"
            case instructions.TakeStates(node=node, states=states):
                which = format_ranges(state.partition for state in states)
                yield [node], [], f"{node} is to have the states of partitions {which} sent as soon as they are left"
            case instructions.StopBackUp(node=node, number=number):
                yield [node], [], f"{node} is to copy nothing more for round {number}, which is broken off"
            case instructions.RecallTasks(node=node, group=clock):
                yield [node], [], f"{node} is to give back its tasks of clock {clock} that have not begun"
            case instructions.GatherModel(committed=clock, owners=owners):
                yield _of(owners, f"the model of clock {clock} is to be gathered")
            case instructions.SaveCheckpoint(committed=clock, owners=owners, from_replicas=kept_ones):
                whose = "its backups" if kept_ones else "its servers"
                yield _of(owners, f"clock {clock} is to be checkpointed, from {whose}")


def _of(owners: Sequence[instructions.ShardOwner], text: str) -> _Line:
    return list(dict.fromkeys(owner.node for owner in owners)), [owner.shard for owner in owners], text
