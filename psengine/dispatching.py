"""Which micro-tasks go to which node now, as messages. Pure.

It puts the driver, which says what may run, together with the placement, which says where. What failed is held back until
the next tick, so that a node that cannot work does not spin.
"""

from __future__ import annotations

from collections.abc import Mapping

from psengine.drivers.ssp import SspDriver
from psengine.events import BatchFailed
from psengine.instructions import Dispatch
from psengine.microtasks import MicroTaskBook
from psengine.nodes import NodeRecord
from psengine.plan import Owners, Placement
from psengine.sums import blocks

#: Sums up to which a batch is sent without the rest of its node's partitions, which others are about to be done with.
_SUMS = 2


class Dispatcher:
    """Dispatches of one job; every one of them is entered in `book`."""

    def __init__(self, book: MicroTaskBook, driver: SspDriver) -> None:
        self._book, self._driver = book, driver
        self._batches = 0
        self._held_back: set[int] = set()

    def orders(
        self,
        placement: Placement,
        ready: Mapping[str, NodeRecord],
        limit: int | None,
        map_version: int,
        generation: int,
    ) -> list[Dispatch]:
        """Dispatch whatever may run: one message a node and clock.

        With stale reads a node that runs something is sent nothing, and others only what is of their earliest clock: they
        work off batches one after the other, each reads and pushes for itself, and a partition that has fallen behind
        the node's others would else be a batch of its own for ever. For the same reason a node that has taken partitions
        over waits for those who are about to be done with them, as long as what it could do is in many pieces.

        Parameters
        ----------
        ready : mapping
            {name: node}; it has every owner in `placement`.
        limit : int or None
            No clock after this one is begun.
        map_version, generation : int
            Version and generation of the shard map that the nodes must have.
        """
        book, driver = self._book, self._driver
        completed_by = book.completed_by
        groups: dict[tuple[str, int], list[int]] = {}
        for partition, clock in driver.ready(book.done, book.running, limit):
            owner = placement.owner[partition]
            if owner is not None and partition not in self._held_back:
                groups.setdefault((owner, clock), []).append(partition)
        out = []
        first = {name: min(clock for of, clock in groups if of == name) for name, _ in groups}
        for (name, clock), partitions in groups.items():
            if driver.staleness and (clock > first[name] or book.running_on(name)):
                continue
            if driver.staleness and self._in_pieces(name, clock, partitions, placement.owner):
                continue
            self._batches += 1
            out.append(
                Dispatch(
                    node=name,
                    address=ready[name].address,
                    batch=self._batches,
                    clock=clock,
                    tasks=tuple(book.key(p, clock, name) for p in partitions),
                    parent_clock=driver.parent_clock(book.done, book.completions),
                    committed=book.common,
                    map_version=map_version,
                    generation=generation,
                    completed_by=completed_by,
                    goes_on=driver.staleness == 0 and (limit is None or clock < limit),
                )
            )
        return out

    def _in_pieces(self, name: str, clock: int, partitions: list[int], owner: Owners) -> bool:
        """Return whether a node's batch is in many pieces only because others have not done the rest quite yet.

        When many nodes go, what they worked on becomes free one by one. Of a batch in pieces a node has a sum of each piece to
        send, as large as the table, and then a second batch to do.
        """
        running, n_partitions = self._book.running.items(), len(self._book.done)
        coming = [p for p, of in running if owner[p] == name != of.node and of.clock == clock - 1]
        if not coming:
            return False
        sums = len(blocks(partitions, n_partitions))
        return sums > _SUMS and len(blocks([*partitions, *coming], n_partitions)) < sums

    def failed(self, event: BatchFailed) -> list[int]:
        """Hold back what failed, and return it: the partitions whose latest attempt was in the batch."""
        current = [p for p, attempt in event.tasks if self._book.forget(p, event.clock, attempt)]
        self._held_back |= set(current)
        return current

    def tick(self) -> None:
        """Hold nothing back any longer."""
        self._held_back.clear()
