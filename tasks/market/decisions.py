"""Decision points: observations go to the engine, and its orders are recorded before they are carried out."""

from collections.abc import Mapping, Sequence
from typing import Any

from proteus_spot.bidding.economics.budget import Spending
from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.engine.allocations import AllocationState, MachineState
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import (
    AllocationGone,
    BidEvent,
    MachineGone,
    MachineNoticed,
    NodesOffered,
    NoticeSeen,
    TickDue,
)
from proteus_spot.bidding.engine.orders import Order
from proteus_spot.bidding.engine.reconcile import BELIEVED_AFTER_S, by_order, unlisted
from proteus_spot.bidding.facts.known import MarketKnown
from proteus_spot.bidding.facts.rates import TypeSpeed
from proteus_spot.bidding.forecast import MarketFeatures
from proteus_spot.bidding.market.model import HOUR_S, InstanceFact, Market, Tier
from proteus_spot.bidding.market.money import Micros
from proteus_spot.infra.errors import TickStopped
from proteus_spot.infra.state.records import ObservationKind
from proteus_spot.tasks.job_ends import is_active
from proteus_spot.tasks.job_queues import next_to_take_over
from proteus_spot.tasks.job_records import training_begun
from proteus_spot.tasks.market.engine_journal import DecideEvents, EngineJournal, JobEngine
from proteus_spot.tasks.market.listed_machines import observed_events
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task


@runtime_task("decide")
def decide(
    job_engine: JobEngine,
    facts: Sequence[InstanceFact],
    prices: Mapping[Market, Micros],
    notices: Mapping[str, int],
    left_out: Mapping[Market, str] | None = None,
    signals: Mapping[Market, MarketFeatures] | None = None,
    spending: Spending | None = None,
    left: TimeLeft | None = None,
    crossing_usd_per_vcpu_h: float = 0.0,
    known: Mapping[Market, MarketKnown] | None = None,
    left_vcpus: Mapping[str, int] | None = None,
    on_demand_spending: Spending | None = None,
    speeds: Mapping[str, TypeSpeed] | None = None,
) -> list[Order]:
    """Reconcile the engine with `facts`, enter the `notices`, and have the engine decide.

    Nothing is bought before the reliable tier runs and the training has begun, nor after a stop was requested. Nothing
    is decided on machines that the next job of the queue will take over; ends that were ordered before are repeated.

    Parameters
    ----------
    notices : second at which the market takes a machine or a whole allocation, by its id.
    left_out : markets whose prices are too old to decide on, each with the reason.
    signals : features of the recent past of the markets, if the job's policy uses them.
    crossing_usd_per_vcpu_h : cost of the bytes that a vCPU-hour of work exchanges with another zone.
    known : what is known of the markets, where bids decide nothing.
    left_vcpus : what the account's quotas leave, by code.
    spending, left : worst case of the job's spending, and its work before the deadline; None without such a limit.
    on_demand_spending : worst case of what is bought on demand for the deadline; None without such a limit.
    speeds : of the types that were measured.

    Raises
    ------
    TickStopped
        If the market lists none of the machines that live by the book: nothing is decided on such an answer.
    """
    now_s, is_kept = current_runtime().now_s(), False

    def tick(engine: BidEngine) -> Sequence[BidEvent]:
        nonlocal is_kept
        job_id, store = job_engine.job_id, current_runtime().store
        if engine.holdings.job_id is None:
            return ()
        is_kept = next_to_take_over(store, store.jobs.job(job_id)) is not None
        if is_kept:
            return ()
        begun = training_begun(job_id, engine.holdings.begun_at_s)
        buy = begun and _reliable_tier_stands(engine) and is_active(job_id)
        limits = (spending, left, crossing_usd_per_vcpu_h, store.owner.identity().generation_of_orders)
        seen = (left_out or {}, signals or {}, *limits, known or {}, left_vcpus or {}, on_demand_spending, speeds or {})
        due = TickDue(now_s, prices, buy, *seen)
        return (*offered(engine, job_id, now_s), due)

    orders = decide_on(job_engine, facts, notices, tick)
    # What is noticed at this tick is left to the market: it refunds the hour unless it is terminated first.
    positions = job_engine.cached().holdings.positions.values() if is_kept else ()
    return [*orders, *(p.lapse for p in positions if p.lapse is not None and p.lapsing is not None)]


def offered(engine: BidEngine, job_id: str, now_s: int) -> tuple[BidEvent, ...]:
    """Return the event of the machines that the training offers for release, unless the engine has it."""
    seen = current_runtime().store.jobs.last_observation(job_id, ObservationKind.OFFER)
    if seen is None:
        return ()
    held, nodes, machines = engine.holdings, tuple(seen.payload["nodes"]), seen.payload["machines"]
    if (held.offered, held.machines_of_use) == (frozenset(nodes), machines):
        return ()
    return (NodesOffered(now_s, nodes, machines),)


def decide_on(
    journal: EngineJournal[Any],
    facts: Sequence[InstanceFact],
    notices: Mapping[str, int],
    tick: DecideEvents[Any],
    reports: DecideEvents[Any] = lambda engine: (),
) -> list[Any]:
    """Enter what was observed of a job or a sweep, then the events of `tick`; return the orders of all.

    Parameters
    ----------
    facts : the machines that the market lists.
    notices : second at which the market takes a machine or a whole allocation, by its id.
    tick : returns the events of the decision point; not called where nothing is decided.
    reports : returns what machines have reported, which is entered after their notices and ends.

    Raises
    ------
    TickStopped
        If the market lists none of the machines that live by the book: nothing is decided on such an answer.
    """
    now_s, lease_s = current_runtime().now_s(), 60 * current_runtime().settings.lease_minutes
    groups = by_order(facts)
    missing = 0

    def plan(engine: Any) -> Sequence[BidEvent]:
        nonlocal missing
        missing = unlisted(engine.holdings, groups, now_s, lease_s)
        observed = observed_events(engine.holdings, facts, now_s)
        if missing:
            return observed
        for name, takes_at_s in sorted(notices.items()):
            observed += _noticed(engine, observed, name, takes_at_s, now_s)
        return [*observed, *reports(engine), *tick(engine)]

    orders = journal.commit(plan, groups)
    if missing:
        since_s = journal.cached().holdings.unlisted_since_s
        hours = (now_s - (now_s if since_s is None else since_s)) / HOUR_S
        raise TickStopped(
            f"job {journal.job_id}: the market lists none of its {missing} living machines (for {hours:.1f} h now); "
            "check the AWS account, profile and PROTEUS_REGION. Nothing is bought or booked until it lists some, or "
            f"for {BELIEVED_AFTER_S / HOUR_S:g} h none"
        )
    return orders


def _noticed(engine: Any, events: Sequence[BidEvent], name: str, takes_at_s: int, now_s: int) -> list[BidEvent]:
    """Return the event of a notice that a machine reported, unless the market has reported it as well."""
    for allocation_id, position in engine.holdings.positions.items():
        held = {machine for machine, its in position.machines.items() if its.state is MachineState.HELD}
        held -= {event.instance_id for event in events if isinstance(event, MachineNoticed | MachineGone)}
        if any(isinstance(e, NoticeSeen | AllocationGone) and e.allocation_id == allocation_id for e in events):
            continue
        if held and (allocation_id == name or held == {name}):
            return [NoticeSeen(now_s, allocation_id, takes_at_s)]
        if name in held:
            return [MachineNoticed(now_s, allocation_id, name, takes_at_s)]
    return []


def opened_markets(job_engine: JobEngine) -> tuple[Market, ...]:
    """Return the markets that the job may bid in; none before it was opened."""
    engine = job_engine.cached()
    return engine.holdings.opened.markets if engine.holdings.job_id is not None else ()


def _reliable_tier_stands(engine: BidEngine) -> bool:
    return any(
        p.standing is AllocationState.HELD and p.allocation.tier is Tier.RELIABLE
        for p in engine.holdings.positions.values()
    )
