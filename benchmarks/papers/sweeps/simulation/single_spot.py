"""The paper's baseline: all trials on one kind of spot machine, under a bid so high that nothing is ever evicted."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

import numpy as np

from proteus_spot.benchmarks.papers.sweeps.simulation.record import RecordedTrials
from proteus_spot.benchmarks.papers.sweeps.simulation.simulated_machine import MachineTimes
from proteus_spot.benchmarks.papers.sweeps.simulation.sweep_prices import UNKNOWN, SweepPrices
from proteus_spot.bidding.billing import BillingModel, total_micros
from proteus_spot.bidding.market.model import EndCause, Market
from proteus_spot.bidding.market.money import Micros


class SingleChoice(StrEnum):
    """Which machine all trials run on."""

    CHEAPEST = "cheapest"  # the lowest price of an hour at the start
    FASTEST = "fastest"  # the most vCPUs, at the lowest price of these


@dataclass(frozen=True, slots=True)
class SingleSpotOutcome:
    """What all trials cost on one kind of machine, and how long they take.

    Attributes
    ----------
    market : where the machines are.
    completion_s : from the start to the end of the last trial.
    micros : the bill of all machines.
    """

    market: Market
    completion_s: int
    micros: Micros


def choose(prices: SweepPrices, at_s: int, choice: SingleChoice) -> Market:
    """Return the market of a choice at a tick; ties go to the first market.

    Raises
    ------
    ValueError
        If no market has a price.
    """
    row = prices.prices_micros[prices.tick_index(at_s)]
    sold = np.flatnonzero(row != UNKNOWN)
    if not len(sold):
        raise ValueError(f"no market has a price at {at_s}")
    if choice is SingleChoice.FASTEST:
        sold = sold[prices.vcpus[sold] == prices.vcpus[sold].max()]
    return prices.markets[int(sold[row[sold].argmin()])]


def run_single(
    record: RecordedTrials,
    prices: SweepPrices,
    billing: BillingModel,
    start_s: int,
    choice: SingleChoice,
    *,
    in_series: bool,
    times: MachineTimes | None = None,
) -> SingleSpotOutcome:
    """Return the outcome of all trials, each in full: one after another on one machine, or each on its own."""
    market = choose(prices, start_s, choice)
    seconds = _trial_seconds(record, prices, market)
    lives_s = [float(seconds.sum())] if in_series else seconds.tolist()
    return _bought(prices, billing, market, start_s, lives_s, times or MachineTimes())


def _trial_seconds(record: RecordedTrials, prices: SweepPrices, market: Market) -> np.ndarray:
    """Return the seconds of each whole trial on a machine of the market, its result uploaded; shape (trials,)."""
    vcpus = np.array([prices.types[market.instance_type].vcpu], dtype=np.int64)
    seconds: np.ndarray = record.seconds_per_step(vcpus)[:, 0] * record.steps + record.upload_s
    return seconds


def _bought(
    prices: SweepPrices,
    billing: BillingModel,
    market: Market,
    start_s: int,
    lives_s: Sequence[float],
    times: MachineTimes,
) -> SingleSpotOutcome:
    launched_at_s = prices.tick_at_s(prices.tick_index(start_s))
    ends_s = [launched_at_s + ceil(times.boot_s + life_s) for life_s in lives_s]
    trace = prices.traces[market]
    micros = sum(
        total_micros(billing.charges(trace, 1, launched_at_s, ends_at_s, EndCause.USER, ends_at_s))
        for ends_at_s in ends_s
    )
    return SingleSpotOutcome(market, max(ends_s) - launched_at_s, micros)
