"""Which nodes are considered lost: those whose heartbeats have stopped for longer than a timeout.

| a node | its timeout |
|---|---|
| has nothing to do | `SILENCE_S` |
| works, and tasks take long | three times the longest one: a kernel may block everything else in its process |
| works, and no task has completed yet | three times `SILENCE_S` |
| loads partitions | three times `SILENCE_S`, for the same reason |
| serves, where clocks take long | one clock, at most a minute: a heartbeat waits behind the data on its link |

Whatever a node does, it has the time of four heartbeats, which come less often the more nodes there are.

Only time during which the controller polled counts: if its own process was stopped, it received no heartbeat, and
considers no node lost for that.

Source: Proteus (EuroSys 2017), 3.3 (failures of which there was no notice).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

#: Seconds of silence after which an idle node is considered lost.
SILENCE_S = 10.0
_TIMES = 3.0
#: Number of successive heartbeats that have to be missing.
_BEATS = 4
#: Maximum seconds that a heartbeat may wait for its link.
_LINK_S = 60.0
#: Maximum seconds counted between two polls.
_LOOK_AT_MOST_S = 1.0


def silence_timeout_s(at_work: bool, longest_task_s: float | None, served_clock_s: float = 0.0) -> float:
    """Return the seconds that a node may be silent.

    Parameters
    ----------
    at_work : bool
        Whether it runs, or prepares, something.
    longest_task_s : float or None
        Seconds of the longest task; None before any was done.
    served_clock_s : float
        Seconds of the longest of the recent clocks if the node serves shards, else 0.
    """
    least_s = max(SILENCE_S, min(served_clock_s, _LINK_S))
    if not at_work:
        return least_s
    return max(least_s, _TIMES * (SILENCE_S if longest_task_s is None else longest_task_s))


def heartbeat_interval_s(n_nodes: int) -> float:
    """Return the seconds between two heartbeats of a node, as Dask's scheduler sets them for `n_nodes`."""
    if n_nodes <= 10:
        return 0.5
    if n_nodes < 50:
        return 1.0
    return 2.0 if n_nodes < 200 else n_nodes / 200 + 1


class FailureDetector:
    """Seconds of silence of every process, by its address."""

    def __init__(self) -> None:
        self._looked_s: float | None = None
        #: {address: (last heartbeat, seconds of silence since)}.
        self._silent: dict[str, tuple[float, float]] = {}

    def look(self, beats: Mapping[str, float], now_s: float, timeout_s: Callable[[str], float]) -> dict[str, float]:
        """Return {address: seconds of silence} of the processes that are considered lost.

        Parameters
        ----------
        beats : mapping
            {address: time of its last heartbeat, by any clock}; another value is a new heartbeat.
        timeout_s : callable
            Returns the seconds that the process at an address may be silent; it is given four heartbeats at least.
        """
        least_s = _BEATS * heartbeat_interval_s(len(beats))
        passed = 0.0 if self._looked_s is None else min(now_s - self._looked_s, _LOOK_AT_MOST_S)
        self._looked_s = now_s
        before = self._silent
        self._silent = {}
        for address, beat in beats.items():
            last, silent_s = before.get(address, (beat, 0.0))
            self._silent[address] = beat, silent_s + passed if beat == last else 0.0
        return {
            address: silent
            for address, (_, silent) in self._silent.items()
            if silent > max(least_s, timeout_s(address))
        }
