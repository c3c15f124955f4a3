"""Comparison of the engine's state with the market's facts, as events; stateless.

The token of a purchase is its order's id, and an allocation is named after the order that bought it, so a purchase
whose answer was lost is found by a look-up.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from bidding.engine.engine import AllocationState, BidEngine, HeldAllocation
from bidding.engine.events import AllocationGone, AllocationGranted, AllocationRefused, BidEvent, NoticeSeen
from bidding.market.model import HOUR_S, Allocation, EndCause, InstanceFact, Tier

#: Code of an order that was never carried out, as opposed to one that the market refused.
ABANDONED = "Abandoned"


def allocation_of(facts: Sequence[InstanceFact], tier: Tier) -> Allocation:
    """Return the allocation that the instances of one purchase form."""
    first = min(facts, key=lambda fact: (fact.launched_at_s, fact.instance_id))
    return Allocation(
        allocation_id=first.token,
        market=first.market,
        count=len(facts),
        launched_at_s=first.launched_at_s,
        tier=tier,
        bid_micros=first.bid_micros,
    )


def by_token(facts: Iterable[InstanceFact]) -> dict[str, list[InstanceFact]]:
    """Return the instances of each purchase, by its token, in the order of their ids."""
    ordered = sorted(facts, key=lambda fact: (fact.token, fact.instance_id))
    return {token: list(group) for token, group in groupby(ordered, key=lambda fact: fact.token)}


def reconcile(
    engine: BidEngine, facts: Mapping[str, Sequence[InstanceFact]], tiers: Mapping[str, Tier], now_s: int
) -> list[BidEvent]:
    """Return the events that bring the engine's state up to the facts, in a fixed order.

    Parameters
    ----------
    engine : the engine as the journal left it; not changed.
    facts : every instance of the job that the market reports, by token.
    tiers : tier by token, if known; others are transient if they have a bid.
    now_s : time of the observation.

    Notes
    -----
    The engine treats an allocation as a unit: while one of its instances lives it is held, with the count of its
    purchase, which the loss of single instances does not lower. The ledger accounts for the cost of those.

    An allocation has ended when none of its instances lives, or when the market, which lists ended instances for a
    while, no longer lists any of them an hour after the launch (before that the market may be slow to list them).
    A purchase of a closed job that the market does not list is abandoned.
    """
    events: list[BidEvent] = []
    positions = engine.positions
    for token in sorted({*facts, *positions}):
        group = facts.get(token, ())
        if not group:
            if token in positions and _forgotten(positions[token], now_s):
                events.append(_lost(positions[token], now_s))
            continue
        gone = all(not fact.alive for fact in group)
        if token not in positions:
            bid_for = any(fact.bid_micros is not None for fact in group)
            allocation = allocation_of(group, tiers.get(token, Tier.TRANSIENT if bid_for else Tier.RELIABLE))
            events.append(AllocationGranted(now_s, token, allocation))
        elif positions[token].standing is AllocationState.GONE:
            continue
        if gone:
            events.append(_gone(token, group, now_s))
        elif token not in positions or positions[token].standing in (AllocationState.HELD, AllocationState.LAPSING):
            notices = [fact.notice_at_s for fact in group if fact.alive and fact.notice_at_s is not None]
            if notices:
                events.append(NoticeSeen(now_s, token, min(notices)))
    order = engine.open_order
    if order is not None and engine.closed and not facts.get(order.order_id):
        events.append(AllocationRefused(now_s, order.order_id, ABANDONED, "the job was closed before it was bought"))
    return events


def _forgotten(position: HeldAllocation, now_s: int) -> bool:
    return position.standing is not AllocationState.GONE and now_s - position.allocation.launched_at_s >= HOUR_S


def _lost(position: HeldAllocation, now_s: int) -> AllocationGone:
    """Return the end of an allocation whose end was not observed.

    It may have ended at any time since it was last seen, for an unknown cause. It is assumed to have lived until now
    and to have been terminated by the job: the ledger may then show more than the bill, never less.
    """
    return AllocationGone(now_s, position.allocation.allocation_id, EndCause.USER)


def _gone(token: str, group: Sequence[InstanceFact], now_s: int) -> AllocationGone:
    """Return the end of an allocation: that of its last instances, with its cause."""
    ends = [(fact.ended_at_s if fact.ended_at_s is not None else now_s, fact.end_cause) for fact in group]
    last_s = max(at_s for at_s, _ in ends)
    taken = all(cause is EndCause.EVICTED for at_s, cause in ends if at_s == last_s)
    return AllocationGone(last_s, token, EndCause.EVICTED if taken else EndCause.USER)
