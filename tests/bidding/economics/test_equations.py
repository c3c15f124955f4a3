import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from proteus_spot.bidding.economics.equations import (
    USEFUL_S,
    Overheads,
    cost_per_work,
    effective_time_s,
    expected_cost_usd,
    expected_hour,
    overhead_s,
    per_work,
    time_left_s,
    useful_time_s,
)
from proteus_spot.bidding.market.model import HOUR_S
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
    assert expected_cost_usd(1 - beta, price_micros, count, left_s) == pytest.approx(cost_usd)


@PROPERTY
@given(st.floats(0, 1), st.integers(0, 10**8), st.integers(1, 500), st.integers(1, 3600))
def test_a_possible_refund_never_makes_it_dearer(beta, price_micros, count, left_s):
    sure = expected_cost_usd(1.0, price_micros, count, left_s)
    assert 0 <= expected_cost_usd(1 - beta, price_micros, count, left_s) <= sure


def test_cost_per_work_is_infinite_without_work_whatever_it_costs():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no division by zero on the way
        found = [cost_per_work(*each) for each in ((0.5, 2.0), (0.5, 0.0), (0.0, 0.0), (0.0, 4.0), (1.0, -1.0))]
    assert found == [0.25, float("inf"), float("inf"), 0.0, float("inf")]


@pytest.mark.parametrize(
    ("useful_s", "any_eviction", "lost_s", "resize_s", "effective_s"),
    [
        (3600, 0.0, 60, 0, 3600),
        (2700, 0.5, 60, 0, 2670),  # 2700 - 0.5 x 60
        (3000, 0.6, 60, 20, 2944),  # 3000 - 0.6 x 60 - 20
        (10, 1.0, 60, 20, 0),  # overheads cannot undo work
    ],
)
def test_effective_time_by_hand(useful_s, any_eviction, lost_s, resize_s, effective_s):
    assert effective_time_s(useful_s, overhead_s(any_eviction, lost_s, resize_s)) == pytest.approx(effective_s)


@PROPERTY
@given(st.floats(0, 3600), st.floats(0, 1), st.floats(0, 5000), st.floats(0, 5000))
def test_effective_time_is_never_negative_and_never_more_than_the_useful(useful_s, any_eviction, lost_s, resize_s):
    assert 0 <= effective_time_s(useful_s, overhead_s(any_eviction, lost_s, resize_s)) <= useful_s


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
    useful_s = useful_time_s(np.array([[0.0], [1.0]]), np.array([600, 1200]), 3600)
    assert useful_s.tolist() == [[3600, 3600], [600, 1200]]


@PROPERTY
@given(st.data())
def test_a_footprint_with_offers_is_the_equations_over_arrays_to_the_last_bit(data):
    """The same sums and products by NumPy, allocation by allocation in order, the offers last."""
    draw = lambda *shape: data.draw(arrays(np.float64, shape, elements=st.floats(0, 1)))
    held, offers = draw(4, data.draw(st.integers(0, 4))), draw(3, 2, 3) * np.array([[[1]], [[9]], [[3600]]])
    held[USEFUL_S] *= 3600
    rate = np.array([8.0, 0.0])
    lost_s, resize_s, phi = 60.0, data.draw(st.sampled_from([0.0, 20.0])), 0.9
    out = np.empty((2, 3, 3))
    per_work(held, *offers, rate, Overheads(lost_s, resize_s, phi), out)
    survives, cost, work = 1.0, 0.0, np.zeros((2, 3))
    columns = [*held.T, (*offers, rate[:, np.newaxis])]
    for beta, usd, _, _ in columns:
        survives, cost = survives * (1.0 - beta), cost + usd
    for _, _, useful_s, each_rate in columns:
        work = work + each_rate * np.maximum(useful_s - ((1.0 - survives) * lost_s + resize_s), 0.0)
    work = work * (phi / HOUR_S)
    each = np.divide(cost, work, out=np.full(work.shape, np.inf), where=work > 0)
    assert out.swapaxes(0, 1).tolist() == [each.tolist(), cost.tolist(), work.tolist()]


def test_an_hour_of_many_markets_is_that_of_each():
    beta, median_s = np.array([[0.0, 0.5], [0.25, 1.0]]), np.array([[3600.0, 1800.0], [600.0, 0.0]])
    price, count = np.array([[50_000.0], [40_000.0]]), np.array([[4.0], [8.0]])
    for refunded in (True, False):
        cost_usd, useful_s = expected_hour(beta, median_s, price, count, HOUR_S, refunded)
        for row, column in np.ndindex(2, 2):
            one = expected_hour(
                beta[row, column], median_s[row, column], price[row, 0], count[row, 0], HOUR_S, refunded
            )
            assert (cost_usd[row, column], useful_s[row, column]) == one
