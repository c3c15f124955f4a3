"""The journal of a sweep: its events and orders as JSON records and back, and their replay into an engine.

The form is that of `bidding.engine.journal`; events of machines are the same records as a job's.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from proteus_spot.bidding.engine.events import (
    AllocationGone,
    AllocationGranted,
    AllocationRefused,
    BidEvent,
    MachineGone,
    MachineNoticed,
    MachineSeen,
    MachinesUnlisted,
    MarketCooled,
    NoticeSeen,
)
from proteus_spot.bidding.engine.journal import READERS, Readers, read_events, read_record, to_record
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.tuning.sweep_engine import SweepEngine
from proteus_spot.bidding.tuning.sweep_events import (
    Offer,
    SamplerFailed,
    Setting,
    SweepClosed,
    SweepExtended,
    SweepOpened,
    SweepReopened,
    SweepStopRequested,
    SweepTick,
    TrialReported,
    TrialsProposed,
)
from proteus_spot.bidding.tuning.sweep_orders import Deploy, Finish, PauseTrial, Release, SweepOrder
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan
from proteus_spot.bidding.tuning.trials import SweepState

__all__ = ["catch_up", "from_record", "replay", "to_record"]

_EVENTS = (
    SweepOpened,
    TrialsProposed,
    SamplerFailed,
    TrialReported,
    SweepTick,
    SweepStopRequested,
    SweepReopened,
    SweepExtended,
    SweepClosed,
    AllocationGranted,
    AllocationRefused,
    NoticeSeen,
    AllocationGone,
    MachineSeen,
    MachineNoticed,
    MachineGone,
    MachinesUnlisted,
    MarketCooled,
)
_ORDERS: Mapping[str, type] = MappingProxyType({kind.__name__: kind for kind in (Deploy, PauseTrial, Release, Finish)})
_KINDS: Mapping[str, type] = MappingProxyType({**{kind.__name__: kind for kind in _EVENTS}, **_ORDERS})

_READERS: Readers = MappingProxyType(
    {
        **READERS,
        "offers": lambda value: {Market.parse(name): Offer(**offer) for name, offer in value.items()},
        "plan": SweepPlan.from_record,
        "settings": lambda value: tuple(Setting(**setting) for setting in value),
        "state": SweepState,
        "values": lambda value: tuple((step, number) for step, number in value),
    }
)


def from_record(record: Mapping[str, Any]) -> BidEvent | SweepOrder:
    """Return the event or order that `to_record` wrote.

    Raises
    ------
    JournalError
        If the schema or the kind is unknown, or a field is missing or invalid.
    """
    item: BidEvent | SweepOrder = read_record(record, _KINDS, _READERS)
    return item


def replay(records: Iterable[Mapping[str, Any]]) -> SweepEngine:
    """Return the engine that the events among `records` lead to; orders are its output, and are skipped."""
    engine = SweepEngine()
    catch_up(engine, records)
    return engine


def catch_up(engine: SweepEngine, records: Iterable[Mapping[str, Any]]) -> None:
    """Apply the events among `records`, which follow those that `engine` has seen.

    Where orders are among them, the deployments that were recorded count, not those that the events lead to: another
    version of the program may have decided otherwise.
    """
    whole = list(records)
    if not any(_is_order(record) for record in whole):
        for event in read_events(whole, _KINDS, _READERS):
            engine.handle(event)
        return
    rest = deque(whole)
    while rest:
        record = rest.popleft()
        if _is_order(record):
            continue
        known = set(engine.sweep.deployments)
        orders = engine.handle(read_record(record, _KINDS, _READERS))
        recorded = []
        while rest and _is_order(rest[0]):
            recorded.append(from_record(rest.popleft()))
        decided = [order for order in orders if isinstance(order, Deploy) and order.order_id not in known]
        engine.sweep.follow(decided, [order for order in recorded if isinstance(order, Deploy)])


def _is_order(record: Any) -> bool:
    return isinstance(record, Mapping) and record.get("kind") in _ORDERS
