"""Deadlines of a job that goes on: machines must join its controller, and its clock must progress."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from proteus_spot.bidding.engine.events import MarketCooled
from proteus_spot.bidding.market.model import InstanceFact
from proteus_spot.infra.errors import JobFailed
from proteus_spot.infra.state.records import AllocationRecord, ObservationKind
from proteus_spot.tasks.job_ends import request_stop, standstill
from proteus_spot.tasks.job_queues import jobs_before, turn_since_s
from proteus_spot.tasks.job_records import is_sweep
from proteus_spot.tasks.market.engine_journal import EngineJournal, JobEngine
from proteus_spot.tasks.market.job_opening import is_opened
from proteus_spot.tasks.market.listed_machines import observe_machines
from proteus_spot.tasks.market.purchases.order_chains import CONTROLLER_ORDER, purchase
from proteus_spot.tasks.supervision.machine_ends import end_machines
from proteus_spot.tasks.task_runtime import current_runtime

#: Maximum duration of a clock, as a multiple of the last ones, whatever the deadline is.
_TIMES_AS_LONG = 10
#: Key of the seconds for which ticks have found the controller unchanged.
_STOOD = "stood_s"
#: Key of when the first of them did.
_FIRST = "first_s"
#: What a tick finds of a controller that does not answer.
_SILENT: Mapping[str, Any] = MappingProxyType({"clock": None, "state": "silent"})


def not_joined(
    records: Sequence[AllocationRecord], joined: Collection[str], since_s: float, now_s: float, within_s: float
) -> list[str]:
    """Return the living instances that have not joined the controller `within_s` seconds after their launch.

    Parameters
    ----------
    records : the machines that should join.
    joined : instances that the controller knows.
    since_s : time since when the controller is there to be joined.
    """
    return [
        name
        for record in records
        if record.alive and now_s - max(record.allocation.launched_at_s, since_s) >= within_s
        for name in record.living_ids
        if name not in joined
    ]


def check_start(job_engine: EngineJournal[Any]) -> None:
    """Refuse a job or sweep that was not opened in time, since its flow's run has died: a tick cannot begin it.

    What that run does first (the code, the data, the prices) needs the user's files. Once the job is opened, ticks do
    the rest.

    Raises
    ------
    JobFailed
        If neither its run nor another one has got that far within `start_minutes`.
    """
    if job_engine.cached().holdings.job_id is not None or is_opened(job_engine):
        return
    runtime, job_id = current_runtime(), job_engine.job_id
    job = runtime.store.jobs.job(job_id)
    if jobs_before(runtime.store, job):
        return  # it begins when it is its turn
    starts = (ObservationKind.FOLLOWER, ObservationKind.CLOCK)  # a run that follows it, and a failed job begun again
    seen = [last.at_s for kind in starts if (last := runtime.store.jobs.last_observation(job_id, kind)) is not None]
    since_s = max([job.created_at_s, turn_since_s(runtime.store, job), *seen])
    flow = "sweep" if is_sweep(job_id) else "train"
    if runtime.clock.now_s() - since_s >= runtime.settings.start_minutes * 60 * runtime.clock.scale:
        raise JobFailed(
            f"job {job_id}: its run of `{flow}` did not open it within {runtime.settings.start_minutes:g} minutes, so "
            f"nothing was bought; read the log of that run, and run `{flow}` again: the job begins then"
        )


def let_go_of_absent_machines(job_engine: JobEngine, status: dict[str, Any]) -> list[str]:
    """Terminate the machines that have not joined the controller in time, and cool their markets; return them.

    The controller's own machine is not among them: it is replaced where no controller answers.

    Parameters
    ----------
    status : of the controller, which answers now.
    """
    runtime, job_id = current_runtime(), job_engine.job_id
    begun = runtime.store.jobs.last_observation(job_id, ObservationKind.TRAINING_BEGUN)
    if begun is None or begun.at_s < job_engine.cached().holdings.begun_at_s:
        return []
    records = runtime.store.purchases.allocations(job_id, alive=True)
    records = [record for record in records if purchase(job_id, record.order_id) != CONTROLLER_ORDER]
    joined = {node["name"] for node in status["nodes"]}
    within_s = runtime.settings.join_minutes * 60 * runtime.clock.scale
    absent = not_joined(records, joined, begun.at_s, runtime.clock.now_s(), within_s)
    if absent:
        ended: list[InstanceFact] = end_machines(job_engine, lambda fact: fact.instance_id in absent)
        why = f"its machines did not join within {runtime.settings.join_minutes:g} minutes ({', '.join(absent)})"
        markets = sorted({fact.market for fact in ended if fact.bid_micros is not None})
        job_engine.commit(lambda engine: [MarketCooled(runtime.now_s(), market, why) for market in markets])
    return absent


def unchanged_s(job_id: str, seen: Mapping[str, Any], since_s: float = 0.0) -> float:
    """Return for how many market seconds ticks have found the controller as it is now; 0 if it was otherwise before.

    Call it at each tick. Where no tick ran nothing is concluded: between two ticks at most two periods of ticks count,
    however long the pause was, or whatever the clock of this machine said.

    Parameters
    ----------
    seen : clock and state of the controller now.
    since_s : market time from which on the time counts.
    """
    runtime = current_runtime()
    now_s, stood_s = runtime.clock.now_s(), 0.0
    first_s = now_s
    before = runtime.store.jobs.last_observation(job_id, ObservationKind.CLOCK)
    if before is not None:
        found = dict(before.payload)
        stood_before_s, first_before_s = float(found.pop(_STOOD, 0.0)), float(found.pop(_FIRST, before.at_s))
        if found == seen and first_before_s >= since_s:
            first_s = first_before_s
            stood_s = stood_before_s + min(max(now_s - before.at_s, 0.0), 2 * runtime.settings.tick_s)
    runtime.store.jobs.observe(job_id, now_s, ObservationKind.CLOCK, {**seen, _STOOD: stood_s, _FIRST: first_s})
    return stood_s


def silent_s(job_id: str, since_s: float) -> float:
    """Return for how many market seconds ticks have found the controller silent, but for none before `since_s`."""
    heard = current_runtime().store.jobs.last_observation(job_id, ObservationKind.PROGRESS)
    return unchanged_s(job_id, _SILENT, since_s if heard is None else max(since_s, heard.at_s))


def stop_without_progress(job_id: str, status: dict[str, Any]) -> None:
    """Have a job stopped whose clock has not progressed for too long, while it has nodes that work.

    A job without a node to work on waits, and goes on by itself when one joins: it is not stopped, since it costs the
    reliable tier alone. One that is running and stands still would pay for its spot machines forever.
    """
    runtime = current_runtime()
    standing_s = unchanged_s(job_id, {"clock": status["clock"], "state": status["state"]})
    minutes = max(runtime.settings.progress_minutes, _TIMES_AS_LONG * (status.get("seconds_per_clock") or 0.0) / 60)
    if status["state"] == "running" and standing_s >= minutes * 60 * runtime.clock.scale:
        observe_machines(job_id)  # a head that the market refuses, for its clock may be wrong, stops no job
        request_stop(job_id, standstill(status["clock"], minutes), by="a tick")
