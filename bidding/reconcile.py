"""What the market's facts mean for what we believed: plan, requested and observed are compared, nothing is remembered.

The token of a purchase is its order's id, and an allocation is called after the order that bought it, so that a
purchase whose answer was lost is found again by looking.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from bidding.engine import BidEngine, Standing
from bidding.events import AllocationGone, AllocationGranted, AllocationRefused, Event, NoticeSeen
from bidding.model import Allocation, EndCause, InstanceFact, Tier


def allocation_of(facts: Sequence[InstanceFact], tier: Tier) -> Allocation:
    """Return the allocation that the instances of one purchase are."""
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
) -> list[Event]:
    """Return the events that bring the engine's picture up to the facts, in a fixed order.

    Parameters
    ----------
    engine : the engine as the journal left it; not changed.
    facts : every instance of the job that the market remembers, by token.
    tiers : tier by token, where it is known; others are transient.
    now_s : time of the observation.

    Notes
    -----
    An allocation is gone when none of its instances lives. A purchase of a closed job that the market does not know is
    abandoned.
    """
    events: list[Event] = []
    positions = engine.positions
    for token in sorted(facts):
        group = facts[token]
        gone = all(not fact.alive for fact in group)
        if token not in positions:
            allocation = allocation_of(group, tiers.get(token, Tier.TRANSIENT))
            events.append(AllocationGranted(now_s, token, allocation))
        elif positions[token].standing is Standing.GONE:
            continue
        if gone:
            events.append(_gone(token, group, now_s))
        elif token not in positions or positions[token].standing in (Standing.HELD, Standing.LAPSING):
            notices = [fact.notice_at_s for fact in group if fact.alive and fact.notice_at_s is not None]
            if notices:
                events.append(NoticeSeen(now_s, token, min(notices)))
    order = engine.open_order
    if order is not None and engine.closed and order.order_id not in facts:
        events.append(AllocationRefused(now_s, order.order_id, "Abandoned", "the job was closed before it was bought"))
    return events


def _gone(token: str, group: Sequence[InstanceFact], now_s: int) -> AllocationGone:
    ends = [fact.ended_at_s if fact.ended_at_s is not None else now_s for fact in group]
    taken = any(fact.end_cause is EndCause.EVICTED for fact in group)
    return AllocationGone(max(ends), token, EndCause.EVICTED if taken else EndCause.USER)
