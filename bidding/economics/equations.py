"""What a footprint is expected to cost, and that per unit of work: equations (1) and (4)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bidding.market.model import HOUR_S, Allocation
from bidding.market.money import MICROS_PER_DOLLAR


def expected_cost_usd(
    eviction_prob: ArrayLike,
    price_micros: ArrayLike,
    counts: ArrayLike,
    left_s: ArrayLike,
    paid: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """Return C of each allocation in dollars: an evicted hour is refunded, if nothing else is said.

    Parameters
    ----------
    eviction_prob : β, in [0, 1].
    price_micros : P, hourly price of one instance in micro-dollars.
    counts : k, instances.
    left_s : t_r, seconds left in the billing hour.
    paid : the part of them that is expected to be paid, as `bidding.billing.expected.paid_share`; None: 1 - β.

    Notes
    -----
    (1) C[x_i] = (1 - β_i) P_i k_i t_r + β_i 0.

    Source: Proteus (EuroSys 2017), section 4.1, equation (1).
    Differs: `paid` stands for 1 - β where billing refunds no hour.
    """
    hours = np.asarray(left_s, dtype=np.float64) / HOUR_S
    dollars = np.asarray(price_micros, dtype=np.float64) / MICROS_PER_DOLLAR
    share = 1.0 - np.asarray(eviction_prob, dtype=np.float64) if paid is None else np.asarray(paid, dtype=np.float64)
    cost: NDArray[np.float64] = share * dollars * np.asarray(counts) * hours
    return cost


def cost_per_work(cost_usd: ArrayLike, work: ArrayLike) -> NDArray[np.float64]:
    """Return E, dollars per unit of work; infinite where no useful work is expected.

    Notes
    -----
    (4) E = C / W.

    Source: Proteus (EuroSys 2017), section 4.2, equation (4).
    """
    cost, done = np.broadcast_arrays(np.asarray(cost_usd, dtype=np.float64), np.asarray(work, dtype=np.float64))
    each: NDArray[np.float64] = np.divide(cost, done, out=np.full(cost.shape, np.inf), where=done > 0)
    return each


def effective_time_s(
    useful_s: ArrayLike, any_eviction_prob: ArrayLike, eviction_overhead_s: float, resize_overhead_s: ArrayLike
) -> NDArray[np.float64]:
    """Return Δt, the seconds in which an allocation makes progress.

    Parameters
    ----------
    useful_s : ω of the allocation, seconds.
    any_eviction_prob : 1 - Π(1 - β_j) over the footprint, in [0, 1].
    eviction_overhead_s : λ, seconds.
    resize_overhead_s : σ, seconds where the decision changes the footprint, else 0.

    Notes
    -----
    (2) Δt = ω - (1 - Π(1 - β_j)) λ - σ.

    Source: Proteus (EuroSys 2017), section 4.1, equation (2).
    Differs: never below zero; overheads cannot undo work that is done.
    """
    overhead = np.asarray(any_eviction_prob) * eviction_overhead_s + np.asarray(resize_overhead_s)
    effective: NDArray[np.float64] = np.maximum(np.asarray(useful_s) - overhead, 0.0)
    return effective


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
