"""Policy `proteus`: BidBrain as published, buys what lowers the footprint's expected cost per work, (1)-(4)."""

import numpy as np

from proteus_spot.bidding.market.model import HOUR_S, Allocation
from proteus_spot.bidding.policies.base import Candidate, Choice, Decision, MarketView
from proteus_spot.bidding.policies.footprint import (
    held_part,
    offers,
    per_work,
    per_work_with,
    price_text,
    usd_per_work,
    with_crossing,
)
from proteus_spot.bidding.policies.offers import SHOWN, counts_of, explained, markets_text, nothing_on_sale
from proteus_spot.bidding.policies.rules import is_worth_keeping


class ProteusPolicy:
    """The paper's policy.

    Source: Proteus (EuroSys 2017), section 4.2.
    Differs: with `ceiling_on_demand`, no bid in a market that stands above its own on-demand price.
    """

    def acquisition(self, view: MarketView) -> Decision:
        """Return the best market x bid delta if it lowers E of the footprint, else WAIT."""
        held = [held_part(view, allocation) for allocation in view.footprint]
        now = per_work(held, view, resized=False)[0]
        counts, refusals = counts_of(view, view.left_vcpus)
        markets = [market for market, count in counts.items() if count]
        if not markets:
            return Decision(Choice.WAIT, nothing_on_sale(refusals), now)
        beta, median = view.evictions.grid(markets)  # each (markets, deltas)
        bought = offers(
            beta,
            median,
            np.array([view.job.hour_micros(view.prices[market]) for market in markets], dtype=np.float64),
            np.array([counts[market] for market in markets], dtype=np.float64),
            np.array([view.work_of(market) for market in markets], dtype=np.float64),
            refunded=view.job.is_refunded(first_hour=True),
        )
        if view.crossing_usd_per_vcpu_h:
            bought = with_crossing(bought, np.array([view.crossing_usd(market) for market in markets]))
        each, cost, work = per_work_with(held, bought, view)
        candidates = []
        # the best bid delta of each market; ties go to the lower delta, then to the market's order
        for row in np.argsort(each.min(axis=1), kind="stable")[:SHOWN]:
            column = int(each[row].argmin())
            candidates.append(
                Candidate(
                    market=markets[row],
                    count=counts[markets[row]],
                    price_micros=view.prices[markets[row]],
                    delta_micros=int(view.evictions.deltas_micros[column]),
                    eviction_prob=float(beta[row, column]),
                    cost_usd=float(cost[row, column]),
                    work=float(work[row, column]),
                    cost_per_work=float(each[row, column]),
                )
            )
        best, weighed = candidates[0], markets_text(len(markets), refusals)
        if not best.cost_per_work < now:
            reason = (
                f"the best of {weighed}, {best.market}, would make work cost "
                f"{usd_per_work(best.cost_per_work, view.job)}; what is held costs {usd_per_work(now, view.job)}"
            )
            return Decision(Choice.WAIT, reason, now, explained(candidates, now, view.job, bought=False))
        reason = (
            f"{best.count} x {best.market} at {price_text(best.price_micros)}, bid {price_text(best.bid_micros)} "
            f"(eviction within the hour {best.eviction_prob:.0%}), brings work from {usd_per_work(now, view.job)} to "
            f"{usd_per_work(best.cost_per_work, view.job)}{f', the best of {weighed}' if refusals else ''}"
        )
        return Decision(Choice.ACQUIRE, reason, now, explained(candidates, now, view.job, bought=True))

    def renewal(self, view: MarketView, allocation: Allocation) -> Decision:
        """Return whether the footprint's work costs less with `allocation` in its next hour than without it.

        A tie renews: a held allocation needs no σ. If no useful work is expected either way, it is not renewed.

        Notes
        -----
        Differs: an allocation whose bid the price has passed is kept, whatever it is worth: the market is taking it,
        and a termination before that forgoes the refund.
        """
        price = view.prices.get(allocation.market)
        others = [held_part(view, a) for a in view.footprint if a.allocation_id != allocation.allocation_id]
        renewed = per_work([*others, held_part(view, allocation, HOUR_S)], view, resized=False)[0]
        let_go = per_work(others, view, resized=True)[0]
        if price is not None and allocation.bid_micros is not None and price > allocation.bid_micros:
            taken = (
                f"{allocation.market} at {price_text(price)} has passed the bid of "
                f"{price_text(allocation.bid_micros)}: the market takes it, and refunds the hour"
            )
            return Decision(Choice.RENEW, taken, let_go)
        verdict = Choice.RENEW if is_worth_keeping(renewed, let_go) else Choice.LAPSE
        reason = (
            f"{allocation.market} at {price_text(price) if price is not None else 'an unknown price'}: "
            f"with it work costs {usd_per_work(renewed, view.job)}, without it {usd_per_work(let_go, view.job)}"
        )
        return Decision(verdict, reason, let_go)
