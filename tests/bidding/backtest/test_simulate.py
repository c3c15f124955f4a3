"""One job, held against a walk second by second, and by hand in the corners."""

from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.backtest.parameters import PPM, JobParameters
from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.market.model import Market
from tests.bidding.backtest.cases import DELTAS, A, B, C, Case
from tests.support.markets import PROPERTY

HOUR = 3600
#: Prices that meet: equal to a bid, a micro-dollar above one, on-demand and above. Cheap ones are the most common.
CHEAP = st.sampled_from([20_000, 20_100, 20_101, 30_000, 30_100])
DEARER = st.sampled_from([80_000, 100_000, 100_001, 430_000, 440_000, 900_000])
PRICES = st.one_of(CHEAP, CHEAP, DEARER)
#: Gaps between prices; many lie so that a price comes in the second of a tick, a renewal or an hour's end.
GAPS = st.one_of(
    st.sampled_from([0, 1, 120, 600, 1200, 3240, 3359, 3360, 3480, 3599, 3600, 3601]), st.integers(0, 2000)
)


@st.composite
def events(draw: st.DrawFn, at_least: int = 1) -> list[tuple[int, int]]:
    at_s, found = draw(st.sampled_from([-5000, -1, 0, 0, 0, 500])), []
    at_least = max(at_least, draw(st.sampled_from([1, 15, 25])))
    for gap, price in draw(st.lists(st.tuples(GAPS, PRICES), min_size=at_least, max_size=40)):
        found.append((at_s, price))
        at_s += gap
    return found


CELLS = st.tuples(st.sampled_from([0.0, 0.1, 0.1, 0.3, 0.9, 1.0]), st.sampled_from([0.0, 300.0, 1800.5, 3600.0]))


#: High bids are best, so much is held for long, and some of it lapses.
STEEP = ((0.9, 300.0), (0.3, 1800.5), (0.0, 3600.0))


@st.composite
def cases(draw: st.DrawFn, rules: tuple[SchemeId, ...] = (SchemeId.STANDARD, SchemeId.PROTEUS)) -> Case:
    markets = draw(st.sampled_from([(A,), (A, B), (A, B, C), (A, C)]))
    steep = draw(st.booleans())
    rows: dict[Market, tuple[tuple[float, float], ...]] = {
        market: STEEP if steep else tuple(draw(CELLS) for _ in DELTAS) for market in markets
    }
    if len(markets) > 2 and draw(st.booleans()):
        del rows[B]  # a market without history
    checkpoints = draw(st.booleans())
    setting = JobParameters(
        work_vcpu_s=41 * 9000 if steep else draw(st.integers(1, 41 * 9000)),
        window_s=draw(st.one_of(st.integers(1, 13_000), st.integers(30, 120).map(lambda tick: 120 * tick))),
        tick_s=draw(st.sampled_from([120, 120, 100])),
        allocation_vcpus=draw(st.sampled_from([2, 8, 15, 16])),
        max_spot_vcpus=draw(st.sampled_from([7, 16, 41, 41])),
        reliable_count=draw(st.integers(0, 3)),
        reliable_micros=draw(st.sampled_from([0, 2_001, 210_001])),
        resize_overhead_s=draw(st.sampled_from([0, 20, 130])),
        eviction_overhead_s=draw(st.sampled_from([0, 60, 300])),
        efficiency_ppm=draw(st.sampled_from([PPM, 830_000])),
        checkpoint_s=draw(st.sampled_from([120, 600, 1800])) if checkpoints else 0,
        restart_s=draw(st.sampled_from([0, 300])) if checkpoints else 0,
        patient=draw(st.integers(0, 1)),
    )
    return Case(
        prices={market: draw(events()) for market in markets},
        rule=draw(st.sampled_from(rules)),
        start_s=draw(st.sampled_from([0, 0, 7, 240])),
        parameter=draw(st.sampled_from([0, 100, 100, 10_000])),
        evictions=EvictionTable(DELTAS, rows),
        setting=setting,
    )


def check(case: Case) -> None:
    told = case.compiled()
    event(f"{min(told.evictions, 3)} evictions, finished {told.finished}")
    event(f"lapses: {any(not life[5] and life[4] < case.start_s + told.runtime_s for life in told.lives)}")
    assert told == case.naive()


@settings(PROPERTY, max_examples=25)  # long walks
@given(case=cases(rules=(SchemeId.STANDARD,)))
def test_a_standard_job_is_what_a_walk_over_its_seconds_makes_of_it(case: Case) -> None:
    check(case)


@settings(PROPERTY, max_examples=25)  # long walks
@given(case=cases(rules=(SchemeId.PROTEUS,)))
def test_a_proteus_job_is_what_a_walk_over_its_seconds_makes_of_it(case: Case) -> None:
    check(case)


@settings(PROPERTY, max_examples=25)  # long walks
@given(case=cases(rules=(SchemeId.ABOVE,)))
def test_a_job_that_bids_just_above_is_what_a_walk_over_its_seconds_makes_of_it(case: Case) -> None:
    check(case)


@settings(PROPERTY, max_examples=25)  # long walks
@given(case=cases(rules=(SchemeId.ORACLE,)), least_s=st.sampled_from([1, 100, 600]))
def test_a_job_of_who_knows_the_hour_is_what_a_walk_over_its_seconds_makes_of_it(case: Case, least_s: int) -> None:
    check(replace(case, parameter=least_s))


# -- the corners, by hand: 8 x 2 vCPUs of `small`, bid 0.10 $, one hour of work and no overhead -----------------------

PLAIN = JobParameters(
    work_vcpu_s=16 * HOUR,
    window_s=4 * HOUR,
    reliable_count=0,
    resize_overhead_s=0,
    eviction_overhead_s=0,
)
DEAR = 100_001


def plain(*prices: tuple[int, int], **changes: int) -> Case:
    return Case({A: prices}, setting=replace(PLAIN, **changes))


def test_an_hour_costs_its_price_at_its_start() -> None:
    told = plain((0, 20_000), (1, 90_000)).compiled()
    assert (told.cost_micros, told.runtime_s, told.evictions, told.finished) == (8 * 20_000, HOUR, 0, True)
    assert (told.paid_vcpu_s, told.free_vcpu_s) == (16 * HOUR, 0)


def test_the_second_hour_costs_the_price_of_its_start_and_the_last_one_by_the_seconds_used() -> None:
    told = plain((0, 20_000), (HOUR, 50_000), work_vcpu_s=16 * 5400).compiled()
    assert (told.cost_micros, told.runtime_s) == (8 * 20_000 + 8 * 25_000, 5400)


def test_a_price_that_equals_the_bid_takes_nothing() -> None:
    assert plain((0, 20_000), (60, 100_000)).compiled().evictions == 0


def test_a_price_above_the_bid_takes_and_refunds_the_hour() -> None:
    """Taken after 1000 s; bought again at the first tick at which the price is on-demand or less."""
    told = plain((0, 20_000), (1000, DEAR), (1100, 30_000)).compiled()
    assert told.lives == [(A, 0, 8, 100_000, 1000, 1), (A, 1200, 8, 100_000, 3800, 0)]
    assert told.cost_micros == round(8 * 30_000 * 2600 / 3600)
    assert (told.paid_vcpu_s, told.free_vcpu_s, told.runtime_s) == (16 * 2600, 16 * 1000, 3800)


def test_taken_exactly_on_the_hour_the_hour_stays_paid_and_no_other_begins() -> None:
    told = plain((0, 20_000), (HOUR, DEAR), work_vcpu_s=16 * (HOUR + 10), window_s=HOUR + 100).compiled()
    assert told.lives == [(A, 0, 8, 100_000, HOUR, 1)]
    assert (told.cost_micros, told.free_vcpu_s, told.finished) == (8 * 20_000, 0, False)


def test_the_job_that_ends_in_the_second_of_an_eviction_gets_the_refund() -> None:
    told = plain((0, 20_000), (1800, DEAR), work_vcpu_s=16 * 1800).compiled()
    assert (told.cost_micros, told.runtime_s, told.evictions, told.finished) == (0, 1800, 1, True)


def test_an_eviction_at_the_end_of_the_window_has_not_happened() -> None:
    told = plain((0, 20_000), (1800, DEAR), window_s=1800).compiled()
    assert (told.cost_micros, told.runtime_s, told.evictions, told.finished) == (8 * 10_000, 1800, 0, False)


def test_of_two_prices_in_one_second_the_last_counts() -> None:
    assert plain((0, DEAR), (0, 20_000), (60, DEAR), (60, 30_000)).compiled().cost_micros == 8 * 20_000


def test_before_the_first_price_nothing_is_bought_and_after_the_last_it_holds() -> None:
    told = plain((500, 20_000)).compiled()
    assert told.lives == [(A, 600, 8, 100_000, 600 + HOUR, 0)]
    assert (told.cost_micros, told.runtime_s) == (8 * 20_000, 600 + HOUR)


def test_above_on_demand_it_waits() -> None:
    assert plain((0, DEAR), (130, 100_000)).compiled().lives[0][1] == 240


def test_bought_at_once_after_an_eviction_from_another_market() -> None:
    prices = {A: ((0, 20_000), (1000, DEAR)), B: ((0, 90_000),)}
    assert Case(prices, setting=PLAIN).compiled().lives[1] == (B, 1000, 2, 440_000, HOUR, 0)


def test_overheads_stop_the_whole_footprint() -> None:
    """20 s at the purchase; 60 s after the eviction, in which the next 20 s lie."""
    prices = {A: ((0, 20_000), (1000, DEAR)), B: ((0, 90_000),)}
    case = Case(prices, setting=replace(PLAIN, resize_overhead_s=20, eviction_overhead_s=60))
    assert case.compiled().runtime_s == HOUR + 80


def test_an_eviction_leaves_the_last_checkpoint() -> None:
    """Checkpoints at 600 and 1200 s; taken at 1300 s, 300 s of restart, and the 100 s once more."""
    prices = {A: ((0, 20_000), (1300, DEAR)), B: ((0, 90_000),)}
    case = Case(prices, setting=replace(PLAIN, checkpoint_s=600, restart_s=300))
    assert case.compiled().runtime_s == 1300 + 300 + (HOUR - 1200)


def test_the_next_checkpoint_is_counted_from_the_end_of_the_restart() -> None:
    """As above; it works again from 1600 s, and is taken at 2150 s, before the checkpoint of 2200 s."""
    prices = {A: ((0, 20_000), (1300, DEAR)), B: ((0, 90_000), (2150, 440_001)), C: ((0, 99_000),)}
    case = Case(prices, setting=replace(PLAIN, checkpoint_s=600, restart_s=300))
    assert case.compiled().runtime_s == 2150 + 300 + (HOUR - 1200)


def test_a_slower_rate_takes_longer() -> None:
    assert plain((0, 20_000), efficiency_ppm=830_000).compiled().runtime_s == -(-HOUR * 100 // 83)


def test_reliable_machines_cost_by_the_second_and_compute_only_if_they_may() -> None:
    told = plain((0, 20_000), reliable_count=3, reliable_micros=200_000).compiled()
    assert told.cost_micros == 8 * 20_000 + 3 * 200_000
    told = plain((0, DEAR), reliable_count=4, reliable_micros=200_000, reliable_works=1).compiled()
    assert (told.cost_micros, told.runtime_s, told.lives) == (4 * 200_000, HOUR, [])


#: Only bids of 0.40 $ above the price are never taken; lower ones always are, at once.
ALL_OR_NOTHING = EvictionTable(DELTAS, {market: ((1.0, 0.0), (1.0, 0.0), (0.0, 3600.0)) for market in (A, C)})
TWO_OF_EIGHT = replace(PLAIN, work_vcpu_s=16 * 5000, allocation_vcpus=8, max_spot_vcpus=16)


def test_what_lapses_works_to_the_end_of_its_hour_and_frees_its_place_before() -> None:
    """Two of eight vCPUs fill the cap. At 3360 s that of A lapses, and C, cheaper still, takes its place."""
    prices = {A: ((0, 20_000),), C: ((0, 99_000), (100, 15_000), (3300, 14_000))}
    told = Case(prices, SchemeId.PROTEUS, evictions=ALL_OR_NOTHING, setting=TWO_OF_EIGHT).compiled()
    # 120 s of 8 vCPUs, 3240 of 16, 240 of 24, and the rest of 16
    end_s = 3600 + (16 * 5000 - 8 * 120 - 16 * 3240 - 24 * 240) // 16
    assert told.runtime_s == end_s
    assert told.lives == [
        (A, 0, 4, 420_000, 3600, 0),
        (C, 120, 4, 415_000, end_s, 0),
        (C, 3360, 4, 414_000, end_s, 0),
    ]


def test_a_tie_renews() -> None:
    """At 3360 s A stands so close to its bid that it costs nothing and does nothing: E is the same without it."""
    prices = {A: ((0, 20_000), (130, 90_000)), C: ((0, 99_000), (100, 15_000))}
    told = Case(prices, SchemeId.PROTEUS, evictions=ALL_OR_NOTHING, setting=TWO_OF_EIGHT).compiled()
    assert told.lives == [(A, 0, 4, 420_000, 5060, 0), (C, 120, 4, 415_000, 5060, 0)]


def test_who_has_restarted_does_not_restart_again() -> None:
    """A is taken at 600 s, and C restarts. At 3360 s C, dear, does no work and lapses; A follows without a restart.

    The stop for C at 120 s is what A's work was saved at; the next checkpoint would have been at 740 s.
    """
    prices = {A: ((0, 20_000), (600, 420_001), (3700, 20_000)), C: ((0, 99_000), (100, 15_000), (2900, DEAR))}
    done = 8 * 100 + 8 * (3720 - 900)
    setting = replace(TWO_OF_EIGHT, work_vcpu_s=done + 8 * 1000, checkpoint_s=600, restart_s=300, resize_overhead_s=20)
    told = Case(prices, SchemeId.PROTEUS, evictions=ALL_OR_NOTHING, setting=setting).compiled()
    assert [(life[0], life[1], life[4]) for life in told.lives] == [(A, 0, 600), (C, 120, 3720), (A, 3720, 4740)]
    assert told.runtime_s == 4740


def test_who_stops_for_a_change_saves_its_state_where_there_are_checkpoints() -> None:
    """The second eight vCPUs come at 120 s, all are taken at 600 s, and again eight come at 720 and at 840 s."""
    case = Case({A: ((0, 20_000), (600, 20_101), (700, 20_000))}, SchemeId.ABOVE)
    setting = replace(TWO_OF_EIGHT, work_vcpu_s=16_000, checkpoint_s=1800)
    told = replace(case, setting=setting).compiled()
    assert told.runtime_s == 840 + (16_000 - 8 * 120) // 16
    told = replace(case, setting=replace(setting, resize_overhead_s=20)).compiled()
    assert told.runtime_s == 860 + (16_000 - 8 * 100 - 8 * 100) // 16  # what was done by 120 s is kept


def test_just_above_buys_the_cheapest_to_the_cap_and_renews() -> None:
    """Two allocations of eight vCPUs, the second a tick later; C is cheaper from 100 s on, taken in its first hour."""
    prices = {A: ((0, 20_000),), C: ((0, 99_000), (100, 15_000), (3000, 15_101), (3100, 15_000))}
    told = Case(prices, SchemeId.ABOVE, setting=TWO_OF_EIGHT).compiled()
    assert told.lives == [
        (A, 0, 4, 20_100, told.runtime_s, 0),
        (C, 120, 4, 15_100, 3000, 1),
        (A, 3000, 4, 20_100, told.runtime_s, 0),
    ]


def test_the_oracle_bids_what_the_last_rise_of_the_hour_passes() -> None:
    """C is free until 3000 s, A until 3100 s, under a bid that the rises before leave standing."""
    prices = {
        A: ((0, 20_000), (500, 30_000), (900, 25_000), (3100, 30_001), (3600, 90_000)),
        C: ((0, 20_000), (3000, 90_000), (3700, 80_000)),
    }
    told = Case(prices, SchemeId.ORACLE, parameter=600, setting=replace(PLAIN, max_spot_vcpus=16)).compiled()
    assert told.lives[0] == (A, 0, 8, 30_000, 3100, 1)
    assert (told.evictions, told.free_vcpu_s, told.lives[1:]) == (1, 16 * 3100, [])


def test_bidbrain_counts_restart_and_lost_work_of_checkpoints() -> None:
    """C is cheaper but is taken in a tenth of the hours: with 420 s lost each time A is better, without it C is."""
    rows = {A: ((0.0, 3600.0),) * 3, C: ((0.1, 3500.0),) * 3}
    case = Case(
        {A: ((0, 20_000),), C: ((0, 22_000),)},
        SchemeId.PROTEUS,
        evictions=EvictionTable(DELTAS, rows),
        setting=TWO_OF_EIGHT,
    )
    assert case.compiled().lives[0][0] == C
    checkpoints = replace(TWO_OF_EIGHT, checkpoint_s=600, restart_s=120)
    assert replace(case, setting=checkpoints).compiled().lives[0][0] == A


@pytest.mark.parametrize("rule", [SchemeId.STANDARD, SchemeId.PROTEUS, SchemeId.ABOVE, SchemeId.ORACLE])
def test_without_any_price_the_job_is_given_up(rule: SchemeId) -> None:
    told = Case({A: ((10**6, 20_000),)}, rule, setting=PLAIN).compiled()
    assert (told.cost_micros, told.runtime_s, told.finished, told.lives) == (0, 4 * HOUR, False, [])
