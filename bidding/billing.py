"""What an allocation costs: pure functions from a trace and a life to charges, in integer micro-dollars.

Whether and when a request is granted or evicted is the market's to say; here a life is given, and only what is charged
and refunded for it is decided. Conventions that every model shares: an allocation lives in [launched_at_s, ended_at_s);
what `until_s` cuts off has not been charged yet; an eviction in the very second of its own termination is an eviction.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from bidding.model import HOUR_S, EndCause
from bidding.money import Micros, prorate
from bidding.traces import Trace


@dataclass(frozen=True, slots=True)
class Charge:
    """What was charged for one billing hour of an allocation.

    `price_micros` is the hourly price of one instance; `amount_micros` what was charged for all, also where it was
    `refunded` later.
    """

    hour_index: int
    hour_start_s: int
    price_micros: Micros
    amount_micros: Micros
    refunded: bool

    @property
    def net_micros(self) -> Micros:
        """What is left of the charge after a refund."""
        return 0 if self.refunded else self.amount_micros


class BillingModel(Protocol):
    """How the hours of an allocation are charged. Pure: the same life costs the same."""

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


@dataclass(frozen=True, slots=True)
class HourlyRefund:
    """EC2's spot bill until 2017.

    Each hour that begins while the allocation is alive is charged in full, at the price of that instant; an eviction
    refunds the hour in progress. Evicted exactly on the hour, the completed hour stays paid and the new one is not
    charged; who ends his own allocation pays for the hour that he began.

    *Source*: Proteus (EuroSys 2017), section 2.2.
    """

    def charges(
        self,
        trace: Trace,
        count: int,
        launched_at_s: int,
        ended_at_s: int | None,
        end_cause: EndCause | None,
        until_s: int,
    ) -> tuple[Charge, ...]:
        """Return what has been charged by `until_s`; see `BillingModel.charges`."""
        charges = []
        end_s, evicted = _end(count, launched_at_s, ended_at_s, end_cause, until_s)
        for index, start_s in _hours(launched_at_s, end_s):
            price = trace.price_at(start_s)
            if price is None:
                raise ValueError(f"no price is known at {start_s}, when the allocation was launched")
            refunded = evicted and end_s < start_s + HOUR_S
            charges.append(Charge(index, start_s, price, price * count, refunded))
        return tuple(charges)


@dataclass(frozen=True, slots=True)
class OnDemandHourly:
    """A fixed price for each instance and hour; started hours are paid, and nothing is refunded.

    The trace is not looked at. A machine that the market took all the same is paid for like any other.

    Attributes
    ----------
    price_micros : Micros
        Hourly price of one instance.
    """

    price_micros: Micros

    def charges(
        self,
        trace: Trace | None,
        count: int,
        launched_at_s: int,
        ended_at_s: int | None,
        end_cause: EndCause | None,
        until_s: int,
    ) -> tuple[Charge, ...]:
        """Return what has been charged by `until_s`; see `BillingModel.charges`. `trace` may be None."""
        end_s, _ = _end(count, launched_at_s, ended_at_s, end_cause, until_s)
        return tuple(
            Charge(index, start_s, self.price_micros, self.price_micros * count, refunded=False)
            for index, start_s in _hours(launched_at_s, end_s)
        )


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
    The last hour's share is rounded to the micro-dollar, half to even. A refunded hour stays free.

    Source: Proteus (EuroSys 2017), section 6.3: a job is not charged for what is left of its last billing hours.
    """
    return sum(
        prorate(charge.net_micros, min(max(ended_at_s - charge.hour_start_s, 0), HOUR_S), HOUR_S) for charge in charges
    )


def _end(
    count: int, launched_at_s: int, ended_at_s: int | None, end_cause: EndCause | None, until_s: int
) -> tuple[int, bool]:
    """Return where the billed life ends, and whether that is an eviction."""
    if count < 1:
        raise ValueError(f"an allocation of {count} instances has no bill")
    if (ended_at_s is None) != (end_cause is None):
        raise ValueError("an end and its cause are given together, or neither is")
    if ended_at_s is not None and ended_at_s < launched_at_s:
        raise ValueError(f"the allocation ends at {ended_at_s}, before its launch at {launched_at_s}")
    if ended_at_s is None or ended_at_s >= until_s:
        return until_s, False
    return ended_at_s, end_cause is EndCause.EVICTED


def _hours(launched_at_s: int, end_s: int) -> Iterator[tuple[int, int]]:
    """Yield number and start of each billing hour that begins in [launched_at_s, end_s)."""
    return enumerate(range(launched_at_s, end_s, HOUR_S))
