import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidding.economics.equations import (
    cost_per_work,
    effective_time_s,
    expected_cost_usd,
    time_left_s,
    useful_time_s,
)
from bidding.market.model import HOUR_S
from tests.support.markets import PROPERTY, START_S, spot


@pytest.mark.parametrize(
    ("beta", "price_micros", "count", "left_s", "cost_usd"),
    [
        (0.0, 200_000, 2, 3600, 0.40),
        (0.5, 50_000, 4, 3600, 0.10),  # half of the hours are refunded
        (0.2, 40_000, 8, 3600, 0.256),
        (0.2, 40_000, 8, 900, 0.064),
        (1.0, 40_000, 8, 3600, 0.0),  # an hour that is surely refunded
        (0.0, 1, 1, 3600, 1e-6),
    ],
)
def test_expected_cost_by_hand(beta, price_micros, count, left_s, cost_usd):
    assert expected_cost_usd(beta, price_micros, count, left_s) == pytest.approx(cost_usd)


@PROPERTY
@given(st.floats(0, 1), st.integers(0, 10**8), st.integers(1, 500), st.integers(1, 3600))
def test_a_possible_refund_never_makes_it_dearer(beta, price_micros, count, left_s):
    sure = float(expected_cost_usd(0.0, price_micros, count, left_s))
    assert 0 <= float(expected_cost_usd(beta, price_micros, count, left_s)) <= sure


def test_cost_per_work_is_infinite_without_work_whatever_it_costs():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no division by zero on the way
        assert cost_per_work([0.5, 0.5, 0.0, 0.0], [2.0, 0.0, 0.0, 4.0]).tolist() == [0.25, *[float("inf")] * 2, 0.0]
        assert cost_per_work([[1.0], [2.0]], [1.0, 4.0]).tolist() == [[1.0, 0.25], [2.0, 0.5]]


@pytest.mark.parametrize(
    ("useful_s", "any_eviction", "overhead_s", "resize_s", "effective_s"),
    [
        (3600, 0.0, 60, 0, 3600),
        (2700, 0.5, 60, 0, 2670),  # 2700 - 0.5 x 60
        (3000, 0.6, 60, 20, 2944),  # 3000 - 0.6 x 60 - 20
        (10, 1.0, 60, 20, 0),  # overheads cannot undo work
    ],
)
def test_effective_time_by_hand(useful_s, any_eviction, overhead_s, resize_s, effective_s):
    assert effective_time_s(useful_s, any_eviction, overhead_s, resize_s) == pytest.approx(effective_s)


@PROPERTY
@given(st.floats(0, 3600), st.floats(0, 1), st.floats(0, 5000), st.floats(0, 5000))
def test_effective_time_is_never_negative_and_never_more_than_the_useful(useful_s, any_eviction, overhead_s, resize_s):
    assert 0 <= effective_time_s(useful_s, any_eviction, overhead_s, resize_s) <= useful_s


@pytest.mark.parametrize(
    ("after_s", "left_s"),
    [(0, 3600), (1, 3599), (3599, 1), (3600, 3600), (3601, 3599), (2 * 3600 - 1, 1), (-5, 3600), (-7200, 3600)],
)
def test_a_boundary_belongs_to_the_hour_that_begins_and_before_the_launch_none_has_passed(after_s, left_s):
    allocation = spot()
    assert time_left_s(allocation, START_S + after_s) == left_s
    assert allocation.hour_index(START_S + after_s) == max(after_s // HOUR_S, 0)


@PROPERTY
@given(st.integers(-HOUR_S, 100 * HOUR_S))
def test_some_of_the_hour_is_always_left(after_s):
    assert 0 < time_left_s(spot(), START_S + after_s) <= HOUR_S


@pytest.mark.parametrize(
    ("beta", "median_s", "left_s", "useful_s"),
    [
        (0.0, 600, 3600, 3600),  # never taken
        (1.0, 600, 3600, 600),  # always taken after ten minutes
        (0.5, 1800, 3600, 2700),  # half the hour, half of it half of it
        (0.5, 1800, 900, 900),  # the eviction is expected after the hour's end
        (1.0, 0, 3600, 0),
    ],
)
def test_useful_time_by_hand(beta, median_s, left_s, useful_s):
    assert useful_time_s(beta, median_s, left_s) == pytest.approx(useful_s)


@PROPERTY
@given(st.floats(0, 1), st.floats(0, 3600), st.integers(1, 3600))
def test_useful_time_lies_between_the_eviction_and_the_hours_end(beta, median_s, left_s):
    useful = float(useful_time_s(beta, median_s, left_s))
    assert min(median_s, left_s) - 1e-6 <= useful <= left_s + 1e-6


def test_useful_time_broadcasts_alternatives():
    assert useful_time_s([[0.0], [1.0]], [600, 1200], 3600).tolist() == [[3600, 3600], [600, 1200]]
    assert useful_time_s(0, 0, 60).dtype == np.float64
