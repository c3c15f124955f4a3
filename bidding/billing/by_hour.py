"""Models that charge every hour that begins."""

from dataclasses import dataclass
from typing import ClassVar

from proteus_spot.bidding.billing.base import Charge, billed_end, hour_prices, hour_starts
from proteus_spot.bidding.market.model import HOUR_S, EndCause
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Trace


@dataclass(frozen=True, slots=True)
class HourlyRefund:
    """EC2's spot bill until 2017.

    Each hour that begins while the allocation is alive is charged in full, at the price of that instant; an eviction
    refunds the hour in progress. Evicted exactly on the hour, the completed hour stays paid and the new one is not
    charged; a termination by the user leaves the hour in progress paid.

    *Source*: Proteus (EuroSys 2017), section 2.2.
    """

    by_second: ClassVar[bool] = False
    max_life_s: ClassVar[int | None] = None

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
        return tuple(
            Charge(index, start_s, price, price * count, evicted and end_s < start_s + HOUR_S)
            for index, (start_s, price) in enumerate(zip(starts_s, hour_prices(trace, starts_s), strict=True))
        )


@dataclass(frozen=True, slots=True)
class OnDemandHourly:
    """A fixed price for each instance and hour; started hours are paid, and nothing is refunded.

    The trace is ignored. A machine that the market took is paid like any other.

    Attributes
    ----------
    price_micros : Micros
        Hourly price of one instance.
    """

    price_micros: Micros

    by_second: ClassVar[bool] = False
    max_life_s: ClassVar[int | None] = None

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
        return tuple(
            Charge(index, start_s, self.price_micros, self.price_micros * count, refunded=False)
            for index, start_s in enumerate(hour_starts(launched_at_s, end_s))
        )
