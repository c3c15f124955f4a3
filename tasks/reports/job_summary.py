"""Events and costs of a job, read from the journal, the ledger and the result."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from proteus_spot.bidding.economics.job_model import reference_micros
from proteus_spot.bidding.engine.engine import LAST_ANSWERS
from proteus_spot.bidding.market.model import HOUR_S, EndCause, Tier
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR, to_dollars, usd
from proteus_spot.bidding.policies.deadline import AT_RISK
from proteus_spot.infra.state.ledger import charges_and_refunds, refunded_micros, unpriced_line
from proteus_spot.infra.state.records import AllocationRecord, JournalEntry, LedgerLine, ObservationKind, UnknownRecord
from proteus_spot.infra.state.store import Store
from proteus_spot.tasks.job_ends import late_s, why_ended
from proteus_spot.tasks.job_records import unit_of
from proteus_spot.tasks.market.job_opening import type_on_sale
from proteus_spot.tasks.reports.job_snapshot import Holding, Snapshot
from proteus_spot.tasks.task_runtime import current_runtime

_DECIDED = ("Renew", "Lapse")
_ENDS: Mapping[EndCause | None, str] = MappingProxyType({EndCause.EVICTED: "taken", EndCause.FAILED: "failed"})
_NOTICES = ("NoticeSeen", "MachineNoticed")
#: The decision points of jobs and sweeps.
_TICKS = ("TickDue", "SweepTick")


def snapshot(job_id: str) -> Snapshot | None:
    """Return how the job stands now; None before it was recorded."""
    runtime = current_runtime()
    try:
        return snapshot_of(runtime.store, job_id, runtime.clock.now_s())
    except UnknownRecord:
        return None


def snapshot_of(store: Store, job_id: str, now_s: float) -> Snapshot:
    """Return how a job stands in a state database at market time `now_s`.

    Raises
    ------
    UnknownRecord
        If the job is not recorded there.
    """
    job = store.jobs.job(job_id)
    last_point = store.jobs.last_observation(job_id, ObservationKind.PROGRESS)
    last = {} if last_point is None else last_point.payload
    journal = store.journals.entries(job_id)
    records = store.purchases.allocations(job_id)
    lines = store.purchases.ledger(job_id)
    return Snapshot(
        job_id=job_id,
        state=str(job.state),
        market_s=now_s - job.created_at_s,
        clock=last.get("clock", 0),
        loss=last.get("loss"),
        nodes_ready=last.get("ready", 0),
        stage=last.get("stage", 1),
        nodes_offered=_offered(store, job_id),
        holdings=tuple(_holdings(records, journal)),
        spent_micros=sum(line.amount_micros for line in lines),
        spent_is_known=bool(lines) or job.state.terminal,
        refunded_micros=refunded_micros(lines),
        acquisitions=acquisitions(records),
        hour_end_decisions=hour_end_decisions(journal),
        evictions=evictions(records),
        last_decision=_last_reason(journal),
        buys_nothing="" if job.state.terminal else _buys_nothing(journal, _holds_spot(records)),
        unpriced=unpriced_line(lines, records),
    )


def _holds_spot(records: Sequence[AllocationRecord]) -> bool:
    return any(record.alive and record.allocation.tier is Tier.TRANSIENT for record in records)


def _offered(store: Store, job_id: str) -> int:
    """Return the number of machines that the training offers for release."""
    offer = store.jobs.last_observation(job_id, ObservationKind.OFFER)
    return 0 if offer is None else len(offer.payload["nodes"])


def acquisitions(records: Sequence[AllocationRecord]) -> int:
    """Return how many spot allocations were granted."""
    return sum(record.allocation.tier is Tier.TRANSIENT for record in records)


def evictions(records: Sequence[AllocationRecord]) -> int:
    """Return how many allocations the market took."""
    return sum(record.end_cause is EndCause.EVICTED for record in records)


def hour_end_decisions(journal: Sequence[JournalEntry]) -> int:
    """Return how often it was decided to renew an allocation or let it lapse; an order that is repeated counts once."""
    made = [entry.record for entry in journal if entry.record["kind"] in _DECIDED]
    return len({(record["allocation_id"], record["hour"]) for record in made})


def summary(job_id: str) -> dict[str, Any]:
    """Return the figures of an ended job, as `--json` writes them.

    Notes
    -----
    The on-demand reference is what the vCPU-hours that were held while the job trained would have cost at the cheapest
    on-demand price per vCPU (GPU, where the job counts these) among the job's types. Machine-hours: an hour that was
    refunded is free, up to the moment of the eviction; what is paid runs to the end of the allocation, or of its last
    paid hour. A machine that ended alone counts until then. `late_seconds` is None for a job without a deadline.
    """
    runtime = current_runtime()
    job = runtime.store.jobs.job(job_id)
    records = runtime.store.purchases.allocations(job_id)
    lines = runtime.store.purchases.ledger(job_id)
    journal = runtime.store.journals.entries(job_id)
    result = dict(job.result or {})
    spent = sum(line.amount_micros for line in lines)
    ended_s = job.ended_at_s if job.ended_at_s is not None else runtime.clock.now_s()
    reference = _on_demand_usd(records, unit_of(job), job.created_at_s, ended_s)
    return {
        "job": job_id,
        "state": str(job.state),
        "why": why_ended(job),
        "ledger_usd": to_dollars(spent),
        "refunded_usd": to_dollars(refunded_micros(lines)),
        "on_demand_usd": reference,
        "cost_vs_on_demand": to_dollars(spent) / reference if reference else None,
        "market_seconds": ended_s - job.created_at_s,
        "late_seconds": late_s(job, ended_s),
        "machine_hours": _machine_hours(records, lines, runtime.clock.now_s()),
        "acquisitions": acquisitions(records),
        "hour_end_decisions": hour_end_decisions(journal),
        "evictions": evictions(records),
        "notices": sum(entry.record["kind"] in _NOTICES for entry in journal),
        "accuracy": result.get("accuracy"),
        "metrics": result.get("metrics", {}),
        "clocks": result.get("clocks"),
        "repeated_micro_tasks": result.get("repeated_micro_tasks"),
        "lost_micro_tasks": result.get("lost_micro_tasks"),
    }


def _on_demand_usd(records: Sequence[AllocationRecord], unit: str, from_s: float, until_s: float) -> float:
    markets = {record.allocation.market for record in records}
    kinds = {market: kind for market in markets if (kind := type_on_sale(market, from_s)) is not None}
    if not kinds or len(kinds) < len(markets):
        return 0.0
    hour_micros, total = reference_micros(unit, kinds.values()), 0.0
    for record in records:
        a = record.allocation
        for life in record.lives:
            end_s = until_s if life.ended_at_s is None else min(life.ended_at_s, until_s)
            held_s = max(end_s - max(record.since_s, from_s), 0.0) * life.count
            total += held_s / HOUR_S * hour_micros[a.market.instance_type]
    return total / MICROS_PER_DOLLAR


def _machine_hours(records: Sequence[AllocationRecord], lines: Sequence[LedgerLine], now_s: float) -> dict[str, float]:
    refunded = {(charge.allocation_id, charge.hour_index) for charge, refund in charges_and_refunds(lines) if refund}
    hours = {"on_demand": 0.0, "paid": 0.0, "free": 0.0}
    for record in records:
        a = record.allocation
        for life in record.lives:
            end_s = life.ended_at_s if life.ended_at_s is not None else int(now_s)
            for index, start_s in enumerate(range(a.launched_at_s, end_s, HOUR_S)):
                part = max(min(end_s, start_s + HOUR_S) - max(start_s, record.since_s), 0) / HOUR_S * life.count
                free = (a.allocation_id, index) in refunded and life.taken_within(start_s, start_s + HOUR_S)
                kind = "on_demand" if a.bid_micros is None else "free" if free else "paid"
                hours[kind] += part
    return hours


def _holdings(records: Sequence[AllocationRecord], journal: Sequence[JournalEntry]) -> Iterator[Holding]:
    """Return each allocation as a reader sees it: a row for its machines of each state."""
    lapsing = {
        (entry.record["allocation_id"], machine)
        for entry in journal
        if entry.record["kind"] == "Lapse"
        for machine in entry.record.get("instance_ids") or ("",)
    }
    noticed = _noticed_machines(records, journal)
    for record in records:
        a, states = record.allocation, Counter[str]()
        names = [*record.instance_ids, *[""] * (a.count - len(record.instance_ids))]
        for name, life in zip(names, record.machines, strict=True):
            if life.ended_at_s is not None:
                states[_ENDS.get(life.end_cause, "let go")] += 1
            elif (a.allocation_id, name) in noticed:
                states["noticed"] += 1
            else:
                is_lapsing = not lapsing.isdisjoint({(a.allocation_id, ""), (a.allocation_id, name)})
                states["lapsing" if is_lapsing else "held"] += 1
        bid = "on demand" if a.bid_micros is None else usd(a.bid_micros)
        for state in ("held", "lapsing", "noticed", "taken", "failed", "let go"):
            if states[state]:
                yield Holding(str(a.market), states[state], str(a.tier), bid, state)


def _noticed_machines(records: Sequence[AllocationRecord], journal: Sequence[JournalEntry]) -> set[tuple[str, str]]:
    """Return (allocation, instance) of the machines that the market will take: the last event about each counts."""
    names = {record.allocation_id: [*record.instance_ids, ""] for record in records}
    noticed: set[tuple[str, str]] = set()
    for entry in journal:
        name = entry.record.get("allocation_id", "")
        match entry.record["kind"]:
            case "NoticeSeen":
                noticed |= {(name, machine) for machine in names.get(name, ())}
            case "MachineNoticed":
                noticed.add((name, entry.record["instance_id"]))
            case "MachineSeen":
                noticed.discard((name, entry.record["instance_id"]))
    return noticed


def _buys_nothing(journal: Sequence[JournalEntry], holds: bool) -> str:
    """Return why the last tick bought nothing, where the job holds no spot machine or lacks some; else ''."""
    at = max((seq for seq, entry in enumerate(journal) if entry.record["kind"] in _TICKS), default=None)
    if at is None:
        return ""
    last, orders = journal[at].record, [entry.record for entry in journal[at:] if entry.direction == "order"]
    waits = [order["decision"]["reason"] for order in orders if order["kind"] == "Wait" and "decision" in order]
    if risks := [reason for reason in waits if reason.startswith(AT_RISK)]:
        return str(risks[0])
    left_out = sorted(set(last.get("left_out", {}).values()))
    if left_out and not last.get("prices") and not last.get("offers"):
        return f"nothing is bought: {'; '.join(left_out)}"
    is_short = not holds or any(LAST_ANSWERS in reason for reason in waits)
    if waits and is_short and not any(order["kind"] == "Acquire" for order in orders):
        return f"nothing is bought: {'; '.join(waits)}"
    return ""


def _last_reason(journal: Sequence[JournalEntry]) -> str:
    for entry in reversed(journal):
        if entry.direction == "order":
            record = entry.record
            reason = (
                record["decision"]["reason"] if "decision" in record else record.get("reason", record.get("why", ""))
            )
            return f"{record['kind']}: {reason}"
    return ""
