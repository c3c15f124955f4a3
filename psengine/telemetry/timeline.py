"""What a job looked like over time: its stage, its nodes, who served and kept which shard. Written where it changed.

An entry is a dict with `second` (of training; 0 before) and `clock` (the common one), and of the others what is new
since the entry before: `stage`; `nodes`, {name: [tier, state]}, the state `gone` where the process is no more;
`shards`, {number: [server, keeper]}, the keeper None where there is none. The first entry has it all. JSON-able.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: No more entries are written than this; what comes after is not told.
MOST = 4000


@dataclass(frozen=True)
class View:
    """A job at one moment.

    Attributes
    ----------
    nodes : {name: (tier, state)}, the state `gone` where the process is no more.
    shards : (server, keeper) of each shard by name; None where there is none.
    """

    stage: int = 1
    nodes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    shards: tuple[tuple[str | None, str | None], ...] = ()


class Timeline:
    """Entries of one job, in order of time."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self._last: View | None = None

    def look(self, second: float, clock: int, view: View) -> None:
        """Write down what has changed; two changes at one moment are one entry each."""
        last = self._last
        if view == last or len(self.entries) >= MOST:
            return
        before = View(0) if last is None else last
        entry: dict[str, Any] = {"second": round(second, 4), "clock": clock}
        if view.stage != before.stage:
            entry["stage"] = view.stage
        if nodes := {name: list(of) for name, of in view.nodes.items() if before.nodes.get(name) != of}:
            entry["nodes"] = nodes
        if shards := {
            str(shard): list(of)
            for shard, of in enumerate(view.shards)
            if shard >= len(before.shards) or before.shards[shard] != of
        }:
            entry["shards"] = shards
        self._last = view
        if len(entry) > 2:
            self.entries.append(entry)

    def go_on(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Take over the entries of a job that goes on; what it looks like now is told anew."""
        self.entries, self._last = [dict(entry) for entry in entries], None


def replay(entries: Sequence[Mapping[str, Any]]) -> Iterator[tuple[float, View]]:
    """Yield (second, what the job looked like from then on) of each entry."""
    stage, nodes, shards = 1, dict[str, tuple[str, str]](), dict[int, tuple[str | None, str | None]]()
    for entry in entries:
        stage = int(entry.get("stage", stage))
        nodes |= {name: (tier, state) for name, (tier, state) in entry.get("nodes", {}).items()}
        shards |= {int(shard): (server, keeper) for shard, (server, keeper) in entry.get("shards", {}).items()}
        yield float(entry["second"]), View(stage, dict(nodes), tuple(shards[s] for s in sorted(shards)))
