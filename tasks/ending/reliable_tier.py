"""The reliable tier of a job: kept while the job goes on, released when it has ended."""

import logging

from bidding.market.model import Tier
from infra.errors import JobFailed
from infra.state.records import AllocationRecord, ObservationKind
from tasks.ending.machines import end_machines
from tasks.job_ends import wants_machines
from tasks.job_records import training_begun
from tasks.job_spec import JobSpec
from tasks.market.engine_journal import JobEngine
from tasks.market.purchases.reliable_tier import (
    CONTROLLER_ORDER,
    has_reliable_orders,
    is_reliable_tier_complete,
    purchase,
    secure_reliable_tier,
    surplus_machines,
)
from tasks.market.purchases.sending import PurchaseBlocked
from tasks.runtime import current_runtime

_log = logging.getLogger(__name__)

#: Machines on which a controller may fail to start before the job fails.
MOST_STARTS = 3


def keep_reliable_tier(spec: JobSpec, job_engine: JobEngine, *, answers: bool) -> str:
    """Buy machines of the reliable tier that are missing, and another one for a controller that does not answer.

    Machines beyond those that the job wants end: they were given up, and came back.

    The first purchase is the flow's: before it was ordered nothing is bought here. What the market does not sell now is
    asked for again at each tick.

    Parameters
    ----------
    answers : whether the controller answers now.

    Returns
    -------
    str
        One line on what must be mended before anything can be bought, or ''.

    Raises
    ------
    JobFailed
        If no controller has started on several machines, or machines were lost again and again.
    """
    if not wants_machines(spec.job_id) or not has_reliable_orders(spec.job_id):
        return ""
    controllers = [r for r in _reliable(spec.job_id) if purchase(r.order_id) == f"{spec.job_id}-{CONTROLLER_ORDER}"]
    if (
        not answers
        and controllers
        and controllers[-1].alive
        and _silent_s(spec.job_id, controllers[-1]) >= start_deadline_s()
    ):
        if not training_begun(spec.job_id) and len(controllers) >= MOST_STARTS:
            raise JobFailed(_never_started(spec.job_id, controllers))
        end_machines(job_engine, lambda fact: fact.order_id == controllers[-1].allocation_id)
    surplus = surplus_machines(spec)
    if surplus:
        _log.warning("job %s: %s came back after others were bought in their place, and end", spec.job_id, surplus)
        end_machines(job_engine, lambda fact: fact.instance_id in surplus)
    if is_reliable_tier_complete(spec):
        return ""
    try:
        waits = secure_reliable_tier(spec, job_engine)
    except PurchaseBlocked as error:
        return str(error)
    if waits is not None:
        _log.warning("job %s: %s", spec.job_id, waits)
    return ""


def start_deadline_s() -> float:
    """Return the market seconds that a controller may be silent, from the launch of its machine on."""
    runtime = current_runtime()
    return runtime.settings.start_minutes * 60 * runtime.clock.scale


def _silent_s(job_id: str, machine: AllocationRecord) -> float:
    """Return the market seconds since the controller answered last, or since its machine was launched."""
    runtime = current_runtime()
    seen = runtime.store.last_observation(job_id, ObservationKind.PROGRESS)
    launched_s = float(machine.allocation.launched_at_s)
    return runtime.clock.now_s() - (launched_s if seen is None else max(launched_s, seen.at_s))


def _never_started(job_id: str, controllers: list[AllocationRecord]) -> str:
    names = [name for record in controllers for name in record.instance_ids] or ["the last"]
    minutes = current_runtime().settings.start_minutes
    return (
        f"job {job_id}: no controller answered within {minutes:g} minutes on any of {len(controllers)} machines "
        f"({', '.join(names)}); read `proteus logs {job_id}`, or the console log of {names[-1]}"
    )


def _reliable(job_id: str) -> list[AllocationRecord]:
    records = current_runtime().store.allocations(job_id)
    return [record for record in records if record.allocation.tier is Tier.RELIABLE]
