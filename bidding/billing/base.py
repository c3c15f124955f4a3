"""What every billing model shares: the charge of one billing hour, the Protocol, totals, and the life that is billed.

Conventions: an allocation lives in [launched_at_s, ended_at_s); its billing hours are counted from its launch; what
`until_s` cuts off has not been charged yet; an eviction in the very second of its own termination is an eviction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bidding.market.model import HOUR_S, EndCause
from bidding.market.money import Micros, prorate
from bidding.market.traces import Trace


@dataclass(frozen=True, slots=True)
class Charge:
    """What was charged for one billing hour of an allocation.

    `price_micros` is the hourly price of one instance at the hour's start; `amount_micros` what was charged for all,
    also where it was `refunded` later. It pays for `paid_s` seconds from the hour's start.
    """

    hour_index: int
    hour_start_s: int
    price_micros: Micros
    amount_micros: Micros
    refunded: bool
    paid_s: int = HOUR_S

    @property
    def net_micros(self) -> Micros:
        """What is left of the charge after a refund."""
        return 0 if self.refunded else self.amount_micros


class BillingModel(Protocol):
    """How the hours of an allocation are charged. Pure: the same life costs the same."""

    @property
    def by_second(self) -> bool:
        """Whether the charge of an hour in progress grows: it is final when the hour is over, or the life."""
        ...

    @property
    def max_life_s(self) -> int | None:
        """After how long whoever sells under this model takes every machine, whatever its bid; None is never."""
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
        """Return what has been charged by `until_s`, hour by hour, refunded hours included and marked.

        Parameters
        ----------
        trace : the prices of the allocation's market.
        count : instances, at least 1.
        launched_at_s : when it was granted.
        ended_at_s, end_cause : when and why it ended; both None while it lives.
        until_s : the end of the window that is billed. What happens at or after it has not happened yet, an eviction
            included: an hour that begins at it is not charged.

        Raises
        ------
        ValueError
            If the life is none (ends before it begins, an end without a cause, no instance), or no price is known at
            its launch.
        """
        ...


def total_micros(charges: Sequence[Charge]) -> Micros:
    """Return what is to be paid: charges less refunds."""
    return sum(charge.net_micros for charge in charges)


def refunded_micros(charges: Sequence[Charge]) -> Micros:
    """Return what came back."""
    return sum(charge.amount_micros for charge in charges if charge.refunded)


def total_prorata_micros(charges: Sequence[Charge], ended_at_s: int) -> Micros:
    """Return what a job that ended at `ended_at_s` answers for: the last hour counts by the seconds that it used.

    Parameters
    ----------
    charges : of one allocation, in order.
    ended_at_s : its end, or the window's where that came first; hours after it count nothing.

    Notes
    -----
    The last hour's share is rounded to the micro-dollar, half to even. A refunded hour stays free. Where a model
    charges by the second, a minimum charge is all that there is to share.

    Source: Proteus (EuroSys 2017), section 6.3: a job is not charged for what is left of its last billing hours.
    """
    return sum(
        prorate(charge.net_micros, min(max(ended_at_s - charge.hour_start_s, 0), charge.paid_s), charge.paid_s)
        for charge in charges
    )


def billed_end(
    count: int, launched_at_s: int, ended_at_s: int | None, end_cause: EndCause | None, until_s: int
) -> tuple[int, bool]:
    """Return where the billed life ends, and whether that is an eviction; for arguments see `BillingModel.charges`."""
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
    """Return when each billing hour begins that begins in [launched_at_s, end_s)."""
    return range(launched_at_s, end_s, HOUR_S)


def hour_prices(trace: Trace, starts_s: range) -> list[Micros]:
    """Return the price at the start of each hour; `ValueError` where none is known at the first."""
    events = np.searchsorted(trace.times_s, np.arange(starts_s.start, starts_s.stop, starts_s.step), side="right") - 1
    if len(starts_s) and events[0] < 0:
        raise ValueError(f"no price is known at {starts_s[0]}, when the allocation was launched")
    prices: list[Micros] = trace.prices_micros[events].tolist()
    return prices
