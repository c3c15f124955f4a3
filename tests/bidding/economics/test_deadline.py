"""The deadline's rule: slack shrinks with the clock, and is gone before the work no longer fits."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.economics.deadline import SafetyNet, TimeLeft

LEFT = TimeLeft(deadline_s=10_000, clocks=100, clocks_per_vcpu_s=0.01, overhead_s=500.0)


def test_the_slack_is_the_time_left_less_the_work_at_full_speed():
    # 100 clocks at 0.01 x 4 clocks a second take 2500 s
    assert SafetyNet().slack_s(replace(LEFT, margin=0.0), 1_000, 4) == 10_000 - 1_000 - 500 - 2_500
    assert SafetyNet().slack_s(replace(LEFT, margin=0.2), 1_000, 4) == 10_000 - 1_000 - 500 - 3_000


def test_more_machines_leave_more_slack():
    assert SafetyNet().slack_s(LEFT, 0, 8) > SafetyNet().slack_s(LEFT, 0, 4)


@pytest.mark.parametrize("left", [replace(LEFT, clocks=0), replace(LEFT, clocks_per_vcpu_s=0.0)])
def test_nothing_left_or_nothing_measured_forces_nothing(left):
    assert SafetyNet().slack_s(left, 9_999, 4) == float("inf")
    assert SafetyNet().slack_s(LEFT, 9_999, 0) == float("inf")


@given(st.integers(1, 500), st.floats(0.001, 0.1), st.integers(1, 64), st.integers(60, 600))
def test_who_buys_at_the_first_tick_without_slack_is_done_in_time(clocks, speed, vcpus, tick_s):
    left = TimeLeft(100_000, clocks, speed, overhead_s=2.0 * tick_s, margin=0.1)
    rule, now_s = SafetyNet(), 0
    while rule.slack_s(left, now_s, vcpus) > 0:
        now_s += tick_s
    if now_s:  # there was slack at the beginning
        assert now_s + clocks / (speed * vcpus) < left.deadline_s
