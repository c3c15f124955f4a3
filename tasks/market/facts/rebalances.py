"""Rebalance recommendations of machines of jobs, recorded as facts of their markets."""

from collections.abc import Iterable, Mapping

from proteus_spot.bidding.facts.learning import REMEMBERED_S
from proteus_spot.bidding.facts.records import Rebalance, Source
from proteus_spot.infra.state.records import AllocationRecord
from proteus_spot.tasks.task_runtime import current_runtime


def record_rebalances(machines: Iterable[AllocationRecord], at_s: Mapping[str, int], source: Source) -> None:
    """Record when a rebalance was recommended for spot machines; those that are not in the book are left alone.

    Parameters
    ----------
    machines : where the machines are looked for.
    at_s : second of the recommendation, by instance id; at most now, and at least the launch, whatever is said.
    """
    now_s, store = current_runtime().now_s(), current_runtime().store
    found = [
        Rebalance(max(min(at_s[name], now_s), record.allocation.launched_at_s), record.allocation.market, name, source)
        for record in machines
        if record.allocation.bid_micros is not None
        for name in record.instance_ids
        if name in at_s
    ]
    known = {each.instance_id for each in store.markets.rebalances([each.market for each in found], 0)}
    if new := [each for each in found if each.instance_id not in known and each.at_s > now_s - REMEMBERED_S]:
        store.markets.record_rebalances(new)
