"""Which observations of a job's progress are kept: all of an hour, then one a minute, then one per ten minutes."""

from collections.abc import Iterable
from itertools import pairwise

from proteus_spot.bidding.market.model import HOUR_S

#: An observation older than `[0]` seconds is kept if it is the last within its `[1]` seconds; the oldest class first.
_CLASSES = ((24 * HOUR_S, 600), (HOUR_S, 60))
#: Market seconds after which observations are thinned again.
EVERY_S = 600


def due(before_s: float | None, at_s: float) -> bool:
    """Return whether to thin at an observation of `at_s`, given the time of the one before."""
    return before_s is not None and before_s // EVERY_S != at_s // EVERY_S


def thin_before_s(newest_s: float) -> float:
    """Return the time before which observations are thinned."""
    return newest_s - HOUR_S


def superfluous(rows: Iterable[tuple[int, float]], newest_s: float) -> list[int]:
    """Return the ids to remove of `rows`, pairs of id and market time in order of the ids; the last row stays."""
    return [row_id for (row_id, at_s), (_, next_s) in pairwise(rows) if _share_a_slot(at_s, next_s, newest_s)]


def _share_a_slot(at_s: float, next_s: float, newest_s: float) -> bool:
    for age_s, slot_s in _CLASSES:
        if at_s < newest_s - age_s:
            return at_s // slot_s == next_s // slot_s
    return False
