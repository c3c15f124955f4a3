"""The bytes that a job has moved, by kind: counted by the receiver or the sender, and part of a node's reports.

A process reports the bytes moved since it began, so a report that is lost, repeated or late does no harm; of a lost
process the last report counts. Only bytes that cross the network or come from the blob store are moved: a node that is
its own server, or its own backup, moves nothing. Beside the kinds a process counts the bytes exchanged with each
other process, under `link` of its address: traffic between zones is paid. A report holds at most `LINKS_A_REPORT` of
these, in turn.

| kind | is | counted by |
|---|---|---|
| read | parameters that tasks read | the reader |
| push | updates | the sender |
| hand_over | shards that move to another server, with the updates since their clock | the new server |
| copy | shards that are copied to their backups | the server |
| restore | shards read from a checkpoint, or from another's copies | the server |
| input | partitions of the input, as arrays, or as another node has prepared them | the node that loads |
| checkpoint, evaluate, model | state gathered for a checkpoint, an evaluation, the model at the end | the controller |
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.protocol.moved_state import ShardState
from proteus_spot.psengine.rpc.narrowing import wire_bytes
from proteus_spot.psengine.tables.sparse_rows import SparseRows

KINDS = ("read", "push", "hand_over", "copy", "restore", "input", "checkpoint", "evaluate", "model")
#: Bytes that were not read, because the node had them; they are counted separately, since they did not move.
KEPT = "own"
#: The controller, among processes.
CONTROLLER = ""
#: Begins the keys of `link`.
_LINK = "@"
#: Maximum number of links in one report.
LINKS_A_REPORT = 32


def link(address: str) -> str:
    """Return the key under which a process counts what it exchanges with the process at `address`."""
    return f"{_LINK}{address}"


def count_moved(moved: MutableMapping[str, int], kind: str, address: str, n_bytes: int) -> None:
    """Add bytes of a kind that a process exchanged with the process at `address` to what it has moved."""
    for key in (kind, link(address)):
        moved[key] = moved.get(key, 0) + n_bytes


class Traffic:
    """Bytes of one job, summed over all processes that ever reported."""

    def __init__(self) -> None:
        #: Totals by kind, and what was moved by processes that are remembered no more, by pair of nodes.
        self._totals: Counter[str] = Counter()
        self._links_before: Counter[tuple[str, str]] = Counter()
        #: {address: what its process has reported, by kind}
        self._kinds: dict[str, dict[str, int]] = {}
        #: {address: what its process has reported of each link}, by the numbers of links: there are nodes x servers.
        self._links: dict[str, array[int]] = {}
        self._numbers: dict[str, int] = {}
        self._forgotten: set[str] = set()
        #: Name of the node of each process.
        self.names: dict[str, str] = {CONTROLLER: CONTROLLER}

    def note(self, process: str, moved: Mapping[str, int]) -> None:
        """Note what a process has moved since it began; a report that comes late changes nothing."""
        if process in self._forgotten:
            return
        kinds = self._kinds.setdefault(process, {})
        links = self._links.setdefault(process, array("q"))
        numbers = self._numbers
        for key, count in moved.items():  # with every report of every node
            if not key.startswith(_LINK):
                self._totals[key] += max(0, count - kinds.get(key, 0))
                kinds[key] = max(count, kinds.get(key, 0))
                continue
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(numbers)
            try:
                links[number] = max(count, links[number])
            except IndexError:
                links.extend([0] * (len(numbers) - len(links)))
                links[number] = count

    def joined(self, process: str, node: str) -> None:
        """Note the node of a process that may report from now on."""
        self.names[process] = node
        self._forgotten.discard(process)

    def forget(self, process: str) -> None:
        """Add what a process has moved to the totals, and ignore its later reports: it is gone for long."""
        self._links_before.update(self._links_of([process]))
        self._kinds.pop(process, None)
        self._links.pop(process, None)
        self._forgotten.add(process)

    def go_on(self, summary: Mapping[str, Any]) -> None:
        """Take over what a job had moved before this controller was there (see `figures`)."""
        self._totals.update(summary.get("bytes_moved", {}))
        self._totals[KEPT] += summary.get("bytes_not_read", 0)
        self._links_before.update({(one, other): count for one, other, count in summary.get("bytes_by_link", ())})

    def figures(self) -> dict[str, Any]:
        """Return `bytes_moved` by kind, all kinds, and `bytes_not_read`; JSON-able."""
        return {"bytes_moved": {kind: self._totals[kind] for kind in KINDS}, "bytes_not_read": self._totals[KEPT]}

    def links(self) -> list[list[Any]]:
        """Return what pairs of nodes have exchanged, as [node, node, bytes]; "" is the controller. JSON-able."""
        total = self._links_before + self._links_of(self._links)
        return [[one, other, count] for (one, other), count in sorted(total.items()) if one != other]

    def _links_of(self, processes: Iterable[str]) -> Counter[tuple[str, str]]:
        total: Counter[tuple[str, str]] = Counter()
        addresses = [key.removeprefix(_LINK) for key in self._numbers]
        ends = [self.names.get(address, address) for address in addresses]
        for process in processes:
            node = self.names.get(process, process)
            for end, count in zip(ends, self._links.get(process, ()), strict=False):
                if count:
                    total[(node, end) if node < end else (end, node)] += count
        return total


class ReportedBytes:
    """What a process reports of the bytes that it has moved: all kinds, and of its links some at a time.

    A node of many exchanges bytes with each server in each clock. All links in each report would be nodes x servers
    numbers a clock.
    """

    def __init__(self) -> None:
        self._next = 0

    def of(self, moved: Mapping[str, int]) -> dict[str, int]:
        """Return the part of `moved` to report now: the kinds, and the next `LINKS_A_REPORT` links."""
        links = [key for key in moved if key.startswith(_LINK)]
        if len(links) <= LINKS_A_REPORT:
            return dict(moved)
        first = self._next % len(links)
        self._next = first + LINKS_A_REPORT
        chosen = [*links[first : self._next], *links[: max(0, self._next - len(links))]]
        return {key: moved[key] for key in (*(key for key in moved if not key.startswith(_LINK)), *chosen)}


def state_bytes(states: Iterable[ShardState]) -> int:
    """Return what the arrays of states take on the way, in bytes."""
    return sum(
        sum(table.nbytes if isinstance(table, SparseRows) else wire_bytes(table) for table in state.arrays.values())
        + sum(wire_bytes(of) for *_, update in state.later for of in update.values())
        for state in states
    )


def sent_bytes(shards: Iterable[Mapping[str, NDArray[np.generic]]]) -> int:
    """Return what the arrays of shards take on the way, in bytes."""
    return sum(wire_bytes(array) for arrays in shards for array in arrays.values())


def arrays_bytes(shards: Iterable[Mapping[str, NDArray[np.generic]]]) -> int:
    """Return how large the arrays of shards, or of partitions, are, in bytes."""
    return sum(array.nbytes for arrays in shards for array in arrays.values())
