"""The reliable tier of a job: kept while the job goes on, released when it has ended."""

from bidding.market.model import Tier
from infra.errors import JobFailed
from infra.state.records import AllocationRecord, ObservationKind
from tasks.ending.machines import end_machines
from tasks.job_ends import wants_machines
from tasks.job_records import training_begun
from tasks.job_spec import JobSpec
from tasks.market.engine_journal import JobEngine
from tasks.market.instances import CONTROLLER_ORDER, purchase, secure_reliable_tier
from tasks.runtime import current_runtime

#: Machines on which a controller may fail to start before the job fails.
MOST_STARTS = 3


def keep_reliable_tier(spec: JobSpec, job_engine: JobEngine, *, answers: bool) -> None:
    """Buy machines of the reliable tier that were lost, and another one for a controller that does not answer.

    The first purchase is the flow's: before it nothing is bought here.

    Parameters
    ----------
    answers : whether the controller answers now.

    Raises
    ------
    JobFailed
        If no controller has started on several machines, or the market refuses others.
    """
    if not wants_machines(spec.job_id):
        return
    controllers = [r for r in _reliable(spec.job_id) if purchase(r.order_id) == f"{spec.job_id}-{CONTROLLER_ORDER}"]
    if not controllers:
        return
    if not answers and controllers[-1].alive and _silent_s(spec.job_id, controllers[-1]) >= start_deadline_s():
        if not training_begun(spec.job_id) and len(controllers) >= MOST_STARTS:
            raise JobFailed(_never_started(spec.job_id, controllers))
        end_machines(job_engine, lambda fact: fact.token == controllers[-1].allocation_id)
    if _is_a_machine_lost(spec):
        secure_reliable_tier(spec, job_engine)


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


def _is_a_machine_lost(spec: JobSpec) -> bool:
    """Return whether fewer machines of the reliable tier live, by the book, than the job wants.

    The controller's machine counts by itself: without it the others wait for a controller.
    """
    first = f"{spec.job_id}-{CONTROLLER_ORDER}"
    living = {True: 0, False: 0}
    for record in _reliable(spec.job_id):
        living[purchase(record.order_id) == first] += record.living_count
    return living[True] < 1 or living[False] < spec.reliable.count - 1
