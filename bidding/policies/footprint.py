"""A footprint as arrays, and its cost per work with and without one more allocation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bidding.billing.expected import paid_share
from bidding.economics.equations import cost_per_work, effective_time_s, expected_cost_usd, time_left_s, useful_time_s
from bidding.market.model import HOUR_S, Allocation, Tier
from bidding.market.money import MICROS_PER_DOLLAR
from bidding.policies.base import MarketView

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """One or many alternative allocations in the terms of equations (1)-(3); the arrays broadcast together.

    Attributes
    ----------
    beta : probability of eviction within the hour.
    cost_usd : C, expected dollars until the hour ends.
    useful_s : ω, seconds.
    rate : k ν, vCPUs that compute; 0 for a machine that only serves.
    """

    beta: Floats
    cost_usd: Floats
    useful_s: Floats
    rate: Floats


def part(
    beta: ArrayLike,
    median_s: ArrayLike,
    price: ArrayLike,
    count: ArrayLike,
    vcpu: ArrayLike,
    left_s: int,
    *,
    refunded: bool = True,
) -> Part:
    """Return the part that `count` instances of `vcpu` at `price` (micro-dollars an hour) are for `left_s`.

    `refunded` says whether an eviction brings back what the hour has cost; if not, its seconds are paid.
    """
    beta = np.asarray(beta, dtype=np.float64)
    useful_s = useful_time_s(beta, median_s, left_s)
    return Part(
        beta=beta,
        cost_usd=expected_cost_usd(beta, price, count, left_s, paid_share(refunded, beta, useful_s, left_s)),
        useful_s=useful_s,
        rate=np.asarray(count, dtype=np.float64) * np.asarray(vcpu),
    )


def held_part(view: MarketView, allocation: Allocation, left_s: int | None = None) -> Part:
    """Return the part that a held allocation is until its last decided hour ends, or for `left_s` seconds.

    A market without a price now has its last one, but none above the bid, for what lives has not been outbid; were
    none ever seen, the bid is the most that it can be. The bid delta now is what the bid stands above the present price; a price above the bid means that it is being taken.
    """
    if left_s is None:
        paid_until_s = view.paid_until_s.get(allocation.allocation_id)
        left_s = time_left_s(allocation, view.now_s) if paid_until_s is None else paid_until_s - view.now_s
    kind = view.types[allocation.market.instance_type]
    if allocation.bid_micros is None:
        working = kind.vcpu if allocation.tier is Tier.TRANSIENT or view.job.reliable_works else 0
        return part(0.0, HOUR_S, kind.on_demand_micros, allocation.count, working, left_s)
    price = view.prices.get(allocation.market)
    if price is None:
        price = min(view.last_prices.get(allocation.market, allocation.bid_micros), allocation.bid_micros)
    beta, median = view.evictions.of_bid(allocation.market, allocation.bid_micros - price)
    refunded = view.job.is_refunded(first_hour=view.now_s + left_s <= allocation.launched_at_s + HOUR_S)
    hourly = view.job.hour_micros(price)
    return part(beta, median, hourly, allocation.count, kind.vcpu, left_s, refunded=refunded)


def per_work(parts: Sequence[Part], view: MarketView, *, resized: bool) -> tuple[Floats, Floats, Floats]:
    """Return (E, C, W) of the parts together.

    E is in dollars per vCPU-hour, C in dollars, W in vCPU-hours; the shape is what the parts broadcast to.

    Notes
    -----
    Source: Proteus (EuroSys 2017), equations (1)-(4); σ only where the decision changes the footprint.
    """
    survives: Floats = np.asarray(1.0)
    cost: Floats = np.asarray(0.0)
    for p in parts:
        survives = survives * (1.0 - p.beta)
        cost = cost + p.cost_usd
    job = view.job
    sigma = job.resize_overhead_s if resized else 0.0
    work: Floats = np.asarray(0.0)
    for p in parts:
        work = work + p.rate * effective_time_s(p.useful_s, 1.0 - survives, job.eviction_overhead_s, sigma)
    work = work * (job.scaling_efficiency / HOUR_S)
    return cost_per_work(cost, work), cost, work


def usd_per_vcpu_h(cost: float) -> str:
    """Return a cost per work for a reader."""
    return f"${cost:.5f}/vCPU-h" if np.isfinite(cost) else "no work at all"


def price_text(micros: int) -> str:
    """Return a price for a reader."""
    return f"${micros / MICROS_PER_DOLLAR:.4f}"
