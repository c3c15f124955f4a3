"""The policy `deadline` of a live job: spot machines of the market whose work is expected to cost least.

It decides of spot alone. The safety net, machines on demand when the deadline's slack is gone, is every policy's
(`policies.limits`), and so are budget, quota and the number of machines that help.
"""

from dataclasses import dataclass
from math import inf, log1p

from proteus_spot.bidding.market.model import HOUR_S, Allocation, Market, Tier
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR
from proteus_spot.bidding.policies.base import Candidate, Choice, Decision, MarketView
from proteus_spot.bidding.policies.deadline.fleet import work_price
from proteus_spot.bidding.policies.footprint import price_text, usd_per_vcpu_h
from proteus_spot.bidding.policies.offers import SHOWN, counts_of, explained, markets_text, nothing_on_sale

#: Hours for which a machine is assumed to be needed where no deadline tells.
_NEEDED_H = 4.0
#: β of a market that is sure to take a machine within the hour; it has no hazard.
_SURE = 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class _Pressure:
    """What the deadline asks for: vCPUs on average, and for how long."""

    vcpus: float
    hours: float


class DeadlinePolicy:
    """Machines of the market with the least dollars per unit of work, what losses and joining cost included.

    Where a bid is asked for, it is the on-demand price: a machine is never worth more. More
    machines are bought while they lower the dollars per unit of work, in which an hour costs `value_of_time_usd_per_h`;
    with a deadline also while fewer are held than its work needs on average.

    Notes
    -----
    A unit of work is priced as in `fleet`, which chooses machines of all markets at once. This policy buys in one
    market a decision, and knows no price above which work is expected to be had cheaper later.
    """

    def acquisition(self, view: MarketView) -> Decision:
        """Return the purchase of the cheapest work that is worth it, else WAIT."""
        counts, refusals = counts_of(view, view.left_vcpus)
        pressure = _pressure(view)
        costs = sorted((_fresh_usd(view, market, pressure), market) for market, count in counts.items() if count)
        if not costs or costs[0][0] == inf:
            return _wait(nothing_on_sale(refusals))
        candidates = [_candidate(view, market, counts[market], usd) for usd, market in costs[:SHOWN]]
        best, weighed = candidates[0], markets_text(len(costs), refusals)
        text = (
            f"{best.count} x {best.market} at {price_text(best.price_micros)} (loss within the hour "
            f"{best.eviction_prob:.0%}): work costs {usd_per_vcpu_h(best.cost_per_work)}, the least of {weighed}"
        )
        now, held = _held_usd(view), view.spot_vcpus
        average = (now + view.job.value_of_time_usd_per_h) / held if held else inf
        if best.cost_per_work > average * (1.0 + 1e-9) and held >= pressure.vcpus:
            reason = (
                f"{text}, more than the {usd_per_vcpu_h(average)} of the {held} vCPUs held, the value of time included"
            )
            return Decision(Choice.WAIT, reason, average, explained(candidates, average, bought=False))
        need = f"; the deadline needs {pressure.vcpus:.0f} vCPUs on average, {held} are held" if pressure.vcpus else ""
        return Decision(Choice.ACQUIRE, text + need, average, explained(candidates, average, bought=True))

    def renewal(self, view: MarketView, allocation: Allocation) -> Decision:
        """Return LAPSE where another market's work, its joining included, costs less than going on; else RENEW."""
        market, price = allocation.market, view.prices.get(allocation.market)
        if price is None:
            return Decision(Choice.RENEW, f"{market}: its price is not known, so it is kept", inf)
        pressure = _pressure(view)
        kind = view.types[market.instance_type]
        stays = price / MICROS_PER_DOLLAR / kind.vcpu + view.crossing_usd(market)
        counts, _ = counts_of(view, view.vcpus_of(allocation))
        others = [(_fresh_usd(view, other, pressure), other) for other, n in counts.items() if n and other != market]
        fresh, other = min(others, default=(inf, market))
        text = f"{market} at {price_text(price)}: its work costs {usd_per_vcpu_h(stays)}"
        if view.job.ceiling_on_demand and price > kind.on_demand_micros:
            return Decision(Choice.LAPSE, f"{text}, more than on demand", fresh)
        if fresh < stays:
            return Decision(Choice.LAPSE, f"{text}, that of {other} {usd_per_vcpu_h(fresh)} with joining", fresh)
        return Decision(Choice.RENEW, f"{text}, and no other market's less with joining", fresh)


def _pressure(view: MarketView) -> _Pressure:
    left = view.time_left
    if left is None or left.clocks_per_vcpu_s <= 0 or left.clocks <= 0:
        return _Pressure(0.0, _NEEDED_H)
    seconds = max(left.deadline_s - view.now_s - left.overhead_s, 1.0)
    vcpus = left.clocks / left.clocks_per_vcpu_s / seconds
    return _Pressure(vcpus, seconds / HOUR_S * min(vcpus / max(view.job.max_spot_vcpus, 1), 1.0))


def _fresh_usd(view: MarketView, market: Market, pressure: _Pressure) -> float:
    """Return the dollars of a vCPU-hour of work of a new machine; infinite where none is to be expected."""
    kind, beta = view.types[market.instance_type], _beta(view, market)
    if beta >= _SURE:
        return inf
    joins_s = view.job.resize_overhead_s + view.job.eviction_overhead_s * beta
    each = view.prices[market] / MICROS_PER_DOLLAR / kind.vcpu + view.crossing_usd(market)
    return work_price(each / HOUR_S, 0.0, -log1p(-beta) / HOUR_S, joins_s, pressure.hours * HOUR_S) * HOUR_S


def _beta(view: MarketView, market: Market) -> float:
    above = view.types[market.instance_type].on_demand_micros - view.prices[market]
    return float(view.evictions.of_bid(market, above)[0])


def _held_usd(view: MarketView) -> float:
    """Return the dollars an hour of the spot machines that are held, at present prices."""
    total = 0.0
    for allocation in view.footprint:
        if allocation.tier is Tier.TRANSIENT:
            price = view.prices.get(allocation.market, view.last_prices.get(allocation.market, 0))
            total += price / MICROS_PER_DOLLAR * allocation.count
            total += view.crossing_usd(allocation.market) * view.vcpus_of(allocation)
    return total


def _candidate(view: MarketView, market: Market, count: int, usd: float) -> Candidate:
    price, kind = view.prices[market], view.types[market.instance_type]
    return Candidate(
        market=market,
        count=count,
        price_micros=price,
        delta_micros=kind.on_demand_micros - price,
        eviction_prob=_beta(view, market),
        cost_usd=price * count / MICROS_PER_DOLLAR,
        work=float(count * kind.vcpu),
        cost_per_work=usd,
    )


def _wait(reason: str) -> Decision:
    return Decision(Choice.WAIT, reason, inf)
