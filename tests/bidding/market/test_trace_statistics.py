"""The figures of a price history, on histories of which they are known."""

from dataclasses import astuple

import numpy as np
import pytest

from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.trace_statistics import statistics
from proteus_spot.bidding.market.traces import Trace

DAY_S = 24 * HOUR_S
ON_DEMAND = 1_000_000


def alternating(every_s: int, low: int = 100_000, high: int = 200_000) -> Trace:
    times_s = np.arange(0, 10 * DAY_S, every_s)
    return Trace(times_s, np.where(np.arange(len(times_s)) % 2, high, low))


def test_a_price_that_goes_up_and_down_every_half_hour() -> None:
    told = statistics(alternating(1800), ON_DEMAND, 0, 10 * DAY_S)
    assert told.level == pytest.approx(0.15, abs=0.051)
    assert told.changes_per_hour == pytest.approx(2.0, abs=0.01)
    assert told.share_rises == pytest.approx(0.5, abs=0.01)
    assert told.median_rise == told.large_rise == pytest.approx(np.log(2))
    assert told.rise_in_hour == pytest.approx(59 / 60), "at the rise itself the next one is a whole hour away"
    assert told.soon_if_young == 0.0, "a price stands for half an hour"
    assert np.isnan(told.soon_if_old), "none stands for an hour"
    assert told.share_above == 0.0


def test_hours_that_are_busy_one_after_the_other() -> None:
    """Twelve hours with a change a minute, twelve with none, and so on."""
    busy = np.concatenate([np.arange(0, DAY_S // 2, 60) + day * DAY_S for day in range(10)])
    prices = np.where(np.arange(len(busy)) % 2, 2_000_000, 500_000)
    told = statistics(Trace(busy, prices), ON_DEMAND, 0, 10 * DAY_S)
    assert told.busy_after_busy > 0.8
    assert told.soon_if_young > 0.95
    assert told.soon_if_old < 0.05
    assert told.share_above == pytest.approx(0.75, abs=0.01), "half of the busy hours, and all of the still ones"


def test_rows_that_repeat_a_price_are_no_changes() -> None:
    trace = alternating(600)
    again = Trace(np.sort(np.append(trace.times_s, trace.times_s + 60)), np.repeat(trace.prices_micros, 2))
    told = (astuple(statistics(each, ON_DEMAND, 0, 9 * DAY_S)) for each in (again, trace))
    assert np.array_equal(*map(np.array, told), equal_nan=True)


@pytest.mark.parametrize(
    ("trace", "until_s"),
    [
        (Trace(np.array([0]), np.array([5])), DAY_S),
        (Trace(np.array([0, 60]), np.array([5, 6])), DAY_S),
        (alternating(600), HOUR_S),
        (Trace(np.empty(0), np.empty(0)), DAY_S),
    ],
)
def test_too_little_to_tell(trace: Trace, until_s: int) -> None:
    with pytest.raises(ValueError, match="too little happens from 0"):
        statistics(trace, ON_DEMAND, 0, until_s)
