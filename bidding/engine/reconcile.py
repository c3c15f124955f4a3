"""Comparison of the holdings with the market's facts, as events, machine by machine; stateless.

An allocation is named after the order that bought it, and so is the client token of the purchase, so a purchase whose
answer was lost is found by a look-up. Instances carry a tag with the order, too, which is a copy.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType
from typing import Protocol

from proteus_spot.bidding.engine.allocations import (
    AllocationState,
    HeldAllocation,
    HeldMachine,
    MachineState,
    common_cause,
)
from proteus_spot.bidding.engine.events import (
    AllocationGone,
    AllocationGranted,
    BidEvent,
    MachineGone,
    MachineNoticed,
    MachineSeen,
    MachinesUnlisted,
    MarketCooled,
    NoticeSeen,
)
from proteus_spot.bidding.market.failures import AT_LAUNCH, LAUNCH_S, ended_by_itself
from proteus_spot.bidding.market.model import HOUR_S, MINUTE_S, Allocation, EndCause, InstanceFact, InstanceType, Tier

#: Code of an order that was never carried out, as opposed to one that the market refused.
ABANDONED = "Abandoned"
#: A noticed machine that still lives so long after its announced end is held again: it was not taken.
NOTICE_GRACE_S = 4 * MINUTE_S
#: A market may be slow to list machines that are younger than this.
_YOUNG_S = 5 * MINUTE_S
#: The lease of a machine that no tick has extended, from its launch.
FIRST_LEASE_S = 15 * MINUTE_S
#: A market lists ended machines for so long.
LISTED_S = HOUR_S
#: Seconds for which an answer must be the same before a list without machines of Proteus is believed.
BELIEVED_AFTER_S = HOUR_S

#: (second, cause) of the end of a machine.
_End = tuple[int, EndCause]


class ReconciledHoldings(Protocol):
    """What the comparison reads of the holdings of a job or a sweep."""

    @property
    def job_id(self) -> str | None:
        """The id of the job or sweep; None before it was opened."""
        ...

    @property
    def types(self) -> Mapping[str, InstanceType]:
        """The instance types that it may buy, by name."""
        ...

    @property
    def positions(self) -> Mapping[str, HeldAllocation]:
        """Every allocation granted so far, by id."""
        ...

    @property
    def unlisted_since_s(self) -> int | None:
        """Since when the market lists none of the machines that live by the book; None while it lists some."""
        ...

    @property
    def ticked_at_s(self) -> int | None:
        """When a tick decided last; None before the first."""
        ...


def allocation_of(order_id: str, facts: Sequence[InstanceFact], tier: Tier) -> Allocation:
    """Return the allocation that the instances of one purchase form, named after its order."""
    first = min(facts, key=lambda fact: (fact.launched_at_s, fact.instance_id))
    return Allocation(
        allocation_id=order_id,
        market=first.market,
        count=len(facts),
        launched_at_s=first.launched_at_s,
        tier=tier,
        bid_micros=first.bid_micros,
    )


def grant_of(order_id: str, facts: Sequence[InstanceFact], tier: Tier, now_s: int) -> AllocationGranted:
    """Return the grant of an order: the allocation that its instances form, and their names."""
    names = tuple(sorted(fact.instance_id for fact in facts))
    return AllocationGranted(now_s, order_id, allocation_of(order_id, facts, tier), names)


def by_order(facts: Iterable[InstanceFact]) -> dict[str, list[InstanceFact]]:
    """Return the instances of each purchase, by its order, in the order of their ids.

    Instances without the tag of an order are left out: no order of ours bought them.
    """
    ordered = sorted((fact for fact in facts if fact.order_id), key=lambda fact: (fact.order_id, fact.instance_id))
    return {order_id: list(group) for order_id, group in groupby(ordered, key=lambda fact: fact.order_id)}


def unlisted(
    held: ReconciledHoldings, facts: Mapping[str, Sequence[InstanceFact]], now_s: int, lease_s: float = math.inf
) -> int:
    """Return how many machines live by the book while the market lists none of them; 0 where it is to be believed.

    So many machines do not end at once without a trace, for a market lists ended ones for about an hour. A wrong
    account or region, or an answer that is empty by mistake, looks like this. The answer is believed when it has been
    the same for `BELIEVED_AFTER_S`. A single machine that is missing in an answer that lists others was forgotten by
    the market; `reconcile` says when that counts as its end.

    Parameters
    ----------
    lease_s : machines end by themselves so long after the last tick. Once they must have ended longer ago than the
        market lists ended ones, an answer without them is to be expected, and is believed at once.
    """
    living = [p for p in held.positions.values() if p.standing is not AllocationState.GONE]
    if any(facts.get(position.allocation.allocation_id) for position in living):
        return 0
    if all(now_s - position.allocation.launched_at_s < _YOUNG_S for position in living):
        return 0
    if held.ticked_at_s is not None and now_s - held.ticked_at_s >= lease_s + LISTED_S:
        return 0
    since_s = held.unlisted_since_s
    if since_s is not None and now_s - since_s >= BELIEVED_AFTER_S:
        return 0
    count = sum(len(position.living()) for position in living)
    return count if count > 1 or not any(facts.values()) else 0


def reconcile(
    held: ReconciledHoldings,
    facts: Mapping[str, Sequence[InstanceFact]],
    tiers: Mapping[str, Tier],
    now_s: int,
    lease_s: float = math.inf,
    lease_ends_s: Mapping[str, float | None] = MappingProxyType({}),
) -> list[BidEvent]:
    """Return the events that bring the holdings up to the facts, in a fixed order.

    Parameters
    ----------
    held : the holdings as the journal left them; not changed.
    facts : every instance of the job that the market reports, by order (`by_order`).
    tiers : tier by order, if known; others are transient if they have a bid.
    now_s : time of the observation.
    lease_s : see `unlisted`.
    lease_ends_s : end of the last lease that was written for each machine, by instance id, market seconds; None: none
        was. One that is not among them ended `lease_s` after the last tick at the latest.

    Notes
    -----
    Each machine is compared by itself. What concerns all that is left of an allocation is one event of the allocation
    (`NoticeSeen`, `AllocationGone`); what concerns a part of it is an event of each machine. A machine that lives is
    held, whatever was reported of it before; a noticed one from `NOTICE_GRACE_S` after its announced end on.

    A machine has ended when the market says so, or when the market, which lists ended instances for a while, no longer
    lists it an hour after the launch (before that the market may be slow to list it). Where it lists none at all, see
    `unlisted`: nothing is concluded from such an answer but `MachinesUnlisted`, once.
    A machine of a type that the job does not know is none of its allocations, and machines that are not reported
    completely yet become one when they are; they count as listed in the meantime. A purchase that the market does not
    list stays open: whether it was made is for the caller to find out.
    """
    if held.job_id is None:
        return []
    missing = unlisted(held, facts, now_s, lease_s)
    if missing:
        return [MachinesUnlisted(now_s, missing)] if held.unlisted_since_s is None else []
    events: list[BidEvent] = []
    positions = held.positions
    for order_id in sorted({*facts, *positions}):
        group = facts.get(order_id, ())
        position = positions.get(order_id)
        if position is None:
            if not group or group[0].market.instance_type not in held.types:
                continue
            if not all(fact.complete for fact in group):
                continue  # at what bid it was bought is not known yet
            bid_for = any(fact.bid_micros is not None for fact in group)
            tier = tiers.get(order_id, Tier.TRANSIENT if bid_for else Tier.RELIABLE)
            grant = grant_of(order_id, group, tier, now_s)
            events.append(grant)
            position = HeldAllocation(grant.allocation, {name: HeldMachine() for name in grant.instance_ids})
        latest_s = {name: _latest_s(held, position, name, now_s, lease_s, lease_ends_s) for name in position.living()}
        events += _machine_events(position, group, now_s, latest_s)
    return events


def _machine_events(
    position: HeldAllocation, group: Sequence[InstanceFact], now_s: int, latest_s: Mapping[str, int]
) -> list[BidEvent]:
    """Return the events that bring the machines of one allocation up to the facts.

    Parameters
    ----------
    latest_s : when each machine has ended at the latest, if nobody saw its end.
    """
    name, was_gone = position.allocation.allocation_id, position.standing is AllocationState.GONE
    position = replace(position, machines=dict(position.machines))  # machines are named in the copy
    seen: list[str] = []
    noticed: dict[str, int] = {}
    ends: dict[str, _End] = {}
    joined: set[str] = set()
    for fact in group:
        machine_id = fact.instance_id
        is_unnamed = machine_id not in position.machines and bool(position.unnamed)
        if is_unnamed and was_gone and not fact.alive:
            continue
        if machine_id not in position.machines and not is_unnamed:
            joined.add(machine_id)
        machine = position.machine(machine_id)
        if not fact.alive:
            if machine.state is not MachineState.GONE:
                ends[machine_id] = _end(fact, position, now_s)
            continue
        takes_at_s = pending_notice_s(fact, now_s)
        outlived = machine.takes_at_s is not None and now_s >= machine.takes_at_s + NOTICE_GRACE_S
        if machine.state is MachineState.NOTICED:
            if outlived and takes_at_s is None:
                seen.append(machine_id)
            elif outlived and takes_at_s is not None:
                noticed[machine_id] = takes_at_s
            continue
        if machine.state is MachineState.GONE or is_unnamed or machine_id in joined:
            seen.append(machine_id)
        if takes_at_s is not None:
            noticed[machine_id] = takes_at_s
    if now_s - position.allocation.launched_at_s >= HOUR_S:
        listed = {fact.instance_id for fact in group}
        # for an unknown cause: it is charged as one that the job has terminated
        forgotten = [machine_id for machine_id in position.living() if machine_id not in listed]
        ends |= {machine_id: (latest_s[machine_id], EndCause.USER) for machine_id in forgotten}
    return [
        *(MachineSeen(now_s, name, machine_id) for machine_id in seen),
        *_notices(position, seen, noticed, ends, now_s),
        *_ends(position, seen, ends, joined),
        *_useless_launches(position, group, ends, now_s),
    ]


def _notices(
    position: HeldAllocation, seen: Sequence[str], noticed: Mapping[str, int], ends: Mapping[str, _End], now_s: int
) -> list[BidEvent]:
    """Return the notices: one of the allocation, if they concern all of it that is held and does not end now."""
    name = position.allocation.allocation_id
    held = {machine_id for machine_id, machine in position.machines.items() if machine.state is MachineState.HELD}
    if noticed and (held | {*seen}) - ends.keys() == noticed.keys():
        return [NoticeSeen(now_s, name, min(noticed.values()))]
    return [MachineNoticed(now_s, name, machine_id, takes_at_s) for machine_id, takes_at_s in sorted(noticed.items())]


def _ends(position: HeldAllocation, seen: Sequence[str], ends: Mapping[str, _End], joined: set[str]) -> list[BidEvent]:
    """Return the ends: one of the allocation, if nothing is left of it, after those that differ from it.

    A machine that was not known before (`joined`) has an event of its own, which names it.
    """
    name = position.allocation.allocation_id
    left = {*position.living(), *seen} - ends.keys()
    known_ends = [end for machine_id, end in ends.items() if machine_id not in joined]
    last: _End | None = None
    if known_ends and not left:
        last_s = max(at_s for at_s, _ in known_ends)
        last = (last_s, common_cause(cause for at_s, cause in known_ends if at_s == last_s))
    events: list[BidEvent] = [
        MachineGone(at_s, name, machine_id, cause)
        for machine_id, (at_s, cause) in sorted(ends.items())
        if machine_id in joined or (at_s, cause) != last
    ]
    return events if last is None else [*events, AllocationGone(last[0], name, last[1])]


def _useless_launches(
    position: HeldAllocation, group: Sequence[InstanceFact], ends: Mapping[str, _End], now_s: int
) -> list[BidEvent]:
    """Return the event that cools the market of machines that ran, and ended by themselves soon after their launch."""
    failed = [fact for fact in group if fact.instance_id in ends and is_failed_launch_of(fact, now_s)]
    why = ", ".join(f"{fact.instance_id}: {fact.end_reason}" for fact in failed if fact.end_cause is EndCause.USER)
    return [MarketCooled(now_s, position.allocation.market, f"ended soon after the launch: {why}")] if why else []


def is_failed_launch_of(fact: InstanceFact, now_s: int) -> bool:
    """Return whether an instance never ran, or ended by itself within `LAUNCH_S` of its launch: it was of no use."""
    if fact.alive or fact.end_cause is EndCause.EVICTED:
        return False
    if fact.end_cause is EndCause.FAILED and fact.end_reason != AT_LAUNCH:
        return True
    lived_s = (now_s if fact.ended_at_s is None else fact.ended_at_s) - fact.launched_at_s
    return lived_s <= LAUNCH_S and ended_by_itself(fact.end_reason)


def pending_notice_s(fact: InstanceFact, now_s: int) -> int | None:
    """Return when the market will take the machine; None also if it has let that time pass."""
    pending = fact.notice_at_s is not None and now_s < fact.notice_at_s + NOTICE_GRACE_S
    return fact.notice_at_s if pending else None


def _end(fact: InstanceFact, position: HeldAllocation, now_s: int) -> _End:
    """Return the end that a fact reports; not before the launch, whatever the market's clocks say."""
    at_s = now_s if fact.ended_at_s is None else fact.ended_at_s
    cause = fact.end_cause or EndCause.USER
    if cause is EndCause.FAILED and not is_failed_launch_of(fact, now_s):
        cause = EndCause.USER  # it ran, and was charged
    return max(at_s, position.allocation.launched_at_s), cause


def forgotten_ids(held: ReconciledHoldings, facts: Mapping[str, Sequence[InstanceFact]]) -> list[str]:
    """Return the machines that live by the book and that the market does not list."""
    listed = {fact.instance_id for group in facts.values() for fact in group}
    return sorted({name for position in held.positions.values() for name in position.living()} - listed)


def _latest_s(
    held: ReconciledHoldings,
    position: HeldAllocation,
    machine_id: str,
    now_s: int,
    lease_s: float,
    lease_ends_s: Mapping[str, float | None],
) -> int:
    """Return when a machine has ended at the latest, if nobody saw its end: at the end of its lease, or now.

    The ledger may then show more than the bill, never less.
    """
    launched_at_s = position.allocation.launched_at_s
    first_s = launched_at_s + FIRST_LEASE_S
    if machine_id in lease_ends_s:
        written_s = lease_ends_s[machine_id]
        lease_end_s = first_s if written_s is None else written_s
    else:
        lease_end_s = max((launched_at_s if held.ticked_at_s is None else held.ticked_at_s) + lease_s, first_s)
    return now_s if lease_end_s >= now_s else max(math.ceil(lease_end_s), launched_at_s)
