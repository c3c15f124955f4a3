"""Which partitions a round is made of, and what a loss does to it: the bookkeeping of Algorithm 2, without vectors."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

Missing = Literal["approximate", "ignore", "stall"]
Approximation = Literal["kept", "redone"]


@dataclass(frozen=True)
class Slot:
    """An entry of the queue: partitions that vanished together, and return together.

    Attributes
    ----------
    number : int or None
        The slot of table `approximations` that holds their summed gradient at the model of the round before their loss.
        None: they vanished in round 0, and nothing stands for them.
    round_number : int
        The round of their loss.
    """

    partitions: frozenset[int]
    number: int | None
    round_number: int


class Roster:
    """The partitions of a descent.

    Parameters
    ----------
    n_partitions : int
    missing : str
        ``approximate``; ``ignore``: vanished partitions are left out; ``stall``: the round waits for them, so that none
        is ever lost to it.

    Attributes
    ----------
    everyone : frozenset of int
    queue : tuple of Slot
        Partitions that vanished, in the order of their losses (FNQueue).
    stored : frozenset of int
        The partitions that are in the stored gradient, that of the round before.
    """

    def __init__(self, n_partitions: int, missing: Missing) -> None:
        self.everyone = frozenset(range(n_partitions))
        self.missing = missing
        self.queue: tuple[Slot, ...] = ()
        self.stored: frozenset[int] = frozenset()

    def members(self, available: Collection[int]) -> frozenset[int]:
        """Return the partitions of a round: those without an entry, and those of entries that are back whole.

        Those without an entry belong to it even if they are not available: the round then reports their loss.
        """
        if self.missing == "ignore":
            return frozenset(available)
        away = [entry.partitions for entry in self.queue if not entry.partitions <= frozenset(available)]
        return self.everyone.difference(*away)

    def restarts(self, available: Collection[int], free: int) -> tuple[int, ...]:
        """Return the partitions to bring up on `free` nodes: first in, first out, an entry at a time (lines 18-20)."""
        found: list[int] = []
        for entry in self.queue:
            wanted = sorted(entry.partitions.difference(available))
            if len(found) + len(wanted) > free:
                break
            found += wanted
        return tuple(found)

    def without_approximation(self, lost: frozenset[int]) -> tuple[int, ...]:
        """Return those of `lost` that have neither a stored gradient nor an entry: they vanished in round 0."""
        queued = frozenset().union(*(entry.partitions for entry in self.queue))
        return tuple(sorted(lost - self.stored - queued)) if self.missing == "approximate" else ()

    def is_voided(self, lost: frozenset[int], in_search: bool) -> bool:
        """Return whether a loss voids the round; partitions that vanished in round 0 have entries already.

        It does in a line search, whose objective it changes; if the lost ones are in the stored gradient; and if the
        sum has some partitions of an entry and not all.
        """
        if not lost:
            return False
        if self.missing == "ignore":
            return in_search
        if in_search or lost & self.stored:
            return True
        return any(entry.partitions & lost and not entry.partitions <= lost for entry in self.queue)

    def to_approximate(self, lost: frozenset[int]) -> frozenset[int]:
        """Return those of `lost` that lines 9 to 15 are about."""
        return lost & self.stored if self.missing == "approximate" else frozenset()

    def standing(self, contributors: frozenset[int]) -> tuple[Slot, ...]:
        """Return the entries whose approximations stand in a round with these contributors."""
        return tuple(entry for entry in self.queue if not entry.partitions <= contributors)
