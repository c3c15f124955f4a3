import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidding.economics.hours import time_left_s, useful_time_s
from bidding.market.model import HOUR_S
from tests.support.markets import PROPERTY, START_S, spot


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
