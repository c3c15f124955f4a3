"""Outcomes of requests for spot machines: whether granted, until when, and at what cost; many at a time.

The market grants and takes by price (`bidding.market.grants`) under every billing model; a model with a maximum life
takes the remaining machines when that is over. Within one second an eviction comes before a termination by the user,
and the window's end before both: an event at or after the window's end has not happened.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.billing import BillingModel, Charge, refunded_micros, total_micros, total_prorata_micros
from proteus_spot.bidding.market.grants import NEVER_S, granted, taken_at
from proteus_spot.bidding.market.model import EndCause, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Int64s, Trace


@dataclass(frozen=True, slots=True)
class SpotRequest:
    """A one-shot request for `count` instances, all or none.

    Attributes
    ----------
    at_s : int
        When it is made, and answered.
    leaves_at_s : int or None
        When its owner ends it; not before `at_s`.
    window_ends_s : int or None
        What happens at or after this time is not looked at; later than `at_s`. One of the two ends is given.
    """

    market: Market
    count: int
    bid_micros: Micros
    at_s: int
    leaves_at_s: int | None = None
    window_ends_s: int | None = None

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"a request for {self.count} instances")
        if self.leaves_at_s is None and self.window_ends_s is None:
            raise ValueError("a request without an end: neither its owner's nor the window's is given")
        if self.leaves_at_s is not None and self.leaves_at_s < self.at_s:
            raise ValueError(f"the request of {self.at_s} ends before it, at {self.leaves_at_s}")
        if self.window_ends_s is not None and self.window_ends_s <= self.at_s:
            raise ValueError(f"the window of the request of {self.at_s} is over at {self.window_ends_s}")

    @property
    def billed_until_s(self) -> int:
        """The end of the window; without one, the first second after the owner's end."""
        if self.window_ends_s is not None:
            return self.window_ends_s
        assert self.leaves_at_s is not None, "one of the two is given"
        return self.leaves_at_s + 1


@dataclass(frozen=True, slots=True)
class Bill:
    """What became of a request.

    Attributes
    ----------
    evicted_at_s : int or None
        When it was taken; None if it was not, or not within the window.
    ended_at_s : int or None
        When it was taken, left, or the window ended; None if it was not granted.
    charges : tuple of Charge
        Hour by hour, refunded ones included.
    total_micros, total_prorata_micros : Micros
        After refunds: as charged, and with the last hour by the seconds used.
    usable_s : int
        From the launch to the end.
    """

    granted: bool
    evicted_at_s: int | None
    ended_at_s: int | None
    charges: tuple[Charge, ...]
    refunded_micros: Micros
    total_micros: Micros
    total_prorata_micros: Micros
    usable_s: int


#: What comes of a request that is not granted.
REFUSED = Bill(False, None, None, (), 0, 0, 0, 0)


def bills(traces: Mapping[Market, Trace], requests: Sequence[SpotRequest], model: BillingModel) -> Iterator[Bill]:
    """Yield the bill of each request, in order.

    Parameters
    ----------
    traces : the prices; a market that is not in it grants nothing.
    model : billing model of granted machines.
    """
    grants, takes_s = _fates(traces, requests)
    for request, is_granted, taken_s in zip(requests, grants.tolist(), takes_s.tolist(), strict=True):
        yield _bill(traces[request.market], request, taken_s, model) if is_granted else REFUSED


def _fates(traces: Mapping[Market, Trace], requests: Sequence[SpotRequest]) -> tuple[NDArray[np.bool_], Int64s]:
    """Return (granted or not, when taken within the window or `NEVER_S`), shape (requests,) each; by price alone."""
    asked: dict[Market, list[int]] = {}
    for row, request in enumerate(requests):
        asked.setdefault(request.market, []).append(row)
    figures = np.array([(r.bid_micros, r.at_s, r.billed_until_s) for r in requests], dtype=np.int64).reshape(-1, 3)
    grants = np.zeros(len(requests), dtype=np.bool_)
    takes_s = np.full(len(requests), NEVER_S, dtype=np.int64)
    for market, some in asked.items():
        trace = traces.get(market)
        if not trace:  # none, or an empty one
            continue
        rows = np.array(some)
        bids, at_s, until_s = figures[rows].T
        grants[rows] = granted(trace, bids, at_s)
        rows = rows[grants[rows]]
        bids, at_s, until_s = np.ascontiguousarray(figures[rows].T)
        takes_s[rows] = taken_at(trace, bids, at_s, until_s)
    return grants, takes_s


def _bill(trace: Trace, request: SpotRequest, taken_s: int, model: BillingModel) -> Bill:
    """Return the bill of a request that is granted; `taken_s` is when the price passes its bid."""
    until_s = request.billed_until_s
    leaves_s = NEVER_S if request.leaves_at_s is None else request.leaves_at_s
    if model.max_life_s is not None:
        taken_s = min(taken_s, request.at_s + model.max_life_s)
    end_s = min(taken_s, leaves_s, until_s)
    evicted = end_s == taken_s < until_s
    cause = EndCause.EVICTED if evicted else EndCause.USER
    charges = model.charges(trace, request.count, request.at_s, end_s, cause, until_s)
    return Bill(
        granted=True,
        evicted_at_s=end_s if evicted else None,
        ended_at_s=end_s,
        charges=charges,
        refunded_micros=refunded_micros(charges),
        total_micros=total_micros(charges),
        total_prorata_micros=total_prorata_micros(charges, end_s),
        usable_s=end_s - request.at_s,
    )
