"""What a job looked like over time: its stage, its nodes, the server and the backup of each shard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: (server, backup) of each shard, by name.
Shards = tuple[tuple[str | None, str | None], ...]


@dataclass(frozen=True)
class View:
    """A job at one moment.

    Attributes
    ----------
    nodes : {name: (tier, state)}, the state `gone` where the process is no more.
    shards : (server, backup) of each shard by name; None where there is none.
    """

    stage: int = 1
    nodes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    shards: Shards = ()


def replay(entries: Sequence[Mapping[str, Any]]) -> Iterator[tuple[float, View]]:
    """Yield (second, what the job looked like from then on) of each record of an `event_log.StateChanged`."""
    stage, nodes, shards = 1, dict[str, tuple[str, str]](), dict[int, tuple[str | None, str | None]]()
    for entry in entries:
        stage = int(entry.get("stage", stage))
        nodes |= {name: (tier, state) for name, (tier, state) in entry.get("nodes", {}).items()}
        shards |= {int(shard): (server, backup) for shard, (server, backup) in entry.get("shards", {}).items()}
        yield float(entry["second"]), View(stage, dict(nodes), tuple(shards[s] for s in sorted(shards)))
