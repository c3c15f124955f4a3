"""Cost of an allocation: functions from a trace and a life to charges, in integer micro-dollars.

A billing model receives a life and decides only what is charged and refunded for it; `bidding.billing.bulk_requests`
decides by the prices when a request is granted and evicted.

    base           the `BillingModel` Protocol, the charge of one billing hour, and sums of charges
    bulk_requests  outcomes of requests in bulk: whether granted, until when, and at what cost
    by_hour        models that charge every hour that begins
    by_second      models that charge the seconds used, in one charge per hour
    expected       share of an hour that is expected to be paid: equation (1) and its counterparts
    spending       use of the money of a billing hour: useful, idle, hand-over or lost
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from proteus_spot.bidding.billing.base import BillingModel, Charge, refunded_micros, total_micros, total_prorata_micros
from proteus_spot.bidding.billing.by_hour import HourlyRefund, OnDemandHourly
from proteus_spot.bidding.billing.by_second import Flat, OnDemandPerSecond, PerSecondFirstHourFree, Repricing

__all__ = [
    "SPOT_BILLING",
    "BillingModel",
    "Charge",
    "Flat",
    "HourlyRefund",
    "OnDemandHourly",
    "OnDemandPerSecond",
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
