"""The market's own bill: figures by hand, and the same as the ledger's billing models to the micro-dollar."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.billing import (
    Flat,
    HourlyRefund,
    OnDemandHourly,
    OnDemandPerSecond,
    PerSecondFirstHourFree,
    total_micros,
)
from proteus_spot.bidding.market.model import EndCause
from proteus_spot.bidding.market.traces import Trace
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from tests.support.market_bill import Usage, bill_of, by_hour, by_second, flat
from tests.support.market_servers import T0, TRACES, ManualClock, request, sold

TRACE = Trace(np.array([0, 1800, 5000]), np.array([20_000, 50_001, 33_333]))


def usage(*spans, spot=True, evicted=False):
    return Usage(spans, lambda at_s: TRACE.price_at(at_s) if spot else 105_000, spot, evicted)


@pytest.mark.parametrize(
    ("bill", "used", "micros"),
    [
        (by_hour, usage((0, 1)), 20_000),
        (by_hour, usage((0, 3600)), 20_000),
        (by_hour, usage((0, 3601)), 20_000 + 50_001),
        (by_hour, usage((0, 3599), evicted=True), 0),
        (by_hour, usage((0, 3600), evicted=True), 20_000),
        (by_hour, usage((0, 5000), evicted=True), 20_000),
        (by_hour, usage((0, 10), (5000, 5001), spot=False), 210_000),  # a start begins an hour
        (by_second, usage((0, 60)), 333),
        (by_second, usage((0, 1)), 333),  # a minute at least
        (by_second, usage((0, 3599), evicted=True), 0),
        (by_second, usage((0, 3600), evicted=True), 20_000),
        (by_second, usage((0, 3660)), 20_000 + 833),  # 50001 / 60 = 833.35
        (by_second, usage((0, 30), (5000, 8600), spot=False), 1750 + 105_000),
        (by_second, usage(), 0),
        (flat(36_001), usage((0, 50), evicted=True), 500),  # 500.01
        (flat(36), usage((0, 50)), 0),  # 0.5, half to even
        (flat(108), usage((0, 50)), 2),  # 1.5
    ],
)  # fmt: skip
def test_a_bill_by_hand(bill, used, micros):
    assert bill(used) == micros


@given(st.integers(0, 9000), st.integers(0, 12_000), st.booleans())
def test_the_ledgers_models_bill_the_same(from_s, seconds, evicted):
    life = (TRACE, 1, from_s, from_s + seconds, EndCause.EVICTED if evicted else EndCause.USER, from_s + seconds + 1)
    used = usage((from_s, from_s + seconds), evicted=evicted)
    on_demand = usage((from_s, from_s + seconds), spot=False)
    assert by_hour(used) == total_micros(HourlyRefund().charges(*life))
    assert by_second(used) == total_micros(PerSecondFirstHourFree().charges(*life))
    assert flat(12_345)(used) == total_micros(Flat(12_345).charges(*life))
    assert by_hour(on_demand) == total_micros(OnDemandHourly(105_000).charges(*life))
    assert by_second(on_demand) == total_micros(OnDemandPerSecond(105_000).charges(*life))


def test_the_market_bills_what_was_on_and_nothing_that_never_ran():
    clock = ManualClock(T0 + 10)
    sim = SimSpotMarket(TRACES, sold, clock.now_s)
    (stopped,) = sim.launch(request("od", bid=None))
    (taken,) = sim.launch(request("spot"))
    sim.add_fault(Fault(FaultKind.DIE, delay_s=100, times=1))
    (dead,) = sim.launch(request("dead", bid=None))
    sim.add_fault(Fault(FaultKind.STOP, at_s=T0 + 110, instance_id=stopped.instance_id))
    sim.add_fault(Fault(FaultKind.START, at_s=T0 + 7000, instance_id=stopped.instance_id))
    clock.at_s = T0 + 7200
    assert bill_of(sim, by_hour, by_hour) == {
        stopped.instance_id: 2 * 105_000,
        taken.instance_id: 0,  # evicted after 990 s
        dead.instance_id: 0,
    }
    assert bill_of(sim, by_second, by_second) == {
        stopped.instance_id: 2917 + 5833,  # 100 s and 200 s
        taken.instance_id: 0,
        dead.instance_id: 0,
    }
