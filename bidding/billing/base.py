"""The `BillingModel` Protocol, the charge of one billing hour, and sums of charges.

Conventions: an allocation lives in [launched_at_s, ended_at_s); its billing hours are counted from its launch; time
from `until_s` on has not been charged yet; an eviction in the same second as a termination is an eviction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from proteus_spot.bidding.market.model import HOUR_S, EndCause
from proteus_spot.bidding.market.money import Micros, prorate
from proteus_spot.bidding.market.traces import Trace


@dataclass(frozen=True, slots=True)
class Charge:
    """Charge for one billing hour of an allocation.

    `price_micros` is the hourly price of one instance at the hour's start; `amount_micros` the charge for all
    instances, even if it was `refunded` later. It pays for `paid_s` seconds from the hour's start.
    """

    hour_index: int
    hour_start_s: int
    price_micros: Micros
    amount_micros: Micros
    refunded: bool
    paid_s: int = HOUR_S

    @property
    def net_micros(self) -> Micros:
        """The charge after a refund."""
        return 0 if self.refunded else self.amount_micros


class BillingModel(Protocol):
    """Charges of an allocation's hours; the same life costs the same."""

    @property
    def by_second(self) -> bool:
        """Whether the charge of an hour in progress grows: it is final at the end of the hour or of the life."""
        ...

    @property
    def max_life_s(self) -> int | None:
        """Seconds after which the seller takes every machine, whatever its bid; None: no maximum."""
        ...

    def charges(
        self,
        trace: Trace,
        count: int,
        launched_at_s: int,
        ended_at_s: int | None,
        end_cause: EndCause | None,
        until_s: int,
    ) -> tuple[Charge, ...]:
        """Return the charges by `until_s`, hour by hour, refunded hours included and marked.

        Parameters
        ----------
        trace : the prices of the allocation's market.
        count : instances, at least 1.
        launched_at_s : time of the grant.
        ended_at_s, end_cause : time and cause of its end; both None while it lives.
        until_s : end of the billed window. An event at or after it, evictions included, has not happened yet: an hour
            that begins at `until_s` is not charged.

        Raises
        ------
        ValueError
            If the life is invalid (ends before it begins, an end without a cause, no instance), or no price is known
            at its launch.
        """
        ...


def total_micros(charges: Sequence[Charge]) -> Micros:
    """Return the sum to pay: charges less refunds."""
    return sum(charge.net_micros for charge in charges)


def refunded_micros(charges: Sequence[Charge]) -> Micros:
    """Return the sum of the refunds."""
    return sum(charge.amount_micros for charge in charges if charge.refunded)


def total_prorata_micros(charges: Sequence[Charge], ended_at_s: int) -> Micros:
    """Return the cost of a job that ended at `ended_at_s`: of the last hour only the seconds used are counted.

    Parameters
    ----------
    charges : of one allocation, in order.
    ended_at_s : end of the job, or of the window if that came first; hours after it are not counted.

    Notes
    -----
    The last hour's share is rounded to the micro-dollar, half to even. A refunded hour stays free. Where a model
    charges by the second, only a minimum charge can be shared.

    Source: Proteus (EuroSys 2017), section 6.3: a job is not charged for what is left of its last billing hours.
    """
    return sum(
        prorate(charge.net_micros, min(max(ended_at_s - charge.hour_start_s, 0), charge.paid_s), charge.paid_s)
        for charge in charges
    )


def billed_end(
    count: int, launched_at_s: int, ended_at_s: int | None, end_cause: EndCause | None, until_s: int
) -> tuple[int, bool]:
    """Return the end of the billed life, and whether it is an eviction; for arguments see `BillingModel.charges`."""
    if count < 1:
        raise ValueError(f"an allocation of {count} instances has no bill")
    if (ended_at_s is None) != (end_cause is None):
        raise ValueError("an end and its cause are given together, or neither is")
    if ended_at_s is not None and ended_at_s < launched_at_s:
        raise ValueError(f"the allocation ends at {ended_at_s}, before its launch at {launched_at_s}")
    if ended_at_s is None or ended_at_s >= until_s:
        return until_s, False
    return ended_at_s, end_cause is EndCause.EVICTED


def hour_starts(launched_at_s: int, end_s: int) -> range:
    """Return the start of each billing hour that begins in [launched_at_s, end_s)."""
    return range(launched_at_s, end_s, HOUR_S)


def hour_prices(trace: Trace, starts_s: range) -> list[Micros]:
    """Return the price at the start of each hour; `ValueError` if none is known at the first."""
    events = np.searchsorted(trace.times_s, np.arange(starts_s.start, starts_s.stop, starts_s.step), side="right") - 1
    if len(starts_s) and events[0] < 0:
        raise ValueError(f"no price is known at {starts_s[0]}, when the allocation was launched")
    prices: list[Micros] = trace.prices_micros[events].tolist()
    return prices
