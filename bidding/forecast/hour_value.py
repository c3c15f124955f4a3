"""What an hour of machines is worth: the cost of the work that can be expected of it."""

from typing import Any, cast

import numpy as np
from numba import njit

from bidding.billing.expected import compiled_paid_share
from bidding.market.model import HOUR_S


@njit(cache=True)  # type: ignore[misc,unused-ignore]  # numba has no types
def _cost_and_work(
    micros: float,
    vcpus: float,
    beta: float,
    useful_s: float,
    resize_s: float,
    eviction_s: float,
    efficiency: float,
    others: float,
    tier_micros: float,
    refunded: bool,
) -> tuple[float, float]:
    """Return (C, W) of an hour of machines: expected micro-dollars, and vCPU-seconds of work, which may be below 0.

    Parameters
    ----------
    micros, vcpus : what the whole hour costs, and the vCPUs that it buys.
    beta, useful_s : β, the chance of an eviction; ω, the seconds until that or the hour's end.
    resize_s, eviction_s, efficiency : σ, λ and φ.
    others : vCPUs that work beside it; they stand still for σ and λ, too, for which the purchase answers.
    tier_micros : what the reliable tier costs an hour; the purchase bears its share.
    refunded : whether an eviction brings back what the hour has cost; if not, its seconds are paid.

    Notes
    -----
    Source: Proteus (EuroSys 2017), equations (1)-(3), for one purchase.
    """
    overhead_s = resize_s + beta * eviction_s
    work = (vcpus * (useful_s - overhead_s) - others * overhead_s) * efficiency
    tier = tier_micros * (useful_s / HOUR_S) * (vcpus / (vcpus + others))
    return compiled_paid_share(refunded, beta, useful_s, float(HOUR_S)) * micros + tier, work


@njit(cache=True)  # type: ignore[misc,unused-ignore]
def _cost_per_work(
    micros: float,
    vcpus: float,
    beta: float,
    useful_s: float,
    resize_s: float,
    eviction_s: float,
    efficiency: float,
    others: float,
    tier_micros: float,
    refunded: bool,
) -> float:
    """Return micro-dollars per vCPU-second of an hour of machines, infinite where no work is to be expected.

    The parameters are those of `cost_and_work`.

    Notes
    -----
    Source: Proteus (EuroSys 2017), equation (4), for one purchase.
    """
    cost, work = _cost_and_work(
        micros, vcpus, beta, useful_s, resize_s, eviction_s, efficiency, others, tier_micros, refunded
    )
    return cost / work if work > 0.0 else np.inf


#: The compiled functions, for compiled callers.
cost_and_work = cast(Any, _cost_and_work)
cost_per_work = cast(Any, _cost_per_work)
