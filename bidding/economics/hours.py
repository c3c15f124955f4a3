"""Time within the billing hour: what is left of it, and how much of that is expected to be useful."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bidding.market.model import HOUR_S, Allocation


def time_left_s(allocation: Allocation, now_s: int) -> int:
    """Return t_r, the seconds left in the allocation's billing hour; a whole hour where one begins, in (0, 3600]."""
    return min(allocation.hour_ends_at_s(now_s) - now_s, HOUR_S)


def useful_time_s(eviction_prob: ArrayLike, median_eviction_s: ArrayLike, left_s: ArrayLike) -> NDArray[np.float64]:
    """Return ω, the expected seconds until the hour ends or the eviction comes.

    Parameters
    ----------
    eviction_prob : β, in [0, 1].
    median_eviction_s : median time to an eviction, given that one comes within the hour; seconds.
    left_s : t_r, seconds left in the billing hour. All broadcast together.

    Notes
    -----
    ω = (1 - β) t_r + β min(median, t_r).

    Source: Proteus (EuroSys 2017), section 4.1, "Expected Work".
    """
    beta, median, left = (np.asarray(a, dtype=np.float64) for a in (eviction_prob, median_eviction_s, left_s))
    return (1.0 - beta) * left + beta * np.minimum(median, left)
