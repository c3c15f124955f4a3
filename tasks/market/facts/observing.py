"""What is known of the markets of a job at a tick; placement scores and quotas, asked for seldom.

EC2 limits how many configurations its scores may be asked for in a day, so all jobs on one database ask at most once an
hour for the same one, also where the answer was an error; and so for the account's quotas.
"""

import logging
from collections.abc import Mapping, Sequence
from hashlib import sha256
from uuid import uuid4

from proteus_spot.bidding.facts.known import MarketKnown
from proteus_spot.bidding.facts.learning import REMEMBERED_S, MarketPrices, known_of
from proteus_spot.bidding.facts.records import PlacementScore
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.quotas import quota_of
from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import type_on_sale
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)
#: Market seconds between two questions for the same.
_EVERY_S = HOUR_S
#: Claim on the question for quotas.
_QUOTAS = "quotas"


def known_to_decide_on(job_engine: JobEngine, prices: Mapping[Market, Micros]) -> dict[Market, MarketKnown]:
    """Return what is known of the markets of a job, where bids decide nothing; else none."""
    engine = job_engine.cached()
    if engine.holdings.job_id is None or engine.holdings.opened.evictions.bids_decide:
        return {}
    markets, kinds, job = engine.holdings.opened.markets, engine.holdings.opened.types, engine.holdings.opened.job
    smallest = min(job.size(kinds[market.instance_type]) for market in markets)
    wanted = max(job.max_spot_vcpus // smallest, 1)
    if not current_runtime().store.claims.is_claimed(
        _claim(_types(markets), wanted)
    ):  # a task only where it is time to ask
        observe_scores(markets, wanted)
    now_s = current_runtime().now_s()
    on_demand = {name: kind.on_demand_micros for name, kind in kinds.items()}
    present = {market: (price, now_s) for market, price in prices.items()}
    return known_of(current_runtime().store.markets, markets, now_s, MarketPrices(present, on_demand))


@runtime_task("observe placement scores")
def observe_scores(markets: Sequence[Market], wanted: int) -> int:
    """Ask for the placement scores of `wanted` machines in `markets` where it is time to, and record them.

    Returns
    -------
    int
        The number of scores recorded.
    """
    runtime = current_runtime()
    types = _types(markets)
    if not runtime.store.claims.claim(_claim(types, wanted), uuid4().hex, _EVERY_S / runtime.clock.scale):
        return 0
    try:
        by_zone = runtime.market.placement_scores(types, wanted)
    except MarketError as error:
        _log.warning("no placement scores: %s", error)
        return 0
    now_s = runtime.now_s()
    scores = [PlacementScore(now_s, each, by_zone[each.zone], wanted) for each in markets if each.zone in by_zone]
    runtime.store.markets.record_facts(scores)
    runtime.store.markets.forget_facts(now_s - REMEMBERED_S)
    return len(scores)


def quotas_to_decide_on(job_engine: JobEngine) -> dict[str, int]:
    """Return the vCPUs that the account's quotas leave, by code, where bids decide nothing; else none."""
    engine = job_engine.cached()
    if engine.holdings.job_id is None or engine.holdings.opened.evictions.bids_decide:
        return {}
    runtime = current_runtime()
    if not runtime.store.claims.is_claimed(_QUOTAS):  # a task of its own only where it is time to ask
        observe_quotas()
    left = runtime.store.markets.quotas()
    for record in runtime.store.purchases.living_allocations() if left else ():
        allocation = record.allocation
        quota = quota_of(allocation.market.instance_type, allocation.bid_micros is not None)
        kind = type_on_sale(allocation.market, runtime.clock.now_s())
        if quota is not None and quota.code in left and kind is not None:
            left[quota.code] -= record.living_count * kind.vcpu
    return left


@runtime_task("observe quotas")
def observe_quotas() -> int:
    """Ask for the account's quotas where it is time to, and record them; return how many there are.

    Without the permission, or an answer, those of before hold: a purchase beyond them is refused.
    """
    runtime = current_runtime()
    if not runtime.store.claims.claim(_QUOTAS, uuid4().hex, _EVERY_S / runtime.clock.scale):
        return 0
    try:
        quotas = runtime.market.quotas()
    except MarketError as error:
        _log.warning("the account's quotas are not known: %s", error)
        return 0
    runtime.store.markets.record_quotas(quotas, runtime.now_s())
    return len(quotas)


def _types(markets: Sequence[Market]) -> list[str]:
    return sorted({market.instance_type for market in markets})


def _claim(types: Sequence[str], wanted: int) -> str:
    return f"scores/{sha256(f'{types} {wanted}'.encode()).hexdigest()[:16]}"
