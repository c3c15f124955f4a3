"""The hand-over: the next job of a queue takes over the machines of the jobs before, which have ended.

The machines change their job in one transaction: an event in both journals, and an allocation each. The first job pays
them until its end, the next one from then on, also for the time in which they were idle. Those that were no longer kept
for the next job change theirs now. The leases tell the machines which job they work for: the next tick writes those
that a process that died could not.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from proteus_spot.bidding.engine.allocations import AllocationState, HeldAllocation
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import AllocationHandedOver, AllocationTaken, BidEvent
from proteus_spot.bidding.engine.orders import order_id_of, order_parts
from proteus_spot.bidding.market.model import Market, Tier
from proteus_spot.infra.errors import TickStopped
from proteus_spot.infra.state.records import AllocationRecord, Job, JobKind, ObservationKind
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.job_ends import is_active
from proteus_spot.tasks.job_leases import extend_leases
from proteus_spot.tasks.job_queues import jobs_before, next_to_take_over, queue_of
from proteus_spot.tasks.job_records import recorded_spec, unit_of
from proteus_spot.tasks.market.decisions import decide_on
from proteus_spot.tasks.market.engine_journal import JobEngine, commit_together
from proteus_spot.tasks.market.listed_machines import job_machines
from proteus_spot.tasks.market.purchases.order_chains import (
    CONTROLLER_ORDER,
    OTHERS_ORDER,
    name_in_chain,
    place_in_chain,
    purchase,
)
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)

#: Begins the names of spot allocations that were taken over.
_TAKEN = "taken-"


def take_over(spec: JobSpec, job_engine: JobEngine) -> None:
    """Take over what the job can use of the machines that ended jobs of its queue hold, when its turn has come.

    Call it when the job was opened, before anything is bought for it; again changes nothing.
    """
    store, job_id = current_runtime().store, spec.job_id
    if spec.queue is None or not is_active(job_id) or job_engine.cached().holdings.job_id is None:
        return
    last = store.jobs.last_observation(job_id, ObservationKind.TOOK_OVER)
    taken = last is not None and last.at_s >= job_engine.cached().holdings.begun_at_s
    if not taken and not jobs_before(store, store.jobs.job(job_id)):
        take_over_task(spec, job_engine)
        extend_leases(job_id)  # they tell the machines


@runtime_task("take over machines", market=True)
def take_over_task(spec: JobSpec, job_engine: JobEngine) -> None:
    """Do what `take_over` does, with a record in Prefect."""
    runtime = current_runtime()
    for job in runtime.store.jobs.list_jobs():
        is_before = job.kind is JobKind.JOB and job.state.terminal and queue_of(job) == spec.queue
        if is_before and recorded_spec(job).billing_model == spec.billing_model:
            _take_over_from(job, spec, job_engine)
    runtime.store.jobs.observe(spec.job_id, runtime.clock.now_s(), ObservationKind.TOOK_OVER, {})


def _take_over_from(job: Job, spec: JobSpec, job_engine: JobEngine) -> None:
    if not current_runtime().store.purchases.allocations(job.job_id, alive=True):
        return
    before = JobEngine(job.job_id)
    try:
        decide_on(before, job_machines(job.job_id), {}, lambda engine: ())  # one that has ended is not handed over
    except TickStopped as error:
        _log.warning("%s: takes over nothing of job %s: %s", spec.job_id, job.job_id, error)
        return
    taken: list[AllocationTaken] = []

    def hand_over(engine: BidEngine) -> Sequence[BidEvent]:
        found = list(_of_use(job, engine, spec, job_engine.refresh()))
        taken[:] = [event for _, event in found]
        return [AllocationHandedOver(event.at_s, name, spec.job_id) for name, event in found]

    commit_together([(before, hand_over), (job_engine, lambda engine: taken)])
    for event in taken:
        a = event.allocation
        _log.info("%s: takes over %d x %s of job %s", spec.job_id, a.count, a.market, job.job_id)


def _of_use(job: Job, engine: BidEngine, spec: JobSpec, mine: BidEngine) -> Iterator[tuple[str, AllocationTaken]]:
    """Yield the allocations of an ended job that the next one can use, by name, each as the event of its taking.

    Spot machines of its markets are, as far as it may hold so many, and machines of its reliable tier.
    """
    store = current_runtime().store
    records = {record.allocation_id: record for record in store.purchases.allocations(job.job_id, alive=True)}
    names = _Names(spec.job_id)
    room = Counter({CONTROLLER_ORDER: 1, OTHERS_ORDER: spec.reliable.count - 1})
    for held in store.purchases.allocations(spec.job_id, alive=True):
        room[purchase(spec.job_id, held.order_id)] -= held.living_count
    room[_TAKEN] = mine.holdings.opened.job.max_spot_vcpus - mine.holdings.spot_vcpus
    is_kept = next_to_take_over(store, job) is not None  # else the first job's ledger goes on after its end
    paid_until_s = int(job.ended_at_s or 0) if is_kept else current_runtime().now_s()
    for name, position in engine.holdings.positions.items():
        record, living = records.get(name), tuple(sorted(position.living()))
        if record is None or not _works_on(position, record):
            continue
        part, wanted = _part_of_use(job, record, spec, mine), len(living)
        if part == _TAKEN:
            wanted *= mine.holdings.opened.job.size(mine.holdings.types[record.allocation.market.instance_type])
        if part is None or room[part] < (wanted if part == _TAKEN else 1):
            continue
        room[part] -= wanted
        order_id = names.next(part)
        mine_now = replace(position.allocation, allocation_id=order_id, count=len(living))
        buyer = record.bought_for or job.job_id
        yield name, AllocationTaken(max(paid_until_s, record.since_s), order_id, mine_now, living, job.job_id, buyer)


def _works_on(position: HeldAllocation, record: AllocationRecord) -> bool:
    """Return whether the machines of an allocation are known, and neither end nor are taken by the market."""
    is_known = sorted(position.living()) == sorted(record.living_ids)
    return position.standing is AllocationState.HELD and position.lapse is None and is_known


def _part_of_use(job: Job, record: AllocationRecord, spec: JobSpec, mine: BidEngine) -> str | None:
    """Return what an allocation would be to the next job: a part of its reliable tier, or a spot allocation."""
    a = record.allocation
    if a.tier is Tier.RELIABLE:
        is_same = a.market == Market(spec.reliable.instance_type, spec.reliable.zone)
        return purchase(job.job_id, record.order_id) if is_same else None
    opened = mine.holdings.opened
    is_among = a.market in opened.markets and not opened.job.excludes(a.market)
    is_alike = unit_of(job) == opened.job.unit  # a machine works on as many tasks as it was started for
    return _TAKEN if a.bid_micros is not None and is_among and is_alike else None


class _Names:
    """The ids of allocations that are taken over: a part of the reliable tier goes on with the chain of its orders."""

    def __init__(self, job_id: str) -> None:
        store = current_runtime().store
        self._job_id, self._generation = job_id, store.owner.identity().generation_of_orders
        self._known = [intent.order_id for intent in store.purchases.intents(job_id)]

    def next(self, part: str) -> str:
        """Return the next id for a part."""
        if part == _TAKEN:
            known = [order_parts(self._job_id, order_id)[1] for order_id in self._known]
            name = f"{_TAKEN}{sum(each.startswith(_TAKEN) for each in known)}"
        else:
            places = [
                place_in_chain(self._job_id, each) for each in self._known if purchase(self._job_id, each) == part
            ]
            name = name_in_chain(part, max(places) + 1) if places else part
        order_id = order_id_of(self._job_id, self._generation, name)
        self._known.append(order_id)
        return order_id
