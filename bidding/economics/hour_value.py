"""Expected cost and work of one purchased machine hour."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.billing.expected import paid_share
from proteus_spot.bidding.economics.equations import EACH, TOTAL, WORK, cost_per_work
from proteus_spot.bidding.jit import entry, inline_jit, jitable
from proteus_spot.bidding.market.model import HOUR_S

Floats = NDArray[np.float64]


class Surroundings(NamedTuple):
    """Conditions under which an hour of machines is weighed.

    Attributes
    ----------
    resize_s, eviction_s, efficiency : σ, λ and φ.
    others : other vCPUs that compute; they stand still for σ and λ, too, and the purchase is charged for it.
    tier_micros : cost of the reliable tier per hour; the purchase bears its share.
    refunded : whether an eviction refunds the hour; if not, its seconds are paid.
    """

    resize_s: float
    eviction_s: float
    efficiency: float
    others: float
    tier_micros: float
    refunded: bool


@jitable
def cost_and_work(
    micros: float, vcpus: float, beta: float, useful_s: float, around: Surroundings
) -> tuple[float, float]:
    """Return (C, W) of an hour of machines: expected micro-dollars, and vCPU-seconds of work, which may be below 0.

    Parameters
    ----------
    micros, vcpus : cost of the whole hour, and the vCPUs that it buys.
    beta, useful_s : β, the probability of an eviction; ω, the seconds until that or the hour's end.

    Notes
    -----
    Source: Proteus (EuroSys 2017), equations (1)-(3), for one purchase.
    """
    overhead_s = around.resize_s + beta * around.eviction_s
    work = (vcpus * (useful_s - overhead_s) - around.others * overhead_s) * around.efficiency
    tier = around.tier_micros * (useful_s / HOUR_S) * (vcpus / (vcpus + around.others))
    return paid_share(around.refunded, beta, useful_s, float(HOUR_S)) * micros + tier, work


@inline_jit
def weigh_hour(micros: float, vcpus: float, beta: Floats, useful_s: Floats, around: Surroundings, out: Floats) -> None:
    """Write E, C and W of an hour of machines under each bid.

    Parameters
    ----------
    micros, vcpus : cost of the whole hour, and the vCPUs that it buys.
    beta, useful_s : β and ω of the bids, shape (bids,)
    out : shape (3, columns); the first `bids` columns are written. See `equations.EACH`, `TOTAL`, `WORK`. In
        micro-dollars per vCPU-second, micro-dollars, vCPU-seconds.

    Notes
    -----
    Source: Proteus (EuroSys 2017), equations (1)-(4), for one purchase.
    """
    for bid in range(len(beta)):
        cost, work = cost_and_work(micros, vcpus, beta[bid], useful_s[bid], around)
        out[EACH, bid], out[TOTAL, bid], out[WORK, bid] = cost_per_work(cost, work), cost, work


def _hours_per_work(version: int) -> Callable[..., int]:
    def hours_per_work(
        micros: Floats, vcpus: Floats, beta: Floats, useful_s: Floats, around: Surroundings, out: Floats
    ) -> int:
        for market in range(len(micros)):
            weigh_hour(micros[market], vcpus[market], beta[market], useful_s[market], around, out[market])
        return version

    return hours_per_work


#: `weigh_hour` for callers in Python, of many markets: C of the hour and vCPUs of shape (markets,), β and ω of shape
#: (markets, bids), the output of shape (markets, 3, bids); all float64 in C order.
hours_per_work = entry(_hours_per_work)
