"""What the account's quotas leave: asked for once an hour, less what all jobs on this database hold."""

import logging
from uuid import uuid4

from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.quotas import quota_of
from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import type_on_sale
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)
#: Market seconds between two questions for the quotas.
_EVERY_S = HOUR_S
_CLAIM = "quotas"


def quotas_to_decide_on(job_engine: JobEngine) -> dict[str, int]:
    """Return the vCPUs that the account's quotas leave, by code, where bids decide nothing; else none."""
    engine = job_engine.cached()
    if engine.holdings.job_id is None or engine.holdings.opened.evictions.bids_decide:
        return {}
    runtime = current_runtime()
    if not runtime.store.claims.is_claimed(_CLAIM):  # a task of its own only where it is time to ask
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
    if not runtime.store.claims.claim(_CLAIM, uuid4().hex, _EVERY_S / runtime.clock.scale):
        return 0
    try:
        quotas = runtime.market.quotas()
    except MarketError as error:
        _log.warning("the account's quotas are not known: %s", error)
        return 0
    runtime.store.markets.record_quotas(quotas, runtime.now_s())
    return len(quotas)
