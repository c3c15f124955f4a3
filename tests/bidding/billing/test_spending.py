"""Where the money of an hour went."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.billing.spending import MachineLife, Use, divide_hour
from proteus_spot.bidding.market.model import HOUR_S

START = 1_000_000


def life(ready=None, leaving=None, ended=None, done=None):
    at = [None if value is None else START + value for value in (ready, leaving, ended, done)]
    return MachineLife(*at)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (life(ready=0), {Use.USEFUL: 3600}),
        (life(ready=600), {Use.USEFUL: 3000, Use.IDLE: 600}),
        (life(), {Use.IDLE: 3600}),
        (life(ready=-7200), {Use.USEFUL: 3600}),
        (life(ready=0, leaving=3000, ended=3120), {Use.USEFUL: 3000, Use.HAND_OVER: 120, Use.IDLE: 480}),
        (life(ready=0, done=1800), {Use.USEFUL: 1800, Use.IDLE: 1800}),
        (life(ready=600, leaving=300, ended=900), {Use.HAND_OVER: 300, Use.IDLE: 3300}),
    ],
)
def test_the_seconds_of_an_hour_by_use(machine, expected):
    parts = divide_hour(3600, START, False, machine)
    assert {use: amount for use, amount in parts.items() if amount} == expected


def test_a_refunded_hour_is_refunded_whatever_was_done_in_it():
    assert divide_hour(500, START, True, life(ready=0)) == {Use.REFUNDED: 500}


def test_where_seconds_are_paid_nothing_is_idle_after_them():
    machine = life(ready=600, leaving=1500, ended=1800)
    assert divide_hour(1800, START, False, machine, paid_s=1800) == {
        Use.USEFUL: 900,
        Use.HAND_OVER: 300,
        Use.LOST: 0,
        Use.IDLE: 600,
    }


def test_work_that_was_done_again_is_lost():
    assert divide_hour(3600, START, False, life(ready=0), lost_share=0.25)[Use.LOST] == 900


moments = st.none() | st.integers(-HOUR_S, 2 * HOUR_S)


@given(st.integers(0, 10**7), moments, moments, moments, moments, st.floats(0, 1), st.integers(1, HOUR_S))
def test_the_parts_add_up_to_the_charge_and_none_is_negative(amount, ready, leaving, ended, done, lost, paid_s):
    parts = divide_hour(amount, START, False, life(ready, leaving, ended, done), lost, paid_s)
    assert sum(parts.values()) == amount
    assert min(parts.values()) >= 0
