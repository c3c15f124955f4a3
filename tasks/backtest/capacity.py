"""Backtests of markets whose machines cannot be had at all times, whatever is bid: availability traces beside the prices."""

from bidding.evictions.base import as_table
from bidding.evictions.fit_capacity import NO_CAPACITY_MICROS, fit_availability, with_capacity
from bidding.evictions.table import EvictionTable
from bidding.market.model import DAY_S
from bidding.market.money import Micros, usd
from bidding.market.traces import TraceSet
from infra.errors import InputError
from infra.market_data.capacity_files import read_availabilities
from tasks.backtest.spec import BacktestSpec
from tasks.backtest.windows import Split
from tasks.times import minute, moment_s


def read_capacity(spec: BacktestSpec) -> TraceSet:
    """Return the availability traces that were asked for, by market; none where there are none.

    Raises
    ------
    InputError
        If one cannot be used, or bids above the on-demand price were asked for: without capacity there is no such bid.
    """
    if spec.availability and not spec.ceiling:
        raise InputError("--availability: what cannot be had has no price at all; leave --no-ceiling out")
    return read_availabilities(spec.availability, moment_s("--begins", spec.begins))


def scarce(source: str, prices: TraceSet, capacity: TraceSet) -> tuple[TraceSet, list[str]]:
    """Return the prices as they are where machines cannot be had at all times, and what is to be noted of them.

    Markets that nothing is told of are left out.

    Raises
    ------
    InputError
        If there is no market and time of which both are told.
    """
    both = TraceSet(
        {market: with_capacity(prices[market], capacity[market]) for market in prices if market in capacity}
    )
    if not both:
        raise InputError(
            f"--availability: begins {minute(capacity.first_s)} and ends {minute(capacity.last_s)}, for "
            f"{', '.join(map(str, capacity.markets[:4]))}; no market of {source} has prices then; give TYPE/ZONE=FILE and "
            "--begins TIME"
        )
    notes = []
    if left_out := [str(market) for market in prices if market not in both]:
        notes.append(f"without an availability trace, hence left out: {', '.join(left_out)}")
    last_s = max(int(prices[market].times_s[-1]) for market in both)
    if last_s + DAY_S < both.last_s:
        notes.append(f"the prices end {minute(last_s)}, before the availability traces; the last ones are held")
    return both, notes


def learnt_of(capacity: TraceSet, windows: Split) -> EvictionTable:
    """Return how often machines could not be had any more in the fit window, as a policy's table."""
    return as_table(fit_availability(capacity, windows.fit))


def why_taken(price_micros: Micros) -> str:
    """Return why a machine is taken at a price, in the prices of `scarce`."""
    if price_micros >= NO_CAPACITY_MICROS:
        return "its capacity has ended"
    return f"the price of {usd(price_micros)} has passed the bid"
