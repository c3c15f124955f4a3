"""Policy `best`: buys the hour of work that the forecast expects to be cheapest, as the backtest's rule `best`.

Chances, costs and rules come from the same functions as in the backtest (`bidding.forecast`,
`bidding.economics.hour_value`, `rules`), so the same view gets the same decision, to the last bit: a tie in one must be
a tie in the other, or the two would break it differently.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.economics.equations import EACH, TOTAL, WORK, cost_per_work, useful_time_s
from proteus_spot.bidding.economics.hour_value import Surroundings, cost_and_work, hours_per_work
from proteus_spot.bidding.forecast.features import FEATURES
from proteus_spot.bidding.market.model import HOUR_S, Allocation, Market, Tier
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR, Micros
from proteus_spot.bidding.policies.base import Candidate, Choice, Decision, MarketView
from proteus_spot.bidding.policies.footprint import price_text, usd_per_work
from proteus_spot.bidding.policies.offers import SHOWN, Excluded, counts_of, explained, markets_text, nothing_on_sale
from proteus_spot.bidding.policies.rules import HourEndRule, fresh_delta_micros, held_delta, hour_end, is_worth_keeping

Floats = NDArray[np.float64]

#: Factor from micro-dollars per vCPU-second to dollars per vCPU-hour.
_TO_USD_PER_VCPU_H = HOUR_S / MICROS_PER_DOLLAR
_UNFORESEEN = Excluded("nothing is known of the recent past of a market", "without a known past")


class BestPolicy:
    """All of the cap in the one market whose next hour of work is expected to cost least, decided again every hour.

    A refunded hour is free, so the criterion is the price times the probability that the hour must be paid, divided by
    the expected work. Without a foresight, or without the signal of a market, the policy buys nothing.

    Where bids decide nothing (`EvictionTable.bids_decide`) a forecast of price rises is of no use either: the chances
    are the eviction table's, the same at all times, and the bid is the on-demand price, which no price of such a market
    passes.

    Notes
    -----
    Source: Proteus (EuroSys 2017), equations (1)-(4), of one purchase.
    Differs: chances are those of the market's present signal, not of its history at large; the whole cap is one
    allocation; a lapsing allocation counts in the cap to the end of its hour; after an eviction nothing is bought that
    would only stand still.
    """

    def acquisition(self, view: MarketView) -> Decision:
        """Return the purchase with the cheapest work, else WAIT."""
        if view.foresight is None and view.evictions.bids_decide:
            return _wait("nothing can be bought: no foresight was learnt for this job")
        idle_until_s = _idle_until_s(view)
        if view.now_s < idle_until_s:
            seconds = idle_until_s - view.now_s
            return _wait(f"not buying: the job is still recovering from an eviction ({seconds:g} s)")
        fresh, refusals = _fresh(view, _alive(view))
        if not fresh.markets:
            return _wait(nothing_on_sale(refusals))
        candidates = fresh.candidates(view)
        best, weighed = candidates[0], markets_text(len(fresh.markets), refusals)
        if not np.isfinite(best.cost_per_work):
            reason = f"no work is to be expected of any of {weighed}, {best.market} among them"
            return Decision(
                Choice.WAIT, reason, float("inf"), explained(candidates, float("inf"), view.job, bought=False)
            )
        reason = (
            f"{best.count} x {best.market} at {price_text(best.price_micros)}, bid {price_text(best.bid_micros)} "
            f"(eviction within the hour {best.eviction_prob:.0%}): {best.work:.2f} {view.job.unit_name}-h of work are "
            f"expected for {usd_per_work(best.cost_per_work, view.job)}, the least of {weighed}"
        )
        return Decision(
            Choice.ACQUIRE, reason, float("inf"), explained(candidates, float("inf"), view.job, bought=True)
        )

    def renewal(self, view: MarketView, allocation: Allocation) -> Decision:
        """Return whether the allocation is kept: if its work costs no more than the best fresh purchase's.

        If the price has fallen since the bid, a fresh bid is better: the price will hardly pass the old one any more.
        (Where bids decide nothing, or no later hour is refunded, a high bid is as good or better.) An allocation whose
        bid the price has passed is kept: the market is taking it, and refunds the hour unless it is terminated first.
        An allocation that cannot be compared, for lack of a price, a signal or a foresight, is kept.
        """
        market, bid = allocation.market, allocation.bid_micros
        price = view.prices.get(market)
        if price is None or bid is None or not _is_foreseen(view, market):
            unknown = (
                f"{market}: its price or its recent past is not known, so it is kept; nothing could take its place"
            )
            return Decision(Choice.RENEW, unknown, float("inf"))
        offer_text = f"{market} at {price_text(price)}"
        kind, refunded = view.types[market.instance_type], view.job.is_refunded(first_hour=False)
        decides, ceiling = view.evictions.bids_decide, view.job.ceiling_on_demand
        end = hour_end(price, bid, kind.on_demand_micros, refunded, decides, ceiling)
        if end == HourEndRule.PASSED:
            taken = f"{offer_text} has passed the bid of {price_text(bid)}: the market takes it, and refunds the hour"
            return Decision(Choice.RENEW, taken, float("inf"))
        if end == HourEndRule.FALLEN:
            fallen = (
                f"{offer_text} has fallen below the bid of {price_text(bid)}, "
                "so a refund is unlikely: a fresh bid is better"
            )
            return Decision(Choice.LAPSE, fallen, float("inf"))
        if end == HourEndRule.CEILING:
            return Decision(Choice.LAPSE, f"{offer_text} stands above its on-demand price", float("inf"))
        others = _alive(view, but=allocation)
        beta, useful_s = _chances_of(view, market, bid)
        micros, work = float(view.job.hour_micros(price) * allocation.count), allocation.count * view.work_of(market)
        around = _surroundings(view, 0.0, others, refunded)
        stays = cost_per_work(*cost_and_work(micros, work, beta, useful_s, around))
        stays += view.crossing_usd(market) / _TO_USD_PER_VCPU_H
        fresh = float(_fresh(view, others)[0].each.min(initial=np.inf))
        verdict = Choice.RENEW if is_worth_keeping(stays, fresh) else Choice.LAPSE
        let_go = fresh * _TO_USD_PER_VCPU_H
        bid_text = "its very bid" if price == bid else f"bid {price_text(bid)}"
        if not view.evictions.bids_decide:
            bid_text = "where bids decide nothing"
        reason = (
            f"{offer_text}, {bid_text}: its next hour of work costs "
            f"{usd_per_work(stays * _TO_USD_PER_VCPU_H, view.job)}, the best fresh purchase's "
            f"{usd_per_work(let_go, view.job)}"
        )
        return Decision(verdict, reason, let_go)


@dataclass(frozen=True, slots=True)
class _Fresh:
    """Fresh purchases, in the order of the markets.

    Attributes
    ----------
    counts : instances that each market would add.
    beta : probability of eviction within the hour, shape (markets, bid deltas).
    each, cost_micros, work_vcpu_s : E, C and W of the first hour, of the same shape; E in micro-dollars per
        vCPU-second, infinite where no work is expected.
    """

    markets: list[Market]
    counts: list[int]
    beta: Floats
    each: Floats
    cost_micros: Floats
    work_vcpu_s: Floats

    def candidates(self, view: MarketView) -> list[Candidate]:
        """Return the best in a reader's units, each market with its best bid delta.

        Ties go to the lower delta, then to the market's order.
        """
        best = np.argsort(self.each.min(axis=1), kind="stable")[:SHOWN]
        return [self._candidate(view, int(row), int(self.each[row].argmin())) for row in best]

    def _candidate(self, view: MarketView, row: int, delta: int) -> Candidate:
        market = self.markets[row]
        price, on_demand = view.prices[market], view.types[market.instance_type].on_demand_micros
        share = 0.0 if view.foresight is None else float(view.foresight.arrays.shares[delta])
        return Candidate(
            market=market,
            count=self.counts[row],
            price_micros=price,
            delta_micros=fresh_delta_micros(share, price, on_demand, view.evictions.bids_decide),
            eviction_prob=float(self.beta[row, delta]),
            cost_usd=float(self.cost_micros[row, delta]) / MICROS_PER_DOLLAR,
            work=max(float(self.work_vcpu_s[row, delta]), 0.0) / HOUR_S,
            cost_per_work=float(self.each[row, delta]) * _TO_USD_PER_VCPU_H,
        )


def _fresh(view: MarketView, others: "_Alive") -> tuple[_Fresh, dict[Market, Excluded]]:
    """Return the fresh purchases next to `others`, and the reasons that exclude markets."""
    counts, refusals = counts_of(view, view.job.max_spot_vcpus - others.vcpus - view.noticed_vcpus)
    markets = []
    for market, count in counts.items():
        if count and _is_foreseen(view, market):
            markets.append(market)
        elif count:
            refusals[market] = _UNFORESEEN
    bought = [counts[market] for market in markets]
    beta, useful_s = _chances(view, markets)
    micros = [view.job.hour_micros(view.prices[market]) * count for market, count in zip(markets, bought, strict=True)]
    works = [view.work_of(market) * count for market, count in zip(markets, bought, strict=True)]
    around = _surroundings(view, view.job.resize_overhead_s, others, view.job.is_refunded(first_hour=True))
    out = np.empty((len(markets), 3, beta.shape[1]))
    hours_per_work(np.array(micros, dtype=np.float64), np.array(works, dtype=np.float64), beta, useful_s, around, out)
    if view.crossing_usd_per_vcpu_h:
        crossing = np.array([[view.crossing_usd(market) / _TO_USD_PER_VCPU_H] for market in markets]).reshape(-1, 1)
        out[:, EACH] += crossing
        out[:, TOTAL] += crossing * np.maximum(out[:, WORK], 0.0)
    return _Fresh(markets, bought, beta, out[:, EACH], out[:, TOTAL], out[:, WORK]), refusals


def _is_foreseen(view: MarketView, market: Market) -> bool:
    """Return whether the evictions of a bid in the market can be forecast."""
    return not view.evictions.bids_decide or (view.foresight is not None and market in view.signals)


def _chances(view: MarketView, markets: list[Market]) -> tuple[Floats, Floats]:
    """Return (β, ω in seconds) of each bid that is weighed in foreseen markets, shape (markets, bid deltas)."""
    if not view.evictions.bids_decide:
        pairs = [view.evictions.of_bid(market, 0) for market in markets]
        beta, median_s = np.array(pairs, dtype=np.float64).reshape(-1, 2).T.copy()[:, :, np.newaxis]
        return beta, useful_time_s(beta, median_s, HOUR_S)
    assert view.foresight is not None, "see _is_foreseen"
    features = [view.signals[market].features(view.types[market.instance_type].on_demand_micros) for market in markets]
    return view.foresight.outlooks(np.array(features, dtype=np.float64).reshape(-1, FEATURES))


def _chances_of(view: MarketView, market: Market, bid: Micros) -> tuple[float, float]:
    """Return (β, ω in seconds) of a held bid: those of the largest bid delta that it has at the present price."""
    beta, useful_s = _chances(view, [market])
    delta = 0
    if view.evictions.bids_decide and view.foresight is not None:
        delta = held_delta(view.foresight.arrays.shares, view.prices[market], bid)
    return float(beta[0, delta]), float(useful_s[0, delta])


def _surroundings(view: MarketView, resize_s: float, others: "_Alive", refunded: bool) -> Surroundings:
    job = view.job
    tier = sum(
        a.count * view.types[a.market.instance_type].on_demand_micros for a in view.footprint if a.tier is Tier.RELIABLE
    )
    eviction_s, efficiency = float(job.eviction_overhead_s), float(job.scaling_efficiency)
    return Surroundings(float(resize_s), eviction_s, efficiency, others.work, float(tier), refunded)


class _Alive(NamedTuple):
    """The spot machines that work, as vCPUs in the cap and as vCPUs of the usual speed."""

    vcpus: int
    work: float


def _alive(view: MarketView, but: Allocation | None = None) -> _Alive:
    """Return what works but for one allocation: a lapsing one works, and counts in the cap, to the end of its hour."""
    spot = [*(each for each in view.footprint if each.tier is Tier.TRANSIENT), *view.lapsing]
    left = [each for each in spot if but is None or each.allocation_id != but.allocation_id]
    return _Alive(sum(map(view.vcpus_of, left)), float(sum(each.count * view.work_of(each.market) for each in left)))


def _idle_until_s(view: MarketView) -> float:
    """Return when a purchase first brings work: σ of it passes at no cost while the job bears the last eviction's λ."""
    if view.last_eviction_s is None:
        return view.now_s
    return view.last_eviction_s + view.job.eviction_overhead_s - view.job.resize_overhead_s


def _wait(reason: str) -> Decision:
    return Decision(Choice.WAIT, reason, float("inf"))
