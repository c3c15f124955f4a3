"""The events of one simulated job in order: purchases, payments, refunds, renewals, evictions, releases."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from proteus_spot.bidding.backtest.billing_codes import model_of
from proteus_spot.bidding.backtest.outcomes import Outcome
from proteus_spot.bidding.backtest.parameters import JobParameters
from proteus_spot.bidding.backtest.reference_cluster import Reference
from proteus_spot.bidding.backtest.runner import run_one
from proteus_spot.bidding.billing import total_prorata_micros
from proteus_spot.bidding.billing.expected import BillingKind
from proteus_spot.bidding.market.model import HOUR_S, EndCause, Market
from proteus_spot.bidding.market.money import Micros, prorate, to_dollars, usd
from proteus_spot.bidding.market.traces import Int64s, Trace, TraceSet
from proteus_spot.bidding.policies.base import Candidate, Decision
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.backtest.backtest_inputs import BacktestInputs
from proteus_spot.studies.backtest.backtest_spec import BacktestSpec
from proteus_spot.studies.backtest.capacity import why_taken
from proteus_spot.studies.backtest.job_runs import Cell, setting_of
from proteus_spot.studies.times import iso, minute


@dataclass(frozen=True, slots=True)
class AllocationLife:
    """One allocation from its grant to its end."""

    number: int
    market: Market
    count: int
    bid_micros: Micros
    granted_s: int
    ended_s: int
    evicted: bool

    def hours(self) -> range:
        """Return the seconds at which its billing hours begin; none begins at its end."""
        return range(self.granted_s, self.ended_s, HOUR_S)


class Kind(StrEnum):
    """Kind of an event."""

    BOUGHT = "bought"
    WAITED = "waited"
    RENEWED = "renewed"
    EVICTED = "evicted"
    LAPSED = "lapsed"
    ENDED = "ended"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class StoryEvent:
    """One line of the story.

    Attributes
    ----------
    price_micros : of one instance in that second; None if the market is not queried.
    amount_micros : amount charged (or, below 0, refunded) in that second.
    held_vcpus : spot vCPUs after it.
    decision, decided_s : the decision and its time, if an `Explainer` has them.
    """

    at_s: int
    kind: Kind
    life: AllocationLife | None
    price_micros: Micros | None
    amount_micros: Micros
    held_vcpus: int
    decision: Decision | None = None
    decided_s: int | None = None


class Explainer(Protocol):
    """Source of the decisions of a job; None where a decision is unknown."""

    def choice(self, at_s: int, bought: AllocationLife | None, held: tuple[AllocationLife, ...]) -> Decision | None:
        """Return the decision to buy `bought` (None: nothing) at a second, given the allocations held."""

    def hour(self, life: AllocationLife, begins_s: int) -> tuple[int, Decision] | None:
        """Return time and decision on the renewal of the hour that begins then."""


@dataclass(frozen=True)
class Story:
    """A job.

    Attributes
    ----------
    row : its outcome; see `bidding.backtest.outcomes.Outcome`.
    spot_micros, reliable_micros : costs of its spot allocations and on-demand machines; their sum is the job's cost.
    """

    cell: Cell
    start_s: int
    setting: JobParameters
    reference: Reference
    lives: tuple[AllocationLife, ...]
    happenings: tuple[StoryEvent, ...]
    row: Int64s
    spot_micros: Micros
    reliable_micros: Micros

    @property
    def end_s(self) -> int:
        """When it was done, or given up."""
        return self.start_s + int(self.row[Outcome.RUNTIME_S])

    def held_at(self, at_s: int) -> tuple[AllocationLife, ...]:
        """Return the allocations held in the second after `at_s`."""
        return tuple(life for life in self.lives if life.granted_s <= at_s < life.ended_s)


def job_story(
    field: BacktestInputs, spec: BacktestSpec, cell: Cell, start_s: int, explain: Explainer | None = None
) -> Story:
    """Return the story of the job of `cell` that starts at `start_s`.

    Raises
    ------
    InputError
        If it starts outside the evaluation.
    """
    window = field.windows.evaluation
    if not window.from_s <= start_s < window.until_s:
        raise InputError(f"--explain {minute(start_s)}: is not in the evaluation ({window}); give a time in it")
    (markets,) = field.zones([cell.zone]).values()
    scheme = spec.scheme(cell.scheme)
    setting = setting_of(scheme, spec, field.reference, cell.hours)
    row, log = run_one(*field.packed(markets), scheme, start_s, field.reference, setting)
    lives = tuple(
        AllocationLife(number, markets[market], count, bid, granted_s, ended_s, bool(evicted))
        for number, (granted_s, market, count, bid, ended_s, evicted) in enumerate(np.asarray(log).tolist(), start=1)
    )
    end_s = start_s + int(row[Outcome.RUNTIME_S])
    spot = sum(amount for life in lives for *_, amount in _money(life, field.traces, setting, end_s))
    hourly = setting.reliable_count * setting.reliable_micros
    full_hours, rest_s = divmod(int(row[Outcome.RUNTIME_S]), HOUR_S)
    vcpus = {name: kind.vcpu for name, kind in field.types.items()}
    return Story(
        cell,
        start_s,
        setting,
        field.reference,
        lives,
        tuple(_happenings(lives, field.traces, vcpus, setting, range(start_s, end_s, setting.tick_s), end_s, explain)),
        row,
        spot,
        hourly * full_hours + prorate(hourly, rest_s, HOUR_S),
    )


def _money(
    life: AllocationLife, traces: TraceSet, setting: JobParameters, end_s: int
) -> Iterator[tuple[int, Kind, Micros]]:
    """Return (second, kind, amount) of each booking of an allocation.

    Source: the rules of `bidding.backtest.simulate`; the job's end refunds the unused rest of an hour.
    """
    trace = traces[life.market]
    if setting.billing != BillingKind.HOURLY_REFUND:
        yield from _by_second(life, trace, setting, end_s)
        return
    for begin_s in life.hours():
        charge = (trace.price_at(begin_s) or 0) * life.count
        yield begin_s, Kind.BOUGHT if begin_s == life.granted_s else Kind.RENEWED, charge
        used_s = min(begin_s + HOUR_S, life.ended_s) - begin_s
        if used_s < HOUR_S:
            paid = 0 if life.evicted else prorate(charge, used_s, HOUR_S)
            yield life.ended_s, Kind.EVICTED if life.evicted else Kind.ENDED, paid - charge
        elif begin_s + HOUR_S == life.ended_s:
            yield life.ended_s, _end_of(life, end_s), 0


def _by_second(
    life: AllocationLife, trace: Trace, setting: JobParameters, end_s: int
) -> Iterator[tuple[int, Kind, Micros]]:
    """Return the same under billing by the second: the cost of an hour is booked when it is over."""
    cause = EndCause.EVICTED if life.evicted else EndCause.USER
    until_s = life.ended_s + 1  # so that an eviction at the very end counts
    charges = model_of(setting).charges(trace, life.count, life.granted_s, life.ended_s, cause, until_s)
    yield life.granted_s, Kind.BOUGHT, 0
    for charge in charges:
        over_s = charge.hour_start_s + HOUR_S
        amount = total_prorata_micros((charge,), life.ended_s)
        yield (over_s, Kind.RENEWED, amount) if over_s < life.ended_s else (life.ended_s, _end_of(life, end_s), amount)


def _end_of(life: AllocationLife, end_s: int) -> Kind:
    if life.evicted:
        return Kind.EVICTED
    return Kind.ENDED if life.ended_s == end_s else Kind.LAPSED


#: Order of the events of one second: evictions, lapses, renewals, purchases, waits, ends.
_ORDER = (Kind.EVICTED, Kind.LAPSED, Kind.RENEWED, Kind.BOUGHT, Kind.WAITED, Kind.ENDED, Kind.DONE)


def _happenings(
    lives: tuple[AllocationLife, ...],
    traces: TraceSet,
    vcpus: Mapping[str, int],
    setting: JobParameters,
    ticks: range,
    end_s: int,
    explain: Explainer | None,
) -> Iterator[StoryEvent]:
    """Yield the events, and at the first tick without a purchase after an event, why nothing is bought."""
    points: list[tuple[int, Kind, AllocationLife | None, Micros]] = [
        (at_s, kind, life, amount) for life in lives for at_s, kind, amount in _money(life, traces, setting, end_s)
    ]
    if explain is not None:
        bought_s = {life.granted_s for life in lives}
        points += [(at_s, Kind.WAITED, None, 0) for at_s in ticks if at_s not in bought_s]
    points.sort(key=lambda point: (point[0], _ORDER.index(point[1]), 0 if point[2] is None else point[2].number))
    held: dict[int, AllocationLife] = {}
    changed = True
    for at_s, kind, life, amount in points:
        explained = None
        if explain is not None and (changed or life is not None):
            explained = _decided(explain, at_s, kind, life, tuple(held.values()))
        decided_s, decision = explained or (None, None)
        if life is None:
            changed = False
            if decision is not None:
                yield StoryEvent(at_s, kind, None, None, 0, _vcpus(held.values(), vcpus), decision, decided_s)
            continue
        changed = True
        if kind is Kind.BOUGHT:
            held[life.number] = life
        elif kind is not Kind.RENEWED:
            held.pop(life.number)
        price = traces[life.market].price_at(at_s)
        yield StoryEvent(at_s, kind, life, price, amount, _vcpus(held.values(), vcpus), decision, decided_s)
    yield StoryEvent(end_s, Kind.DONE, None, None, 0, 0)


def _decided(
    explain: Explainer, at_s: int, kind: Kind, life: AllocationLife | None, held: tuple[AllocationLife, ...]
) -> tuple[int, Decision] | None:
    """Return time and decision behind an event, if the explainer has them."""
    if kind in (Kind.BOUGHT, Kind.WAITED):
        choice = explain.choice(at_s, life, held)
        return None if choice is None else (at_s, choice)
    return explain.hour(life, at_s) if life is not None and kind in (Kind.RENEWED, Kind.LAPSED) else None


def _vcpus(held: Iterable[AllocationLife], vcpus: Mapping[str, int]) -> int:
    return sum(life.count * vcpus[life.market.instance_type] for life in held)


def text_of(happening: StoryEvent, story: Story) -> str:
    """Return an event as one line, without the time."""
    life = happening.life
    if happening.kind is Kind.WAITED:
        return "buys nothing more"
    if life is None:
        if story.row[Outcome.FINISHED]:
            return "the work is done"
        return f"given up: {story.setting.window_s / HOUR_S:g} h have passed and the work is not done"
    name = f"#{life.number} {life.count} x {life.market}"
    price = "" if happening.price_micros is None else f" at {usd(happening.price_micros)}"
    if story.setting.billing != BillingKind.HOURLY_REFUND:
        return _paid_by_second(happening, life, f"{name}{price}", name)
    match happening.kind:
        case Kind.BOUGHT:
            return f"buys {name}{price}, bid {usd(life.bid_micros)}: pays {usd(happening.amount_micros)} for the hour"
        case Kind.RENEWED:
            return f"keeps {name}{price} for another hour: pays {usd(happening.amount_micros)}"
        case Kind.EVICTED:
            back = (
                f"{usd(-happening.amount_micros)} of the hour come back" if happening.amount_micros else "nothing back"
            )
            return f"loses {name}: {why_taken(happening.price_micros or 0)}; {back}"
        case Kind.LAPSED:
            return f"lets {name} go as its hour ends"
        case _:
            rest = f": {usd(-happening.amount_micros)} of the hour is not used" if happening.amount_micros else ""
            return f"ends {name}{rest}"


def _paid_by_second(happening: StoryEvent, life: AllocationLife, priced: str, name: str) -> str:
    """Return an event as one line under billing that charges an hour when it is over."""
    cost = f"its last hour cost {usd(happening.amount_micros)}"
    match happening.kind:
        case Kind.BOUGHT:
            return f"buys {priced}, bid {usd(life.bid_micros)}, paid by the second"
        case Kind.RENEWED:
            return f"keeps {priced} for another hour: {cost}"
        case Kind.EVICTED if (happening.price_micros or 0) > life.bid_micros:
            return f"loses {name}: {why_taken(happening.price_micros or 0)}; {cost}"
        case Kind.EVICTED:
            return f"loses {name}, which has reached its longest life: {cost}"
        case Kind.LAPSED:
            return f"lets {name} go as its hour ends: {cost}"
        case _:
            return f"ends {name}: {cost}"


def story_json(story: Story) -> dict[str, Any]:
    """Return the story as JSON-able values."""
    row = {column.name.lower(): int(story.row[column]) for column in Outcome}
    return {
        "scheme": story.cell.scheme,
        "zone": story.cell.zone,
        "hours": story.cell.hours,
        "start": iso(story.start_s),
        "end": iso(story.end_s),
        "relative_cost": row["cost_micros"] / story.reference.job_micros(story.cell.hours),
        "relative_runtime": row["runtime_s"] / (story.cell.hours * HOUR_S),
        "cost_usd": to_dollars(row["cost_micros"]),
        "spot_usd": to_dollars(story.spot_micros),
        "reliable_usd": to_dollars(story.reliable_micros),
        "outcome": row,
        "happenings": [_happening_json(each, story) for each in story.happenings],
    }


def _happening_json(happening: StoryEvent, story: Story) -> dict[str, Any]:
    life, decision = happening.life, happening.decision
    return {
        "at": iso(happening.at_s),
        "kind": str(happening.kind),
        "allocation": None if life is None else life.number,
        "market": None if life is None else str(life.market),
        "count": None if life is None else life.count,
        "bid_usd": None if life is None else to_dollars(life.bid_micros),
        "price_usd": None if happening.price_micros is None else to_dollars(happening.price_micros),
        "amount_usd": to_dollars(happening.amount_micros),
        "held_vcpus": happening.held_vcpus,
        "text": text_of(happening, story),
        "reason": None if decision is None else decision.reason,
        "decided": None if happening.decided_s is None else iso(happening.decided_s),
        "candidates": [] if decision is None else [_candidate_json(each) for each in decision.candidates],
    }


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    return {
        "market": str(candidate.market),
        "count": candidate.count,
        "price_usd": to_dollars(candidate.price_micros),
        "bid_usd": to_dollars(candidate.bid_micros),
        "eviction_prob": candidate.eviction_prob,
        "cost_per_work": candidate.cost_per_work,
        "why_not": candidate.why_not,
    }
