"""A sweep at one moment, made from its journal and its ledger in the state database: no market, no clock, no files."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.engine.journal import JournalError
from proteus_spot.bidding.market.money import Micros, to_dollars
from proteus_spot.bidding.tuning.sweep_engine import SweepEngine
from proteus_spot.bidding.tuning.sweep_events import SweepTick
from proteus_spot.bidding.tuning.sweep_journal import catch_up
from proteus_spot.bidding.tuning.sweep_record import SweepError
from proteus_spot.bidding.tuning.trials import SweepState, TrialRecord
from proteus_spot.bidding.tuning.views import best_trial, trial_result
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.state.ledger import refunded_micros
from proteus_spot.infra.state.records import (
    AllocationRecord,
    Job,
    JobKind,
    JobState,
    JournalEntry,
    LedgerLine,
    StoreError,
)
from proteus_spot.infra.state.store import Store
from proteus_spot.reports.sweep_view import SweepView, TrialLine, TrialMachine
from proteus_spot.studies.form_fields import RECORDED
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec

_STATES = {
    JobState.FINISHED: SweepState.FINISHED,
    JobState.STOPPED: SweepState.STOPPED,
    JobState.FAILED: SweepState.FAILED,
}
_BUDGET = "budget"


def sweep_view(store: Store, sweep_id: str, engine: SweepEngine | None = None) -> SweepView:
    """Return a sweep as it stands in a database.

    Parameters
    ----------
    engine : the sweep's engine, if it is loaded; else the journal is replayed.

    Raises
    ------
    InputError
        If there is no such job, or it is not a sweep.
    StoreError
        If its journal has an entry that this program cannot read.
    """
    with store.transaction() as now:
        job = now.jobs.job(sweep_id)
        if job.kind is not JobKind.SWEEP:
            raise InputError(f"job {sweep_id}: is not a sweep; `proteus report {sweep_id}` shows it")
        entries = now.journals.entries(sweep_id, kinds=() if engine is None else (SweepTick.__name__,))
        records, lines = now.purchases.allocations(sweep_id), now.purchases.ledger(sweep_id)
    if engine is None:
        engine = SweepEngine()
        read_on(engine, sweep_id, entries)
    spec = SweepSpec.model_validate(dict(job.spec), context=RECORDED)
    spent, refunded = _money(lines)
    return SweepView(
        sweep_id=sweep_id,
        state=str(_STATES.get(job.state, SweepState.RUNNING)),
        why=why_ended(job),
        trial=spec.trial,
        metric=spec.metric.name,
        direction=spec.metric.direction,
        max_trial_steps=spec.max_trial_steps,
        trial_count=spec.trial_count,
        space=spec.parameters,
        begun_s=job.created_at_s,
        last_s=_last_s(job, entries, records, lines),
        ended_s=job.ended_at_s,
        trials=trial_lines(engine, spent, refunded),
        machines=tuple(_machines(engine, records, spent, refunded)),
        prices=_prices(entries),
        spent_micros=sum(spent.values()),
        refunded_micros=sum(refunded.values()),
        budget_micros=spec.budget_micros,
        deadline_s=spec.deadline_s(job.created_at_s),
        best_number=best_trial(engine.sweep),
        name=spec.sweep,
    )


def read_on(engine: SweepEngine, sweep_id: str, entries: Sequence[JournalEntry]) -> None:
    """Apply the events among `entries`, which follow those that `engine` has seen; `StoreError` if one is invalid."""
    try:
        catch_up(engine, (entry.record for entry in entries))
    except (JournalError, SweepError) as error:
        raise StoreError(f"sweep {sweep_id}: {error}") from error


def why_ended(job: Job) -> str:
    """Return `budget` or `stop` for a stopped sweep, why one failed, or finished with fewer trials; else nothing."""
    if job.state is JobState.FAILED:
        return job.failure or ""
    if job.state is JobState.FINISHED:
        return str((job.result or {}).get("why") or "")
    if job.stop_why is None:
        return ""
    return _BUDGET if job.stop_why == _BUDGET else "stop"


def sweep_figures(view: SweepView, *, curves: bool = False) -> dict[str, Any]:
    """Return the figures of a sweep as `--json` writes them.

    With `curves` each trial has the values that it reported, as [step, value] with null for no finite number. Money is
    what the ledger has of each trial's machines; `usd` is what was charged less what was refunded.
    """
    best = view.best
    return {
        "sweep_id": view.sweep_id,
        "state": view.state,
        "why": view.why,
        "metric": view.metric,
        "direction": view.direction,
        "trials": [
            {
                "params": dict(trial.params),
                "state": trial.state,
                "why": trial.why,
                "steps": trial.steps,
                "repeated_steps": trial.repeated_steps,
                "value": trial.value,
                "predicted": trial.predicted,
                "usd": to_dollars(trial.spent_micros),
                "refunded_usd": to_dollars(trial.refunded_micros),
                "evictions": trial.evictions,
                **({"curve": _curve(trial)} if curves else {}),
            }
            for trial in view.trials
        ],
        "best": None if best is None else {"params": dict(best.params), "value": best.value, "steps": best.steps},
        "ledger_usd": to_dollars(view.spent_micros),
        "refunded_usd": to_dollars(view.refunded_micros),
        "evictions": view.evictions,
        "checkpoint_share": view.checkpoint_share,
        "market_seconds": view.market_s,
    }


def _curve(trial: TrialLine) -> list[list[int | float | None]]:
    pairs = zip(trial.curve_steps.tolist(), trial.curve_values.tolist(), strict=True)
    return [[step, value if np.isfinite(value) else None] for step, value in pairs]


def _money(lines: Sequence[LedgerLine]) -> tuple[dict[str, Micros], dict[str, Micros]]:
    """Return what was spent, and what was refunded, by allocation."""
    spent: dict[str, Micros] = defaultdict(int)
    refunded: dict[str, Micros] = defaultdict(int)
    for line in lines:
        spent[line.allocation_id] += line.amount_micros
        if micros := refunded_micros([line]):
            refunded[line.allocation_id] += micros
    return dict(spent), dict(refunded)


def trial_lines(
    engine: SweepEngine, spent: Mapping[str, Micros] | None = None, refunded: Mapping[str, Micros] | None = None
) -> tuple[TrialLine, ...]:
    """Return the trials in the order of their numbers, with what was spent and refunded by allocation."""
    return tuple(_line(trial, engine, spent or {}, refunded or {}) for _, trial in sorted(engine.sweep.trials.items()))


def _line(
    trial: TrialRecord, engine: SweepEngine, spent: Mapping[str, Micros], refunded: Mapping[str, Micros]
) -> TrialLine:
    result = trial_result(trial)
    orders = [name for name, deployment in engine.sweep.deployments.items() if deployment.trial == trial.number]
    present = trial.present
    return TrialLine(
        number=trial.number,
        params={name: value for name, value in trial.params.items() if isinstance(value, str | int | float | None)},
        state=str(result.state),
        why=result.why,
        steps=result.steps,
        until_step=result.until_step,
        repeated_steps=result.repeated_steps,
        value=result.value,
        predicted=result.predicted,
        predicted_std=result.predicted_std,
        spent_micros=sum(spent.get(name, 0) for name in orders),
        refunded_micros=sum(refunded.get(name, 0) for name in orders),
        evictions=result.evictions,
        market=str(present.market) if present is not None and present.works else "",
        curve_steps=trial.curve.steps,
        curve_values=trial.curve.values,
    )


def _machines(
    engine: SweepEngine,
    records: Sequence[AllocationRecord],
    spent: Mapping[str, Micros],
    refunded: Mapping[str, Micros],
) -> list[TrialMachine]:
    return [
        TrialMachine(
            trial=engine.sweep.deployments[record.order_id].trial,
            order_id=record.order_id,
            market=str(record.allocation.market),
            bid_micros=record.allocation.bid_micros,
            from_s=record.allocation.launched_at_s,
            until_s=record.ended_at_s,
            cause="" if record.end_cause is None else str(record.end_cause),
            spent_micros=spent.get(record.allocation_id, 0),
            refunded_micros=refunded.get(record.allocation_id, 0),
            state_s=engine.sweep.deployments[record.order_id].state_s,
        )
        for record in sorted(records, key=lambda record: record.allocation.launched_at_s)
        if record.order_id in engine.sweep.deployments
    ]


def _prices(entries: Sequence[JournalEntry]) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the prices of the ticks' offers by market, where they change."""
    points: dict[str, list[tuple[int, int]]] = {}
    for entry in entries:
        if entry.record["kind"] != SweepTick.__name__:
            continue
        for market, offer in entry.record["offers"].items():
            series = points.setdefault(market, [])
            if not series or series[-1][1] != offer["price_micros"]:
                series.append((int(entry.at_s), offer["price_micros"]))
    return {
        market: (np.array([at_s for at_s, _ in series], np.int64), np.array([price for _, price in series], np.int64))
        for market, series in sorted(points.items())
    }


def _last_s(
    job: Job, entries: Sequence[JournalEntry], records: Sequence[AllocationRecord], lines: Sequence[LedgerLine]
) -> float:
    times = [job.created_at_s + 1, job.ended_at_s or 0.0]
    times += [entry.at_s for entry in entries] + [float(line.at_s) for line in lines]
    times += [float(record.ended_at_s or record.allocation.launched_at_s) for record in records]
    return max(times)
