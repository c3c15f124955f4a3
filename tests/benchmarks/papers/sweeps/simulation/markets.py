"""Small markets and trials for tests of simulated sweeps."""

from typing import Any

import numpy as np

from proteus_spot.benchmarks.papers.sweeps.simulation.record import RecordedTrials
from proteus_spot.benchmarks.papers.sweeps.simulation.sweep_prices import SweepPrices, sweep_prices
from proteus_spot.bidding.market.model import InstanceType, Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.bidding.tuning.sweep_plan import Direction

DAY_S = 86_400
SMALL, LARGE = Market("small", "a"), Market("large", "a")
TYPES = {
    "small": InstanceType("small", 2, 8.0, 100_000),
    "large": InstanceType("large", 8, 32.0, 400_000),
}


def trace(*events: tuple[int, int]) -> Trace:
    """Return a trace of (time, price) events."""
    times, prices = zip(*events, strict=True)
    return Trace(np.array(times, dtype=np.int64), np.array(prices, dtype=np.int64))


def prices_of(until_s: int = DAY_S, **traces: Trace) -> SweepPrices:
    """Return the prices of ticks in [0, until_s] of the types `small` and `large`, in zone a."""
    held = TraceSet({Market(name, "a"): one for name, one in traces.items()})
    return sweep_prices(held, held.markets, TYPES, 0, until_s)


def trials_of(curves: list[list[float]], **changes: Any) -> RecordedTrials:
    """Return trials with these values, whose steps take 600 s on 2 vCPUs and 150 s on 8."""
    count = len(curves)
    fields: dict[str, Any] = {
        "application": "test",
        "metric": "loss",
        "direction": Direction.MINIMIZE,
        "settings": tuple({"rate": number} for number in range(count)),
        "values": np.array(curves, dtype=np.float64),
        "vcpus": np.array([2, 8]),
        "step_s": np.tile([600.0, 150.0], (count, 1)),
        "step_cov": np.zeros((count, 2)),
        "state_bytes": np.full(count, 1000),
        "upload_s": np.full(count, 10.0),
        "restore_s": np.full(count, 20.0),
    }
    return RecordedTrials(**fields | changes)
