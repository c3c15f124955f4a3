"""Which nodes serve shards in each stage, and which keep their copies: who is to be ParamServ, ActivePS, BackupPS. Pure.

| stage | serve | keep copies | work |
|---|---|---|---|
| 1 | the reliable nodes (ParamServs) | nobody | all |
| 2 | half of the transient nodes (ActivePSs) | the reliable nodes (BackupPSs) | all |
| 3 | as 2 | as 2 | the transient nodes |

A change of many nodes at once is one `Layout` after another, and what lies between them one list of moves.

Source: Proteus (EuroSys 2017), 3.2 and 3.3, Table 1.
Differs: in stage 1 a shard's keeper is its ParamServ, which so has a copy of it before it moves to an ActivePS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psengine.config import Stage
from psengine.membership.placement import Capacity, Owners, balance


@dataclass(frozen=True)
class Layout:
    """Who serves and who keeps each shard, by node name; None where nobody does."""

    stage: Stage
    owners: Owners
    keepers: Owners

    def lines(self, before: Layout | None = None) -> list[str]:
        """Return what changes against `before`, for people: the stage, and every run of shards that moves."""
        first = f"stage {self.stage}" if before is None else f"stage {before.stage} -> {self.stage}"
        out = [f"{first}: {_servers(self.owners)} server(s), {_servers(self.keepers)} keeper(s)"]
        for what, was, now in (
            ("served", () if before is None else before.owners, self.owners),
            ("kept", () if before is None else before.keepers, self.keepers),
        ):
            old: Owners = was or (None,) * len(now)
            low = 0
            for high in range(1, len(now) + 1):
                if high < len(now) and (old[high], now[high]) == (old[low], now[low]):
                    continue
                if old[low] != now[low]:
                    shards = f"shard {low}" if high - low == 1 else f"shards {low}-{high - 1}"
                    by = f"by {now[low] or 'nobody'}"
                    out.append(f"{shards}: {what} {by}" + (f", before {old[low]}" if old[low] else ""))
                low = high
        return out


def active_servers(transient: Sequence[str], serving: Owners, n_shards: int) -> list[str]:
    """Return the transient nodes that are to be ActivePSs: half of them, in the order in which they joined.

    Parameters
    ----------
    transient : sequence of str
        Those that may serve, the longest-running first.
    serving : names that serve now; they stay, as far as there is room.
    """
    wanted = min(n_shards, (len(transient) + 1) // 2)
    now = [name for name in transient if name in serving]
    others = [name for name in transient if name not in serving]
    chosen = set((now + others)[:wanted])
    return [name for name in transient if name in chosen]


def layout_for(stage: Stage, reliable: Sequence[str], transient: Sequence[str], now: Layout) -> Layout | None:
    """Return who is to serve and to keep what; None where nobody can serve.

    Shards move as little as can be: a server keeps its shards up to its fair share, and in stage 1 their keeper has those
    of a transient one.

    Parameters
    ----------
    reliable, transient : sequence of str
        Nodes that may serve, of each tier, the longest-running first.
    now : Layout
        Who serves and keeps now; nodes that are not among the two above lose what they have.
    """
    servers = list(reliable) if stage == 1 else active_servers(transient, now.owners, len(now.owners))
    if not servers:
        return None
    seats = [Capacity(name, 1) for name in servers]
    if stage == 1:
        there = tuple(o if o in servers else k for o, k in zip(now.owners, now.keepers, strict=True))
        owners = balance(there, seats)
        return Layout(stage, owners, owners)
    owners = balance(now.owners, seats)
    return Layout(stage, owners, balance(now.keepers, [Capacity(name, 1) for name in reliable]))


def _servers(names: Owners) -> int:
    return len({name for name in names if name is not None})
