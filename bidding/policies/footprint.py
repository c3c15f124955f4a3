"""The held allocations in the terms of equations (1)-(4): cost per work with and without one more allocation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.economics import equations
from proteus_spot.bidding.economics.equations import Overheads, expected_hour, time_left_s
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.market.model import HOUR_S, Allocation, Tier
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR
from proteus_spot.bidding.policies.base import MarketView

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Part:
    """One allocation in the terms of equations (1)-(3): a column of `equations.weigh`'s footprint.

    Attributes
    ----------
    beta : probability of eviction within the hour.
    cost_usd : C, expected dollars until the hour ends.
    useful_s : ω, seconds.
    rate : k ν, vCPUs that compute; 0 for a machine that only serves.
    """

    beta: float
    cost_usd: float
    useful_s: float
    rate: float


@dataclass(frozen=True, slots=True)
class Offers:
    """Alternative allocations in the same terms: shape (markets, deltas), and `rate` of shape (markets,)."""

    beta: Floats
    cost_usd: Floats
    useful_s: Floats
    rate: Floats


#: No allocation at all, as an offer.
_NOTHING = Offers(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)), np.zeros(1))


@lru_cache(maxsize=4096)  # every hour's end of a tick weighs the same footprint
def part(
    beta: float, median_s: float, price: int, count: int, vcpu: float, left_s: int, *, refunded: bool = True
) -> Part:
    """Return the part that `count` instances of `vcpu` at `price` (micro-dollars an hour) are for `left_s`.

    `refunded`: whether an eviction refunds the hour; if not, its seconds are paid.
    """
    cost_usd, useful_s = expected_hour(beta, median_s, price, count, left_s, refunded)
    return Part(beta, float(cost_usd), float(useful_s), float(count * vcpu))


def offers(beta: Floats, median_s: Floats, price: Floats, count: Floats, vcpu: Floats, *, refunded: bool) -> Offers:
    """Return an hour's purchases in many markets.

    Parameters
    ----------
    beta, median_s : β and the median seconds to an eviction, shape (markets, deltas).
    price, count, vcpu : micro-dollars an hour, instances, and vCPUs of one; shape (markets,).
    refunded : whether an eviction refunds the hour; if not, its seconds are paid.
    """
    beta, median_s = np.ascontiguousarray(beta), np.ascontiguousarray(median_s)
    cost_usd, useful_s = expected_hour(beta, median_s, price[:, np.newaxis], count[:, np.newaxis], HOUR_S, refunded)
    return Offers(beta, cost_usd, useful_s, count * vcpu)


def held_part(view: MarketView, allocation: Allocation, left_s: int | None = None) -> Part:
    """Return the part that a held allocation is until its last decided hour ends, or for `left_s` seconds.

    A market without a present price keeps its last one, but none above the bid, for a live allocation has not been
    outbid. Without any price the bid is used, the highest that it can be. The bid delta is the bid less the present
    price; a price above the bid means that the allocation is being taken.
    """
    if left_s is None:
        paid_until_s = view.paid_until_s.get(allocation.allocation_id)
        left_s = time_left_s(allocation, view.now_s) if paid_until_s is None else paid_until_s - view.now_s
    kind = view.types[allocation.market.instance_type]
    if allocation.bid_micros is None:
        working = view.work_of(allocation.market) if allocation.tier is Tier.TRANSIENT or view.job.reliable_works else 0
        return part(0.0, HOUR_S, kind.on_demand_micros, allocation.count, working, left_s)
    price = view.prices.get(allocation.market)
    if price is None:
        price = min(view.last_prices.get(allocation.market, allocation.bid_micros), allocation.bid_micros)
    beta, median = view.evictions.of_bid(allocation.market, allocation.bid_micros - price)
    refunded = view.job.is_refunded(first_hour=view.now_s + left_s <= allocation.launched_at_s + HOUR_S)
    hourly = view.job.hour_micros(price)
    held = part(beta, median, hourly, allocation.count, view.work_of(allocation.market), left_s, refunded=refunded)
    crossing_usd = view.crossing_usd(allocation.market)
    if not crossing_usd:
        return held
    return replace(held, cost_usd=held.cost_usd + crossing_usd * held.rate * held.useful_s / HOUR_S)


def with_crossing(bought: Offers, crossing_usd: Floats) -> Offers:
    """Return the offers with what their bytes between zones cost.

    Parameters
    ----------
    crossing_usd : dollars per vCPU-hour of work, shape (markets,).
    """
    usd = (crossing_usd * bought.rate)[:, np.newaxis] * bought.useful_s / HOUR_S
    return replace(bought, cost_usd=bought.cost_usd + usd)


def per_work(parts: Sequence[Part], view: MarketView, *, resized: bool) -> tuple[float, float, float]:
    """Return (E, C, W) of the parts together: dollars per vCPU-hour, dollars, vCPU-hours.

    Notes
    -----
    Source: Proteus (EuroSys 2017), equations (1)-(4); σ only where the decision changes the footprint.
    """
    each, cost_usd, work = _weighed(parts, _NOTHING, view, resized=resized)[0, :, 0].tolist()
    return each, cost_usd, work


def per_work_with(parts: Sequence[Part], bought: Offers, view: MarketView) -> tuple[Floats, Floats, Floats]:
    """Return (E, C, W) of the parts with each offer, of shape (markets, deltas) each.

    The footprint changes, so σ is paid.
    """
    out = _weighed(parts, bought, view, resized=True)
    return out[:, equations.EACH], out[:, equations.TOTAL], out[:, equations.WORK]


def _weighed(parts: Sequence[Part], bought: Offers, view: MarketView, *, resized: bool) -> Floats:
    columns = [(each.beta, each.cost_usd, each.useful_s, each.rate) for each in parts]
    footprint = np.array(columns, dtype=np.float64).reshape(-1, 4).T.copy()
    job, out = view.job, np.empty((len(bought.rate), 3, bought.beta.shape[1]))
    resize_s = float(job.resize_overhead_s) if resized else 0.0
    overheads = Overheads(float(job.eviction_overhead_s), resize_s, float(job.scaling_efficiency))
    equations.per_work(footprint, bought.beta, bought.cost_usd, bought.useful_s, bought.rate, overheads, out)
    return out


def usd_per_work(cost: float, job: JobModel) -> str:
    """Return a cost per work for a reader."""
    return f"${cost:.5f}/{job.unit_name}-h" if np.isfinite(cost) else "no work at all"


def price_text(micros: int) -> str:
    """Return a price for a reader."""
    return f"${micros / MICROS_PER_DOLLAR:.4f}"
