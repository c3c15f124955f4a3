"""Instances that each market can sell now, and the reasons that exclude a market; shared by all policies."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from types import MappingProxyType
from typing import NamedTuple

from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.policies.base import Candidate, MarketView
from proteus_spot.bidding.policies.footprint import usd_per_work
from proteus_spot.bidding.policies.rules import Refusal, refusal

#: Maximum number of candidates that a decision records.
SHOWN = 8


class Excluded(NamedTuple):
    """Why nothing is bought in a market: in a sentence, and behind the number of such markets."""

    why: str
    short: str


_WORDS: Mapping[int, Excluded] = MappingProxyType(
    {
        Refusal.UNKNOWN: Excluded("a market is not known to the catalogue or has no history", "not known"),
        Refusal.COOLING: Excluded(
            "markets that refused, or take what they sold, are left alone for a while", "left alone for a while"
        ),
        Refusal.CEILING: Excluded("markets stand above their on-demand price", "above on demand"),
        Refusal.LARGE: Excluded("machines are larger than what may still be held", "too large"),
    }
)
_EXCLUDED = Excluded("markets are excluded by the job (exclude_markets)", "excluded by the job")
_BEYOND_QUOTA = Excluded("the account's quota of spot vCPUs leaves no machine", "beyond the quota")


def counts_of(view: MarketView, left_vcpus: int) -> tuple[dict[Market, int], dict[Market, Excluded]]:
    """Return the number of instances that each market could add, and the reason where it is 0.

    Parameters
    ----------
    left_vcpus : vCPUs that the cap leaves; an allocation may be smaller.
    """
    left = min(view.job.allocation_vcpus, left_vcpus)
    counts: dict[Market, int] = {}
    refusals: dict[Market, Excluded] = {}
    rows, cooling, ceiling, types = view.evictions.rows, view.cooling, view.job.ceiling_on_demand, view.types
    ordered, none, by_gpu = sorted(view.prices), int(Refusal.NONE), view.job.unit == "gpu"
    prices = view.prices if ordered == list(view.prices) else {market: view.prices[market] for market in ordered}
    for market, price in prices.items():  # of many thousands: each look-up of a market hashes it again
        kind = types.get(market.instance_type)
        if view.job.exclude_markets and view.job.excludes(market):
            counts[market], refusals[market] = 0, _EXCLUDED
            continue
        size = 0 if kind is None else kind.gpus if by_gpu else kind.vcpu
        if kind is None or not size:
            counts[market], refusals[market] = 0, _why(Refusal.UNKNOWN, view.job, 0)
            continue
        is_cooling = bool(cooling) and market in cooling
        code = refusal(market in rows, left, is_cooling, ceiling, price, kind.on_demand_micros, size)
        counts[market] = max(fewest(view.job, view.spot_vcpus, left // size, size), 1) if code == none else 0
        if code != none:
            is_beyond = is_cooling and market in view.beyond_quota
            refusals[market] = _BEYOND_QUOTA if is_beyond else _why(code, view.job, size)
    return counts, refusals


def fewest(job: JobModel, held_vcpus: int, count: int, vcpus: int) -> int:
    """Return how few machines of `vcpus` in addition to `held_vcpus` work as fast as `count`; it may be 0."""
    if not job.tasks:
        return count
    useful = job.useful_vcpus(held_vcpus + count * vcpus)
    return next((few for few in range(count) if job.useful_vcpus(held_vcpus + few * vcpus) >= useful), count)


def _why(code: int, job: JobModel, vcpu: int) -> Excluded:
    if code == Refusal.FULL:
        return Excluded(f"all of {job.max_spot_vcpus} spot {job.unit_name}s are held", "beyond the cap")
    if code == Refusal.LARGE and job.allocation_vcpus < vcpu:
        return _WORDS[code]._replace(
            why=f"machines are larger than an allocation of {job.allocation_vcpus} {job.unit_name}s"
        )
    return _WORDS[code]


def nothing_on_sale(refusals: Mapping[Market, Excluded]) -> str:
    """Return why nothing can be bought, each reason once."""
    why = "; ".join(dict.fromkeys(each.why for each in refusals.values())) or "no market has a price"
    return f"nothing can be bought: {why}"


def markets_text(weighed: int, refusals: Mapping[Market, Excluded]) -> str:
    """Return the number of markets that were weighed, and of those that were not, as in `1 market (2 too large)`."""
    others = Counter(each.short for each in refusals.values())
    text = ", ".join(f"{count} {short}" for short, count in sorted(others.items()))
    return f"{weighed} market{'s' * (weighed != 1)}" + (f" ({text})" if text else "")


def explained(candidates: list[Candidate], now: float, job: JobModel, *, bought: bool) -> tuple[Candidate, ...]:
    """Return the candidates, each but the bought one with the reason why it was not chosen.

    Parameters
    ----------
    now : cost of work without any of them, dollars per vCPU-hour.
    """
    best = candidates[0].cost_per_work
    shown = [candidates[0]] if bought else []
    for candidate in candidates[len(shown) :]:
        if not isfinite(candidate.cost_per_work):
            why = "no work is to be expected of it"
        elif candidate.cost_per_work >= now:
            why = f"would not lower the cost of work ({usd_per_work(now, job)} now)"
        elif candidate.cost_per_work <= best:
            why = "as cheap as the best, but later in the order"
        else:
            why = (
                f"{candidate.cost_per_work / best - 1:.1%} dearer than the best" if best > 0 else "dearer than the best"
            )
        shown.append(replace(candidate, why_not=why))
    return tuple(shown)
