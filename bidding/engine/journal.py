"""The journal's format: events and orders as JSON objects and back, and their replay into an engine.

A record is ``{"schema": 1, "kind": name, …fields}``. Infinite figures are written as null, so that any JSON reader can
read them.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from proteus_spot.bidding.economics.budget import Spending
from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.engine.engine import BidEngine
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
    NodesOffered,
    NoticeSeen,
    TickDue,
)
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Order, Renew, Wait
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.facts.known import MarketKnown
from proteus_spot.bidding.facts.rates import TypeSpeed
from proteus_spot.bidding.facts.records import Source
from proteus_spot.bidding.forecast import Forecast, MarketFeatures
from proteus_spot.bidding.market.model import Allocation, EndCause, InstanceType, Market, Tier
from proteus_spot.bidding.policies.base import Candidate, Choice, Decision

SCHEMA = 1

_EVENTS: Mapping[str, type] = MappingProxyType(
    {
        kind.__name__: kind
        for kind in (
            JobOpened,
            TickDue,
            AllocationGranted,
            AllocationRefused,
            NoticeSeen,
            AllocationGone,
            AllocationHandedOver,
            AllocationTaken,
            MachineSeen,
            MachineNoticed,
            MachineGone,
            MachinesUnlisted,
            MarketCooled,
            NodesOffered,
            JobReopened,
            JobClosed,
        )
    }
)
_ORDERS: Mapping[str, type] = MappingProxyType({kind.__name__: kind for kind in (Acquire, Renew, Lapse, Wait)})
_KINDS: Mapping[str, type] = MappingProxyType({**_EVENTS, **_ORDERS})

Readers = Mapping[str, Callable[[Any], Any]]


class JournalError(ValueError):
    """A record that this program cannot read; the message is one line."""


def to_record(item: Any) -> dict[str, Any]:
    """Return an event or an order as a JSON object."""
    record: dict[str, Any] = {"schema": SCHEMA, "kind": type(item).__name__}
    for field in fields(item):
        record[field.name] = _plain(getattr(item, field.name))
    return record


def from_record(record: Mapping[str, Any]) -> BidEvent | Order:
    """Return the event or order that `to_record` wrote; for errors see `read_record`."""
    item: BidEvent | Order = read_record(record, _KINDS, READERS)
    return item


def read_record(record: Mapping[str, Any], kinds: Mapping[str, type], readers: Readers) -> Any:
    """Return the event or order of a record.

    Parameters
    ----------
    kinds : the dataclasses that it may hold, by name.
    readers : field name -> reader of its JSON; others are taken as they are.

    Raises
    ------
    JournalError
        If the schema or the kind is unknown, or a field is missing or invalid. Of the fields with a default those of
        `_LATER` may be missing: the program that wrote the record did not have them.
    """
    if not isinstance(record, Mapping):
        raise JournalError(f"journal: a record is an object, not {record!r}")
    if record.get("schema") != SCHEMA:
        raise JournalError(f"journal: schema {record.get('schema')!r} is not {SCHEMA}; use the program that wrote it")
    name = str(record.get("kind"))
    kind = kinds.get(name)
    if kind is None:
        raise JournalError(f"journal: unknown kind {name!r}")
    try:
        values = {
            field.name: readers.get(field.name, _same)(record[field.name])
            for field in fields(kind)
            if field.name in record or not _is_later(field)
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JournalError(f"journal: a {name} record cannot be read: {error!r}") from error
    return kind(**values)


def replay(records: Iterable[Mapping[str, Any]]) -> BidEngine:
    """Return the engine that the events among `records` lead to; orders are its output, and are skipped."""
    engine = BidEngine()
    catch_up(engine, records)
    return engine


def catch_up(engine: BidEngine, records: Iterable[Mapping[str, Any]]) -> None:
    """Apply the events among `records`, which follow those that `engine` has seen."""
    for event in read_events(records, _KINDS, READERS):
        engine.handle(event)


def read_events(
    records: Iterable[Mapping[str, Any]], kinds: Mapping[str, type], readers: Readers
) -> Iterator[BidEvent]:
    """Yield the events among `records`; orders are skipped. For the parameters and errors see `read_record`."""
    for record in records:
        kind = kinds.get(str(record.get("kind"))) if isinstance(record, Mapping) else None
        if kind is None or issubclass(kind, BidEvent):
            yield read_record(record, kinds, readers)


def _plain(value: Any) -> Any:
    """Return `value` as JSON-able values."""
    match value:
        case Market():
            return str(value)
        case EvictionTable() | Forecast():
            return value.to_json()
        case MarketFeatures() | MarketKnown():
            return value.to_record()
        case Allocation():
            return asdict(value) | {"market": str(value.market), "tier": str(value.tier)}
        case InstanceType() | JobModel() | Spending() | TimeLeft():
            return asdict(value)
        case StrEnum():
            return str(value)
        case float() if not math.isfinite(value):
            return None
        case Mapping():
            return {str(key): _plain(item) for key, item in sorted(value.items())}
        case tuple() | list():
            return [_plain(item) for item in value]
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value


#: Fields that were added after records had been written.
_LATER = frozenset({"known", "learns", "left_vcpus", "on_demand_spending", "speeds"})


def _is_later(field: Field[Any]) -> bool:
    has_default = field.default is not MISSING or field.default_factory is not MISSING
    return has_default and field.name in _LATER


def _same(value: Any) -> Any:
    return value


def _allocation(value: Mapping[str, Any]) -> Allocation:
    return Allocation(**{**value, "market": Market.parse(value["market"]), "tier": Tier(value["tier"])})


def _figure(value: float | None) -> float:
    return math.inf if value is None else float(value)


def _candidate(value: Mapping[str, Any]) -> Candidate:
    read = {**value, "market": Market.parse(value["market"]), "cost_per_work": _figure(value["cost_per_work"])}
    return Candidate(**read)


def _decision(value: Mapping[str, Any]) -> Decision:
    return Decision(
        verdict=Choice(value["verdict"]),
        reason=value["reason"],
        cost_per_work=_figure(value["cost_per_work"]),
        candidates=tuple(map(_candidate, value["candidates"])),
    )


#: Field name -> reader of its JSON; a name means the same in every event and order.
READERS: Readers = MappingProxyType(
    {
        "allocation": _allocation,
        "cause": EndCause,
        "decision": _decision,
        "evictions": EvictionTable.from_json,
        "foresight": lambda value: None if value is None else Forecast.from_json(value),
        "instance_ids": tuple,
        "job": JobModel.from_record,
        "known": lambda value: {Market.parse(name): MarketKnown.from_record(each) for name, each in value.items()},
        "left_out": lambda value: {Market.parse(name): str(why) for name, why in value.items()},
        "market": Market.parse,
        "markets": lambda value: tuple(map(Market.parse, value)),
        "on_demand_spending": lambda value: None if value is None else Spending(**value),
        "prices": lambda value: {Market.parse(name): price for name, price in value.items()},
        "signals": lambda value: {
            Market.parse(name): MarketFeatures.from_record(signal) for name, signal in value.items()
        },
        "speeds": lambda value: {
            name: TypeSpeed(**{**each, "source": Source(each["source"])}) for name, each in value.items()
        },
        "spending": lambda value: None if value is None else Spending(**value),
        "time_left": lambda value: None if value is None else TimeLeft(**value),
        "types": lambda value: {name: InstanceType(**kind) for name, kind in value.items()},
    }
)
