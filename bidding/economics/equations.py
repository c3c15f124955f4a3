"""What a footprint is expected to cost, and that per unit of work: equations (1) and (4)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bidding.market.model import HOUR_S
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
