"""The data of the chart in a job's report, as JSON: series thinned to screen resolution, and all events and decisions.

Times are whole seconds after `t0` (when the job was recorded), money is micro-dollars. Every list of pairs is a step
function: a value holds until the next one.

    markets        names, those with purchases first. A market below is an index into them
    vcpu, onDemand by market: vCPUs and on-demand price of an instance
    ticks          when prices were observed
    prices         by market: [time, price or null if unknown]
    allocations    [id, market, reliable, count, bid or null, from, to or null, cause or null]; machines that ended
                   otherwise than the rest have a row of their own. An allocation below is the index of its first row
    events         [time, kind, allocation or -1, text]
    progress       [time, clock, loss or null];  stage, ready: [time, number]
    pace           [time, real milliseconds per clock]
    nodes          names of the nodes that served shards or kept replicas; below, an index into them, or null for none
    shards         [time, server of each shard, owner of its replica]
    ledger         [time, allocation, hour, refund, price, amount], in order of time
    reference      [time, micro-dollars] cost on demand: corners of a line, not steps
    texts          reasons against candidates; below, an index into them
    decisions      [time, verdict, cost per work or null, candidates, left out, times ordered]; reasons are in the table
                   a candidate: [market, count, price, delta, eviction probability, cost per work or null, why not]
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from proteus_spot.bidding.economics.job_model import reference_micros
from proteus_spot.bidding.engine.events import (
    AllocationGone,
    AllocationGranted,
    AllocationHandedOver,
    AllocationRefused,
    AllocationTaken,
    BidEvent,
    JobClosed,
    JobOpened,
    JobReopened,
    MachineGone,
    MachineNoticed,
    MachineSeen,
    MachinesUnlisted,
    MarketCooled,
    NoticeSeen,
    TickDue,
)
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Renew, Wait
from proteus_spot.bidding.market.model import HOUR_S, EndCause, InstanceType, Market, Tier
from proteus_spot.bidding.market.money import usd
from proteus_spot.bidding.policies.base import Choice
from proteus_spot.infra.state.records import AllocationRecord, InstanceLife, Job, LedgerKind, LedgerLine, Observation

#: Maximum number of points of a series in a page, and of candidates of all decisions together.
MOST_PROGRESS = 1000
MOST_PRICES = 6000
MOST_CANDIDATES = 1200
#: Maximum number of changes of the shard map, from the first.
MOST_MAPS = 400

_ENDS = {EndCause.EVICTED: "evicted", EndCause.FAILED: "failed"}
#: An event or order with its time.
Timed = tuple[int, BidEvent | Acquire | Renew | Lapse | Wait]


@dataclass(frozen=True)
class JobFacts:
    """All records of a job in the state database, read at one moment."""

    job: Job
    journal: tuple[Timed, ...]
    allocations: tuple[AllocationRecord, ...]
    #: In order of time.
    ledger: tuple[LedgerLine, ...]
    progress: tuple[Observation, ...]
    #: Changes of the shard map: servers and replica owners.
    shards: tuple[Observation, ...] = ()
    #: Market time by which the job was to be done; None without a deadline.
    deadline_s: int | None = None

    @property
    def t0(self) -> int:
        """When the job was recorded; the origin of the time axis."""
        return int(self.job.created_at_s)

    @property
    def last_s(self) -> int:
        """The time of the last record; the report of a running job ends there."""
        times = [float(self.t0 + 1), self.job.ended_at_s or 0.0]
        times += [float(at_s) for at_s, _ in self.journal] + [o.at_s for o in self.progress]
        times += [float(line.at_s) for line in self.ledger]
        times += [float(a.ended_at_s or a.allocation.launched_at_s) for a in self.allocations]
        return int(np.ceil(max(times)))

    @property
    def trained_s(self) -> float:
        """When the training ended; the time of the last record if it is running."""
        return self.job.ended_at_s if self.job.ended_at_s is not None else float(self.last_s)

    @property
    def types(self) -> Mapping[str, InstanceType]:
        """The types that the job may hold."""
        return next((item.types for _, item in self.journal if isinstance(item, JobOpened)), {})

    @property
    def unit(self) -> str:
        """What the job's sizes count, of `UNITS`."""
        return next((item.job.unit for _, item in self.journal if isinstance(item, JobOpened)), "vcpu")

    def vcpus(self, record: AllocationRecord) -> int:
        """Return the vCPUs of an allocation; 0 if its type is unknown."""
        kind = self.types.get(record.allocation.market.instance_type)
        return 0 if kind is None else kind.vcpu * record.allocation.count

    def markets(self) -> list[Market]:
        """Return every market of the job: those with spot purchases, then others with allocations, then the rest."""
        bought = [r.allocation.market for r in self.allocations if r.allocation.tier is Tier.TRANSIENT]
        held = [r.allocation.market for r in self.allocations]
        seen = sorted({m for _, item in self.journal if isinstance(item, TickDue) for m in item.prices})
        opened = [m for _, item in self.journal if isinstance(item, JobOpened) for m in item.markets]
        return list(dict.fromkeys([*bought, *held, *seen, *opened]))


@dataclass(frozen=True)
class DecisionRecord:
    """A decision at its time; `times` counts how often its order was given (a purchase until it is answered)."""

    at_s: int
    order: Acquire | Renew | Lapse | Wait
    times: int


def decisions(facts: JobFacts) -> list[DecisionRecord]:
    """Return every decision once, in order; a repeated order is counted at its first occurrence."""
    times: dict[object, int] = {}
    first: dict[object, tuple[int, Any]] = {}
    for index, (at_s, item) in enumerate(facts.journal):
        match item:
            case Acquire():
                name: object = item.order_id
            case Renew():
                name = (item.allocation_id, item.hour)
            case Lapse():
                name = (item.allocation_id, item.hour, item.instance_ids)
            case Wait():
                name = index
            case _:
                continue
        times[name] = times.get(name, 0) + 1
        first.setdefault(name, (at_s, item))
    return [DecisionRecord(at_s, order, times[name]) for name, (at_s, order) in first.items()]


def chart(facts: JobFacts) -> dict[str, Any]:
    """Return the data of the chart; the module's docstring lists its keys."""
    t0, markets = facts.t0, facts.markets()
    place = {market: index for index, market in enumerate(markets)}
    kinds = [facts.types.get(market.instance_type) for market in markets]
    lives = [(record, life) for record in facts.allocations for life in _lives(record)]
    holder: dict[str, int] = {}
    for index, (record, _) in enumerate(lives):
        holder.setdefault(record.allocation_id, index)
    texts = _Texts()
    said = decisions(facts)
    ticks = [item for _, item in facts.journal if isinstance(item, TickDue)]
    return {
        "job": facts.job.job_id,
        "t0": t0,
        "end": facts.last_s - t0,
        "trained": None if facts.job.ended_at_s is None else round(facts.job.ended_at_s - t0),
        "markets": [str(market) for market in markets],
        "vcpu": [None if kind is None else kind.vcpu for kind in kinds],
        "onDemand": [None if kind is None else kind.on_demand_micros for kind in kinds],
        "ticks": [tick.at_s - t0 for tick in ticks],
        "prices": _prices(ticks, markets, t0),
        "allocations": [
            [
                r.allocation_id,
                place[r.allocation.market],
                int(r.allocation.tier is Tier.RELIABLE),
                life.count,
                r.allocation.bid_micros,
                r.since_s - t0,
                None if life.ended_at_s is None else life.ended_at_s - t0,
                None if life.end_cause is None else str(life.end_cause),
            ]
            for r, life in lives
        ],
        "events": [[at_s - t0, kind, holder.get(name, -1), text] for at_s, kind, name, text in marks(facts)],
        **_progress(facts.progress, t0),
        **_shards(facts.shards, t0),
        "ledger": [
            [
                line.at_s - t0,
                holder.get(line.allocation_id, -1),
                line.hour_index,
                int(line.kind is LedgerKind.REFUND),
                line.price_micros,
                line.amount_micros,
            ]
            for line in facts.ledger
        ],
        "reference": [[round(at_s - t0), round(micros)] for at_s, micros in on_demand_reference(facts)],
        "decisions": _decisions(said, place, texts, t0),
        "texts": texts.known,
    }


def _lives(record: AllocationRecord) -> list[InstanceLife]:
    """Return the lives of an allocation's machines, the longest first."""
    return sorted(record.lives, key=lambda life: -(np.inf if life.ended_at_s is None else life.ended_at_s))


def marks(facts: JobFacts) -> list[tuple[int, str, str, str]]:
    """Return the events in order: (time, kind, allocation id or '', text)."""
    found: list[tuple[int, str, str, str]] = []
    market = {r.allocation_id: r.allocation.market for r in facts.allocations}
    asked: dict[str, Market] = {}
    lapsed: set[tuple[str, int, tuple[str, ...]]] = set()
    for at_s, item in facts.journal:
        match item:
            case JobOpened():
                found.append((at_s, "opened", "", f"policy {item.policy}, {len(item.markets)} markets"))
            case JobReopened():
                found.append((at_s, "opened", "", "opened again: it had failed, and goes on from its checkpoint"))
            case JobClosed():
                found.append((at_s, "closed", "", "nothing more is bought"))
            case Acquire():
                asked[item.order_id] = item.market
            case AllocationGranted(allocation=a):
                bid = "on demand" if a.bid_micros is None else f"bid {usd(a.bid_micros)}"
                found.append((at_s, "granted", a.allocation_id, f"{a.count} × {a.market}, {bid}"))
            case AllocationTaken(allocation=a):
                found.append((at_s, "granted", a.allocation_id, f"{a.count} × {a.market}, from job {item.from_job}"))
            case AllocationHandedOver():
                text = f"{market.get(item.allocation_id, '')} to job {item.to_job}".strip()
                found.append((at_s, "let go", item.allocation_id, text))
            case AllocationRefused():
                where = f"{asked[item.order_id]}: " if item.order_id in asked else ""
                found.append((at_s, "refused", "", f"{where}{item.code}: {item.message}"))
            case NoticeSeen():
                left = f"will be taken in {item.takes_at_s - item.at_s} s"
                found.append(
                    (at_s, "notice", item.allocation_id, f"{market.get(item.allocation_id, '')} {left}".strip())
                )
            case AllocationGone():
                kind = _ENDS.get(item.cause, "let go")
                found.append((at_s, kind, item.allocation_id, str(market.get(item.allocation_id, ""))))
            case MachineNoticed():
                left = f"1 of {market.get(item.allocation_id, '')} will be taken in {item.takes_at_s - item.at_s} s"
                found.append((at_s, "notice", item.allocation_id, f"{left} ({item.instance_id})"))
            case MachineGone():
                kind = _ENDS.get(item.cause, "let go")
                text = f"1 of {market.get(item.allocation_id, '')} ({item.instance_id})"
                found.append((at_s, kind, item.allocation_id, text))
            case MachineSeen():
                text = f"1 of {market.get(item.allocation_id, '')} works on ({item.instance_id})"
                found.append((at_s, "seen", item.allocation_id, text))
            case MachinesUnlisted():
                found.append((at_s, "alarm", "", f"the market lists none of {item.count} living machines"))
            case MarketCooled():
                found.append((at_s, "alarm", "", f"nothing is bought in {item.market} for a while: {item.why}"))
            case Renew():
                found.append((at_s, "renewed", item.allocation_id, f"hour {item.hour}: {item.decision.reason}"))
            case Lapse() if (item.allocation_id, item.hour, item.instance_ids) not in lapsed:
                lapsed.add((item.allocation_id, item.hour, item.instance_ids))
                found.append((at_s, "lapse", item.allocation_id, f"hour {item.hour}: {item.decision.reason}"))
            case _:
                pass
    return sorted(found, key=lambda mark: mark[0])


def on_demand_reference(facts: JobFacts) -> list[tuple[float, float]]:
    """Return (time, micro-dollars): the cumulated on-demand cost of the vCPUs held while the job trained.

    The price is the cheapest on-demand price per vCPU among the types that were held (per GPU, where the job counts
    these). Empty if it is unknown.
    """
    kinds = [facts.types.get(r.allocation.market.instance_type) for r in facts.allocations]
    priced = [kind for kind in kinds if kind is not None]
    if not priced or len(priced) < len(kinds):
        return []
    hour_micros = reference_micros(facts.unit, priced)
    from_s, until_s = facts.job.created_at_s, facts.trained_s
    changes: dict[float, float] = {from_s: 0.0, until_s: 0.0}
    for record in facts.allocations:
        begin_s = max(float(record.since_s), from_s)
        for life in record.lives:
            end_s = until_s if life.ended_at_s is None else min(float(life.ended_at_s), until_s)
            micros = hour_micros[record.allocation.market.instance_type] * life.count
            if end_s > begin_s:
                changes[begin_s] = changes.get(begin_s, 0.0) + micros
                changes[end_s] = changes.get(end_s, 0.0) - micros
    line: list[tuple[float, float]] = []
    held, total, last_s = 0.0, 0.0, from_s
    for at_s, change in sorted(changes.items()):
        total += held * (at_s - last_s) / HOUR_S
        held, last_s = held + change, at_s
        line.append((at_s, total))
    return line


def changes_only(pairs: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    """Return the pairs (time, value) whose value differs from the one before."""
    changes: list[Sequence[Any]] = []
    for pair in pairs:
        if not changes or changes[-1][1:] != pair[1:]:
            changes.append(pair)
    return changes


def thin(times: Sequence[float], values: Sequence[float], most: int) -> list[int]:
    """Return the indices of at most `most` points that keep the first, the last, and each stretch's lowest and highest.

    Parameters
    ----------
    times, values : sequences of the same length, `times` ascending; a NaN value is kept only as first or last.
    most : at least 4.
    """
    count = len(times)
    if count <= most:
        return list(range(count))
    at, value = np.asarray(times, float), np.asarray(values, float)
    stretches = (most - 2) // 2
    span = max(at[-1] - at[0], 1e-9)
    stretch = np.minimum(((at - at[0]) / span * stretches).astype(int), stretches - 1)
    kept = {0, count - 1}
    for indices in np.split(np.arange(count), np.flatnonzero(np.diff(stretch)) + 1):
        if not np.all(np.isnan(value[indices])):
            kept |= {int(indices[np.nanargmin(value[indices])]), int(indices[np.nanargmax(value[indices])])}
    return sorted(kept)


def _prices(ticks: Sequence[TickDue], markets: Sequence[Market], t0: int) -> list[list[Any]]:
    series = [changes_only([tick.at_s - t0, tick.prices.get(market)] for tick in ticks) for market in markets]
    each = max(MOST_PRICES // max(len(series), 1), 100)
    thinned = []
    for points in series:
        values = [np.nan if price is None else float(price) for _, price in points]
        thinned.append([points[index] for index in thin([at for at, _ in points], values, each)])
    return thinned


def _progress(points: Sequence[Observation], t0: int) -> dict[str, Any]:
    rows = [(round(point.at_s - t0), point.payload) for point in points]
    learned = [(at, p.get("clock", 0), p.get("loss")) for at, p in rows if p.get("loss") is not None or p.get("clock")]
    values = [np.nan if loss is None else float(loss) for _, _, loss in learned]
    kept = [learned[index] for index in thin([at for at, _, _ in learned], values, MOST_PROGRESS)]
    return {
        "progress": [[at, clock, None if loss is None else float(f"{loss:.5g}")] for at, clock, loss in kept],
        "pace": _pace(rows),
        "stage": changes_only([at, p["stage"]] for at, p in rows if "stage" in p),
        "ready": changes_only([at, p["ready"]] for at, p in rows if "ready" in p),
    }


def _pace(rows: Sequence[tuple[int, Mapping[str, Any]]]) -> list[list[float]]:
    """Return, for each observation, the mean real milliseconds of the last clocks."""
    points = [(at, float(p["seconds_per_clock"]) * 1e3) for at, p in rows if p.get("seconds_per_clock") is not None]
    indices = thin([at for at, _ in points], [ms for _, ms in points], MOST_PROGRESS)
    return [[points[index][0], float(f"{points[index][1]:.4g}")] for index in indices]


def _shards(points: Sequence[Observation], t0: int) -> dict[str, Any]:
    """Return the shard maps, with nodes as indices into a list of names."""
    nodes = _Texts()

    def places(names: Sequence[str | None]) -> list[int | None]:
        return [None if name is None else nodes.place(name) for name in names]

    maps = [
        [round(point.at_s - t0), places(point.payload["servers"]), places(point.payload["backups"])]
        for point in points[:MOST_MAPS]
    ]
    return {"nodes": nodes.known, "shards": maps}


class _Texts:
    """A list of distinct texts."""

    def __init__(self) -> None:
        self.known: list[str] = []
        self._place: dict[str, int] = {}

    def place(self, text: str) -> int:
        """Return the index of `text`."""
        if text not in self._place:
            self._place[text] = len(self.known)
            self.known.append(text)
        return self._place[text]


def _decisions(
    records: Sequence[DecisionRecord], market_index: Mapping[Market, int], texts: _Texts, t0: int
) -> list[list[Any]]:
    counts = [len(record.order.decision.candidates) for record in records]
    waits = [record.order.decision.verdict is Choice.WAIT for record in records]
    shown = max(counts, default=0)  # for decisions without a purchase; a purchase shows all its candidates
    while (
        shown > 1 and sum(min(n, shown) if wait else n for n, wait in zip(counts, waits, strict=True)) > MOST_CANDIDATES
    ):
        shown -= 1
    rows = []
    for record, count, wait in zip(records, counts, waits, strict=True):
        decision = record.order.decision
        candidates = [
            [
                market_index.get(c.market, -1),
                c.count,
                c.price_micros,
                c.delta_micros,
                float(f"{c.eviction_prob:.3g}"),
                _figure(c.cost_per_work),
                texts.place(c.why_not),
            ]
            for c in (decision.candidates[:shown] if wait else decision.candidates)
        ]
        rows.append(
            [
                record.at_s - t0,
                str(decision.verdict),
                _figure(decision.cost_per_work),
                candidates,
                count - len(candidates),
                record.times,
            ]
        )
    return rows


def _figure(value: float) -> float | None:
    return float(f"{value:.4g}") if np.isfinite(value) else None
