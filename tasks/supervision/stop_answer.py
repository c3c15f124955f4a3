"""The request of `proteus stop`, and its answer: which machines stay, until when and why, and what happens next.

The request works without a controller and without Prefect: it is a state in the database, which ticks carry out. The
ticks of a local run are in its own process; those of other jobs are the deployment's.
"""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from inspect import unwrap
from pathlib import Path

from proteus_spot.bidding.market.model import HOUR_S, InstanceFact, Tier
from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.infra.clock import ScaledClock, SystemClock
from proteus_spot.infra.local_market.announcement import is_up_directory
from proteus_spot.infra.local_market.environment import clock_file
from proteus_spot.infra.local_market.job_stores import JobStore, find_job, is_under_way, open_job_stores
from proteus_spot.infra.nodes.controller_client import ControllerClient, ControllerUnreachable
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.state.records import AllocationRecord, IntentState, Job, JobKind, JobState, ObservationKind
from proteus_spot.infra.storage.blobs import BlobError
from proteus_spot.infra.storage.leases import read_lease
from proteus_spot.studies.times import minute
from proteus_spot.tasks.job_ends import request_stop, why_ended
from proteus_spot.tasks.job_queues import next_to_take_over, waits_to_go_on
from proteus_spot.tasks.job_records import terms_of
from proteus_spot.tasks.market.bookkeeping import book_ledger
from proteus_spot.tasks.market.engine_journal import JobEngine, journal_of
from proteus_spot.tasks.market.listed_machines import TIER_TAG
from proteus_spot.tasks.supervision.machine_ends import end_machines, living_machines
from proteus_spot.tasks.task_runtime import current_runtime

_CALL_S = 5.0
_LOOK_S = 0.2
#: Real seconds for the process of a local run to end its machines.
_LOCAL_S = 60.0
_BY = "proteus stop"


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of the job, and until when it stays at most (market time; None where nothing bounds that) and why.

    `lease_until_s` is when it ends by itself, if no tick runs; None where that is not known.
    """

    instance_id: str
    market: str
    tier: str
    until_s: float | None
    why: str
    lease_until_s: float | None = None

    def __str__(self) -> str:
        until = "" if self.until_s is None else f" until {minute(int(self.until_s))} UTC"
        return f"{self.instance_id} ({self.tier}, {self.market}) stays{until}: {self.why}"


@dataclass(frozen=True, slots=True)
class StopAnswer:
    """The state of the job after the request, the machines that stay, those that were ended, and what comes next.

    `failed` says that machines were to be ended at once and may still live.
    """

    job_id: str
    state: str
    why: str
    stays: Sequence[Machine] = ()
    ended: Sequence[str] = ()
    next: Sequence[str] = ()
    notes: Sequence[str] = field(default=())
    failed: bool = False


def stop_job(
    job_id: str, why: str, database: str | None = None, directory: Path | None = None, *, at_once: bool = False
) -> StopAnswer:
    """Find the job as `proteus jobs` does, write the request to stop it, and return the answer.

    Parameters
    ----------
    at_once : end its machines now, with a checkpoint if its controller answers.

    Raises
    ------
    InputError
        If it is in no state database.
    """
    with open_job_stores(database, directory) as (stores, _):
        jobs = find_job(stores, job_id)
        if jobs.directory is None:
            return _stop_deployed(job_id, why, at_once=at_once)
        return _stop_local(jobs, jobs.directory, job_id, why, at_once=at_once)


def _stop_deployed(job_id: str, why: str, *, at_once: bool) -> StopAnswer:
    """Stop a job of the settings' database."""
    runtime = current_runtime()
    job = request_stop(job_id, why, now=at_once, by=_BY)
    notes: list[str] = []
    ended: list[str] = []
    failed = False
    answers = not at_once and _ask_controller(job)
    try:
        if at_once:
            ended = [fact.instance_id for fact in _end_now(job)]
        # The market's reads may still show a machine alive that it has just ended.
        facts = [fact for fact in living_machines(job_id) if fact.instance_id not in ended]
    except MarketError as error:
        failed = at_once
        notes.append(f"the market does not answer ({error}); the machines are those of the state database")
        facts = None
    job = runtime.store.jobs.job(job_id)
    now_s = runtime.clock.now_s()
    records = runtime.store.purchases.allocations(job_id, alive=True)
    if facts is None:
        stays = _in_the_book(job, records, now_s, runtime.clock.scale)
    else:
        stays = _in_the_market(job, records, facts, now_s, answers)
    following = None if job.stop_now or at_once else next_to_take_over(runtime.store, job)
    if following is not None:
        why_kept = f"job {following.job_id} of its queue takes it over, or lets it go"
        stays = [replace(machine, until_s=None, why=why_kept) for machine in stays]
    stays = [replace(machine, lease_until_s=_lease_until_s(job_id, machine.instance_id)) for machine in stays]
    if facts is not None:
        notes += _in_flight(job_id, facts)
    return StopAnswer(
        job_id,
        str(job.state),
        why_ended(job),
        stays,
        ended,
        [] if at_once and not failed else _next(job, stays, answers=answers),
        notes,
        failed=failed or (at_once and bool(stays)),
    )


def _end_now(job: Job) -> list[InstanceFact]:
    """End all machines of the job, and bring its ledger up to date."""
    if job.kind is JobKind.SWEEP:  # a tick closes it
        ended: list[InstanceFact] = unwrap(end_machines)(journal_of(job.job_id))
    else:
        from proteus_spot.tasks.supervision.job_stop import end_at_once  # it brings along all of training

        job_engine = JobEngine(job.job_id)
        ended = unwrap(end_machines)(job_engine) if job.state.terminal else end_at_once(job_engine)
    with suppress(MarketError):  # a tick books the same
        unwrap(book_ledger)(job.job_id)
    return ended


def _stop_local(jobs: JobStore, directory: Path, job_id: str, why: str, *, at_once: bool) -> StopAnswer:
    """Stop a local run: its own process carries the request out."""
    job = jobs.store.jobs.request_stop(job_id, why, _BY, jobs.now_s(job_id), at_once=at_once)
    if not is_under_way(directory):
        says = (
            "the job is a local run that was interrupted: nothing of it runs or costs, and without its directory it is "
            f"gone; {_command(jobs, directory, job_id)} ends it, with the model of its last checkpoint"
        )
        return StopAnswer(job_id, str(job.state), why_ended(job), next=[] if job.state.terminal else [says])
    before = {name for record in jobs.store.purchases.allocations(job_id, alive=True) for name in record.living_ids}
    if at_once:
        _await_end(jobs, job_id)
        job = jobs.store.jobs.job(job_id)
    scale = ScaledClock(clock_file(directory)).scale
    stays = _in_the_book(job, jobs.store.purchases.allocations(job_id, alive=True), jobs.now_s(job_id), scale)
    ended = sorted(before - {machine.instance_id for machine in stays}) if at_once else []
    failed = at_once and (bool(stays) or not job.state.terminal)
    coming = "its process saves the model, ends the machines, and ends"
    if is_up_directory(directory):
        coming = "`proteus up` saves the model and ends the machines; `proteus jobs` shows it"
    if failed:
        coming = f"its process has not ended them in {_LOCAL_S:g} s; press Ctrl-C where it runs"
    done = job.state.terminal and not failed
    return StopAnswer(job_id, str(job.state), why_ended(job), stays, ended, [] if done else [coming], failed=failed)


def _command(jobs: JobStore, directory: Path, job_id: str) -> str:
    """Return the command that lets an interrupted local run go on."""
    recorded = jobs.store.jobs.last_observation(job_id, ObservationKind.COMMAND)
    if recorded is not None:
        return f"`{recorded.payload['command']}`"
    if is_up_directory(directory):
        return f"`{shlex.join(['proteus', 'up', '--dir', str(directory)])}`"
    return f"`{shlex.join(['proteus', 'run', '--job', job_id, '--dir', str(directory)])}` with its options"


def _await_end(jobs: JobStore, job_id: str) -> None:
    """Wait until the process of a local run has ended the job's machines, or has had long enough."""
    clock = SystemClock()
    until_s = clock.now_s() + _LOCAL_S
    while not jobs.store.jobs.job(job_id).state.terminal or jobs.store.purchases.allocations(job_id, alive=True):
        if clock.now_s() >= until_s:
            return
        clock.wait_until(clock.now_s() + _LOOK_S)


def _lease_until_s(job_id: str, instance_id: str) -> float | None:
    """Return when the lease of a machine ends; None where no tick has extended it yet, or it cannot be read."""
    try:
        runtime = current_runtime()
        buyer = runtime.store.purchases.buyers(job_id).get(instance_id, job_id)
        return read_lease(runtime.blobs, buyer, instance_id).until_s
    except BlobError:
        return None


def _ask_controller(job: Job) -> bool:
    """Ask the controller at once, which spares the wait for a tick; return whether it answered."""
    if job.state is not JobState.STOPPING or job.kind is JobKind.SWEEP:
        return False
    from proteus_spot.tasks.training.running_controller import find_controller

    found = find_controller(job.job_id)
    if found is None or found[1]["job_id"] is None:
        return False
    try:
        ControllerClient(found[0], _CALL_S).stop(job.stop_why or "")
    except ControllerUnreachable:
        return False
    return True


def _in_the_market(
    job: Job, records: Sequence[AllocationRecord], facts: Sequence[InstanceFact], now_s: float, answers: bool
) -> list[Machine]:
    begun_s = {name: record.allocation.launched_at_s for record in records for name in record.instance_ids}
    return [
        _machine(
            job,
            fact.instance_id,
            str(fact.market),
            Tier(fact.tags.get(TIER_TAG, Tier.TRANSIENT)),
            begun_s.get(fact.instance_id, fact.launched_at_s),
            now_s,
            current_runtime().clock.scale,
            answers=answers,
        )
        for fact in facts
    ]


def _in_the_book(job: Job, records: Sequence[AllocationRecord], now_s: float, scale: float) -> list[Machine]:
    return [
        _machine(job, name, str(a.market), a.tier, a.launched_at_s, now_s, scale, answers=False)
        for record in records
        for a in [record.allocation]
        for name in record.living_ids
    ]


def _machine(
    job: Job,
    instance_id: str,
    market: str,
    tier: Tier,
    launched_at_s: int,
    now_s: float,
    scale: float,
    *,
    answers: bool,
) -> Machine:
    """Return a living machine with the time until which it stays at most, and why; `scale` is that of its clock."""
    settings = load_settings()
    if job.stop_now:
        return Machine(instance_id, market, tier, None, "it was to end at once; each tick repeats that")
    if tier is Tier.RELIABLE and job.state.terminal:
        return Machine(instance_id, market, tier, now_s + settings.tick_s, "the next tick ends it")
    if tier is Tier.RELIABLE:
        minutes = max(settings.stop_minutes, settings.progress_minutes) if answers else settings.stop_minutes
        until_s = (job.stop_at_s or now_s) + minutes * 60 * scale + settings.tick_s
        return Machine(
            instance_id, market, tier, until_s, "the training runs on it until the model is saved, or earlier"
        )
    if job.kind is JobKind.SWEEP and not job.state.terminal:
        return Machine(instance_id, market, tier, now_s + 6 * settings.tick_s, "its trial saves its state first")
    if job.kind is JobKind.JOB and not terms_of(job).billing_model.by_second:
        ends_s = launched_at_s + HOUR_S * (int(now_s - launched_at_s) // HOUR_S + 1)
        if ends_s - now_s <= settings.tick_s:
            ends_s += HOUR_S  # the next tick may come after the hour has ended, and another one is paid then
        return Machine(instance_id, market, tier, ends_s, "its hour is paid; an eviction until then would refund it")
    return Machine(instance_id, market, tier, now_s + 2 * settings.tick_s, "the next tick ends it")


def _in_flight(job_id: str, facts: Sequence[InstanceFact]) -> list[str]:
    """Return a line for each purchase that was not answered and of which the market shows no machine."""
    listed = {fact.order_id for fact in facts}
    return [
        f"the purchase {intent.order_id} was not answered yet; a machine of it would be ended by a tick"
        for intent in current_runtime().store.purchases.intents(job_id, [IntentState.PLANNED])
        if intent.token is not None and intent.order_id not in listed
    ]


def _next(job: Job, stays: Sequence[Machine], *, answers: bool) -> list[str]:
    """Return what happens next, in sentences."""
    lines = []
    if not job.state.terminal and job.kind is JobKind.SWEEP:
        tick_s = current_runtime().settings.tick_s
        lines.append(
            f"a tick (every {tick_s} s) has its trials save their states, ends their machines and closes the sweep; "
            f"`proteus sweep show {job.job_id}` shows it"
        )
    elif waits_to_go_on(current_runtime().store, job):
        lines.append("a run of `train` that waits to have it go on is ended by Cancel in the Prefect UI")
    elif not job.state.terminal:
        runtime = current_runtime()
        saved = "its controller saves the model after the clock under way" if answers else "no controller answers yet"
        lines.append(
            f"{saved}; a tick (every {runtime.settings.tick_s} s) closes the job, from its last checkpoint if no "
            f"controller answers within {runtime.settings.stop_minutes:g} minutes; `proteus jobs` shows it"
        )
    leases = [machine.lease_until_s for machine in stays if machine.lease_until_s is not None]
    if leases:
        lines.append(
            f"if no tick runs, its machines end by themselves, at the latest at {minute(int(max(leases)))} UTC"
        )
    if stays:
        lines.append(f"`proteus stop {job.job_id} --now` ends its machines at once")
    return lines
