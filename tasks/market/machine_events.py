"""Events of machines from the queue of the deployment: each is handled as if the machine had reported it.

The queue is needed for interruptible capacity reservations, which warn by events alone.
"""

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from uuid import uuid4

from proteus_spot.bidding.facts.records import Source
from proteus_spot.bidding.market.machine_events import EventKind, MachineEvent
from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.infra.nodes.controller_client import ControllerClient, ControllerUnreachable
from proteus_spot.infra.state.records import AllocationRecord
from proteus_spot.tasks.market.eviction_notices import EvictionNotice
from proteus_spot.tasks.market.facts.rebalances import record_rebalances
from proteus_spot.tasks.task_runtime import current_runtime

_log = logging.getLogger(__name__)
#: Real seconds for a controller to take a notice.
_CALL_S = 1.0
#: Claim on the question to the queue between ticks.
_ASKED = "machine-events"


@contextmanager
def taken_events(jobs: Collection[str]) -> Iterator[list[EvictionNotice]]:
    """Receive the events of these jobs' machines, and yield their eviction notices; none without a queue.

    Notices are sent to the controllers, and rebalance recommendations are recorded. Handled events are removed from the
    queue when the caller has finished; if it fails, they are received again. Events of other machines stay in the
    queue. A queue that does not answer is logged: machines report most events themselves.
    """
    queue = current_runtime().events
    if queue is None:
        yield []
        return
    try:
        events = queue.receive()
    except MarketError as error:
        _log.warning("the queue of machine events does not answer: %s", error)
        yield []
        return
    machines = {
        name: record
        for record in current_runtime().store.purchases.living_allocations()
        if record.job_id in jobs
        for name in record.instance_ids
    }
    ours = [event for event in events if event.instance_id in machines]
    at_s = {event.instance_id: event.at_s for event in ours if event.kind is EventKind.REBALANCE}
    record_rebalances({each.allocation_id: each for each in machines.values()}.values(), at_s, Source.EVENTS)
    warned = {event.instance_id: event for event in ours if event.kind is EventKind.INTERRUPTION}
    notices = [_notice(machines[name], event) for name, event in warned.items() if name in machines[name].living_ids]
    untold = {notice.instance_id for notice in notices if not _tell(notice)}
    yield notices
    done = [each for each in ours if each.kind is EventKind.REBALANCE or each.instance_id not in untold]
    try:
        queue.remove(done)
    except MarketError as error:
        _log.warning("the queue of machine events does not answer: %s", error)


def is_time_to_ask() -> bool:
    """Return whether the queue is to be asked between ticks: as often as a machine looks for its notice."""
    runtime = current_runtime()
    if runtime.events is None:
        return False
    return runtime.store.claims.claim(_ASKED, uuid4().hex, runtime.settings.poll_s / runtime.clock.scale)


def _notice(record: AllocationRecord, event: MachineEvent) -> EvictionNotice:
    return EvictionNotice(
        job_id=record.job_id,
        allocation_id=record.allocation_id,
        instance_id=event.instance_id,
        takes_at_s=event.at_s,
    )


def _tell(notice: EvictionNotice) -> bool:
    """Send a notice to the job's controller, if it has one; return whether it was received.

    The controller counts the notices of a machine once.
    """
    runtime = current_runtime()
    address = runtime.store.jobs.job(notice.job_id).controller_address
    if address is None:
        return True
    left_s = max(notice.takes_at_s - runtime.clock.now_s(), 0.0) / runtime.clock.scale
    about = notice.model_dump(exclude={"patience_s"})
    try:
        ControllerClient(address, _CALL_S).notice(notice.instance_id, left_s, about)
    except ControllerUnreachable as error:
        _log.warning("%s: the notice of %s was not delivered: %s", notice.job_id, notice.instance_id, error)
        return False
    return True
