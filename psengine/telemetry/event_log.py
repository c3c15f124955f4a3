"""The story of a job: each event and instruction that touched a node or a shard, as entries for people.

Micro-tasks and copies of shards are too many to be told one by one: those of a node are told as counts, whenever
something else is told of it, and at the end of a page. Entries are JSON-able dicts:

    at      seconds on the teller's clock
    clock   the common clock
    nodes   names of those whom it touched; `EVERYBODY` where it touched all nodes and shards
    shards  numbers of those that it touched
    text    what happened, in words
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from psengine.protocol import events, instructions
from psengine.telemetry.formatting import format_ranges

Entry = dict[str, Any]
#: In place of a node's name: all nodes and all shards.
EVERYBODY = "*"
#: micro-tasks given, done, and their first and last clock
_Work = tuple[int, int, int, int]
_Told = tuple[list[str], list[int], str]


@dataclass
class _Copied:
    """Rounds of copies of the same shards, to the same keepers."""

    shards: tuple[int, ...]
    keepers: tuple[str, ...]
    rounds: int
    low: int
    high: int


class Teller:
    """Turns events and instructions into entries.

    Parameters
    ----------
    name_of : callable
        Returns the name of the node whose process is, or was, at an address; the address where there is none.
    """

    def __init__(self, name_of: Callable[[str], str]) -> None:
        self._name_of = name_of
        #: by node, what is yet to be told
        self._work: dict[str, _Work] = {}
        self._copied: dict[str, _Copied] = {}
        #: {keeper: the servers in `_copied` that copy to it}
        self._copies_at: dict[str, dict[str, None]] = {}
        #: who serves each shard, as far as it was told: what befalls him touches it
        self._server: dict[int, str] = {}

    def hear(self, event: events.Event, at: float, clock: int) -> list[Entry]:
        """Return the entries of an event; most have none."""
        match event:
            case events.BatchDone():
                self._count(event.node, 0, len(event.results), event.clock)
            case events.BackedUp():
                pass  # the order was told
            case events.NodesLost(reasons=reasons):
                gone = [(self._name_of(address), reason) for address, reason in reasons.items()]
                return [
                    entry
                    for name, reason in gone
                    for entry in self._entries(([name], self._served(name), f"{name} is gone: {reason}"), at, clock)
                ]
            case _:
                told = self._event(event)
                if isinstance(event, events.ShardsOpened | events.ShardsTaken):
                    self._server |= dict.fromkeys(event.shards, event.node)
                return [] if told is None else self._entries(told, at, clock)
        return []

    def order(self, order: instructions.Instruction, at: float, clock: int) -> list[Entry]:
        """Return the entries of an instruction."""
        if isinstance(order, instructions.Dispatch):
            self._count(order.node, len(order.tasks), 0, order.clock)
            return []
        if isinstance(order, instructions.BackUp):
            return self._copy(order, at, clock)
        if isinstance(order, instructions.Evaluate):
            return []  # it touches nobody: the servers answer from what they have marked
        return self._entries(self._order(order), at, clock)

    def say(self, text: str, at: float, clock: int) -> list[Entry]:
        """Return the entries of something that touches everybody."""
        return [*self.flush(at, clock), _entry(([EVERYBODY], [], text), at, clock)]

    def flush(self, at: float, clock: int, nodes: Iterable[str] | None = None) -> list[Entry]:
        """Return what is yet to be told of `nodes`, or of all."""
        out: list[Entry] = []
        touched = None if nodes is None else dict.fromkeys(nodes)
        for node in list(self._work) if touched is None else [node for node in touched if node in self._work]:
            given, done, low, high = self._work.pop(node)
            text = f"{node} was given {given} micro-task(s) and did {done}, of {_clocks(low, high)}"
            out.append(_entry(([node], [], text), at, clock))
        for server in list(self._copied) if touched is None else self._copies_of(touched):
            copied = self._copied.pop(server)
            for keeper in copied.keepers:
                self._copies_at.get(keeper, {}).pop(server, None)
            where = ", ".join(copied.keepers)
            shards, clocks = format_ranges(copied.shards), _clocks(copied.low, copied.high)
            text = f"{server} copied shards {shards} to {where}: {copied.rounds} round(s), of {clocks}"
            out.append(_entry((list(dict.fromkeys([server, *copied.keepers])), list(copied.shards), text), at, clock))
        return out

    def _copies_of(self, nodes: Iterable[str]) -> list[str]:
        """Return the servers with unreported copies that one of `nodes` has sent or received."""
        found: dict[str, None] = {}
        for node in nodes:
            if node in self._copied:
                found[node] = None
            found |= self._copies_at.get(node, {})
        return list(found)

    def _count(self, node: str, given: int, done: int, clock: int) -> None:
        before = self._work.get(node, (0, 0, clock, clock))
        self._work[node] = before[0] + given, before[1] + done, min(before[2], clock), max(before[3], clock)

    def _copy(self, order: instructions.BackUp, at: float, clock: int) -> list[Entry]:
        keepers = tuple(dict.fromkeys(self._name_of(keeper) for keeper in order.backup_owners if keeper))
        last, out = self._copied.get(order.node), list[Entry]()
        if last is not None and (last.shards, last.keepers) != (order.shards, keepers):
            out, last = self.flush(at, clock, [order.node]), None
        if last is None:
            last = self._copied[order.node] = _Copied(order.shards, keepers, 0, order.clock, order.clock)
            for keeper in keepers:
                self._copies_at.setdefault(keeper, {})[order.node] = None
        last.rounds, last.high = last.rounds + 1, order.clock
        return out

    def _served(self, *nodes: str) -> list[int]:
        """Return the shards that these serve."""
        return sorted(shard for shard, node in self._server.items() if node in nodes)

    def _entries(self, told: _Told, at: float, clock: int) -> list[Entry]:
        return [*self.flush(at, clock, told[0]), _entry(told, at, clock)]

    def _event(self, event: events.Event) -> _Told | None:
        match event:
            case events.NodeJoined(node=node, tier=tier, threads=threads):
                return [node], [], f"{node} ({tier}, {threads} thread(s)) joined"
            case events.NodeReady(node=node, partitions=held):
                return [node], [], f"{node} is ready: it has loaded partitions {format_ranges(held)}"
            case events.NodeUnfit(node=node, error=error) | events.NodeFailed(node=node, error=error):
                return [node], self._served(node), f"{node} cannot go on: {error}"
            case events.NoticeReceived(node=node, seconds_left=left):
                return [node], self._served(node), f"{node} has its notice: it is taken in {left:.3g} s"
            case events.DrainRequested(nodes=nodes, deadline_s=left):
                return list(nodes), self._served(*nodes), f"{', '.join(nodes)} to be let go, within {left:.3g} s"
            case events.ShardsOpened(node=node, shards=shards, epoch=epoch):
                return [node], list(shards), f"{node} serves shards {format_ranges(shards)}, epoch {epoch}"
            case events.ShardsNotOpened(node=node, shards=shards, error=error):
                return [node], list(shards), f"{node} could not open shards {format_ranges(shards)}: {error}"
            case events.ShardsTaken(node=node, shards=shards, epoch=epoch):
                return [node], list(shards), f"{node} has taken over shards {format_ranges(shards)}, epoch {epoch}"
            case events.ShardsNotTaken(node=node, shards=shards, error=error):
                return [node], list(shards), f"{node} could not take over shards {format_ranges(shards)}: {error}"
            case events.NotBackedUp(node=node, number=number, error=error):
                return [node], self._served(node), f"{node} could not have its shards copied, round {number}: {error}"
            case events.BatchFailed(node=node, clock=clock, tasks=tasks, error=error):
                which = format_ranges(partition for partition, _ in tasks)
                return [node], [], f"{node} could not do clock {clock} of partitions {which}: {error}"
            case _:
                return None

    def _order(self, order: instructions.Instruction) -> _Told:
        match order:
            case instructions.OpenShards(node=node, shards=shards, epoch=epoch, checkpoint=checkpoint, replicas=kept):
                state = "as they begin"
                if kept is not None:
                    state = f"as they were kept at clock {kept.clock}, round {kept.number}"
                elif checkpoint is not None:
                    state = f"as the checkpoint of clock {checkpoint.clock} has them"
                return [node], list(shards), f"{node} is to serve shards {format_ranges(shards)} {state}, epoch {epoch}"
            case instructions.TakeShards(node=node, from_address=address, shards=shards, epoch=epoch):
                giver = self._name_of(address)
                text = f"{node} is to take shards {format_ranges(shards)} over from {giver}, epoch {epoch}"
                return list(dict.fromkeys([node, giver])), list(shards), text
            case instructions.UpdateShardMap(node=node, version=version):
                return [node], [], f"{node} is told map {version}"
            case instructions.LoadPartitions(node=node, partitions=partitions):
                return [node], [], f"{node} is to load partitions {format_ranges(partitions)}"
            case instructions.GatherModel(committed=clock, owners=owners):
                return _of(owners, f"the model of clock {clock} is to be gathered")
            case instructions.SaveCheckpoint(committed=clock, owners=owners, from_replicas=kept_ones):
                whose = "those who keep its copies" if kept_ones else "its servers"
                return _of(owners, f"clock {clock} is to be checkpointed, from {whose}")
            case instructions.Dispatch() | instructions.BackUp() | instructions.Evaluate():
                raise AssertionError("these are told otherwise")


def _entry(told: _Told, at: float, clock: int) -> Entry:
    nodes, shards, text = told
    return {"at": round(at, 3), "clock": clock, "nodes": nodes, "shards": shards, "text": text}


def _clocks(low: int, high: int) -> str:
    return f"clock {low}" if low == high else f"clocks {low}-{high}"


def _of(owners: Iterable[instructions.ShardOwner], text: str) -> _Told:
    there = list(owners)
    return list(dict.fromkeys(owner.node for owner in there)), [owner.shard for owner in there], text


def touching(entries: Iterable[Mapping[str, Any]], node: str | None, shard: int | None) -> list[Mapping[str, Any]]:
    """Return the entries that touched a node, or a shard; in the order given."""
    return [
        entry
        for entry in entries
        if EVERYBODY in entry["nodes"] or node in entry["nodes"] or (shard is not None and shard in entry["shards"])
    ]
