"""What the markets can sell at the moment, and why what is not bought is not: alike for every policy that weighs markets."""

from dataclasses import replace
from math import isfinite

from bidding.market.model import Market
from bidding.policies.base import Candidate, MarketView
from bidding.policies.footprint import usd_per_vcpu_h

#: Candidates that a decision keeps for the reader.
SHOWN = 8


def counts_of(view: MarketView, left_vcpus: int) -> tuple[dict[Market, int], dict[Market, str]]:
    """Return how many instances each market could add (0: none), and why where it is none.

    Parameters
    ----------
    left_vcpus : what the cap leaves; an allocation may be smaller.
    """
    left = min(view.job.allocation_vcpus, left_vcpus)
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


def nothing_on_sale(refusals: dict[Market, str]) -> str:
    """Return why nothing can be bought, each reason once."""
    why = "; ".join(dict.fromkeys(refusals.values())) or "no market has a price"
    return f"nothing can be bought: {why}"


def explained(candidates: list[Candidate], now: float, *, bought: bool) -> tuple[Candidate, ...]:
    """Return the candidates, each but the bought one with the reason why it was not chosen.

    Parameters
    ----------
    now : what work costs without any of them, dollars per vCPU-hour.
    """
    best = candidates[0].cost_per_work
    shown = [candidates[0]] if bought else []
    for candidate in candidates[len(shown) :]:
        if not isfinite(candidate.cost_per_work):
            why = "no work is to be expected of it"
        elif candidate.cost_per_work >= now:
            why = f"would not lower the cost of work ({usd_per_vcpu_h(now)} now)"
        elif candidate.cost_per_work <= best:
            why = "as cheap as the best, but later in the order"
        else:
            why = (
                f"{candidate.cost_per_work / best - 1:.1%} dearer than the best" if best > 0 else "dearer than the best"
            )
        shown.append(replace(candidate, why_not=why))
    return tuple(shown)
