"""The cheapest hour of work that the recent past of the markets promises: the decisions of the backtest's rule `best`.

Chances and worth come from the same compiled functions as there (`bidding.forecast`), so the same picture gets the same
decision, to the last bit: a tie here must be a tie there, or it would be broken otherwise.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bidding.economics.equations import useful_time_s
from bidding.forecast.hour_value import cost_and_work, cost_per_work
from bidding.market.model import HOUR_S, Allocation, Market, Tier
from bidding.market.money import MICROS_PER_DOLLAR
from bidding.policies.base import Candidate, Choice, Decision, MarketView
from bidding.policies.footprint import price_text, usd_per_vcpu_h
from bidding.policies.offers import SHOWN, counts_of, explained, nothing_on_sale

#: What makes dollars per vCPU-hour of micro-dollars per vCPU-second.
_TO_USD_PER_VCPU_H = HOUR_S / MICROS_PER_DOLLAR


class BestPolicy:
    """All of the cap in the one market whose next hour of work is expected to cost least; each hour's end asks anew.

    A refunded hour is free, so what counts is the price times the chance that the hour must be paid, by the work that can
    be expected of it. Without a foresight, or without the signal of a market, it buys nothing.

    Where bids decide nothing (`EvictionTable.bids_decide`) a foresight of price rises tells nothing either: there the
    chances are the eviction table's, the same at all times, and what is bid is the on-demand price, which no price of such
    a market passes.

    Notes
    -----
    Source: Proteus (EuroSys 2017), equations (1)-(4), of one purchase.
    Differs: chances are those of the market's present signal, not of its history at large; the whole cap is one
    allocation; what lapses counts in the cap to the end of its hour; a market's notice is not waited out, but after an
    eviction nothing is bought that would only stand still.
    """

    def acquisition(self, view: MarketView) -> Decision:
        """Return the purchase with the cheapest work, else WAIT."""
        if view.foresight is None and view.evictions.bids_decide:
            return _wait("nothing can be bought: no foresight was learnt for this job")
        idle_until_s = _idle_until_s(view)
        if view.now_s < idle_until_s:
            seconds = idle_until_s - view.now_s
            return _wait(f"what is bought now would only stand still for {seconds:g} s: the job bears an eviction")
        offers, refusals = _offers(view, _alive_vcpus(view))
        # the best bid delta of each market; ties go to the lower delta, then to the market's order
        offers.sort(key=lambda offer: offer.each)
        if not offers:
            return _wait(nothing_on_sale(refusals))
        candidates = [offer.candidate() for offer in offers[:SHOWN]]
        best = candidates[0]
        if not np.isfinite(best.cost_per_work):
            reason = f"no work is to be expected of any of {len(offers)} markets, {best.market} among them"
            return Decision(Choice.WAIT, reason, float("inf"), explained(candidates, float("inf"), bought=False))
        reason = (
            f"{best.count} x {best.market} at {price_text(best.price_micros)}, bid {price_text(best.bid_micros)} "
            f"(eviction within the hour {best.eviction_prob:.0%}): {best.work:.2f} vCPU-h of work are expected for "
            f"{usd_per_vcpu_h(best.cost_per_work)}, the least of {len(offers)} markets"
        )
        return Decision(Choice.ACQUIRE, reason, float("inf"), explained(candidates, float("inf"), bought=True))

    def renewal(self, view: MarketView, allocation: Allocation) -> Decision:
        """Return whether the allocation is kept: where its work costs no more than the best fresh one's.

        Under a price that has fallen since, a fresh bid is the better one: an old one will hardly be passed any more (where
        bids decide nothing, or no later hour is refunded, a high one is as good or better). What stands under its price is kept: the market is taking it, and
        refunds the hour to who stays. What nothing can be compared with, for lack of a price, a signal or a foresight, is
        kept.
        """
        market, bid = allocation.market, allocation.bid_micros
        price = view.prices.get(market)
        if price is None or bid is None or not _is_foreseen(view, market):
            unknown = (
                f"{market}: its price or its recent past is not known, so it is kept; nothing could take its place"
            )
            return Decision(Choice.RENEW, unknown, float("inf"))
        here = f"{market} at {price_text(price)}"
        if price > bid:
            taken = f"{here} has passed the bid of {price_text(bid)}: the market takes it, and refunds the hour to who stays"
            return Decision(Choice.RENEW, taken, float("inf"))
        refunded = view.job.is_refunded(first_hour=False)
        if price < bid and refunded and view.evictions.bids_decide:
            fallen = (
                f"{here} has fallen below the bid of {price_text(bid)}, so a refund is unlikely: a fresh bid is better"
            )
            return Decision(Choice.LAPSE, fallen, float("inf"))
        kind = view.types[market.instance_type]
        if view.job.ceiling_on_demand and price > kind.on_demand_micros:
            return Decision(Choice.LAPSE, f"{here} stands above its on-demand price", float("inf"))
        others = _alive_vcpus(view) - view.vcpus_of(allocation)
        beta, useful_s = _chances_of(view, market, bid)
        micros = float(view.job.hour_micros(price) * allocation.count)
        hour = (micros, float(view.vcpus_of(allocation)), beta, useful_s, 0.0)
        stays = float(cost_per_work(*hour, *_surroundings(view, others), refunded))
        fresh = min((offer.each for offer in _offers(view, others)[0]), default=float("inf"))
        verdict = Choice.RENEW if stays <= fresh and np.isfinite(stays) else Choice.LAPSE
        let_go = fresh * _TO_USD_PER_VCPU_H
        bid_here = "its very bid" if price == bid else f"bid {price_text(bid)}"
        if not view.evictions.bids_decide:
            bid_here = "where bids decide nothing"
        reason = (
            f"{here}, {bid_here}: its next hour of work costs {usd_per_vcpu_h(stays * _TO_USD_PER_VCPU_H)}, "
            f"the best fresh purchase's {usd_per_vcpu_h(let_go)}"
        )
        return Decision(verdict, reason, let_go)


@dataclass(frozen=True, slots=True)
class _Offer:
    """What one market sells at its best bid delta.

    Attributes
    ----------
    beta : probability of eviction within the hour.
    cost_micros, work_vcpu_s : C and W of its first hour.
    each : C / W, micro-dollars per vCPU-second; infinite where no work is to be expected.
    """

    market: Market
    count: int
    price_micros: int
    delta_micros: int
    beta: float
    cost_micros: float
    work_vcpu_s: float
    each: float

    def candidate(self) -> Candidate:
        """Return it in a reader's units."""
        return Candidate(
            market=self.market,
            count=self.count,
            price_micros=self.price_micros,
            delta_micros=self.delta_micros,
            eviction_prob=self.beta,
            cost_usd=self.cost_micros / MICROS_PER_DOLLAR,
            work=max(self.work_vcpu_s, 0.0) / HOUR_S,
            cost_per_work=self.each * _TO_USD_PER_VCPU_H,
        )


def _offers(view: MarketView, others: int) -> tuple[list[_Offer], dict[Market, str]]:
    """Return what the markets offer beside `others` vCPUs that are alive, in the markets' order, and who is refused why."""
    counts, refusals = counts_of(view, view.job.max_spot_vcpus - others)
    offers = []
    for market, count in counts.items():
        if count and not _is_foreseen(view, market):
            refusals[market] = "nothing is known of the recent past of a market"
        elif count:
            offers.append(min(_bids(view, market, count, others), key=lambda offer: offer.each))
    return offers, refusals


def _is_foreseen(view: MarketView, market: Market) -> bool:
    """Return whether anything can be said of what is to come in a market."""
    return not view.evictions.bids_decide or (view.foresight is not None and market in view.signals)


def _chances(view: MarketView, market: Market) -> Iterator[tuple[int, float, float]]:
    """Return (bid delta, β, ω in seconds) of each bid that is weighed in a foreseen market, the lowest first."""
    kind, price = view.types[market.instance_type], view.prices[market]
    if not view.evictions.bids_decide:
        beta, median_s = view.evictions.of_bid(market, 0)
        yield max(kind.on_demand_micros - price, 0), beta, float(useful_time_s(beta, median_s, HOUR_S))
        return
    assert view.foresight is not None, "see _is_foreseen"
    features = view.signals[market].features(kind.on_demand_micros)
    for delta, share in enumerate(view.foresight.arrays.shares.tolist()):
        yield int(share * price), *view.foresight.outlook(features, delta)


def _chances_of(view: MarketView, market: Market, bid: int) -> tuple[float, float]:
    """Return (β, ω in seconds) of a bid that is held: those of the largest bid delta that it has at the present price."""
    weighed = list(_chances(view, market))
    held = (chances for delta, *chances in reversed(weighed) if view.prices[market] + delta <= bid)
    beta, useful_s = next(held, weighed[0][1:])
    return beta, useful_s


def _bids(view: MarketView, market: Market, count: int, others: int) -> Iterator[_Offer]:
    """Return the purchase of `count` instances under each bid delta, the lowest first."""
    kind, price = view.types[market.instance_type], view.prices[market]
    surroundings = (*_surroundings(view, others), view.job.is_refunded(first_hour=True))
    for delta_micros, beta, useful_s in _chances(view, market):
        micros = float(view.job.hour_micros(price) * count)
        hour = (micros, float(count * kind.vcpu), beta, useful_s, float(view.job.resize_overhead_s))
        cost, work = cost_and_work(*hour, *surroundings)
        each = float(cost_per_work(*hour, *surroundings))
        yield _Offer(market, count, price, delta_micros, beta, float(cost), float(work), each)


def _surroundings(view: MarketView, others: int) -> tuple[float, float, float, float]:
    """Return λ, φ, the vCPUs that work beside a purchase, and what the reliable tier costs an hour, micro-dollars."""
    tier = sum(
        a.count * view.types[a.market.instance_type].on_demand_micros for a in view.footprint if a.tier is Tier.RELIABLE
    )
    return float(view.job.eviction_overhead_s), view.job.scaling_efficiency, float(others), float(tier)


def _alive_vcpus(view: MarketView) -> int:
    """Return the spot vCPUs that work: what lapses does so to the end of its hour, and fills its place until then."""
    return view.spot_vcpus + sum(map(view.vcpus_of, view.lapsing))


def _idle_until_s(view: MarketView) -> float:
    """Return when a purchase first brings work: σ of it passes at no cost while the job bears the last eviction's λ."""
    if view.last_eviction_s is None:
        return view.now_s
    return view.last_eviction_s + view.job.eviction_overhead_s - view.job.resize_overhead_s


def _wait(reason: str) -> Decision:
    return Decision(Choice.WAIT, reason, float("inf"))
