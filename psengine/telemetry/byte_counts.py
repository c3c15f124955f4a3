"""What a job has moved, in bytes by kind: counted where it is received or sent, told with a node's other reports.

A process tells what it has moved since it began, so a report that is lost, repeated or late does no harm; of one that
is gone there is what it told last. Only what goes over the network or comes from the blob store is moved: a node that
is its own server, or its own keeper, moves nothing. Beside the kinds a process counts what it exchanged with each other
process, under `link` of that one's address: traffic between zones is paid.

| kind | is | counted by |
|---|---|---|
| read | parameters that micro-tasks read | the reader |
| push | updates | the sender |
| hand_over | shards that move to another server, with what has come since their clock | the new server |
| copy | shards that are copied to their keepers | the server |
| restore | shards read from a checkpoint, or from another's copies | the server |
| input | partitions of the input, as arrays | the node that loads |
| checkpoint, evaluate, model | state gathered for a checkpoint, an evaluation, the model at the end | the controller |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psengine.protocol.shard_state import ShardState
from psengine.rpc.integer_narrowing import wire_bytes

KINDS = ("read", "push", "hand_over", "copy", "restore", "input", "checkpoint", "evaluate", "model")
#: What had not to be read, because the node kept it; it is told apart, for nothing of it moved.
KEPT = "own"
#: The controller, among processes.
CONTROLLER = ""
#: Begins the keys of `link`.
_LINK = "@"


def link(address: str) -> str:
    """Return the key under which a process counts what it exchanges with the process at `address`."""
    return f"{_LINK}{address}"


class Traffic:
    """Bytes of one job, summed over all processes that ever told."""

    def __init__(self) -> None:
        self._before: Counter[str] = Counter()
        #: {address: what its process has told}
        self._told: dict[str, Counter[str]] = {}
        #: Name of the node of each process.
        self.names: dict[str, str] = {CONTROLLER: CONTROLLER}
        self._links_before: Counter[tuple[str, str]] = Counter()

    def note(self, process: str, moved: Mapping[str, int]) -> None:
        """Note what a process has moved since it began; a report that comes late changes nothing."""
        told = self._told.setdefault(process, Counter())
        for kind, count in moved.items():  # with every report of every node: no new counter is made
            told[kind] = max(told[kind], count)

    def go_on(self, summary: Mapping[str, Any]) -> None:
        """Take over what a job had moved before this controller was there (see `figures`)."""
        self._before = Counter(summary.get("bytes_moved", {})) + Counter({KEPT: summary.get("bytes_not_read", 0)})
        self._links_before = Counter({(one, other): count for one, other, count in summary.get("bytes_by_link", ())})

    def figures(self) -> dict[str, Any]:
        """Return `bytes_moved` by kind, all kinds, and `bytes_not_read`; JSON-able."""
        total = sum(self._told.values(), self._before)
        return {"bytes_moved": {kind: total[kind] for kind in KINDS}, "bytes_not_read": total[KEPT]}

    def links(self) -> list[list[Any]]:
        """Return what pairs of nodes have exchanged, as [node, node, bytes]; "" is the controller. JSON-able."""
        total = self._links_before.copy()
        for process, told in self._told.items():
            for key, count in told.items():
                if key.startswith(_LINK):
                    address = key.removeprefix(_LINK)
                    one, other = sorted((self.names.get(process, process), self.names.get(address, address)))
                    total[one, other] += count
        return [[one, other, count] for (one, other), count in sorted(total.items()) if one != other]


def state_bytes(states: Iterable[ShardState]) -> int:
    """Return what the arrays of states take on the way, in bytes."""
    return sum(
        sent_bytes([state.arrays]) + sum(wire_bytes(of) for *_, update in state.later for of in update.values())
        for state in states
    )


def sent_bytes(shards: Iterable[Mapping[str, NDArray[np.generic]]]) -> int:
    """Return what the arrays of shards take on the way, in bytes."""
    return sum(wire_bytes(array) for arrays in shards for array in arrays.values())


def arrays_bytes(shards: Iterable[Mapping[str, NDArray[np.generic]]]) -> int:
    """Return how large the arrays of shards, or of partitions, are, in bytes."""
    return sum(array.nbytes for arrays in shards for array in arrays.values())
