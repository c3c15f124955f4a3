"""How long a node that was told to go works on, and when what that means for the others is planned. Pure.

A market that withdraws many nodes tells each of them, and each looks for that by itself, so notices come one after the other. They are
answered together: planned for one at a time, shards would go to nodes that are told next.

Its partitions are loaded elsewhere while it works. New work it is given until what is left of its time is needed for the
last of it: to finish what it runs, and to hand over what it serves. That moves when the last clock that it does has become
common, or earlier if time presses. Those whose time comes together end with the same clock, as far as they can: of a clock that some of them have begun
and others have not, the rest would fall to whoever stands by for it, on top of his own.

Source: Proteus (EuroSys 2017), 3.3 (the eviction warning is used to end well).
"""

from __future__ import annotations

#: seconds that are always left: for the way of the orders and the reports, and a clock that is not ours
FLOOR_S = 2.0
_TIMES = 3.0
#: The same for those who have yet to begin the last clock of those whose time came with theirs.
_LAST_TIMES = 1.0
#: Seconds for which further notices are waited for, as long as nodes look for theirs apart; and of what is left, so much at most.
_TOGETHER_S, _TOGETHER_SHARE = 5.0, 0.05


class Gathering:
    """Notices that have come and were not answered yet."""

    def __init__(self) -> None:
        self._until_s: float | None = None

    @property
    def under_way(self) -> bool:
        """Whether there are any."""
        return self._until_s is not None

    def add(self, now_s: float, seconds_left: float) -> None:
        """Take a notice that runs out in `seconds_left`; the one with the least time sets when all are answered."""
        until_s = now_s + min(_TOGETHER_S, _TOGETHER_SHARE * seconds_left)
        self._until_s = until_s if self._until_s is None else min(until_s, self._until_s)

    def done(self, now_s: float) -> bool:
        """Return whether those that have come are to be answered now; once."""
        if self._until_s is None or now_s < self._until_s:
            return False
        self._until_s = None
        return True


def work_until_s(until_s: float, clock_s: float, hand_over_s: float, last: bool = False) -> float:
    """Return the moment from which on a node begins no further clock; it may have passed already.

    Parameters
    ----------
    until_s : float
        When its notice runs out.
    clock_s : float
        How long the longest of the last clocks took, hence a node's work in one of them.
    hand_over_s : float
        How long it takes to bring what those who go serve to other nodes; 0 where none of them serves anything.
    last : bool
        Return the moment from which on it begins nothing at all.
    """
    times = _LAST_TIMES if last else _TIMES
    return until_s - (FLOOR_S + times * clock_s + times * hand_over_s)


def hands_over_by_s(until_s: float, clock_s: float, hand_over_s: float) -> float:
    """Return the moment from which on a node does not keep what it serves, whatever is under way.

    Parameters
    ----------
    until_s : float
        When its notice runs out.
    clock_s : float
        As in `work_until_s`. Whoever reads whole tables moves more in it than a hand-over does.
    hand_over_s : float
        How long it takes to bring what is served to other nodes; 0 if that is not known.
    """
    return until_s - (FLOOR_S + max(_TIMES * hand_over_s, clock_s))
