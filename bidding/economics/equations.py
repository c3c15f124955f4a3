"""Equations (1)-(4): the expected cost of a footprint, in total and per unit of work.

This is the only implementation of each equation. The functions of one allocation take numbers or arrays that broadcast
together, and compiled functions call them, too. `weigh` combines the allocations for the loop of the backtest, and
`per_work` calls it for the live policies: both get the same numbers to the last bit, so a tie in one is a tie in the
other.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.billing.expected import paid_share
from proteus_spot.bidding.jit import entry, inline_jit, jitable
from proteus_spot.bidding.market.model import HOUR_S, Allocation
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR

Floats = NDArray[np.float64]
Figures = TypeVar("Figures", float, Floats)

#: Rows of a footprint's array, one column per allocation: β, C in dollars, ω in seconds, and k ν, the computing vCPUs.
BETA, COST, USEFUL_S, RATE = range(4)
#: Rows of the result: E in dollars per vCPU-hour, C in dollars, W in vCPU-hours.
EACH, TOTAL, WORK = range(3)


class Overheads(NamedTuple):
    """Overheads during which a footprint makes no progress.

    Attributes
    ----------
    eviction_s : λ.
    resize_s : σ where the decision changes the footprint, else 0.
    efficiency : φ, in (0, 1].
    """

    eviction_s: float
    resize_s: float
    efficiency: float


def time_left_s(allocation: Allocation, now_s: int) -> int:
    """Return t_r, the seconds left in the allocation's billing hour; a whole hour where one begins, in (0, 3600]."""
    return min(allocation.hour_ends_at_s(now_s) - now_s, HOUR_S)


@jitable
def useful_time_s(beta: Figures, median_s: Figures, left_s: float) -> Figures:
    """Return ω, the expected seconds until the hour ends or the eviction comes.

    Parameters
    ----------
    beta : β, in [0, 1].
    median_s : median time to an eviction, given that one comes within the hour; seconds.
    left_s : t_r, seconds left in the billing hour.

    Notes
    -----
    ω = (1 - β) t_r + β min(median, t_r).

    Source: Proteus (EuroSys 2017), section 4.1, "Expected Work".
    """
    useful_s: Figures = (1.0 - beta) * left_s + beta * np.minimum(median_s, left_s)
    return useful_s


@jitable
def expected_cost_usd(paid: Figures, hour_micros: Figures, count: Figures, left_s: float) -> Figures:
    """Return C of an allocation in dollars.

    Parameters
    ----------
    paid : the part of the time left that is expected to be paid, as `bidding.billing.expected.paid_share`.
    hour_micros : P, hourly price of one instance in micro-dollars.
    count : k, instances.
    left_s : t_r, seconds left in the billing hour.

    Notes
    -----
    (1) C[x_i] = (1 - β_i) P_i k_i t_r + β_i 0.

    Source: Proteus (EuroSys 2017), section 4.1, equation (1).
    Differs: `paid` stands for 1 - β where billing refunds no hour.
    """
    return paid * (hour_micros / MICROS_PER_DOLLAR) * count * (left_s / HOUR_S)


@jitable
def expected_hour(
    beta: Figures, median_s: Figures, hour_micros: Figures, count: Figures, left_s: float, refunded: bool
) -> tuple[Figures, Figures]:
    """Return (C in dollars, ω in seconds) of an allocation for the time left.

    `refunded`: whether an eviction refunds the hour; if not, its seconds are paid.
    """
    useful_s = useful_time_s(beta, median_s, left_s)
    return expected_cost_usd(paid_share(refunded, beta, useful_s, left_s), hour_micros, count, left_s), useful_s


@jitable
def overhead_s(any_eviction: Figures, eviction_overhead_s: float, resize_overhead_s: float) -> Figures:
    """Return the seconds in which nothing of the footprint makes progress: what equation (2) takes off ω.

    Parameters
    ----------
    any_eviction : 1 - Π(1 - β_j) over the footprint, in [0, 1].
    eviction_overhead_s : λ.
    resize_overhead_s : σ where the decision changes the footprint, else 0.
    """
    return any_eviction * eviction_overhead_s + resize_overhead_s


@jitable
def effective_time_s(useful_s: float, lost_s: float) -> float:
    """Return Δt, the seconds in which an allocation makes progress.

    Parameters
    ----------
    useful_s : ω of the allocation.
    lost_s : `overhead_s` of the footprint.

    Notes
    -----
    (2) Δt = ω - (1 - Π(1 - β_j)) λ - σ.

    Source: Proteus (EuroSys 2017), section 4.1, equation (2).
    Differs: never below zero; overheads cannot undo work that is done.
    """
    return max(useful_s - lost_s, 0.0)


@jitable
def cost_per_work(cost: float, work: float) -> float:
    """Return E, the cost of a unit of work; infinite where no useful work is expected.

    Notes
    -----
    (4) E = C / W.

    Source: Proteus (EuroSys 2017), section 4.2, equation (4).
    """
    return cost / work if work > 0.0 else np.inf


@inline_jit
def weigh(
    footprint: Floats,
    held: int,
    beta: Floats,
    usd: Floats,
    useful_s: Floats,
    rate: float,
    overheads: Overheads,
    out: Floats,
) -> None:
    """Write E, C and W of the held allocations with each of several alternative offers.

    Parameters
    ----------
    footprint : shape (4, columns), of which the first `held` count; see BETA, COST, USEFUL_S, RATE.
    beta, usd, useful_s, rate : β, C and ω of the offers, shape (offers,); k ν of each.
    out : shape (3, columns), of which as many are written as there are offers; see EACH, TOTAL, WORK.

    Notes
    -----
    (3) W = φ Σ k_i Δt_i ν_i.

    Source: Proteus (EuroSys 2017), equations (1)-(4). The offers are the inner loop, which the compiler vectorises.
    """
    survives, cost_usd = 1.0, 0.0
    for member in range(held):
        survives = survives * (1.0 - footprint[BETA, member])
        cost_usd = cost_usd + footprint[COST, member]
    offers, lost_s, work = len(beta), out[EACH], out[WORK]  # E takes the place of the seconds lost in the end
    for offer in range(offers):
        any_eviction = 1.0 - survives * (1.0 - beta[offer])
        lost_s[offer] = overhead_s(any_eviction, overheads.eviction_s, overheads.resize_s)
        work[offer] = 0.0
    for member in range(held):
        member_useful_s, member_rate = footprint[USEFUL_S, member], footprint[RATE, member]
        for offer in range(offers):
            work[offer] += member_rate * effective_time_s(member_useful_s, lost_s[offer])
    hourly = overheads.efficiency / HOUR_S
    for offer in range(offers):
        work[offer] = (work[offer] + rate * effective_time_s(useful_s[offer], lost_s[offer])) * hourly
        out[TOTAL, offer] = cost_usd + usd[offer]
        out[EACH, offer] = cost_per_work(out[TOTAL, offer], work[offer])


def _per_work(version: int) -> Callable[..., int]:
    def per_work(
        footprint: Floats,
        beta: Floats,
        usd: Floats,
        useful_s: Floats,
        rate: Floats,
        overheads: Overheads,
        out: Floats,
    ) -> int:
        for market in range(len(rate)):
            weigh(
                footprint,
                footprint.shape[1],
                beta[market],
                usd[market],
                useful_s[market],
                rate[market],
                overheads,
                out[market],
            )
        return version

    return per_work


#: `weigh` for callers in Python: a footprint of shape (4, allocations) with the offers of many markets. β, C and ω have
#: shape (markets, deltas), k ν has shape (markets,), the output (markets, 3, deltas); all float64 in C order.
per_work = entry(_per_work)
