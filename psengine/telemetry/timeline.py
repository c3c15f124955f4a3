"""What a job looked like over time: its stage, its nodes, who served and kept which shard. Written where it changed.

An entry is a dict with `second` (of training; 0 before) and `clock` (the common one), and of the others what is new
since the entry before: `stage`; `nodes`, {name: [tier, state]}, the state `gone` where the process is no more;
`shards`, {number: [server, keeper]}, the keeper None where there is none. The first entry has it all. JSON-able.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Maximum number of entries; beyond it the older ones are joined two by two.
MOST = 4000
#: (server, backup owner) of each shard, by name.
Shards = tuple[tuple[str | None, str | None], ...]


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
    shards: Shards = ()


class Timeline:
    """Entries of one job, in order of time."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self._stage = 0
        self._nodes: dict[str, tuple[str, str]] = {}
        self._shards: Shards = ()

    def look(
        self,
        second: float,
        clock: int,
        stage: int,
        nodes: Mapping[str, tuple[str, str]],
        shards: Shards | None,
    ) -> None:
        """Write down what has changed, as one entry.

        Parameters
        ----------
        nodes : {name: (tier, state)}
            At least those that have changed since the last call.
        shards : as in `View`, or None
            None: they have not changed.
        """
        entry: dict[str, Any] = {"second": round(second, 4), "clock": clock}
        if stage != self._stage:
            entry["stage"] = self._stage = stage
        if changed := {name: list(of) for name, of in nodes.items() if self._nodes.get(name) != of}:
            entry["nodes"] = changed
            self._nodes |= nodes
        if shards is not None and (
            moved := {
                str(shard): list(of)
                for shard, of in enumerate(shards)
                if shard >= len(self._shards) or self._shards[shard] != of
            }
        ):
            entry["shards"] = moved
        self._shards = self._shards if shards is None else shards
        if len(entry) > 2:
            self.entries.append(entry)
            if len(self.entries) > MOST:
                self.entries = _thinned(self.entries)

    def go_on(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Take over the entries of a job that continues; what it looks like now is written anew."""
        self.entries = [dict(entry) for entry in entries]
        self._stage, self._nodes, self._shards = 0, {}, ()


def _thinned(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries with those of the older half joined two by two: what the later one of them left is kept."""
    half = len(entries) // 4 * 2
    joined = [
        {
            **older,
            **newer,
            **{
                key: older.get(key, {}) | newer.get(key, {})
                for key in ("nodes", "shards")
                if key in older or key in newer
            },
        }
        for older, newer in zip(entries[:half:2], entries[1:half:2], strict=True)
    ]
    return [*joined, *entries[half:]]


def replay(entries: Sequence[Mapping[str, Any]]) -> Iterator[tuple[float, View]]:
    """Yield (second, what the job looked like from then on) of each entry."""
    stage, nodes, shards = 1, dict[str, tuple[str, str]](), dict[int, tuple[str | None, str | None]]()
    for entry in entries:
        stage = int(entry.get("stage", stage))
        nodes |= {name: (tier, state) for name, (tier, state) in entry.get("nodes", {}).items()}
        shards |= {int(shard): (server, keeper) for shard, (server, keeper) in entry.get("shards", {}).items()}
        yield float(entry["second"]), View(stage, dict(nodes), tuple(shards[s] for s in sorted(shards)))
