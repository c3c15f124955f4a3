"""Whose heartbeats have stopped: a node that is silent for longer than a bound is done without. Pure.

| a node | then |
|---|---|
| is silent for `SILENCE_S` and was given nothing to do | it is taken for lost |
| works, and micro-tasks take long | it is given three times what the longest one took: a kernel may keep its process from everything else |
| works, and nobody knows yet how long micro-tasks take | it is given three times the bound |
| loads partitions | as much, for the same reason |
| serves, where clocks take long | it is given a clock, a minute at most: a sign of life waits behind what fills its link |

Only time counts in which the controller itself looked: one whose own process stood still has heard nothing, and takes nobody
for lost for that.

Source: Proteus (EuroSys 2017), 3.3 (failures of which there was no notice).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

#: seconds of silence after which a node that has nothing to do is taken for lost
SILENCE_S = 10.0
_TIMES = 3.0
#: seconds that a sign of life may wait for its link, at most
_LINK_S = 60.0
#: no more than this is counted between two looks, in seconds
_LOOK_AT_MOST_S = 1.0


def silence_timeout_s(at_work: bool, longest_micro_task_s: float | None, served_clock_s: float = 0.0) -> float:
    """Return the seconds that a node may be silent.

    Parameters
    ----------
    at_work : whether it runs, or prepares, something.
    longest_micro_task_s : None before any was done.
    served_clock_s : how long the longest of the last clocks took, of a node that serves; 0 of another one.
    """
    least_s = max(SILENCE_S, min(served_clock_s, _LINK_S))
    if not at_work:
        return least_s
    return max(least_s, _TIMES * (SILENCE_S if longest_micro_task_s is None else longest_micro_task_s))


class FailureDetector:
    """Silence of every process, by its address."""

    def __init__(self) -> None:
        self._looked_s: float | None = None
        #: {address: (its last beat, seconds of silence since)}
        self._silent: dict[str, tuple[float, float]] = {}

    def look(self, beats: Mapping[str, float], now_s: float, patience: Callable[[str], float]) -> dict[str, float]:
        """Return {address: seconds of silence} of those who are taken for lost.

        Parameters
        ----------
        beats : mapping
            {address: when its last heartbeat was, by any clock}; another value is a new beat.
        patience : callable
            Seconds that the process at an address may be silent.
        """
        passed = 0.0 if self._looked_s is None else min(now_s - self._looked_s, _LOOK_AT_MOST_S)
        self._looked_s = now_s
        before = self._silent
        self._silent = {}
        for address, beat in beats.items():
            last, silent_s = before.get(address, (beat, 0.0))
            self._silent[address] = beat, silent_s + passed if beat == last else 0.0
        return {address: silent for address, (_, silent) in self._silent.items() if silent > patience(address)}
