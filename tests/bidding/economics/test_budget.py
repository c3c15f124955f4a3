"""The budget's rule: what a purchase commits, what a purse leaves, how long the machines can run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.economics.budget import MINIMUM_S, Purse, Spending, lasts_until_s, purchase_micros


@pytest.mark.parametrize(
    ("whole_hours", "seconds", "micros"),
    [
        (True, 1, 90_000),
        (True, 3600, 90_000),
        (True, 7200, 90_000),  # the second hour is a decision of its own
        (False, 1, 90_000 * MINIMUM_S // 3600),
        (False, 600, 15_000),
        (False, 601, 15_025),
        (False, 7200, 180_000),
    ],
)
def test_a_purchase_commits_the_whole_hour_or_the_seconds_until_it_can_be_ended(whole_hours, seconds, micros):
    assert purchase_micros(whole_hours, 90_000, seconds) == micros


def test_a_part_of_a_micro_dollar_is_committed_whole():
    assert purchase_micros(False, 1, 61) == 1


def test_a_purse_gives_what_is_left_and_no_more():
    purse = Purse(Spending(100, 40, 0))
    assert not purse.take(61)
    assert purse.take(50)
    assert purse.left_micros == 10
    assert not purse.take(11)
    assert purse.take(10)
    assert purse.left_micros == 0
    assert Purse(Spending(100, 140, 0)).left_micros == 0


def test_without_a_budget_there_is_no_limit():
    purse = Purse(None)
    assert purse.take(10**15)
    assert purse.left_micros is None


def test_a_budget_is_reached_when_it_could_be_passed_not_when_it_is_used_up():
    assert not Spending(100, 100, 0).is_reached
    assert Spending(100, 101, 0).is_reached


@given(
    st.integers(0, 10_000),
    st.integers(0, 500),
    st.integers(0, 10_000),
    st.integers(1, 900),
)
def test_the_machines_last_until_the_first_second_that_passes_the_budget(budget, rate, from_s, span_s):
    def most(at_s: int) -> int:
        return rate * ((at_s + 59) // 60)  # steps of a minute

    until_s = lasts_until_s(most, budget, from_s, from_s + span_s)
    assert from_s <= until_s <= from_s + span_s
    if until_s > from_s:
        assert most(until_s) <= budget
    if until_s < from_s + span_s:
        assert most(until_s + 1) > budget or most(from_s) > budget
