"""Purchase in the cheapest market: shared by policies that differ in the bid and hold until an eviction."""

from collections.abc import Callable
from dataclasses import replace
from functools import cmp_to_key

from proteus_spot.bidding.market.model import Allocation, Market
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR, Micros
from proteus_spot.bidding.policies.base import Candidate, Choice, Decision, MarketView
from proteus_spot.bidding.policies.footprint import price_text, usd_per_work
from proteus_spot.bidding.policies.offers import SHOWN, counts_of, explained, markets_text, nothing_on_sale
from proteus_spot.bidding.policies.rules import is_cheaper

#: A policy's bid in a market.
BidOf = Callable[[MarketView, Market], Micros]


def cheapest(view: MarketView, left_vcpus: int, bid_of: BidOf) -> Decision:
    """Return the purchase of the market that costs least per vCPU, under the bid that is made there; else WAIT.

    Ties go to the earlier market. A bid that its market would
    refuse is not made; nor is another market bought instead, for it would cost more.

    Parameters
    ----------
    left_vcpus : vCPUs that the cap leaves; an allocation may be smaller.

    Notes
    -----
    Evictions are ignored: the cost of a candidate's work is its price, as if its hour were paid and worked in full. The
    probability of an eviction is only reported.
    """
    counts, refusals = counts_of(view, left_vcpus)
    markets = _by_price(view, [market for market, count in counts.items() if count])
    if not markets:
        return _wait(nothing_on_sale(refusals))
    candidates = [_candidate(view, market, counts[market], bid_of(view, market)) for market in markets[:SHOWN]]
    best = candidates[0]
    cheap = (
        f"{best.count} x {best.market} at {price_text(best.price_micros)}, "
        f"{usd_per_work(best.cost_per_work, view.job)}, the least of {markets_text(len(markets), refusals)}"
    )
    if best.delta_micros < 0:
        refused, *others = explained(candidates, float("inf"), view.job, bought=True)
        reason = f"{cheap}, would not be sold under a bid of {price_text(best.bid_micros)}"
        return _wait(reason, (replace(refused, why_not="stands above the bid"), *others))
    reason = f"{cheap}; bid {price_text(best.bid_micros)} (eviction within the hour {best.eviction_prob:.0%})"
    return Decision(Choice.ACQUIRE, reason, float("inf"), explained(candidates, float("inf"), view.job, bought=True))


def kept(view: MarketView, allocation: Allocation) -> Decision:
    """Return RENEW: while the price allows it the allocation lives, and when it does not the market takes it."""
    price, bid = view.prices.get(allocation.market), allocation.bid_micros or 0
    price_shown = "an unknown price" if price is None else price_text(price)
    reason = f"{allocation.market} at {price_shown}: kept until the price passes the bid of {price_text(bid)}"
    return Decision(Choice.RENEW, reason, float("inf"))


def _by_price(view: MarketView, markets: list[Market]) -> list[Market]:
    def compare(one: Market, other: Market) -> int:
        (price, work), (other_price, other_work) = _price(view, one), _price(view, other)
        cheaper = is_cheaper(price, work, other_price, other_work)
        return -1 if cheaper else int(is_cheaper(other_price, other_work, price, work))

    return sorted(markets, key=cmp_to_key(compare))


def _price(view: MarketView, market: Market) -> tuple[Micros, float]:
    """Return the hourly price of a machine, bytes between zones included, and its work."""
    work = view.work_of(market)
    return view.prices[market] + round(view.crossing_usd(market) * work * MICROS_PER_DOLLAR), work


def _candidate(view: MarketView, market: Market, count: int, bid_micros: Micros) -> Candidate:
    price = view.prices[market]
    hour_micros, each = _price(view, market)
    cost_usd = hour_micros * count / MICROS_PER_DOLLAR
    work = count * each
    return Candidate(
        market=market,
        count=count,
        price_micros=price,
        delta_micros=bid_micros - price,
        eviction_prob=view.evictions.of_bid(market, bid_micros - price)[0],
        cost_usd=cost_usd,
        work=work,
        cost_per_work=hour_micros / each / MICROS_PER_DOLLAR,
    )


def _wait(reason: str, candidates: tuple[Candidate, ...] = ()) -> Decision:
    return Decision(Choice.WAIT, reason, float("inf"), candidates)
