"""Models that charge the seconds used; one charge covers the used seconds of one hour."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import numpy as np

from proteus_spot.bidding.billing.base import Charge, billed_end, hour_prices, hour_starts
from proteus_spot.bidding.market.model import HOUR_S, EndCause
from proteus_spot.bidding.market.money import Micros, prorate
from proteus_spot.bidding.market.traces import Trace


class Repricing(StrEnum):
    """When a new market price applies to a running machine; AWS's own texts give both answers."""

    HOUR = "hour"  # at its next hour
    CHANGE = "change"  # at once


@dataclass(frozen=True, slots=True)
class PerSecondFirstHourFree:
    """EC2's spot bill since 2017.

    The seconds used are paid, of the first hour at least `minimum_s`; an eviction within the first hour makes it free,
    a later one brings nothing back. Evicted exactly at the end of the first hour, it stays paid.

    Attributes
    ----------
    repricing : Repricing
        Whether an hour is paid at the price of its start, or each second at its own.
    minimum_s : int
        Minimum charge in seconds, at most an hour. It is charged at the launch, as if the machine lived this long.

    Notes
    -----
    The charge of an hour in progress grows with `until_s`: it is final at the end of the hour or of the life.

    *Source*: the EC2 user guide, "Billing for interrupted Spot Instances" (Linux, Windows); the announcement of
    November 2017 ("in effect at the start of each instance-hour"), or the whitepaper "How Spot Instances work" ("billed
    to the nearest second") where `repricing` is `CHANGE`.
    *Differs*: the minimum is stated widely, but not on that page; SUSE's whole hours are left out.
    """

    repricing: Repricing = Repricing.HOUR
    minimum_s: int = 60

    by_second: ClassVar[bool] = True
    max_life_s: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        _check_minimum(self.minimum_s)

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
        end_s, evicted = billed_end(count, launched_at_s, ended_at_s, end_cause, until_s)
        starts_s = hour_starts(launched_at_s, end_s)
        charges = []
        for index, (start_s, price) in enumerate(zip(starts_s, hour_prices(trace, starts_s), strict=True)):
            paid_s = _paid_s(index, start_s, end_s, self.minimum_s)
            if self.repricing is Repricing.CHANGE:
                amount = prorate(_price_seconds(trace, start_s, start_s + paid_s) * count, 1, HOUR_S)
            else:
                amount = prorate(price * count, paid_s, HOUR_S)
            refunded = evicted and index == 0 and end_s < start_s + HOUR_S
            charges.append(Charge(index, start_s, price, amount, refunded, paid_s))
        return tuple(charges)


@dataclass(frozen=True, slots=True)
class Flat:
    """A fixed price, independent of the market, paid by the second; nothing is refunded.

    Attributes
    ----------
    price_micros : Micros
        Hourly price of one instance, at least 0.
    max_life_s : int or None
        Seconds after which every machine is taken; None: no maximum.

    Notes
    -----
    The trace is ignored here; this model does not decide whether it grants or takes a machine.

    *Source*: GCE's spot and (with a maximum life of 24 hours) preemptible machines.
    *Differs*: no minimum charge; a machine that is taken within a minute is paid for.
    """

    price_micros: Micros
    max_life_s: int | None = None

    by_second: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.price_micros < 0:
            raise ValueError(f"a price of {self.price_micros} micro-dollars; want 0 or more")
        if self.max_life_s is not None and self.max_life_s < 1:
            raise ValueError(f"a life of at most {self.max_life_s} s; want 1 or more")

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
        end_s, _ = billed_end(count, launched_at_s, ended_at_s, end_cause, until_s)
        if self.max_life_s is not None:
            end_s = min(end_s, launched_at_s + self.max_life_s)
        return _fixed_charges(self.price_micros, count, launched_at_s, end_s)


@dataclass(frozen=True, slots=True)
class OnDemandPerSecond:
    """A fixed price for each instance, paid by the second; nothing is refunded.

    The trace is ignored.

    Attributes
    ----------
    price_micros : Micros
        Hourly price of one instance.
    minimum_s : int
        Minimum charge in seconds, at most an hour.

    Notes
    -----
    *Source*: the EC2 user guide, "On-Demand Instances" (Linux, since October 2017): by the second, 60 s at least.
    """

    price_micros: Micros
    minimum_s: int = 60

    by_second: ClassVar[bool] = True
    max_life_s: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        _check_minimum(self.minimum_s)

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
        end_s, _ = billed_end(count, launched_at_s, ended_at_s, end_cause, until_s)
        return _fixed_charges(self.price_micros, count, launched_at_s, end_s, self.minimum_s)


def _price_seconds(trace: Trace, from_s: int, until_s: int) -> int:
    """Return the sum of the hourly prices of each second in [from_s, until_s); a price must be known at `from_s`."""
    held = trace.between(from_s, until_s)
    starts_s = np.maximum(held.times_s, from_s)
    return int(np.dot(np.diff(starts_s, append=until_s), held.prices_micros))


def _check_minimum(minimum_s: int) -> None:
    if not 0 <= minimum_s <= HOUR_S:
        raise ValueError(f"a minimum of {minimum_s} s; want 0 to {HOUR_S}")


def _paid_s(index: int, start_s: int, end_s: int, minimum_s: int) -> int:
    """Return the paid seconds of the hour `index`, which begins at `start_s`, of a life that ends at `end_s`."""
    return max(min(end_s - start_s, HOUR_S), minimum_s if index == 0 else 0)


def _fixed_charges(
    price_micros: Micros, count: int, launched_at_s: int, end_s: int, minimum_s: int = 0
) -> tuple[Charge, ...]:
    charges = []
    for index, start_s in enumerate(hour_starts(launched_at_s, end_s)):
        paid_s = _paid_s(index, start_s, end_s, minimum_s)
        amount = prorate(price_micros * count, paid_s, HOUR_S)
        charges.append(Charge(index, start_s, price_micros, amount, refunded=False, paid_s=paid_s))
    return tuple(charges)
