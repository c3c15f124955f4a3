"""A sweep in the state database: recorded, opened for its decisions, opened again, closed with its result."""

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from proteus_spot.bidding.billing import Flat
from proteus_spot.bidding.market.model import DAY_S, Market
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.tuning.sweep_events import SweepClosed, SweepExtended, SweepOpened, SweepReopened
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan
from proteus_spot.infra.errors import InputError, ProteusError
from proteus_spot.infra.state.records import IllegalTransition, Job, JobKind, JobState
from proteus_spot.infra.storage.price_store import PriceStore
from proteus_spot.infra.storage.trial_paths import SweepPaths
from proteus_spot.studies.form_fields import RECORDED
from proteus_spot.tasks.event_feed import emit_end
from proteus_spot.tasks.job_ends import request_stop
from proteus_spot.tasks.job_records import can_go_on
from proteus_spot.tasks.market.engine_journal import SweepJournal
from proteus_spot.tasks.market.job_opening import priced
from proteus_spot.tasks.sweeps.best_trial import save_best
from proteus_spot.tasks.sweeps.engine_inputs import search_plan
from proteus_spot.tasks.sweeps.markets import resolve_markets
from proteus_spot.tasks.sweeps.running.trial_offers import fit_predictor
from proteus_spot.tasks.sweeps.samplers import check_extension
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)
#: Real seconds that a machine takes to boot, and a trial to save its state and to go on from it.
_BOOT_REAL_S, _PAUSE_REAL_S = 10.0, 15.0


def sweep_spec(job_id: str) -> SweepSpec:
    """Return the description of a recorded sweep; its markets are by name."""
    return SweepSpec.model_validate(dict(current_runtime().store.jobs.job(job_id).spec), context=RECORDED)


def recorded_markets(spec: SweepSpec) -> SweepSpec:
    """Return the sweep with its markets by name: those it was recorded with, else those that fit and have prices.

    Raises
    ------
    InputError
        If no market fits, or one that is named is not on sale.
    """
    runtime = current_runtime()
    job = runtime.store.jobs.find_job(spec.job_id)
    if job is not None and job.kind is JobKind.SWEEP:
        return spec.in_markets(tuple(map(Market.parse, job.spec["markets"])))
    if isinstance(spec.markets, list):
        known = {Market.parse(name) for name in spec.markets}
    else:
        known = {Market.parse(name) for segment in PriceStore(runtime.blobs).segments() for name in segment.markets}
    return spec.in_markets(resolve_markets(spec.markets, known, runtime.catalog, runtime.now_s()))


@runtime_task("record sweep")
def record_sweep(spec: SweepSpec) -> Job:
    """Record the sweep, or return the recorded one; the same id with another description is refused.

    More trials and larger limits are taken: what stopped the sweep, or ended it, holds no longer.
    """
    store = current_runtime().store
    job = store.jobs.find_job(spec.job_id)
    if job is not None and job.kind is JobKind.SWEEP:
        begun = sweep_spec(spec.job_id)
        if begun == spec:
            return job  # also where it was recorded before a field with a default was added
        if spec.extends(begun, job.created_at_s):
            check_extension(spec, SweepJournal(spec.job_id).refresh().sweep)
            return store.jobs.replace_sweep_spec(spec.job_id, spec.model_dump(mode="json"))
    now_s = current_runtime().clock.now_s()
    return store.jobs.create_job(spec.job_id, spec.model_dump(mode="json"), now_s, JobKind.SWEEP)


def named_markets(spec: SweepSpec) -> list[Market]:
    """Return the markets of a recorded sweep, sorted."""
    return sorted(Market.parse(name) for name in spec.model_dump()["markets"])


def plan_of(spec: SweepSpec) -> SweepPlan:
    """Return what the decisions need of the description; what takes real time counts in market time."""
    runtime = current_runtime()
    scale, billing, plan = runtime.clock.scale, spec.billing_model, search_plan(spec)
    return replace(
        plan,
        billing=spec.billing,
        flat_micros=billing.price_micros if isinstance(billing, Flat) else 0,
        notice_s=runtime.settings.notice_s,
        restart_s=max(plan.restart_s, _BOOT_REAL_S * scale),
        pause_patience_s=max(plan.pause_patience_s, round(_PAUSE_REAL_S * scale)),
        silence_s=max(plan.silence_s, round(60 * runtime.settings.join_minutes * scale)),
    )


@runtime_task("open sweep")
def open_sweep(spec: SweepSpec, journal: SweepJournal) -> int:
    """Record the plan of the sweep and what is fitted to the stored prices; return the number of its markets.

    Opening again changes nothing, but a sweep that failed, or was stopped, goes on.
    """
    runtime = current_runtime()
    engine, now_s = journal.refresh(), runtime.now_s()
    if engine.holdings.job_id is not None:
        if spec.trial_count > engine.sweep.plan.trials:
            extended = SweepExtended(now_s, spec.trial_count)
            journal.commit(lambda engine: [extended] if spec.trial_count > engine.sweep.plan.trials else [])
        elif engine.sweep.closed and can_go_on(spec.job_id):
            reopened = SweepReopened(now_s)
            journal.commit(lambda engine: [reopened] if engine.sweep.closed else [])
        return len(engine.sweep.opened.markets)
    runtime.store.jobs.reopen_job(spec.job_id)  # where it failed before it was opened
    markets = named_markets(spec)
    from_s = int(now_s - runtime.settings.history_days * DAY_S)
    traces = PriceStore(runtime.blobs).read(markets, from_s, now_s)
    if missing := [market for market in markets if market not in traces]:
        raise InputError(f"market {missing[0]}: has no price history; run ingest-prices/default, or leave it out")
    fit_predictor(spec, traces, TimeWindow(from_s, now_s))
    event = SweepOpened(
        at_s=now_s,
        sweep_id=spec.job_id,
        plan=plan_of(spec),
        types=priced(markets, now_s),
        markets=tuple(markets),
        step_seconds=_earlier_step_seconds(spec),
    )
    journal.commit(lambda engine: [] if engine.holdings.job_id is not None else [event])
    return len(markets)


@runtime_task("close sweep")
def close_sweep(spec: SweepSpec, journal: SweepJournal, state: JobState, result: Mapping[str, Any]) -> None:
    """Record how the sweep ended; nothing more is bought for it. Closing again changes nothing."""
    runtime, job_id = current_runtime(), spec.job_id
    engine = journal.refresh()
    if engine.holdings.job_id is not None:
        try:
            save_best(runtime.blobs, spec, engine)
        except ProteusError as error:
            _log.error("sweep %s: the best trial's state stays where it is: %s", job_id, error)
        closed = SweepClosed(runtime.now_s())
        journal.commit(lambda engine: [] if engine.sweep.closed else [closed])
        _keep_step_seconds(spec, journal.cached().sweep.step_times.by_type())
    if state is JobState.STOPPED:
        request_stop(job_id, str(result.get("why") or "stop"), by="a tick")  # where the engine found the budget reached
    failure = str(result.get("why") or "no trial has a value") if state is JobState.FAILED else None
    kept = {**result, "stopped": result.get("why")} if state is JobState.STOPPED else dict(result)
    try:
        emit_end(runtime.store.jobs.move_job(job_id, state, runtime.clock.now_s(), result=kept, failure=failure))
    except IllegalTransition:
        if not runtime.store.jobs.job(job_id).state.terminal:
            raise  # else another process has closed it


def fail_sweep(spec: SweepSpec, journal: SweepJournal, why: str) -> None:
    """Close a sweep that could not be opened; one that was opened goes on."""
    if journal.refresh().holdings.job_id is None:
        close_sweep(spec, journal, JobState.FAILED, {"why": why})


def has_finished(job_id: str) -> bool:
    """Return whether the sweep has finished; one that was stopped, has failed or has more trials goes on."""
    if current_runtime().store.jobs.job(job_id).state is not JobState.FINISHED:
        return False
    engine = SweepJournal(job_id).refresh()
    return engine.holdings.job_id is None or sweep_spec(job_id).trial_count <= engine.sweep.plan.trials


def _earlier_step_seconds(spec: SweepSpec) -> Mapping[str, float]:
    """Return the seconds per step by type that an earlier sweep of the same code measured."""
    runtime = current_runtime()
    name = _step_seconds_name(spec)
    if not runtime.blobs.exists(name):
        return {}
    return {str(kind): float(seconds) for kind, seconds in runtime.blobs.read_json(name).items()}


def _keep_step_seconds(spec: SweepSpec, seconds: Mapping[str, float]) -> None:
    if seconds:
        current_runtime().blobs.write_json(_step_seconds_name(spec), dict(seconds))


def _step_seconds_name(spec: SweepSpec) -> str:
    """Return the name of the blob with the step times of a training function: that of its code, not of the sweep."""
    blobs = current_runtime().blobs
    manifest = blobs.manifest(SweepPaths(spec.job_id).code)
    code = [] if manifest is None else sorted(record.sha256 for record in manifest.files.values())
    digest = sha256(json.dumps([spec.trial, code]).encode()).hexdigest()[:32]
    return f"step-seconds/{digest}.json"
