"""Which node works on which partition: balanced by threads, moving as little as can be, deterministic. Pure.

Each partition has an owner and a previous owner that still holds it loaded; when the owner goes, whoever it is planned for
takes over if he holds it, or else the previous owner, without touching storage. Ownership switches only to nodes that hold
the partition, except for orphans: a partition whose owner is gone goes to somebody at once, who loads it on demand if nobody
left holds it.

Where nodes come and go one by one, partitions come apart: each node has some here and some there, and has as many sums to
send. When nobody is about to come or go, whole runs are made of them again (`tidied`).

Source: Proteus (EuroSys 2017), 3.3 and Fig. 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

Owners = tuple[str | None, ...]

#: Pieces to a node, on the average, up to which partitions are left as they are.
_MOST_PIECES = 1.5


@dataclass(frozen=True)
class Capacity:
    """A node as far as the plan cares: its weight, and the partitions it holds loaded."""

    node: str
    threads: int
    holds: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Placement:
    """Owner and previous owner of each partition, by node name; None where there is none."""

    owner: Owners
    previous: Owners

    @classmethod
    def empty(cls, n_partitions: int) -> Placement:
        """Return the placement in which nobody owns anything."""
        return cls((None,) * n_partitions, (None,) * n_partitions)

    def owned_by(self, node: str) -> tuple[int, ...]:
        """Return the partitions that `node` owns."""
        return tuple(p for p, owner in enumerate(self.owner) if owner == node)

    def kept_by(self, node: str) -> tuple[int, ...]:
        """Return the partitions that `node` owns or stands by for."""
        return tuple(
            p for p, pair in enumerate(zip(self.owner, self.previous, strict=True)) if node in (pair[0], pair[1])
        )


def quotas(owners: Owners, seats: Sequence[Capacity]) -> dict[str, int]:
    """Return how many partitions each seat should own: proportional to threads, remainders where least moves."""
    total = sum(seat.threads for seat in seats)
    exact = [len(owners) * seat.threads / total for seat in seats]
    share = {seat.node: int(part) for seat, part in zip(seats, exact, strict=True)}
    rest = len(owners) - sum(share.values())
    owned = Counter(owners)
    by_claim = sorted(
        range(len(seats)),
        key=lambda i: (-(owned[seats[i].node] > share[seats[i].node]), -(exact[i] - int(exact[i])), i),
    )
    for i in by_claim[:rest]:
        share[seats[i].node] += 1
    return share


def _holders(seats: Sequence[Capacity]) -> dict[int, list[Capacity]]:
    """Return who holds each partition, in the order of the seats; without those that nobody holds."""
    holders: dict[int, list[Capacity]] = {}
    for seat in seats:
        for partition in seat.holds:
            holders.setdefault(partition, []).append(seat)
    return holders


def balance(owners: Owners, seats: Sequence[Capacity]) -> Owners:
    """Return the owners wanted in the long run, when everybody has loaded what he lacks.

    Parameters
    ----------
    owners : tuple of str or None, length n_partitions
        Who owns (or was already to own) each partition now.
    seats : sequence of Seat
        Nodes that may own partitions, in the order in which they joined; empty gives no owners.
    """
    if not seats:
        return (None,) * len(owners)
    room = quotas(owners, seats)
    first = {seat.node: -place for place, seat in enumerate(seats)}
    holders = _holders(seats)
    target: list[str | None] = []
    for owner in owners:
        keeps = owner is not None and room.get(owner, 0) > 0
        if keeps and owner is not None:
            room[owner] -= 1
        target.append(owner if keeps else None)
    for wants_held in (True, False):  # those who hold a partition choose before those who would have to load it
        for partition, owner in enumerate(target):
            if owner is not None:
                continue
            able = holders.get(partition, []) if wants_held else seats
            open_seats = [s for s in able if room[s.node] > 0]
            if open_seats:
                before = target[partition - 1] if partition else None
                # Runs of partitions: what a node has of one run, it adds up before it sends it.
                chosen = max(open_seats, key=lambda s: (s.node == before, room[s.node] / s.threads, first[s.node]))
                room[chosen.node] -= 1
                target[partition] = chosen.node
    return tuple(target)


def tidied(owners: Owners, seats: Sequence[Capacity]) -> Owners:
    """Return the owners wanted where everybody is to have one run of partitions, or `owners` where they nearly have.

    Each seat has as many as before. A run goes to whoever has most of it loaded, the first one first.

    Parameters
    ----------
    owners : tuple of str or None, length n_partitions
        All of them among `seats`; where one is None, nothing is changed.
    seats : sequence of Seat
        Nodes that may own partitions, in the order in which they joined.
    """
    pieces = sum(here != before for here, before in pairwise((None, *owners)))
    if None in owners or pieces <= _MOST_PIECES * len(seats):
        return owners
    room = {seat.node: owners.count(seat.node) for seat in seats}
    left, target = list(seats), list(owners)
    low = 0
    while left:
        # Of equals the first one that joined: `max` returns the first that it meets.
        chosen = max(left, key=lambda s: len(s.holds.intersection(range(low, low + room[s.node]))))
        left.remove(chosen)
        high = low + room[chosen.node]
        target[low:high] = [chosen.node] * (high - low)
        low = high
    return tuple(target)


def take_over(placement: Placement, seats: Sequence[Capacity], planned: Owners | None = None) -> Placement:
    """Return the placement in which every partition without a usable owner has one, if there is a seat at all.

    Whoever it is `planned` for comes first if he holds it, then the previous owner, then whoever it is planned for, then
    whoever `balance` wants: the rest goes to those who hold it and have room, then in runs. Seats that are not among
    `seats` lose what they own and what they stand by for.
    """
    holds: dict[str | None, frozenset[int]] = {seat.node: seat.holds for seat in seats}
    owner = [o if o in holds else None for o in placement.owner]
    previous = [o if o in holds else None for o in placement.previous]
    for partition, heir in enumerate(planned or (None,) * len(owner)):
        if owner[partition] is not None:
            continue
        if heir in holds and (previous[partition] is None or partition in holds[heir]):
            owner[partition] = heir
            previous[partition] = None if previous[partition] == heir else previous[partition]
        else:
            owner[partition], previous[partition] = previous[partition], None
    for partition, wanted in enumerate(balance(tuple(owner), seats)):
        if owner[partition] is None:
            owner[partition] = wanted
    holders = _holders(seats)
    for partition, standby in enumerate(previous):
        if standby is None:
            previous[partition] = next((s.node for s in holders.get(partition, []) if s.node != owner[partition]), None)
    return Placement(tuple(owner), tuple(previous))


def switch(
    placement: Placement, target: Owners, seats: Sequence[Capacity], most: Mapping[str, int] | None = None
) -> Placement:
    """Return the placement after moving to `target` whatever the wanted owner already holds loaded.

    With `most`, nobody comes to own more than that, {node: partitions}.
    """
    holds = {seat.node: seat.holds for seat in seats}
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
