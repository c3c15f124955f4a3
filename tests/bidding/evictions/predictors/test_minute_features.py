"""Features, limits and labels, held against a walk over the seconds and events of a trace."""

import itertools
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.evictions.predictors.minute_features import past_minutes, price_records
from proteus_spot.bidding.evictions.predictors.training_limits import (
    LEAST_DELTA_MICROS,
    MOST_DELTA_MICROS,
    border_limits,
    is_passed,
    random_limits,
)
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.traces import Trace
from tests.bidding.evictions.naive import trace, traces


def price(prices: Trace, at_s: int) -> int:
    found = prices.price_at(at_s)
    return int(prices.prices_micros[0]) if found is None else found


def changes_until(prices: Trace, at_s: int) -> list[tuple[int, int]]:
    """Time and size of each change of the price up to a moment."""
    events = list(zip(prices.times_s.tolist(), prices.prices_micros.tolist(), strict=True))
    return [
        (time_s, abs(new - old))
        for (_, old), (time_s, new) in itertools.pairwise(events)
        if new != old and time_s <= at_s
    ]


@settings(max_examples=25)
@given(found=traces(20_000), at_s=st.integers(0, 30_000))
def test_features_are_what_a_walk_finds(found: Trace, at_s: int) -> None:
    first_s = int(found.times_s[0])
    seconds = range(max(at_s - HOUR_S, first_s), max(at_s, first_s))
    average = np.mean([price(found, second) for second in seconds]) if len(seconds) else price(found, at_s)
    changes = changes_until(found, at_s)
    wanted = [
        price(found, at_s) / 1e6,
        average / 1e6,
        sum(time_s > at_s - HOUR_S for time_s, _ in changes),
        max(at_s - (changes[-1][0] if changes else first_s), 0),
        1,  # the first of January 1970 was a Thursday
        at_s // HOUR_S,
    ]
    assert price_records(found, np.array([[at_s]]))[0, 0].tolist() == pytest.approx(wanted, rel=1e-9)


def test_days_and_hours_are_those_of_the_calendar() -> None:
    days = np.arange(14) * 86_400 + 1_459_468_800 + 5 * HOUR_S
    records = price_records(trace((0, 1)), days)
    dates = [datetime.fromtimestamp(int(day), UTC) for day in days]
    assert records[:, 4].tolist() == [date.weekday() < 5 for date in dates]
    assert records[:, 5].tolist() == [date.hour for date in dates]


@settings(max_examples=25)
@given(found=traces(20_000), at_s=st.integers(0, 20_000))
def test_a_limit_near_the_border_is_the_price_and_its_trimmed_mean_change(found: Trace, at_s: int) -> None:
    changes = changes_until(found, at_s)
    end_s = at_s if changes and changes[-1][0] > at_s - HOUR_S else (changes[-1][0] if changes else at_s)
    sizes = sorted(size for time_s, size in changes if time_s > end_s - HOUR_S)
    trimmed = sizes[len(sizes) // 5 : len(sizes) - len(sizes) // 5]
    delta = max(round(np.mean(trimmed)) if trimmed else 0, LEAST_DELTA_MICROS)
    assert border_limits(found, np.array([at_s])).tolist() == [price(found, at_s) + delta]


def test_the_smallest_and_the_largest_fifth_of_the_changes_are_left_out() -> None:
    sizes = [1, 2_000, 3_000, 4_000, 900_000]
    rising = trace(*zip(range(0, 600, 100), (20_000 + np.cumsum([0, *sizes])).tolist(), strict=True))
    assert border_limits(rising, np.array([600])).tolist() == [int(rising.prices_micros[-1]) + 3_000]


def test_an_eviction_on_the_hour_is_none_within_it() -> None:
    prices = trace((0, 20_000), (HOUR_S, 30_000))
    assert is_passed(prices, np.array([0, 1]), np.array([25_000, 25_000])).tolist() == [False, True]


@settings(max_examples=40)
@given(found=traces(20_000), at_s=st.integers(0, 20_000), delta=st.sampled_from([-1, 0, 100, 101, 50_000]))
def test_a_limit_is_passed_by_any_price_of_the_hour(found: Trace, at_s: int, delta: int) -> None:
    limit = price(found, at_s) + delta
    highest = max(price(found, at_s), *(price(found, time_s) for time_s in range(at_s, at_s + HOUR_S)))
    assert is_passed(found, np.array([at_s, at_s]), np.array([limit, 10**9])).tolist() == [highest > limit, False]


def test_random_limits_have_the_range_of_the_paper() -> None:
    at_s = np.zeros(200_000, dtype=np.int64)
    deltas = random_limits(trace((0, 7)), at_s, np.random.default_rng(0)) - 7
    assert (deltas.min(), deltas.max()) == (LEAST_DELTA_MICROS, MOST_DELTA_MICROS) == (10, 200_000)


def test_the_records_of_a_moment_end_with_it() -> None:
    assert past_minutes(np.array([10_000]))[0, [0, -2, -1]].tolist() == [10_000 - 59 * 60, 9_940, 10_000]
