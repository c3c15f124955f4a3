"""Dollars of nets: what a job of DiLoCo is beside that of a gang."""

import pytest

from proteus_spot.benchmarks.market.net_dollars import Rates, net_job, read_rates
from proteus_spot.bidding.backtest.capacity.job import CapacityJob

RATES = Rates(speed=0.8, repeated_clocks=0.5, gang_repeated_s=15.0)


def test_more_samples_and_less_speed_leave_less_slack_to_the_same_deadline() -> None:
    job = net_job(CapacityJob(4, 24.0, 2.0), RATES, 1.2)
    assert job.hours == pytest.approx(24 * 1.2 / 0.8)
    assert job.deadline_s == pytest.approx(48 * 3600)
    assert (job.tasks, job.repeated_s) == (4, 15.0)


def test_a_deadline_that_on_demand_would_miss_is_moved() -> None:
    job = net_job(CapacityJob(4, 24.0, 1.5), RATES, 1.2)
    assert job.deadline_s == pytest.approx(36 * 1.5 * 3600)


def test_the_speed_is_that_of_the_most_nodes_that_were_measured() -> None:
    assert read_rates(16) == read_rates(8)
    assert read_rates(8).speed < read_rates(4).speed < 1
