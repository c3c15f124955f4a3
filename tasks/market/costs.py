"""Costs by job, market and use, which add up to what was charged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proteus_spot.bidding.billing.spending import MachineLife, Use, divide_hour
from proteus_spot.bidding.market.model import HOUR_S, Tier
from proteus_spot.bidding.market.money import Micros
from proteus_spot.infra.state.charges.charge_prices import is_by_second
from proteus_spot.infra.state.charges.shares import by_hour, by_second
from proteus_spot.infra.state.ledger import charges_and_refunds, unpriced_line
from proteus_spot.infra.state.records import AllocationRecord, Job, JobKind, ObservationKind
from proteus_spot.infra.state.store import Store
from proteus_spot.tasks.job_ends import why_ended
from proteus_spot.tasks.task_runtime import current_runtime

#: What is paid beside the ledger, which has the hours and seconds of machines alone.
NOT_COUNTED = (
    "volumes, the bucket and its requests",
    "public IPv4 addresses",
    "bytes between zones and out of the region",
    "NAT gateways, load balancers and logs of the account",
    "taxes",
)
#: Bytes of a gigabyte, as they are charged.
GB = 1e9
#: The controller's process, among the nodes of a link: it runs on the first reliable machine.
_CONTROLLER = ""
_LEAVING = ("draining", "drained")


@dataclass(frozen=True, slots=True)
class CostRow:
    """Costs of one job in one market on one tier, in micro-dollars.

    The uses add up to `charged`, but for a refund of an hour that was charged to another job, which handed it over.
    """

    job_id: str
    market: str
    tier: str
    machine_hours: float
    charged: Micros
    uses: Mapping[Use, Micros]
    #: Why the job failed, or was stopped, and what is booked without a price; empty otherwise.
    why: str = ""

    @property
    def spent(self) -> Micros:
        """What was charged and not refunded."""
        return self.charged - self.uses.get(Use.REFUNDED, 0)


def cost_rows(job_ids: Sequence[str] = (), store: Store | None = None) -> list[CostRow]:
    """Return what the jobs (all, or those named) have cost, by job, market and tier, in that order.

    They are in `store`; without it, in the database of this process.
    """
    store = current_runtime().store if store is None else store
    jobs = [store.jobs.job(job_id) for job_id in job_ids] or store.jobs.list_jobs()
    return [row for job in jobs for row in _job_rows(store, job)]


@dataclass(frozen=True, slots=True)
class ZoneTraffic:
    """Bytes that the machines of a job exchanged by pair of zones, ``zone/zone``; they are not in the ledger."""

    job_id: str
    bytes_by_zones: Mapping[str, int]

    @property
    def crossed_bytes(self) -> int:
        """Bytes between different zones, which EC2 charges for."""
        pairs = ((pair.split("/"), count) for pair, count in self.bytes_by_zones.items())
        return sum(count for (one, other), count in pairs if one != other)

    def usd(self, usd_per_gb: float) -> float:
        """Return the estimated cost of the bytes between zones in dollars."""
        return self.crossed_bytes / GB * usd_per_gb

    def line(self, usd_per_gb: float) -> str:
        """Return one line for a reader; empty where nothing crossed."""
        if not self.crossed_bytes:
            return ""
        gigabytes, dollars = self.crossed_bytes / GB, self.usd(usd_per_gb)
        return (
            f"{gigabytes:,.3f} GB between zones, about ${dollars:,.4f} at ${usd_per_gb:g} a GB "
            "(an estimate, not in the ledger)"
        )


def zone_traffic(store: Store, job: Job) -> ZoneTraffic:
    """Return what the job's machines have exchanged, by its result or the last tick that noted it."""
    links = (job.result or {}).get("bytes_by_link")
    if links is not None:
        return ZoneTraffic(job.job_id, by_zones(links, store.purchases.allocations(job.job_id)))
    last = store.jobs.last_observation(job.job_id, ObservationKind.TRAFFIC)
    return ZoneTraffic(job.job_id, {} if last is None else last.payload["bytes_by_zones"])


def by_zones(links: Sequence[Sequence[Any]], records: Sequence[AllocationRecord]) -> dict[str, int]:
    """Return the bytes of `links` by pair of zones, ``zone/zone`` in order; links of unknown machines are left out.

    Parameters
    ----------
    links : [node, node, bytes] each, as `psengine.telemetry.byte_counts` gives them.
    records : the book, which says in which zone each instance is.
    """
    zones = {name: record.allocation.market.zone for record in records for name in record.instance_ids}
    reliable = [r.allocation.market.zone for r in records if r.allocation.tier is Tier.RELIABLE]
    if reliable:
        zones[_CONTROLLER] = reliable[0]
    found: dict[str, int] = {}
    for one, other, count in links:
        if one in zones and other in zones:
            pair = "/".join(sorted((zones[one], zones[other])))
            found[pair] = found.get(pair, 0) + int(count)
    return dict(sorted(found.items()))


def _job_rows(store: Store, job: Job) -> list[CostRow]:
    records = {record.allocation_id: record for record in store.purchases.allocations(job.job_id)}
    lives = _lives(store, job, records)
    lost = _lost_share(job) if job.kind is JobKind.JOB else _repeated_share(store, job)
    sums: dict[tuple[str, str], dict[Use, Micros]] = {}
    hours: dict[tuple[str, str], float] = {}
    charged: dict[tuple[str, str], Micros] = {}
    ledger = store.purchases.ledger(job.job_id)
    why = "; ".join(filter(None, (why_ended(job), unpriced_line(ledger, records.values()))))
    for line, refund in charges_and_refunds(ledger):
        record = records[line.allocation_id]
        key = (str(record.allocation.market), str(record.allocation.tier))
        total = sums.setdefault(key, {})
        hours.setdefault(key, 0.0)
        charged[key] = charged.get(key, 0) + line.amount_micros
        if refund is not None and not line.amount_micros:
            total[Use.REFUNDED] = total.get(Use.REFUNDED, 0) - refund.amount_micros
        for part in by_second(record, line, refund) if is_by_second(line) else by_hour(record, line, refund):
            hours[key] += part.paid_s / HOUR_S
            life = lives[line.allocation_id][part.machine]
            uses = divide_hour(part.amount, line.at_s, part.refunded, life, lost, part.paid_s)
            for use, amount in uses.items():
                total[use] = total.get(use, 0) + amount
    return [
        CostRow(job.job_id, market, tier, hours[market, tier], charged[market, tier], uses, why)
        for (market, tier), uses in sorted(sums.items())
    ]


def _lives(store: Store, job: Job, records: Mapping[str, AllocationRecord]) -> dict[str, list[MachineLife]]:
    """Return the life of every machine of every allocation, from the records of controller and journal."""
    ready: dict[str, float] = {}
    leaving: dict[str, float] = {}
    for entry in store.journals.entries(job.job_id, kinds=("TrialReported",)):  # of a sweep; an order is of one machine
        if entry.record["values"]:
            ready.setdefault(entry.record["deployment"], entry.at_s)
        if entry.record["ended"]:
            leaving.setdefault(entry.record["deployment"], entry.at_s)
    for point in store.jobs.observations(job.job_id, ObservationKind.NODES):
        for name, state in point.payload.items():
            if state == "ready":
                ready.setdefault(name, point.at_s)
            elif state in _LEAVING:
                leaving.setdefault(name, point.at_s)
    noticed: dict[str, float] = {}  # by allocation, or by machine where it is about some of several
    for entry in store.journals.entries(job.job_id, kinds=("NoticeSeen", "Lapse", "MachineNoticed")):
        whose = entry.record.get("instance_ids") or [entry.record.get("instance_id", entry.record["allocation_id"])]
        for machine in whose:
            noticed.setdefault(machine, entry.at_s)
    lives = {}
    for name, record in records.items():
        left = noticed.get(name) if record.allocation.tier is Tier.TRANSIENT else None
        machines = [*record.instance_ids, *[""] * (record.allocation.count - len(record.instance_ids))]
        lives[name] = [
            MachineLife(
                ready.get(machine, ready.get(record.order_id)),
                leaving.get(machine, leaving.get(record.order_id, noticed.get(machine, left))),
                life.ended_at_s,
                job.ended_at_s,
            )
            for machine, life in zip(machines, record.machines, strict=True)
        ]
    return lives


def _repeated_share(store: Store, sweep: Job) -> float:
    """Return the part of a sweep's steps that had to be trained again."""
    from proteus_spot.bidding.tuning.sweep_journal import replay

    trials = replay(entry.record for entry in store.journals.entries(sweep.job_id)).sweep.trials.values()
    repeated = sum(trial.repeated_steps for trial in trials)
    done = sum(len(trial.curve) for trial in trials)
    return repeated / (done + repeated) if done + repeated else 0.0


def _lost_share(job: Job) -> float:
    """Return the part of the tasks that had to be run again."""
    result = job.result or {}
    done = sum((result.get("micro_tasks_done") or {}).values())
    repeated = result.get("repeated_micro_tasks") or 0
    return repeated / (done + repeated) if done + repeated else 0.0
