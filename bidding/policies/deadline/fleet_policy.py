"""The policy `deadline` of a live job: which machines of which markets, spot or on demand, to hold until the next tick.

The rule is `fleet.choose`, which the backtest compiles; here its answer becomes purchases and releases, with reasons.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil, inf, isfinite

from proteus_spot.bidding.market.model import Allocation, Tier
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR, usd
from proteus_spot.bidding.policies.base import Candidate, Choice, Decision, MachineRelease, MarketView
from proteus_spot.bidding.policies.deadline.fleet_view import ROUNDED, Fleet, FleetView, MarketRow
from proteus_spot.bidding.policies.footprint import price_text, usd_per_work
from proteus_spot.bidding.policies.limits import (
    ON_DEMAND_LIMIT,
    cheapest_on_demand,
    is_on_demand,
    no_on_demand,
    on_demand_candidate,
    smaller,
)
from proteus_spot.bidding.policies.offers import SHOWN, fewest, markets_text, nothing_on_sale

#: Begins the reason of a decision that on demand would be needed for the deadline, and cannot be had.
AT_RISK = "the deadline is at risk"
#: Why no market is weighed where some have machines.
_TOO_LATE = "a new machine would not work before it is taken, or before the job ends"


class DeadlinePolicy:
    """The machines with which the deadline is kept at the least expected cost; without one, the cheapest work.

    Where a bid is asked for, it is the on-demand price: a machine is never worth more. An hour costs
    `value_of_time_usd_per_h` and the reliable tier; without a deadline machines are held while they lower the dollars
    per unit of work with that.
    """

    def purchases(self, view: MarketView) -> tuple[Decision, ...]:
        """Return what is bought now, on demand first, then the cheapest work; else WAIT."""
        if view.time_left is not None and view.time_left.clocks <= 0:
            return (_wait("no clock is left to train"),)
        seen = FleetView(view)
        fleet = seen.fleet()
        bought = tuple(_within(view, [*_on_demand(seen, fleet), *_spot(seen, fleet)]))
        return bought or (_nothing(seen, fleet),)

    def releases(self, view: MarketView) -> tuple[MachineRelease, ...]:
        """Return the machines that are held and not worth it, or not needed any more: of each market the youngest."""
        if view.time_left is not None and view.time_left.clocks <= 0:
            return ()
        seen = FleetView(view)
        fleet = seen.fleet()
        return tuple(_releases(seen, fleet))

    def renewal(self, view: MarketView, allocation: Allocation) -> Decision:
        """Return LAPSE where all of the allocation is to be let go; else RENEW."""
        for release in self.releases(view):
            if release.allocation_id == allocation.allocation_id and release.count >= allocation.count:
                return release.decision
        return Decision(Choice.RENEW, f"{allocation.market}: its work is worth its price", inf)


def _on_demand(seen: FleetView, fleet: Fleet) -> Iterator[Decision]:
    """Yield the purchase on demand, if one is due."""
    more, view = fleet.on_demand_vcpus - seen.on_demand_vcpus - ROUNDED, seen.view
    room, needs = view.on_demand_room_vcpus, fleet.on_demand_vcpus + fleet.lacking_vcpus
    why = f"the deadline needs {needs} {view.job.unit_name}s on demand, whatever spot does until the next decision"
    if fleet.lacking_vcpus:
        spending = view.on_demand_spending
        lacks = no_on_demand(view, room + seen.view.spot_vcpus)
        if spending is not None and cheapest_on_demand(view, room + seen.view.spot_vcpus) is not None:
            left_micros = max(spending.budget_micros - spending.committed_micros, 0)
            lacks = f"{ON_DEMAND_LIMIT} of {usd(spending.budget_micros)} leaves {usd(left_micros)}"
        yield _wait(f"{AT_RISK}: {why}, and {lacks}")
    best = cheapest_on_demand(view, room)
    if more <= 0 or best is None:
        return
    count = min(ceil(more / seen.equal_vcpus(best)), room // view.size_of(best))
    chosen = on_demand_candidate(view, best, count)
    price = f"{price_text(chosen.price_micros)}, {usd_per_work(chosen.cost_per_work, seen.view.job)}"
    yield Decision(Choice.ACQUIRE, f"{chosen.count} x {best} on demand at {price}: {why}", inf, (chosen,))


def _spot(seen: FleetView, fleet: Fleet) -> Iterator[Decision]:
    """Yield the purchases of spot machines, the cheapest work first."""
    rows = sorted((row for row in seen.rows if row.count), key=lambda row: (row.new_usd, row.market))
    asks = {row.market: fleet.spot[row.market] - row.held for row in rows}
    others = [_candidate(seen, row, row.count) for row in rows if asks[row.market] <= 0][: SHOWN - 1]
    weighed = markets_text(len(rows), seen.refusals)
    for row in rows:
        if asks[row.market] > 0:
            chosen = _candidate(seen, row, asks[row.market])
            text = (
                f"{chosen.count} x {row.market} at {price_text(chosen.price_micros)} (loss within the hour "
                f"{row.beta:.0%}): work costs {usd_per_work(row.new_usd, seen.view.job)}, {_most_text(seen, fleet)}, "
                f"of {weighed}"
            )
            left_out = tuple(replace(each, why_not=_why_not(seen, each, fleet)) for each in others)
            yield Decision(Choice.ACQUIRE, text + _need_text(seen), fleet.highest_usd, (chosen, *left_out))


def _within(view: MarketView, decisions: list[Decision]) -> Iterator[Decision]:
    """Yield the decisions, each purchase cut to what the cap, the job's memory and its tasks have a use for."""
    taken, machines, held = 0, view.machines, view.spot_vcpus
    for decision in decisions:
        chosen = decision.chosen
        if chosen is None:
            yield decision
            continue
        vcpus = view.size_of(chosen.market)
        left = (view.on_demand_room_vcpus if chosen.on_demand else view.left_vcpus) - taken
        count = min(chosen.count, max(left, 0) // vcpus)
        if machines is not None:
            count = min(count, max(machines - view.spot_machines, 0))
        count = fewest(view.job, held, count, vcpus)
        if not count:
            continue
        taken, held = taken + count * vcpus, held + count * vcpus
        machines = None if machines is None else machines - count
        yield decision if count == chosen.count else smaller(decision, chosen, count, "more would be of no use")


def _releases(seen: FleetView, fleet: Fleet) -> Iterator[MachineRelease]:
    view = seen.view
    surplus = seen.on_demand_vcpus - fleet.on_demand_vcpus
    over = {row.market: row.held - fleet.spot[row.market] for row in seen.rows}
    costs = {row.market: row.held_usd for row in seen.rows}
    held = sorted(
        (each for each in view.footprint if each.tier is Tier.TRANSIENT),
        key=lambda each: (-each.launched_at_s, each.allocation_id),
    )
    for each in held:
        if is_on_demand(each):
            equal = seen.equal_vcpus(each.market)
            count = min(int((surplus + ROUNDED) / equal), each.count) if surplus > 0 else 0
            surplus -= count * equal
            why = f"the deadline is kept with {fleet.on_demand_vcpus} {view.job.unit_name}s on demand"
            if fleet.lacking_vcpus and view.on_demand_spending is not None:
                why = f"{ON_DEMAND_LIMIT} of {usd(view.on_demand_spending.budget_micros)} is spent"
        else:
            count = min(over[each.market], each.count)
            over[each.market] -= count
            why = f"its work costs {usd_per_work(costs[each.market], seen.view.job)}, and {_most_text(seen, fleet)}"
            if costs[each.market] <= fleet.highest_usd:
                why = "cheaper machines, or those on demand, take its place"
        if count > 0:
            text = f"{count} of {each.count} x {each.market} are let go: {why}"
            yield MachineRelease(each.allocation_id, count, Decision(Choice.LAPSE, text, fleet.highest_usd))


def _nothing(seen: FleetView, fleet: Fleet) -> Decision:
    """Return why nothing is bought."""
    view = seen.view
    on_sale = (row for row in seen.rows if row.count and isfinite(row.new_usd))
    rows = sorted(on_sale, key=lambda row: (row.new_usd, row.market))
    if not rows:
        return _wait(_TOO_LATE if any(seen.counts.values()) else nothing_on_sale(seen.refusals))
    shown = [_candidate(seen, row, row.count) for row in rows[:SHOWN]]
    candidates = tuple(replace(each, why_not=_why_not(seen, each, fleet)) for each in shown)
    best = rows[0]
    if best.new_usd > fleet.highest_usd:
        cost = usd_per_work(best.new_usd, seen.view.job)
        reason = f"the cheapest work on sale, of {best.market}, costs {cost}, and {_most_text(seen, fleet)}"
    elif view.left_vcpus < min(row.vcpus for row in rows):
        held, unit = view.spot_vcpus + view.noticed_vcpus, view.job.unit_name
        reason = f"{held} of at most {view.job.max_spot_vcpus} spot {unit}s are held"
    else:
        reason = f"{view.spot_vcpus} spot {view.job.unit_name}s are held, and more would be of no use"
    return Decision(Choice.WAIT, reason + _need_text(seen), fleet.highest_usd, candidates)


def _most_text(seen: FleetView, fleet: Fleet) -> str:
    if not isfinite(fleet.highest_usd):
        return "all that is usually there is needed"
    return f"at most {usd_per_work(fleet.highest_usd, seen.view.job)} is worth it"


def _need_text(seen: FleetView) -> str:
    if not seen.needed_vcpus:
        return ""
    unit, held = seen.view.job.unit_name, seen.view.spot_vcpus
    return f"; the deadline needs {seen.needed_vcpus:.0f} {unit}s on average, {held} are held"


def _why_not(seen: FleetView, candidate: Candidate, fleet: Fleet) -> str:
    if candidate.cost_per_work > fleet.highest_usd:
        return f"costs more than the {usd_per_work(fleet.highest_usd, seen.view.job)} that work is worth"
    return "what is held and bought is as much as helps"


def _candidate(seen: FleetView, row: MarketRow, count: int) -> Candidate:
    price, kind = seen.view.prices[row.market], seen.view.types[row.market.instance_type]
    return Candidate(
        market=row.market,
        count=count,
        price_micros=price,
        delta_micros=kind.on_demand_micros - price,
        eviction_prob=row.beta,
        cost_usd=price * count / MICROS_PER_DOLLAR,
        work=count * row.work,
        cost_per_work=row.new_usd,
    )


def _wait(reason: str) -> Decision:
    return Decision(Choice.WAIT, reason, inf)
