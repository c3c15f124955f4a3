"""The state of an engine as JSON, which saves replaying a long journal.

Written is whatever the attributes of its holdings hold: plain values, collections, enumerations and dataclasses, each
with its type. The event that opened the job, which is by far the largest part and never changes, is left to the
journal. A program reads only the snapshots that it wrote itself; the caller compares versions.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

from proteus_spot.bidding.engine import allocations, events, orders
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import JobOpened
from proteus_spot.bidding.market import model
from proteus_spot.bidding.policies import base

#: Key of an object that says what it was.
_TYPE = "$"
#: Attribute of the event that opened the job.
_OPENED = "_opened"
#: Name -> class, of the dataclasses and enumerations that the engine's state is made of.
_CLASSES: Mapping[str, type] = MappingProxyType(
    {
        kind.__name__: kind
        for module in (model, base, events, orders, allocations)
        for kind in vars(module).values()
        if isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, Enum))
    }
)
#: Name -> the fields of those that are dataclasses; `fields` would take most of the time of reading a snapshot.
_FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {name: tuple(field.name for field in fields(kind)) for name, kind in _CLASSES.items() if is_dataclass(kind)}
)


class SnapshotError(ValueError):
    """A state that cannot be written, or that this program cannot read; the message is one line."""


def to_snapshot(source: BidEngine) -> dict[str, Any]:
    """Return the state of an engine as a JSON object, without the event that opened its job.

    Raises
    ------
    SnapshotError
        If an attribute holds a value of a type that is not known here.
    """
    return {name: _plain(value) for name, value in vars(source.holdings).items() if name != _OPENED}


def from_snapshot(snapshot: Mapping[str, Any], opened: JobOpened | None) -> BidEngine:
    """Return the engine that `to_snapshot` saw.

    Parameters
    ----------
    opened : the event that opened the job; None if it was not opened.

    Raises
    ------
    SnapshotError
        If the snapshot is damaged, or of an engine with other attributes.
    """
    made = BidEngine()
    if opened is not None:
        made.handle(opened)
    wanted = set(vars(made.holdings)) - {_OPENED}
    if set(snapshot) != wanted:
        raise SnapshotError(f"snapshot: holds {sorted(snapshot)}, and an engine has {sorted(wanted)}")
    try:
        for name, value in snapshot.items():
            setattr(made.holdings, name, _value(value))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SnapshotError(f"snapshot: cannot be read: {error!r}") from error
    return made


def _plain(value: Any) -> Any:
    match value:
        case Enum():
            return {_TYPE: _name(value), "value": value.value}
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {_TYPE: "float", "value": str(value)}
        case list():
            return [_plain(item) for item in value]
        case tuple():
            return {_TYPE: "tuple", "items": [_plain(item) for item in value]}
        case set() | frozenset():
            items = sorted((_plain(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
            return {_TYPE: type(value).__name__, "items": items}
        case dict() | MappingProxyType():
            return {_TYPE: "dict", "items": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if is_dataclass(value) and not isinstance(value, type):
        name = _name(value)
        return {_TYPE: name} | {field: _plain(getattr(value, field)) for field in _FIELDS[name]}
    raise SnapshotError(f"snapshot: a {type(value).__name__} cannot be written")


def _name(value: Any) -> str:
    kind = type(value)
    if _CLASSES.get(kind.__name__) is not kind:
        raise SnapshotError(f"snapshot: a {kind.__name__} cannot be written")
    return str(kind.__name__)


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    match plain[_TYPE]:
        case "float":
            return float(plain["value"])
        case "tuple":
            return tuple(_value(item) for item in plain["items"])
        case "set":
            return {_value(item) for item in plain["items"]}
        case "frozenset":
            return frozenset(_value(item) for item in plain["items"])
        case "dict":
            return {_value(key): _value(item) for key, item in plain["items"]}
    kind: Any = _CLASSES[plain[_TYPE]]
    if issubclass(kind, Enum):
        return kind(plain["value"])
    made = object.__new__(kind)  # its fields are as they were, whatever the class computes when one is made
    for field in _FIELDS[plain[_TYPE]]:
        object.__setattr__(made, field, _value(plain[field]))
    return made
