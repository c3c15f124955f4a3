import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidding.economics.equations import cost_per_work, expected_cost_usd
from tests.support.markets import PROPERTY


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
