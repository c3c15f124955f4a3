"""Bills of requests for spot machines on recorded prices."""

from collections.abc import Iterable
from datetime import UTC, datetime

from proteus_spot.bidding.billing import Charge
from proteus_spot.bidding.billing.bulk_requests import Bill, SpotRequest
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR, Micros
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.request_files import OPTIONS, parse_request


def the_request(traces: TraceSet, prices: str, *, market: str, **fields: str) -> SpotRequest:
    """Return the request of the command's options.

    `fields` are those of `infra.market_data.request_files.REQUEST_COLUMNS`.

    Raises
    ------
    InputError
        Naming the option.
    """
    try:
        asked = Market.parse(market)
    except ValueError as error:
        raise InputError(f"--market: {error}") from None
    markets = {(each.instance_type, each.zone): each for each in traces}
    return parse_request(fields | {"type": asked.instance_type, "zone": asked.zone}, OPTIONS, markets, prices)


# For programs


def as_json(bill: Bill) -> str:
    """Return a bill as a readable JSON object: a line for each figure and each charge."""
    charges = ",\n".join(f"    {_charge(charge)}" for charge in bill.charges)
    return "{\n  " + ",\n  ".join(_members(bill, f"[\n{charges}\n  ]" if charges else "[]")) + "\n}\n"


def as_json_line(bill: Bill) -> str:
    """Return a bill as a JSON object on one line."""
    return "{" + ", ".join(_members(bill, f"[{', '.join(map(_charge, bill.charges))}]")) + "}"


def as_json_list(lines: Iterable[str]) -> str:
    """Return a JSON list of what `as_json_line` gave, an object on each line."""
    return "[\n" + ",\n".join(lines) + "\n]\n"


def iso(at_s: int) -> str:
    """Return a time as in ``2016-04-01T12:30:00Z``."""
    return datetime.fromtimestamp(at_s, UTC).isoformat()[:19] + "Z"


def _members(bill: Bill, charges: str) -> list[str]:
    # Dollars are written from the integers: a float would show its own digits.
    return [
        f'"granted": {_truth(bill.granted)}',
        f'"evicted_at": {_moment(bill.evicted_at_s)}',
        f'"ended_at": {_moment(bill.ended_at_s)}',
        f'"charges": {charges}',
        f'"refunded_usd": {_dollars(bill.refunded_micros)}',
        f'"total_usd": {_dollars(bill.total_micros)}',
        f'"total_prorata_usd": {_dollars(bill.total_prorata_micros)}',
        f'"usable_s": {bill.usable_s}',
    ]


def _charge(charge: Charge) -> str:
    return (
        f'{{"hour_start": "{iso(charge.hour_start_s)}", "price": {_dollars(charge.price_micros)}, '
        f'"amount_usd": {_dollars(charge.amount_micros)}, "refunded": {_truth(charge.refunded)}}}'
    )


def _dollars(micros: Micros) -> str:
    whole, rest = divmod(micros, MICROS_PER_DOLLAR)
    return f"{whole}.{rest:06}"


def _moment(at_s: int | None) -> str:
    return "null" if at_s is None else f'"{iso(at_s)}"'


def _truth(value: bool) -> str:
    return "true" if value else "false"
