"""What an allocation costs: pure functions from a trace and a life to charges, in integer micro-dollars.

Whether and when a request is granted or evicted is the market's to say (`bidding.billing.requests`); here a life is given, and only
what is charged and refunded for it is decided.

    base       what every billing model shares: the charge of one billing hour, the Protocol, totals, and the life
               that is billed
    by_hour    models that charge every hour that begins
    by_second  models that charge the seconds used; a charge covers what was used of one hour
    expected   what of an hour is expected to be paid: equation (1), and what takes its place where machines are not
               paid by the hour
    requests   what a request for spot machines comes to: granted or not, until when, and what it costs; many at a
               time
    spending   what the money of a billing hour went to: every second of a paid hour was useful, idle, hand-over or
               lost
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from bidding.billing.base import BillingModel, Charge, refunded_micros, total_micros, total_prorata_micros
from bidding.billing.by_hour import HourlyRefund, OnDemandHourly
from bidding.billing.by_second import Flat, PerSecondFirstHourFree, Repricing

__all__ = [
    "SPOT_BILLING",
    "BillingModel",
    "Charge",
    "Flat",
    "HourlyRefund",
    "OnDemandHourly",
    "PerSecondFirstHourFree",
    "Repricing",
    "refunded_micros",
    "total_micros",
    "total_prorata_micros",
]

#: How spot machines are charged, by name; each takes its own parameters by keyword.
SPOT_BILLING: Mapping[str, Callable[..., BillingModel]] = MappingProxyType(
    {
        "hourly-refund": HourlyRefund,
        "per-second-first-hour-free": PerSecondFirstHourFree,
        "flat": Flat,
    }
)
