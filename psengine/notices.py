"""How long a node that was told to go works on. Pure.

What it serves moves when the next clock has become common, while it works; its partitions are loaded elsewhere meanwhile. New work it is
given until what is left of its time is needed for the last of it: to finish what it runs, and to hand over what it still
serves.

Source: Proteus (EuroSys 2017), 3.3 (the eviction warning is used to end well).
"""

from __future__ import annotations

#: seconds that are always left: for the way of the orders and the reports, and a clock that is not ours
FLOOR_S = 2.0
_TIMES = 3.0


def work_until_s(until_s: float, clock_s: float, hand_over_s: float) -> float:
    """Return the moment from which on a node gets no new work; it may have passed already.

    Parameters
    ----------
    until_s : float
        When its notice runs out.
    clock_s : float
        How long the longest of the last clocks took, hence a node's work in one of them.
    hand_over_s : float
        How long it takes to bring what it serves to another node; 0 where it serves nothing any more.
    """
    return until_s - (FLOOR_S + _TIMES * clock_s + _TIMES * hand_over_s)
