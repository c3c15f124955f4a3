"""BidBrain as published: buy what lowers the expected cost per work of the whole footprint, by equations (1)-(4)."""

from dataclasses import replace

import numpy as np

from bidding.decisions import Candidate, Decision, MarketView, Verdict
from bidding.model import HOUR_S, Allocation, Market
from bidding.policies.footprint import held_part, part, per_work, price_text, usd_per_vcpu_h

#: Candidates that a decision keeps for the reader.
_SHOWN = 8


class ProteusPolicy:
    """The paper's policy.

    Source: Proteus (EuroSys 2017), section 4.2.
    Differs: with `ceiling_on_demand`, no bid in a market that stands above its own on-demand price.
    """

    def acquisition(self, view: MarketView) -> Decision:
        """Return the best market x bid delta if it lowers E of the footprint, else WAIT."""
        held = [held_part(view, allocation) for allocation in view.footprint]
        now = float(per_work(held, view, resized=False)[0]) if held else float("inf")
        counts, refusals = _counts(view)
        markets = [market for market, count in counts.items() if count]
        if not markets:
            why = "; ".join(dict.fromkeys(refusals.values())) or "no market has a price"
            return Decision(Verdict.WAIT, f"nothing can be bought: {why}", now)
        beta, median = view.evictions.grid(markets)  # each (markets, deltas)
        kinds = [view.types[market.instance_type] for market in markets]
        offers = part(
            beta,
            median,
            np.array([[view.prices[market]] for market in markets]),
            np.array([[counts[market]] for market in markets]),
            np.array([[kind.vcpu] for kind in kinds]),
            HOUR_S,
        )
        each, cost, work = per_work([*held, offers], view, resized=True)
        candidates = []
        # the best bid delta of each market; ties go to the lower delta, then to the market's order
        for row in np.argsort(each.min(axis=1), kind="stable")[:_SHOWN]:
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
        best = candidates[0]
        if not best.cost_per_work < now:
            reason = (
                f"the best of {len(markets)} markets, {best.market}, would make work cost "
                f"{usd_per_vcpu_h(best.cost_per_work)}; what is held costs {usd_per_vcpu_h(now)}"
            )
            return Decision(Verdict.WAIT, reason, now, _explained(candidates, now, bought=False))
        reason = (
            f"{best.count} x {best.market} at {price_text(best.price_micros)}, bid {price_text(best.bid_micros)} "
            f"(eviction within the hour {best.eviction_prob:.0%}), brings work from {usd_per_vcpu_h(now)} to "
            f"{usd_per_vcpu_h(best.cost_per_work)}"
        )
        return Decision(Verdict.ACQUIRE, reason, now, _explained(candidates, now, bought=True))

    def renewal(self, view: MarketView, allocation: Allocation) -> Decision:
        """Return whether the footprint's work costs less with `allocation` in its next hour than without it.

        A tie renews: what is held needs no σ. Where no useful work is expected either way, nothing is paid for it.

        Notes
        -----
        Differs: what stands under its price is kept, whatever it is worth: the market is taking it, and who leaves
        before that forgoes the refund.
        """
        price = view.prices.get(allocation.market)
        others = [held_part(view, a) for a in view.footprint if a.allocation_id != allocation.allocation_id]
        renewed = float(per_work([*others, held_part(view, allocation, HOUR_S)], view, resized=False)[0])
        let_go = float(per_work(others, view, resized=True)[0]) if others else float("inf")
        if price is not None and allocation.bid_micros is not None and price > allocation.bid_micros:
            taken = (
                f"{allocation.market} at {price_text(price)} has passed the bid of {price_text(allocation.bid_micros)}: "
                "the market takes it, and refunds the hour to who stays"
            )
            return Decision(Verdict.RENEW, taken, let_go)
        verdict = Verdict.RENEW if renewed <= let_go and np.isfinite(renewed) else Verdict.LAPSE
        reason = (
            f"{allocation.market} at {price_text(price) if price is not None else 'an unknown price'}: "
            f"with it work costs {usd_per_vcpu_h(renewed)}, without it {usd_per_vcpu_h(let_go)}"
        )
        return Decision(verdict, reason, let_go)


def _counts(view: MarketView) -> tuple[dict[Market, int], dict[Market, str]]:
    """Return how many instances each market could add (0: none), and why where it is none."""
    left = min(view.job.allocation_vcpus, view.job.max_spot_vcpus - view.spot_vcpus)
    counts: dict[Market, int] = {}
    refusals: dict[Market, str] = {}
    for market in sorted(view.prices):
        kind = view.types.get(market.instance_type)
        if kind is None or market not in view.evictions.rows:
            refusals[market] = "a market is not known to the catalogue or has no history"
        elif left < 1:
            refusals[market] = f"all of {view.job.max_spot_vcpus} spot vCPUs are held"
        elif market in view.cooling:
            refusals[market] = "markets that refused, or take what they sold, are left alone for a while"
        elif view.job.ceiling_on_demand and view.prices[market] > kind.on_demand_micros:
            refusals[market] = "markets stand above their on-demand price"
        elif view.job.allocation_vcpus < kind.vcpu:
            refusals[market] = f"machines are larger than an allocation of {view.job.allocation_vcpus} vCPUs"
        elif left < kind.vcpu:
            refusals[market] = "machines are larger than what may still be held"
        counts[market] = 0 if market in refusals else left // view.types[market.instance_type].vcpu
    return counts, refusals


def _explained(candidates: list[Candidate], now: float, *, bought: bool) -> tuple[Candidate, ...]:
    """Return the candidates, each but the bought one with the reason why it was not chosen."""
    best = candidates[0].cost_per_work
    explained = [candidates[0]] if bought else []
    for candidate in candidates[len(explained) :]:
        if candidate.cost_per_work >= now:
            why = f"would not lower the cost of work ({usd_per_vcpu_h(now)} now)"
        else:
            why = f"{candidate.cost_per_work / best - 1:.1%} dearer than the best" if best > 0 else "later in the order"
        explained.append(replace(candidate, why_not=why))
    return tuple(explained)
