"""The prices that the hours of an allocation are charged at, also where the market does not report one.

An hour whose price is not known is charged at the bid, which no price that is paid can pass; on demand, at the price
with which the job was planned. The note of its line says so (`is_provisional`), and a further line corrects it when the
price is known.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from proteus_spot.bidding.billing import BillingModel, Flat, OnDemandHourly, OnDemandPerSecond
from proteus_spot.bidding.market.catalog import Catalog
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Trace
from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.state.records import AllocationRecord, LedgerLine

#: Notes of charges for the seconds of an hour, booked when the hour is over.
BY_SECOND = "spot, by the second"
ON_DEMAND_BY_SECOND = "on demand, by the second"
_PROVISIONAL = "; provisional: its price is not known"
_CORRECTED = "; corrected: its price is known"

#: Returns the on-demand price with which a job was planned; None where there is none.
Planned = Callable[[Market], Micros | None]


class BillingError(ProteusError):
    """The cost of an allocation cannot be computed because a price is missing."""


@dataclass(frozen=True, slots=True)
class Charging:
    """How an allocation is charged, and the hours whose price is provisional; None: all are."""

    model: BillingModel
    trace: Trace
    provisional: frozenset[int] | None = frozenset()

    def note(self, note: str, hour_index: int) -> str:
        """Return the note of a charge for an hour."""
        return note + _PROVISIONAL if self.provisional is None or hour_index in self.provisional else note


def is_provisional(line: LedgerLine) -> bool:
    """Return whether a charge was booked without its price."""
    return line.note.endswith(_PROVISIONAL)


def corrected(line: LedgerLine) -> str:
    """Return the note of the line that brings a provisional charge to the price of `line`."""
    return line.note + _CORRECTED


def is_correction_of_price(line: LedgerLine) -> bool:
    """Return whether a line has brought a provisional charge to its price."""
    return line.note.endswith(_CORRECTED)


def is_by_second(line: LedgerLine) -> bool:
    """Return whether the line charges the seconds of an hour, not the whole."""
    return line.note.removesuffix(_PROVISIONAL).removesuffix(_CORRECTED) in (BY_SECOND, ON_DEMAND_BY_SECOND)


def charging_model(
    record: AllocationRecord, catalog: Catalog, spot_billing: BillingModel, planned: Planned = lambda market: None
) -> BillingModel:
    """Return how an allocation is charged: machines on demand by the hour or by the second, as spot machines are.

    Raises
    ------
    BillingError
        If neither the catalogue has an on-demand price on the day of the launch, nor the job was planned with one.
    """
    if record.allocation.bid_micros is not None:
        return spot_billing
    day = datetime.fromtimestamp(record.allocation.launched_at_s, UTC).date()
    kind = catalog.find(record.allocation.market, day)
    price_micros = planned(record.allocation.market) if kind is None else kind.on_demand_micros
    if price_micros is None:
        raise BillingError(
            f"allocation {record.allocation_id}: the catalogue has no on-demand price of {record.allocation.market} "
            f"for {day}; add a row"
        )
    return OnDemandPerSecond(price_micros) if spot_billing.by_second else OnDemandHourly(price_micros)


def charging(
    record: AllocationRecord,
    trace: Trace,
    catalog: Catalog,
    spot_billing: BillingModel,
    planned: Planned,
    booked: Mapping[tuple[str, int], Micros],
    now_s: int,
) -> Charging:
    """Return how an allocation is charged by what is known of its prices, is booked, or was planned.

    Parameters
    ----------
    trace : the known prices; may begin after the launch, or be empty.
    booked : the price that each hour of an allocation was booked at. It stands where it is not known any more.
    """
    allocation = record.allocation
    if allocation.bid_micros is None:
        return _on_demand(record, trace, catalog, spot_billing, planned, booked.get((allocation.allocation_id, 0)))
    model = spot_billing
    if trace.price_at(allocation.launched_at_s) is not None or isinstance(model, Flat):
        return Charging(model, trace)
    first_s = int(trace.times_s[0]) if len(trace) else now_s + 1
    starts_s = np.arange(allocation.launched_at_s, max(first_s, allocation.launched_at_s + 1), HOUR_S)
    before = [booked.get((allocation.allocation_id, index)) for index in range(len(starts_s))]
    prices = [allocation.bid_micros if price is None else price for price in before]
    unknown = frozenset(index for index, price in enumerate(before) if price is None)
    whole = Trace(np.append(starts_s, trace.times_s), np.append(prices, trace.prices_micros))
    return Charging(model, whole, unknown)


def _on_demand(
    record: AllocationRecord,
    trace: Trace,
    catalog: Catalog,
    spot_billing: BillingModel,
    planned: Planned,
    booked_micros: Micros | None,
) -> Charging:
    try:
        return Charging(charging_model(record, catalog, spot_billing), trace)
    except BillingError:
        model = charging_model(record, catalog, spot_billing, lambda market: booked_micros or planned(market))
        return Charging(model, trace, None if booked_micros is None else frozenset())
