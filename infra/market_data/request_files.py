"""Requests for spot machines from the command line or a file; every fault is one line."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from proteus_spot.bidding.billing.bulk_requests import SpotRequest
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR, Micros, usd
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import Source, read_text
from proteus_spot.infra.structured_text import unique_keys

#: Columns of a row; one of the last two may be empty or missing.
REQUEST_COLUMNS = ("type", "zone", "count", "bid", "at", "until", "hours")
_OPTIONAL = ("until", "hours")

#: Maximum bid, count and hours; larger values are mistakes.
_MOST_MICROS = 1_000_000 * MICROS_PER_DOLLAR
_MOST_COUNT = 1_000_000
_MOST_HOURS = 20 * 8766

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class Place:
    """The location of a field for error messages: an option, or a row of a file."""

    row: str = ""
    mark: str = ""

    def fault(self, name: str, shown: str, complaint: str) -> InputError:
        """Return the error for the field `name` with the value `shown` (empty if it is missing)."""
        return InputError(f"{self.row}{self.mark}{name}{' ' if shown else ''}{shown[:60]}: {complaint}")


#: Location of fields that are options of the command.
OPTIONS = Place(mark="--")


def read_requests(source: Source, markets: Sequence[Market], prices: Source) -> list[SpotRequest]:
    """Return the requests of a file, in order.

    Parameters
    ----------
    source : path or fsspec URL, plain or gzipped. CSV with the columns ``type,zone,count,bid,at,until,hours``, in any
        order; or JSON lines, one object each with these names, numbers as numbers or as text. One of ``until`` and
        ``hours`` may be empty or missing in a row; other columns are ignored.
    markets, prices : the markets that have prices, and the name of the price file.

    Raises
    ------
    InputError
        One line with the file, the row (a line of the file, the header being row 1) and the fix.
    """
    text = read_text(source)
    head = text.lstrip()[:1]
    if not head:
        raise InputError(f"{source}: is empty; give requests, with the columns {','.join(REQUEST_COLUMNS)}")
    known = {(market.instance_type, market.zone): market for market in markets}
    rows = _json_rows(source, text) if head in "{[" else _csv_rows(source, text)
    found = [parse_request(fields, Place(f"{source}: row {row}: "), known, prices) for row, fields in rows]
    if not found:
        raise InputError(f"{source}: has a header and no rows; give a file with requests")
    return found


def parse_request(
    fields: Mapping[str, str], place: Place, known: Mapping[tuple[str, str], Market], prices: Source
) -> SpotRequest:
    """Return the request of `fields`, named as in `REQUEST_COLUMNS`; a missing field is absent or empty.

    Parameters
    ----------
    known : the markets of `prices`, by type and zone.

    Raises
    ------
    InputError
        With the location, the field and the fix.
    """
    texts = {name: fields.get(name, "").strip() for name in REQUEST_COLUMNS}
    for name in REQUEST_COLUMNS:
        if not texts[name] and name not in _OPTIONAL:
            raise place.fault(name, "", "is missing; give one")
    market = known.get((texts["type"], texts["zone"]))
    if market is None:
        raise place.fault(
            "market",
            f"{texts['type']}/{texts['zone']}",
            f"has no prices in {prices}; name one that `proteus traces describe` lists",
        )
    count = _count(place, texts["count"])
    bid_micros = amount_micros(place, "bid", texts["bid"])
    at_s = _moment_s(place, "at", texts["at"])
    if not texts["until"] and not texts["hours"]:
        raise InputError(
            f"{place.row}{place.mark}until and {place.mark}hours are both missing; give one of them, or both"
        )
    leaves_at_s = _moment_s(place, "until", texts["until"]) if texts["until"] else None
    if leaves_at_s is not None and leaves_at_s < at_s:
        raise place.fault("until", texts["until"], f"is before {place.mark}at {texts['at']}; give a later time")
    if leaves_at_s is not None and leaves_at_s - at_s > _MOST_HOURS * HOUR_S:
        raise place.fault("until", texts["until"], "is more than 20 years away; fix the year")
    window_s = duration_s(place, "hours", texts["hours"]) if texts["hours"] else None
    return SpotRequest(market, count, bid_micros, at_s, leaves_at_s, None if window_s is None else at_s + window_s)


def amount_micros(place: Place, name: str, shown: str) -> Micros:
    """Return an amount in dollars as whole micro-dollars, 0 or more; `InputError` for anything else."""
    dollars = _decimal(place, name, shown, "dollars per instance-hour, as in 0.0324")
    if dollars < 0:
        raise place.fault(name, shown, "is below 0; write dollars per instance-hour, as in 0.0324")
    if dollars * MICROS_PER_DOLLAR > _MOST_MICROS:
        raise place.fault(name, shown, f"is above {usd(_MOST_MICROS, 0)} an hour; write dollars, as in 0.0324")
    micros = dollars * MICROS_PER_DOLLAR
    if micros != micros.to_integral_value():
        raise place.fault(name, shown, "has parts of a micro-dollar; write six places at most, as in 0.032401")
    return int(micros)


def duration_s(place: Place, name: str, shown: str) -> int:
    """Return hours in seconds, rounded half to even; `InputError` if less than 1 s or more than 20 years."""
    hours = _decimal(place, name, shown, "hours, as in 2 or 0.5")
    if hours > _MOST_HOURS:
        raise place.fault(name, shown, f"is more than 20 years; give at most {_MOST_HOURS}")
    seconds = int((hours * HOUR_S).to_integral_value(ROUND_HALF_EVEN)) if hours > 0 else 0
    if seconds < 1:
        raise place.fault(name, shown, "is less than a second; give hours above 0, as in 2 or 0.5")
    return seconds


def _decimal(place: Place, name: str, shown: str, wanted: str) -> Decimal:
    if not _NUMBER.fullmatch(shown):
        raise place.fault(name, shown, f"is not a number; write {wanted}")
    value = Decimal(shown)
    # Refuse numbers of excessive length or exponent before computing with them.
    if len(shown) > 40 or value.adjusted() > 30 or value.adjusted() < -30:
        raise place.fault(name, shown, f"is not a number of sensible size; write {wanted}")
    return value


def _count(place: Place, shown: str) -> int:
    if not re.fullmatch(r"\+?[0-9]{1,18}", shown) or not 1 <= int(shown) <= _MOST_COUNT:
        raise place.fault("count", shown, f"is not a number of instances; give 1 to {_MOST_COUNT}")
    return int(shown)


def _moment_s(place: Place, name: str, shown: str) -> int:
    """Return a time in whole seconds since the epoch; fractions of a second are dropped, as in price files."""
    try:
        moment = datetime.fromisoformat(shown)
    except ValueError:
        raise place.fault(name, shown, "is not a time; write it as 2016-04-01T12:30:00Z") from None
    if moment.tzinfo is None:
        raise place.fault(name, shown, "has no zone; write it as 2016-04-01T12:30:00Z")
    return (moment - _EPOCH) // _SECOND


# Files


def _csv_rows(source: Source, text: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    try:
        names = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = names
        missing = [name for name in REQUEST_COLUMNS if name not in (*names, *_OPTIONAL)]
        if not any(name in names for name in _OPTIONAL):
            missing += _OPTIONAL[:1]
        if missing:
            raise InputError(
                f"{source}: the header (row 1) lacks {', '.join(missing)}; the columns are {','.join(REQUEST_COLUMNS)}"
            )
        if twice := [name for name in REQUEST_COLUMNS if names.count(name) > 1]:
            raise InputError(f"{source}: the header (row 1) has {', '.join(twice)} twice; keep one")
        for fields in reader:
            if None in fields or None in fields.values():
                raise InputError(
                    f"{source}: row {reader.line_num}: has another number of columns than the header; fix the row"
                )
            yield reader.line_num, fields
    except csv.Error as error:
        raise InputError(f"{source}: row {reader.reader.line_num}: {error}; fix the row") from None


def _json_rows(source: Source, text: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    # Numbers stay the text that they are: a bid is exact.
    decoder = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=unique_keys)
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            entry = decoder.decode(line)
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else getattr(error, "msg", str(error))
            raise InputError(f"{source}: row {number}: is not JSON ({reason}); write an object on each line") from None
        if not isinstance(entry, dict):
            raise InputError(f"{source}: row {number}: is not an object; write one on each line, as in {_EXAMPLE}")
        yield number, {name: _text(source, number, name, entry.get(name)) for name in REQUEST_COLUMNS}


def _text(source: Source, row: int, name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise InputError(f"{source}: row {row}: {name} is {json.dumps(value)[:40]}; write a number or a text")


_EXAMPLE = (
    '{"type": "c4.large", "zone": "us-east-1a", "count": 4, "bid": 0.05, "at": "2016-04-01T12:30:00Z", "hours": 2}'
)
