"""BidBrain's engine: a state machine with one entry point, `handle(event) -> orders`.

It uses no clock, no market and no database: time comes with the events, and the caller carries out the orders and
answers them with further events. Replaying the same events gives the same orders.

Invariants (`validate`): no purchase is decided on while one is unanswered; each (allocation, hour) is decided at most
once (but closing the job revokes renewals of hours that have not begun); nothing is bought or renewed after
`JobClosed`, until a `JobReopened`.
`max_spot_vcpus` limits decisions: a purchase is ordered, or ordered again, only if it fits in beside what is held and
what the market will take. It limits no facts: machines that are found later may exceed it, and then hours lapse instead
of being renewed until it is kept again.

A purchase is ordered again, the same, at each tick until it is answered; a lapse until the allocation has ended or the
market gives notice of its eviction. So an order survives a crash between its entry in the journal and its execution.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType

from proteus_spot.bidding.economics.budget import Purse
from proteus_spot.bidding.engine.allocations import AllocationState, HeldAllocation
from proteus_spot.bidding.engine.events import BidEvent, TickDue
from proteus_spot.bidding.engine.holdings import EngineError, Holdings
from proteus_spot.bidding.engine.orders import PURCHASE, Acquire, Lapse, Order, Renew, Wait, order_id_of
from proteus_spot.bidding.facts.learning import table_of
from proteus_spot.bidding.market.model import HOUR_S, Allocation, Market, Tier
from proteus_spot.bidding.market.quotas import left_of, take_quota
from proteus_spot.bidding.policies import policy
from proteus_spot.bidding.policies.base import Choice, Decision, MachineRelease, MarketView, Planner, Policy
from proteus_spot.bidding.policies.deadline import DeadlinePolicy
from proteus_spot.bidding.policies.limits import (
    ON_DEMAND_LIMIT,
    is_on_demand,
    on_demand_purchase,
    on_demand_releases,
    part_of_no_use,
    purchase_for_tasks,
    purchase_in_quota,
    purchase_of_use,
    purchase_within,
    renewal_of_use,
    renewal_within,
)


@dataclass(frozen=True, slots=True)
class OneMarket:
    """Decisions of a policy that knows no machines on demand: the deadline's are bought when its slack is gone."""

    policy: Policy

    def purchases(self, view: MarketView) -> tuple[Decision, ...]:
        """Return the one decision."""
        return (on_demand_purchase(view) or purchase_of_use(self.policy.acquisition(view), view),)

    def releases(self, view: MarketView) -> tuple[MachineRelease, ...]:
        """Return the machines on demand that the job may not pay any more; others go at the end of an hour."""
        return on_demand_releases(view)

    def renewal(self, view: MarketView, allocation: Allocation) -> Decision:
        """Return the policy's decision; what was bought on demand stays."""
        if is_on_demand(allocation):
            for release in on_demand_releases(view):
                if release.allocation_id == allocation.allocation_id:
                    return release.decision
            return Decision(Choice.RENEW, "it is held on demand until the job is done", float("inf"))
        return self.policy.renewal(view, allocation)


#: States in which no hour is decided, in words.
_UNDECIDED = MappingProxyType(
    {
        AllocationState.NOTICED: "the market had given notice that it takes the allocation",
        AllocationState.GONE: "the allocation was taken for gone",
    }
)

#: Difference from the usual speed from which on a reason names it.
_UNUSUAL = 0.05
#: Begins the codes of markets that refused last, in the reason of a decision that buys nothing.
LAST_ANSWERS = "last answers"


class BidEngine:
    """Decisions of one job. Its state changes only in `handle`.

    Attributes
    ----------
    holdings : Holdings
        What the job holds, and knows by the events so far.
    """

    def __init__(self) -> None:
        self.holdings = Holdings()

    def handle(self, event: BidEvent) -> tuple[Order, ...]:
        """Apply one event; return the orders, in sequence.

        Raises
        ------
        EngineError
            If the event is invalid in the present state.
        """
        if isinstance(event, TickDue):
            return tuple(self._handle_tick(event))
        self.holdings.record(event)
        return ()

    def validate(self) -> None:
        """Raise `EngineError` where an invariant does not hold."""
        self.holdings.validate()

    def _handle_tick(self, event: TickDue) -> Iterator[Order]:
        held = self.holdings
        held.note_tick(event.at_s, event.prices)
        event = self._limited(event)
        purse = Purse(event.spending)
        yield from self._hour_ends(event, purse)
        if held.closed or not event.buy:
            return
        if held.open_orders:
            yield from self._again(event)
            return
        yield from self._releases(event)
        yield from self._purchases(event, purse)

    def _again(self, event: TickDue) -> Iterator[Acquire | Wait]:
        """Order again what was ordered and not answered."""
        repeated: list[Acquire] = []
        for order in self.holdings.open_orders.values():
            waits = ""
            if order.market in event.left_out:
                # It was decided on a price that held once. If it was bought, its machines are found by their tags.
                waits = "until its market has a price again"
            elif self.holdings.excess_vcpus(*repeated, order) > 0:
                waits = "until it fits in: machines were found since it was ordered"
            if waits:
                reason = f"{order.order_id} stays unanswered {waits}"
                yield Wait(_with_left_out(Decision(Choice.WAIT, reason, float("inf")), event))
            else:
                # The caller repeats it by its token: what was bought is found; else it is bought or refused now.
                repeated.append(order)
                yield order

    def _hour_ends(self, event: TickDue, purse: Purse) -> Iterator[Order]:
        """Decide every hour that ends soon, or that began undecided; in the order of the grants."""
        held = self.holdings
        for position in held.positions.values():
            allocation = position.allocation
            if position.lapse is not None and position.lapsing is not None:
                yield position.lapse  # not after a notice: the market refunds the hour unless it is terminated first
            if position.standing is not AllocationState.HELD or allocation.tier is Tier.RELIABLE:
                continue
            # The market's clock may be ahead of the caller's: an hour before the first there is not.
            now_s = max(event.at_s, allocation.launched_at_s)
            now_hour = allocation.hour_index(now_s)
            for hour in range(max(position.decided) + 1, now_hour + 1):
                position.decided.add(hour)
                if not held.closed:  # after the close nothing is renewed: the hour is paid for, undecided
                    why = _why_undecided(position, hour)
                    yield Renew(allocation.allocation_id, hour, Decision(Choice.RENEW, why, float("inf")))
            before_s = allocation.hour_ends_at_s(now_s)
            if held.closed and not held.opened.job.pays_whole_hours:
                before_s = now_s  # every further second would cost
            # A job that closes takes back what was renewed and has not begun.
            undecided = now_hour + 1 not in position.decided or held.closed
            if before_s - now_s <= held.opened.job.renewal_lead_s and undecided:
                position.decided.add(now_hour + 1)
                yield from self._hour_end(event, position, now_hour + 1, before_s, purse)

    def _hour_end(
        self, event: TickDue, position: HeldAllocation, hour: int, before_s: int, purse: Purse
    ) -> Iterator[Renew | Lapse]:
        held = self.holdings
        allocation = position.allocation
        ending = self._release(position, hour, before_s)
        if held.closed:
            reason = "the job is done, and its last hour gave no refund"
            if not held.opened.job.pays_whole_hours:
                reason = "the job is done, and every further second would cost"
            decision = Decision(Choice.LAPSE, reason, float("inf"))
        elif held.excess_vcpus() > 0:
            job = held.opened.job
            reason = f"{held.spot_vcpus} spot {job.unit_name}s are held, of at most {job.max_spot_vcpus}"
            decision = Decision(Choice.LAPSE, reason, float("inf"))
        else:
            view, alive = self._view(event), position.working or allocation
            unused = None if is_on_demand(allocation) else renewal_of_use(view, alive)
            decision = unused or self._planner().renewal(view, alive)
        if not held.closed and decision.verdict is Choice.RENEW:
            alive = position.working or allocation
            decision = renewal_within(decision, alive, held.opened.job, held.opened.types, purse)
            if decision.verdict is Choice.LAPSE:
                before_s = event.at_s  # at once: should the ticks up to the hour's end be lost, it would be charged
        if decision.verdict is Choice.RENEW:
            if ending is not None:
                yield ending
            yield Renew(allocation.allocation_id, hour, decision)
            return
        position.lapse = Lapse(allocation.allocation_id, hour, before_s, decision)
        position.update()
        yield position.lapse

    def _release(self, position: HeldAllocation, hour: int, before_s: int) -> Lapse | None:
        """Have the machines end that the job offers, if it offers some that work and needs others; return the order."""
        held = self.holdings
        before = position.ending()
        working = [name for name in position.held() if name not in before]
        unused = [name for name in working if name in held.offered]
        if held.closed or is_on_demand(position.allocation) or not 0 < len(unused) < len(working):
            return None
        decision = part_of_no_use(len(unused), len(working), held.machines_of_use)
        ending = tuple(sorted([*before, *unused]))  # those of an earlier hour whose end is not reported yet, too
        position.lapse = Lapse(position.allocation.allocation_id, hour, before_s, decision, ending)
        position.update()
        return position.lapse

    def _releases(self, event: TickDue) -> Iterator[Lapse]:
        """Let machines go that the policy wants no more, where that saves the seconds to come."""
        if self.holdings.opened.job.pays_whole_hours:
            return
        for release in self._planner().releases(self._view(event)):
            position = self.holdings.positions[release.allocation_id]
            hour = position.allocation.hour_index(event.at_s) + 1
            before = position.ending()
            working = sorted(name for name in position.held() if name not in before)
            ending = tuple(sorted([*before, *working[len(working) - release.count :]]))
            named = () if len(ending) == len(position.held()) else ending
            position.lapse = Lapse(release.allocation_id, hour, event.at_s, release.decision, named)
            position.update()
            yield position.lapse

    def _purchases(self, event: TickDue, purse: Purse) -> Iterator[Acquire | Wait]:
        """Decide what is bought, within the quotas and the budget; nothing is one order, too."""
        held, view, left = self.holdings, self._view(event), dict(event.left_vcpus)
        on_demand_purse, working_vcpus = Purse(event.on_demand_spending), view.spot_vcpus
        for decided in self._planner().purchases(view):
            decision = purchase_in_quota(decided, view.types, left)
            if decision.chosen is not None and decision.chosen.on_demand:
                decision = purchase_within(decision, held.opened.job, on_demand_purse, event.at_s, ON_DEMAND_LIMIT)
            decision = purchase_within(decision, held.opened.job, purse, event.at_s)
            if decision.chosen is not None:
                size = view.size_of(decision.chosen.market)
                decision = purchase_for_tasks(decision, held.opened.job, working_vcpus, size)
            decision = _with_left_out(_with_known(_with_speed(decision, view), view), event)
            if view.job.max_spot_vcpus < held.opened.job.max_spot_vcpus:
                allowed = f"{view.job.max_spot_vcpus} spot {view.job.unit_name}s"
                decision = replace(decision, reason=f"{decision.reason}; the account's quota allows {allowed}")
            chosen = decision.chosen
            if chosen is None:
                yield Wait(decision)
                continue
            order_id = order_id_of(held.opened.job_id, event.generation, f"{PURCHASE}{held.purchases}")
            bid_micros = None if chosen.on_demand else chosen.bid_micros
            order = Acquire(order_id, chosen.market, chosen.count, bid_micros, decision)
            excess = held.excess_vcpus(*held.open_orders.values(), order)
            if excess > 0:
                most = held.opened.job.max_spot_vcpus
                raise EngineError(
                    f"policy {held.opened.policy}: {most + excess} spot {view.job.unit_name}s would be held, "
                    f"of at most {most}"
                )
            working_vcpus += chosen.count * view.size_of(chosen.market)
            vcpus = chosen.count * view.types[chosen.market.instance_type].vcpu  # quotas count no other unit
            take_quota(left, chosen.market.instance_type, vcpus, spot=not chosen.on_demand)
            held.note_order(order)
            yield order

    def _planner(self) -> Planner:
        made = policy(self.holdings.opened.policy)
        return made if isinstance(made, DeadlinePolicy) else OneMarket(made)

    def _limited(self, event: TickDue) -> TickDue:
        """Return the tick with the prices of the job's markets alone, in their order; once a tick, not once a view."""
        found, markets = event.prices.get, sorted(self.holdings.opened.markets)
        prices = {market: price for market in markets if (price := found(market)) is not None}
        return replace(event, prices=prices)

    def _beyond_quota(self, event: TickDue, spot: bool) -> frozenset[Market]:
        """Return the markets in which the account's quota leaves no machine."""
        beyond = set[Market]()
        for market in self.holdings.opened.markets if event.left_vcpus else ():
            left = left_of(event.left_vcpus, market.instance_type, spot)
            if left is not None and left < self.holdings.opened.types[market.instance_type].vcpu:
                beyond.add(market)
        return frozenset(beyond)

    def _view(self, event: TickDue) -> MarketView:
        held = self.holdings
        opened, now_s, beyond = held.opened, event.at_s, self._beyond_quota(event, spot=True)
        on_demand_cooling = {market for market, until_s in held.on_demand_cooling.items() if until_s > now_s}
        return MarketView(
            now_s=now_s,
            job=replace(opened.job, max_spot_vcpus=held.room_of_kind(on_demand=False, at_s=now_s)),
            markets=opened.markets,
            beyond_quota=beyond,
            on_demand_cooling=frozenset(on_demand_cooling) | self._beyond_quota(event, spot=False),
            on_demand_room_vcpus=held.room_of_kind(on_demand=True, at_s=now_s) - held.spot_vcpus,
            prices=event.prices,
            types=opened.types,
            footprint=held.footprint,
            evictions=table_of(event.known) if opened.learns and event.known else opened.evictions,
            known=event.known,
            cooling=beyond.union(market for market, until_s in held.cooling.items() if until_s > now_s),
            paid_until_s={
                name: p.allocation.launched_at_s + (max(p.decided) + 1) * HOUR_S
                for name, p in held.positions.items()
                if p.standing is AllocationState.HELD and p.allocation.tier is Tier.TRANSIENT
            },
            last_prices=dict(held.last_prices),
            signals=event.signals,
            foresight=opened.foresight,
            lapsing=tuple(p.lapsing for p in held.positions.values() if p.lapsing is not None),
            noticed=held.noticed,
            last_eviction_s=held.last_eviction_s,
            crossing_usd_per_vcpu_h=event.crossing_usd_per_vcpu_h,
            offered=frozenset(
                name
                for name, p in held.positions.items()
                if (working := set(p.held()).difference(p.ending())) and working <= held.offered
            ),
            machines=held.machines_of_use,
            time_left=event.time_left,
            on_demand_spending=event.on_demand_spending,
            speeds=event.speeds,
        )


def _why_undecided(position: HeldAllocation, hour: int) -> str:
    """Return why the billing hour `hour` of an allocation that is held began without a decision."""
    begun_s = position.allocation.launched_at_s + hour * HOUR_S
    since_s, until_s, state = position.survived or (begun_s, begun_s - 1, AllocationState.HELD)
    if state not in _UNDECIDED or not since_s <= begun_s <= until_s:
        return "no tick came before the hour began, so it is paid for"
    return f"{_UNDECIDED[state]} when the hour began, and it lives, so the hour is paid for"


def _with_speed(decision: Decision, view: MarketView) -> Decision:
    """Return `decision` with the measured speeds of the types that it weighed, where they are not the usual one."""
    types = sorted({each.market.instance_type for each in decision.candidates} & view.speeds.keys())
    unusual = {name: view.speeds[name] for name in types if abs(view.speeds[name].value - 1) >= _UNUSUAL}
    told = (f"a {view.job.unit_name} of {name} works at {each.in_words(view.now_s)}" for name, each in unusual.items())
    return replace(decision, reason="; ".join([decision.reason, *told]))


def _with_known(decision: Decision, view: MarketView) -> Decision:
    """Return `decision` with what is known of its market; where nothing is bought, with what markets answered last."""
    chosen = decision.chosen
    if chosen is not None and chosen.market in view.known:
        about = f"{chosen.market}: {view.known[chosen.market].in_words()}"
        return replace(decision, reason=f"{decision.reason}; {about}")
    refused = Counter(known.refused[0] for known in view.known.values() if known.refused is not None)
    if chosen is not None or not refused or view.left_vcpus < 1:
        return decision
    codes = ", ".join(f"{code} in {count} of {len(view.known)} markets" for code, count in sorted(refused.items()))
    return replace(decision, reason=f"{decision.reason}; {LAST_ANSWERS}: {codes}")


def _with_left_out(decision: Decision, event: TickDue) -> Decision:
    """Return `decision` with the markets that it could not weigh, grouped by reason."""
    by_reason: dict[str, list[str]] = {}
    for market, why in sorted(event.left_out.items()):
        by_reason.setdefault(why, []).append(str(market))
    if not by_reason:
        return decision
    reasons = "; ".join(f"{', '.join(names)}: {why}" for why, names in by_reason.items())
    return replace(decision, reason=f"{decision.reason}; not weighed: {reasons}")
