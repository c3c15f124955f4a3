"""Formulas 1 and 2, the matrix M, the bids, and what is chosen by them."""

import numpy as np
import pytest

from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.tuning.provisioning.bids import draw_bid
from proteus_spot.bidding.tuning.provisioning.step_cost import StepTimes, expected_hour_micros, step_micros
from proteus_spot.bidding.tuning.provisioning.trial_costs import OffersOfTick
from proteus_spot.bidding.tuning.sweep_events import Offer
from tests.support.markets import BIG, LARGE, TYPES, XLARGE, XLARGE_B
from tests.support.sweeps import offer_of, plan_of


def test_formulas_1_and_2() -> None:
    assert expected_hour_micros(0.25, 40_000, True) == 30_000.0
    assert expected_hour_micros(0.25, 40_000, False) == 40_000.0
    assert step_micros(30_000.0, 1.2) == pytest.approx(10.0)


def test_m_starts_from_the_vcpus() -> None:
    times = StepTimes(TYPES, {})
    assert not times.is_measured
    assert times.seconds(0, "c4.large") == 2 * times.seconds(0, "c4.xlarge") == 16 * times.seconds(0, "r3.8xlarge")
    assert times.by_type() == {}


def test_m_follows_what_is_measured() -> None:
    times = StepTimes(TYPES, {})
    times.measure(0, "c4.large", 4.0)
    assert times.seconds(0, "c4.large") == 4.0
    assert times.seconds(0, "c4.xlarge") == 2.0  # by the vCPUs
    assert times.seconds(1, "c4.large") == 4.0  # another trial is as dear, as far as is known
    times.measure(1, "c4.xlarge", 6.0)
    assert times.seconds(1, "c4.large") == 12.0
    assert times.seconds(2, "c4.large") == 8.0  # the mean of the two
    times.measure(0, "c4.large", 5.0)
    assert times.seconds(0, "c4.large") == 5.0  # the latest run
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        times.measure(0, "c4.large", bad)
    times.measure(0, "x9.large", 1.0)
    assert times.seconds(0, "c4.large") == 5.0
    assert times.by_type() == {"c4.large": 5.0, "c4.xlarge": 6.0}


def test_m_of_earlier_sweeps_of_the_code_comes_before_the_vcpus() -> None:
    times = StepTimes(TYPES, {"c4.large": 4.0, "c4.xlarge": 3.0, "gone.large": 1.0, "m4.2xlarge": float("nan")})
    assert times.seconds(0, "c4.large") == 4.0
    assert times.seconds(0, "c4.xlarge") == 3.0
    assert times.seconds(0, "m4.2xlarge") == pytest.approx((4.0 * 2 + 3.0 * 4) / 2 / 8)
    times.measure(0, "c4.large", 8.0)  # this trial's steps take twice as long
    assert times.seconds(0, "c4.xlarge") == 6.0
    assert times.by_type() == {"c4.large": 8.0, "c4.xlarge": 3.0, "gone.large": 1.0}


def test_the_delta_is_the_bid_and_each_market_and_decision_has_its_own() -> None:
    most = 1_000_000
    bids = [draw_bid(0, XLARGE, decision, 50_000, most) for decision in range(2000)]
    assert bids == [draw_bid(0, Market.parse(str(XLARGE)), decision, 50_000, most) for decision in range(2000)]
    deltas = np.array(bids) - 50_000
    assert deltas.min() >= 10
    assert deltas.max() <= 200_000
    shares = np.histogram(deltas, bins=10, range=(10, 200_001))[0] / 2000
    assert np.all(np.abs(shares - 0.1) < 0.03)  # uniform
    others = [draw_bid(seed, market, 0, 50_000, most) for seed, market in ((1, XLARGE), (0, XLARGE_B), (0, LARGE))]
    assert len({bids[0], *others}) == 4


def test_no_bid_is_above_on_demand_nor_below_the_price() -> None:
    bids = [draw_bid(0, XLARGE, decision, 50_000, 60_000) for decision in range(200)]
    assert max(bids) == 60_000
    assert min(bids) > 50_000
    assert draw_bid(0, XLARGE, 0, 50_000, 40_000) == 50_000


def offers_of_tick(**changes: object) -> OffersOfTick:
    arguments = {
        "plan": plan_of(),
        "types": TYPES,
        "times": StepTimes(TYPES, {}),
        "offers": {LARGE: offer_of("0.03"), XLARGE: offer_of("0.05"), XLARGE_B: offer_of("0.05", 0.5)},
        "cooling": {},
        "most_vcpus": None,
    } | changes
    return OffersOfTick(**arguments)  # type: ignore[arg-type]


def test_the_likely_eviction_is_chosen_where_it_is_refunded() -> None:
    best = offers_of_tick().best(0)
    assert best is not None
    assert best.market == XLARGE_B  # half of its hours are free
    assert [choice.market for choice in offers_of_tick().in_order(0)] == [XLARGE_B, XLARGE, LARGE]
    flat = offers_of_tick(plan=plan_of(billing="flat", flat_micros=20_000)).best(0)
    assert flat is not None
    assert (flat.market, flat.most_hour_micros) == (XLARGE, 20_000)  # every market costs the same


def test_markets_that_cool_down_and_machines_that_are_too_large_are_left_out() -> None:
    assert [choice.market for choice in offers_of_tick(cooling={XLARGE_B: 1}).in_order(0)] == [XLARGE, LARGE]
    assert [choice.market for choice in offers_of_tick(most_vcpus=4).in_order(0)] == [LARGE]
    assert offers_of_tick(most_vcpus=2).best(0) is None
    unknown = {Market("x9.large", "us-east-1a"): offer_of()}
    assert offers_of_tick(offers=unknown).best(0) is None


@pytest.mark.parametrize(("billing", "sold"), [("per-second-first-hour-free", 1), ("hourly-refund", 1), ("flat", 2)])
def test_the_price_that_is_charged_is_at_most_on_demand_whatever_the_last_hour_was(billing: str, sold: int) -> None:
    # Now above on demand after a cheap hour, and now below it after a dear one.
    risen = Offer(
        price_micros=300_000, average_micros=20_000, bid_micros=300_000, p_evicted=0.9, on_demand_micros=200_000
    )
    fallen = Offer(
        price_micros=90_000, average_micros=900_000, bid_micros=95_000, p_evicted=0.0, on_demand_micros=100_000
    )
    plan = plan_of(billing=billing, flat_micros=50_000)
    offers = {XLARGE: risen, LARGE: fallen}
    tick = offers_of_tick(plan=plan, offers=offers)
    assert [choice.market for choice in tick.in_order(0)][-1] == LARGE
    assert (len(list(tick.in_order(0))), tick.above_on_demand) == (sold, 2 - sold)
    flat_above = offers_of_tick(
        plan=plan_of(billing="flat", flat_micros=150_000), offers={XLARGE: risen, LARGE: fallen}
    )
    assert [choice.market for choice in flat_above.in_order(0)] == [XLARGE]


def test_of_free_machines_the_fastest_is_chosen() -> None:
    offers = {LARGE: offer_of("0.03", 1.0), BIG: offer_of("2.00", 1.0, on_demand="2.00")}
    best = offers_of_tick(offers=offers).best(0)
    assert best is not None
    assert best.market == BIG


def test_a_move_must_bring_more_than_it_costs() -> None:
    times = StepTimes(TYPES, {"c4.xlarge": 60.0})
    for steps_left, p_evicted, moves in ((60, 0.5, True), (60, 0.04, False), (1, 0.5, False), (4, 0.9, False)):
        tick = offers_of_tick(times=times, offers={XLARGE: offer_of("0.05", p_evicted)})
        assert bool(tick.gain_of_move(0, XLARGE, steps_left)) == moves, (steps_left, p_evicted)
    # Without a price of the present market nothing can be compared.
    assert offers_of_tick(times=times, offers={LARGE: offer_of("0.01", 0.9)}).gain_of_move(0, XLARGE, 60) == ""


def test_a_deadline_does_not_believe_in_vcpus_that_were_not_measured() -> None:
    times = StepTimes(TYPES, {})
    times.measure(0, "c4.large", 100.0)
    assert times.seconds(0, "c4.xlarge") == 50.0
    assert times.cautious_seconds(0, "c4.xlarge") == 25.0 + 37.5
    assert times.cautious_seconds(0, "c4.large") == 100.0
    times.measure(0, "c4.xlarge", 55.0)
    assert times.cautious_seconds(0, "c4.xlarge") == 55.0
    assert times.cautious_seconds(1, "c4.large") == times.seconds(1, "c4.large"), "it was measured nowhere"
    earlier = StepTimes(TYPES, {"c4.xlarge": 40.0})
    earlier.measure(0, "c4.large", 100.0)
    assert earlier.cautious_seconds(0, "c4.xlarge") == earlier.seconds(0, "c4.xlarge")
