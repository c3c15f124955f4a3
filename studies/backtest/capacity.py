"""Availability traces: backtests of markets whose machines cannot be bought at all times at any bid."""

from proteus_spot.bidding.evictions.base import as_table
from proteus_spot.bidding.evictions.fit_capacity import NO_CAPACITY_MICROS, fit_availability, with_capacity
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.market.model import DAY_S
from proteus_spot.bidding.market.money import Micros, usd
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.capacity_files import read_availabilities
from proteus_spot.studies.backtest.backtest_spec import BacktestSpec
from proteus_spot.studies.backtest.windows import Split
from proteus_spot.studies.times import minute, moment_s


def read_capacity(spec: BacktestSpec) -> TraceSet:
    """Return the requested availability traces, by market; empty if none are requested.

    Raises
    ------
    InputError
        If one cannot be used, or bids above the on-demand price are allowed: without capacity there is no such bid.
    """
    if spec.availability and not spec.ceiling:
        raise InputError("--availability: what cannot be had has no price at all; leave --no-ceiling out")
    return read_availabilities(spec.availability, moment_s("--begins", spec.begins))


def scarce(source: str, prices: TraceSet, capacity: TraceSet) -> tuple[TraceSet, list[str]]:
    """Return the prices of markets whose machines cannot be bought at all times, and notes on them.

    Markets without an availability trace are left out.

    Raises
    ------
    InputError
        If no market has prices and an availability trace at the same time.
    """
    both = TraceSet(
        {market: with_capacity(prices[market], capacity[market]) for market in prices if market in capacity}
    )
    if not both:
        raise InputError(
            f"--availability: begins {minute(capacity.first_s)} and ends {minute(capacity.last_s)}, for "
            f"{', '.join(map(str, capacity.markets[:4]))}; no market of {source} has prices then; give "
            "TYPE/ZONE=FILE and --begins TIME"
        )
    notes = []
    if left_out := [str(market) for market in prices if market not in both]:
        notes.append(f"without an availability trace, hence left out: {', '.join(left_out)}")
    last_s = max(int(prices[market].times_s[-1]) for market in both)
    if last_s + DAY_S < both.last_s:
        notes.append(f"the prices end {minute(last_s)}, before the availability traces; the last ones are held")
    return both, notes


def learnt_of(capacity: TraceSet, windows: Split) -> EvictionTable:
    """Return the rate at which machines became unavailable in the fit window, as a policy's table."""
    return as_table(fit_availability(capacity, windows.fit))


def why_taken(price_micros: Micros) -> str:
    """Return the reason of an eviction at a price, in the prices of `scarce`."""
    if price_micros >= NO_CAPACITY_MICROS:
        return "its capacity has ended"
    return f"the price of {usd(price_micros)} has passed the bid"
