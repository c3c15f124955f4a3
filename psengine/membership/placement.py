"""Assignment of partitions to nodes: balanced by threads, with few moves, deterministic.

Each partition has an owner and a previous owner that still has it loaded. When the owner leaves, the planned owner
takes over if it has the partition loaded, else the previous owner, without touching storage. Ownership switches only to
nodes that have the partition loaded, except for orphans: a partition whose owner was lost gets another owner at once,
which loads it on demand if no remaining node has it loaded.

A node may be restricted to a number of partitions, and partitions may be withheld: these have no owner.

When nodes join and leave one by one, the partitions of a node become scattered, and it has as many sums to send. When
no node is about to join or leave, contiguous runs are restored (`contiguous_runs`).

Source: Proteus (EuroSys 2017), 3.3 and Fig. 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heapify, heapreplace
from itertools import pairwise

Owners = tuple[str | None, ...]

#: Average number of runs per node up to which partitions are left as they are.
_MOST_PIECES = 1.5


@dataclass(frozen=True)
class Capacity:
    """A node's weight (threads), and the partitions that it has loaded."""

    node: str
    threads: int
    holds: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Placement:
    """Owner and previous owner of each partition, by node name; None if there is none."""

    owner: Owners
    previous: Owners

    @classmethod
    def empty(cls, n_partitions: int) -> Placement:
        """Return the placement without owners."""
        return cls((None,) * n_partitions, (None,) * n_partitions)

    @cached_property
    def by_owner(self) -> Mapping[str | None, tuple[int, ...]]:
        """The partitions that each node owns."""
        return _by_node(self.owner)

    @cached_property
    def _by_previous(self) -> Mapping[str | None, tuple[int, ...]]:
        return _by_node(self.previous)

    def owned_by(self, node: str) -> tuple[int, ...]:
        """Return the partitions that `node` owns."""
        return self.by_owner.get(node, ())

    def owned_or_previous(self, node: str) -> tuple[int, ...]:
        """Return the partitions of which `node` is the owner or the previous owner."""
        return tuple(sorted({*self.owned_by(node), *self._by_previous.get(node, ())}))


def _by_node(owners: Owners) -> dict[str | None, tuple[int, ...]]:
    found: dict[str | None, list[int]] = {}
    for partition, node in enumerate(owners):
        found.setdefault(node, []).append(partition)
    return {node: tuple(partitions) for node, partitions in found.items()}


@dataclass(frozen=True)
class Limits:
    """What restricts owners.

    Attributes
    ----------
    most : int or None
        Partitions that a node may own.
    withheld : frozenset of int
        Partitions that get no owner.
    """

    most: int | None = None
    withheld: frozenset[int] = frozenset()


_NO_LIMITS = Limits()


def quotas(owners: Owners, nodes: Sequence[Capacity], limits: Limits = _NO_LIMITS) -> dict[str, int]:
    """Return the number of partitions each node should own: proportional to threads, remainders where least moves.

    What a node may not own is shared out among the others, as far as they may.
    """
    count = len(owners) - len(limits.withheld)
    most = count if limits.most is None else limits.most
    share = dict.fromkeys((node.node for node in nodes), 0)
    while (left := count - sum(share.values())) > 0 and (free := [n for n in nodes if share[n.node] < most]):
        more = _proportional(left, owners, free)
        share |= {name: min(share[name] + part, most) for name, part in more.items()}
    return share


def _proportional(count: int, owners: Owners, nodes: Sequence[Capacity]) -> dict[str, int]:
    total = sum(node.threads for node in nodes)
    exact = [count * node.threads / total for node in nodes]
    share = {node.node: int(part) for node, part in zip(nodes, exact, strict=True)}
    rest = count - sum(share.values())
    owned = Counter(owners)
    by_claim = sorted(
        range(len(nodes)),
        key=lambda i: (-(owned[nodes[i].node] > share[nodes[i].node]), -(exact[i] - int(exact[i])), i),
    )
    for i in by_claim[:rest]:
        share[nodes[i].node] += 1
    return share


def _holders(nodes: Sequence[Capacity]) -> dict[int, list[Capacity]]:
    holders: dict[int, list[Capacity]] = {}
    for node in nodes:
        for partition in node.holds:
            holders.setdefault(partition, []).append(node)
    return holders


def balance(owners: Owners, nodes: Sequence[Capacity], limits: Limits = _NO_LIMITS) -> Owners:
    """Return the target owners, which hold once every node has loaded the partitions it lacks.

    Parameters
    ----------
    owners : tuple of str or None, length n_partitions
        Present (or already planned) owner of each partition.
    nodes : sequence of Capacity
        Nodes that may own partitions, in the order in which they joined; empty gives no owners.
    """
    if not nodes:
        return (None,) * len(owners)
    room = quotas(owners, nodes, limits)
    threads = {node.node: node.threads for node in nodes}
    first = {node.node: index for index, node in enumerate(nodes)}
    target: list[str | None] = []
    for partition, owner in enumerate(owners):
        keeps = owner is not None and room.get(owner, 0) > 0 and partition not in limits.withheld
        if keeps and owner is not None:
            room[owner] -= 1
        target.append(owner if keeps else None)
    if None not in target:
        return tuple(target)

    def choice(node: str) -> tuple[float, int, str]:
        """Return what makes a node the next choice; the least comes first."""
        return -room[node] / threads[node], first[node], node

    # Nodes that have a partition loaded choose before those that would have to load it. Runs of partitions come first:
    # a node adds up the updates of one run before it sends them.
    holders = _holders(nodes)
    for partition, owner in enumerate(target):
        able = [node.node for node in holders.get(partition, ()) if room[node.node] > 0] if owner is None else []
        if partition in limits.withheld:
            continue
        if able:
            before = target[partition - 1] if partition else None
            chosen = before if before is not None and before in able else min(able, key=choice)
            room[chosen] -= 1
            target[partition] = chosen
    queue = [choice(node.node) for node in nodes]
    heapify(queue)
    for partition, owner in enumerate(target):
        if owner is not None or partition in limits.withheld:
            continue
        before = target[partition - 1] if partition else None
        if before is not None and room.get(before, 0) > 0:
            chosen = before
        else:
            while queue and queue[0] != (fresh := choice(queue[0][2])):  # its room has shrunk since
                heapreplace(queue, fresh)
            if not queue or room[queue[0][2]] <= 0:
                break  # the nodes may own no more
            chosen = queue[0][2]
        room[chosen] -= 1
        target[partition] = chosen
    return tuple(target)


def contiguous_runs(owners: Owners, nodes: Sequence[Capacity]) -> Owners:
    """Return target owners with one run of partitions per node, or `owners` if they are nearly that.

    Each node gets as many partitions as before. Each run, in rising order, goes to the node that has most of it loaded.

    Parameters
    ----------
    owners : tuple of str or None, length n_partitions
        All of them among `nodes`; if one is None, nothing is changed.
    nodes : sequence of Capacity
        Nodes that may own partitions, in the order in which they joined.
    """
    pieces = sum(owner != before for before, owner in pairwise((None, *owners)))
    if None in owners or pieces <= _MOST_PIECES * len(nodes):
        return owners
    room = {node.node: owners.count(node.node) for node in nodes}
    left, target = list(nodes), list(owners)
    low = 0
    while left:
        # Among equals the node that joined first: `max` returns the first maximum.
        chosen = max(left, key=lambda n: len(n.holds.intersection(range(low, low + room[n.node]))))
        left.remove(chosen)
        high = low + room[chosen.node]
        target[low:high] = [chosen.node] * (high - low)
        low = high
    return tuple(target)


def take_over(
    placement: Placement, nodes: Sequence[Capacity], planned: Owners | None = None, limits: Limits = _NO_LIMITS
) -> Placement:
    """Return the placement in which every partition without a usable owner has one, if there is a node that may own it.

    The order of preference: the `planned` owner if it has the partition loaded, the previous owner, the planned owner,
    the choice of `balance` (nodes that have it loaded and have room, then runs). Nodes that are not among `nodes` are
    removed as owners and as previous owners.
    """
    holds: dict[str | None, frozenset[int]] = {node.node: node.holds for node in nodes}
    owner = [o if o in holds else None for o in placement.owner]
    previous = [o if o in holds else None for o in placement.previous]
    owned = Counter(owner)

    def may_own(node: str | None) -> bool:
        return limits.most is None or owned[node] < limits.most

    for partition, heir in enumerate(planned or (None,) * len(owner)):
        if owner[partition] is not None or partition in limits.withheld:
            continue
        if not may_own(heir):
            heir = None
        if not may_own(previous[partition]):
            previous[partition] = None
        if heir in holds and (previous[partition] is None or partition in holds[heir]):
            owner[partition] = heir
            previous[partition] = None if previous[partition] == heir else previous[partition]
        else:
            owner[partition], previous[partition] = previous[partition], None
        owned[owner[partition]] += 1
    if None in owner:
        for partition, wanted in enumerate(balance(tuple(owner), nodes, limits)):
            if owner[partition] is None and may_own(wanted):
                owner[partition] = wanted
                owned[wanted] += 1
    holders = _holders(nodes) if None in previous else {}
    for partition, standby in enumerate(previous):
        if standby is None:
            previous[partition] = next((n.node for n in holders.get(partition, []) if n.node != owner[partition]), None)
    return Placement(tuple(owner), tuple(previous))


def switch(
    placement: Placement, target: Owners, nodes: Sequence[Capacity], most: Mapping[str, int] | None = None
) -> Placement:
    """Return the placement after moving each partition to its `target` owner if that has it loaded.

    `most` limits the number of partitions a node comes to own, {node: partitions}.
    """
    holds = {node.node: node.holds for node in nodes}
    owner, previous = list(placement.owner), list(placement.previous)
    owned = Counter(owner)
    for partition, wanted in enumerate(target):
        if wanted is None or wanted == owner[partition] or partition not in holds.get(wanted, frozenset()):
            continue
        if most is not None and owned[wanted] >= most.get(wanted, 0):
            continue
        owned.subtract([owner[partition]])
        owned[wanted] += 1
        owner[partition], previous[partition] = wanted, owner[partition]
    return replace(placement, owner=tuple(owner), previous=tuple(previous))
