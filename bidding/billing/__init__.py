"""What an allocation costs: pure functions from a trace and a life to charges, in integer micro-dollars.

Whether and when a request is granted or evicted is the market's to say (`bidding.bills`); here a life is given, and only
what is charged and refunded for it is decided.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from bidding.billing.by_hour import HourlyRefund, OnDemandHourly
from bidding.billing.by_second import Flat, PerSecondFirstHourFree, Repricing
from bidding.billing.charges import BillingModel, Charge, refunded_micros, total_micros, total_prorata_micros

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
