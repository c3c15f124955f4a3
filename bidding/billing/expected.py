"""Share of an hour that is expected to be paid: equation (1), and its counterparts for other billing models.

`BillingModel` computes the cost of a life after the fact; this module gives the expectation that a bid is weighed by.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.jit import jitable
from proteus_spot.bidding.market.money import Micros

Figures = TypeVar("Figures", float, NDArray[np.float64])


class BillingKind(IntEnum):
    """How the hours of a spot machine are charged, as a number for compiled callers."""

    HOURLY_REFUND = 0
    PER_SECOND = 1  # the first hour is free if it is broken off
    FLAT = 2


#: The kinds by the names of `bidding.billing.SPOT_BILLING`.
KINDS: Mapping[str, BillingKind] = MappingProxyType(
    {
        "hourly-refund": BillingKind.HOURLY_REFUND,
        "per-second-first-hour-free": BillingKind.PER_SECOND,
        "flat": BillingKind.FLAT,
    }
)

_HOURLY_REFUND, _PER_SECOND, _FLAT = map(int, BillingKind)


@jitable
def is_refunded(kind: int, first_hour: bool) -> bool:
    """Return whether an eviction refunds its hour.

    Parameters
    ----------
    kind : a `BillingKind`.
    first_hour : whether it is the hour that begins with the launch.
    """
    return kind == _HOURLY_REFUND or (kind == _PER_SECOND and first_hour)


@jitable
def paid_share(refunded: bool, beta: Figures, useful_s: Figures, left_s: float) -> Figures:
    """Return which part of the time left in an hour is expected to be paid, in [0, 1].

    Parameters
    ----------
    refunded : whether an eviction refunds the hour; see `is_refunded`.
    beta, useful_s : β, and ω in seconds: the expected time until the eviction or the hour's end. Of one shape.
    left_s : t_r, seconds left in the hour; above 0.

    Notes
    -----
    Source: Proteus (EuroSys 2017), section 4.1, equation (1): 1 - β where the hour is refunded.
    Differs: where it is not, the seconds until the eviction are paid, ω / t_r. A minimum charge of some seconds is left
    out.
    """
    return 1.0 - beta if refunded else useful_s / left_s


@jitable
def hour_micros(kind: int, flat_micros: Micros, price_micros: Micros) -> Micros:
    """Return the cost of an instance-hour that begins at the market's `price_micros`; `flat_micros` is that of FLAT."""
    return flat_micros if kind == _FLAT else price_micros
