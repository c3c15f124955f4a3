"""The nodes that serve shards and those that store replicas, by stage: ParamServ, ActivePS, BackupPS.

| stage | serve | store replicas | work |
|---|---|---|---|
| 1 | the reliable nodes (ParamServs) | the reliable nodes, of each other's shards | all |
| 2 | some of the transient nodes (ActivePSs): half, or as the job says | the reliable nodes (BackupPSs) | all |
| 3 | as 2 | as 2 | the transient nodes |

A change of many nodes at once is one `Layout` after another, and the difference between them one list of moves.

Source: Proteus (EuroSys 2017), 3.2 and 3.3, Table 1.
Differs: in stage 1 the paper has no replicas, so that the loss of one of several reliable nodes costs a checkpoint
interval. A single ParamServ is the backup of its shards, which so have a replica before they move to an ActivePS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proteus_spot.psengine.config import Stage
from proteus_spot.psengine.membership.placement import Capacity, Owners, balance


def half_of(transient: int) -> int:
    """Return the number of ActivePSs by AgileML's rule."""
    return (transient + 1) // 2


@dataclass(frozen=True)
class Layout:
    """Server and backup of each shard, by node name; None if there is none."""

    stage: Stage
    owners: Owners
    backups: Owners

    def lines(self, before: Layout | None = None) -> list[str]:
        """Return the changes since `before` as lines of text: the stage, and every run of shards that moves."""
        first = f"stage {self.stage}" if before is None else f"stage {before.stage} -> {self.stage}"
        lines = [f"{first}: {_count_nodes(self.owners)} server(s), {_count_nodes(self.backups)} backup(s)"]
        for role, was, now in (
            ("server", () if before is None else before.owners, self.owners),
            ("backup", () if before is None else before.backups, self.backups),
        ):
            old: Owners = was or (None,) * len(now)
            low = 0
            for high in range(1, len(now) + 1):
                if high < len(now) and (old[high], now[high]) == (old[low], now[low]):
                    continue
                if old[low] != now[low]:
                    shards = f"shard {low}" if high - low == 1 else f"shards {low}-{high - 1}"
                    lines.append(f"{shards}: {role} {now[low] or 'none'}" + (f", was {old[low]}" if old[low] else ""))
                low = high
        return lines


def active_servers(transient: Sequence[str], serving: Owners, n_shards: int, n_servers: int) -> list[str]:
    """Return the transient nodes that are to be ActivePSs, in the order in which they joined.

    Parameters
    ----------
    transient : sequence of str
        Nodes that may serve, the longest-running first.
    serving : tuple of str or None
        Names of the present servers; they are chosen first.
    n_servers : int
        Number of ActivePSs; no more of them than shards serve.
    """
    wanted = min(n_shards, n_servers)
    serves = set(serving)
    now = [name for name in transient if name in serves]
    others = [name for name in transient if name not in serves]
    chosen = set((now + others)[:wanted])
    return [name for name in transient if name in chosen]


def kept_by_others(owners: Owners, servers: Sequence[str]) -> Owners:
    """Return a backup of each shard: another server, so that the loss of one costs no shard.

    The shards of one server are spread evenly over the others. A single server is the backup of its own.
    """
    if len(servers) < 2:
        return owners
    position, given = {name: at for at, name in enumerate(servers)}, dict.fromkeys(servers, 0)
    backups: list[str | None] = []
    for owner in owners:
        if owner is None:
            backups.append(None)
            continue
        ahead = 1 + (position[owner] + given[owner]) % (len(servers) - 1)
        given[owner] += 1
        backups.append(servers[(position[owner] + ahead) % len(servers)])
    return tuple(backups)


def layout_for(
    stage: Stage, reliable: Sequence[str], transient: Sequence[str], now: Layout, n_servers: int
) -> Layout | None:
    """Return the wanted server and backup of each shard; None if no node can serve.

    Few shards move: a server keeps its shards up to its fair share, and in stage 1 the shards of a transient node move
    to their backups.

    Parameters
    ----------
    reliable, transient : sequence of str
        Nodes that may serve, of each tier, the longest-running first.
    now : Layout
        The present layout; nodes that are not among the two above lose their shards and replicas.
    n_servers : int
        Number of ActivePSs in stages 2 and 3.
    """
    servers = list(reliable) if stage == 1 else active_servers(transient, now.owners, len(now.owners), n_servers)
    if not servers:
        return None
    nodes = [Capacity(name, 1) for name in servers]
    if stage == 1:
        able = set(servers)
        holders = tuple(
            owner if owner in able else backup for owner, backup in zip(now.owners, now.backups, strict=True)
        )
        owners = balance(holders, nodes)
        return Layout(stage, owners, kept_by_others(owners, servers))
    owners = balance(now.owners, nodes)
    return Layout(stage, owners, balance(now.backups, [Capacity(name, 1) for name in reliable]))


def _count_nodes(names: Owners) -> int:
    return len({name for name in names if name is not None})
