"""The clairvoyant bound: below every scheme, in the corners by hand, and never raised by more room."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.backtest.clairvoyant import bound as clairvoyant
from proteus_spot.bidding.backtest.eviction_arrays import pack_table
from proteus_spot.bidding.backtest.outcomes import Outcome
from proteus_spot.bidding.backtest.parameters import JobParameters
from proteus_spot.bidding.backtest.price_arrays import Markets, pack
from proteus_spot.bidding.backtest.reference_cluster import by_zone, cheapest, draw_starts
from proteus_spot.bidding.backtest.runner import run
from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.backtest.schemes.scheme_registry import SCHEMES, scheme
from proteus_spot.bidding.evictions.table import fit
from proteus_spot.bidding.forecast import fit_forecast
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.traces import Int64s, TraceSet
from proteus_spot.bidding.synthetic.renewal_market import TYPICAL, generate
from tests.bidding.backtest.cases import TYPES, WANTED_VCPUS, A, B, C, Case, packed
from tests.bidding.backtest.naive import Events
from tests.bidding.backtest.test_simulate import cases
from tests.support.markets import PROPERTY

HOUR = 3600
DEAR = 100_001
#: What is subtracted for rounding.
ROUNDED_MICROS = 40


def nearly(micros: float) -> object:
    """Return the amount, but for what the search for μ may miss and for rounding."""
    return pytest.approx(micros, rel=1e-5, abs=ROUNDED_MICROS)


def bound(case: Case, **more: int) -> Int64s:
    setting = case.setting
    if case.rule is SchemeId.STANDARD:
        setting = replace(setting, max_spot_vcpus=max(setting.max_spot_vcpus, WANTED_VCPUS))
    return clairvoyant.bounds(packed(case.prices), np.array([case.start_s]), setting, **more)[0]


@settings(PROPERTY, max_examples=30)
@given(
    case=cases(rules=(SchemeId.STANDARD, SchemeId.PROTEUS, SchemeId.ABOVE, SchemeId.ORACLE, SchemeId.ORACLE)),
    grid_s=st.sampled_from([60, 120, 300]),
)
def test_no_scheme_does_a_job_for_less(case: Case, grid_s: int) -> None:
    told, least = case.compiled(), bound(case, grid_s=grid_s)
    event(f"finished {told.finished}, {case.rule.name}")
    assume(told.finished)
    event(
        f"free: {told.free_vcpu_s > 0}, reached within a tenth: {told.cost_micros * 0.9 <= least[Outcome.COST_MICROS]}"
    )
    assert least[Outcome.FINISHED]
    assert least[Outcome.COST_MICROS] <= told.cost_micros


@settings(PROPERTY, max_examples=25)
@given(
    case=cases(),
    start_s=st.integers(0, 1000),
    window_s=st.integers(1, 6000),
    grid_s=st.sampled_from([12, 60, 120, 400]),
)
def test_a_bin_is_never_dearer_than_its_seconds(case: Case, start_s: int, window_s: int, grid_s: int) -> None:
    """Bins of a second leave nothing open; what longer ones leave open may only help."""
    case = replace(case, start_s=start_s, setting=replace(case.setting, window_s=window_s, work_vcpu_s=5 * window_s))
    exact, least = bound(case, grid_s=1), bound(case, grid_s=grid_s)
    event(f"finished {exact[Outcome.FINISHED]}, free {exact[Outcome.FREE_VCPU_S] > 0}")
    assume(exact[Outcome.FINISHED])
    assert least[Outcome.FINISHED]
    assert least[Outcome.COST_MICROS] <= exact[Outcome.COST_MICROS] * (1 + 1e-5) + 2


@PROPERTY
@given(case=cases(), more=st.sampled_from(["cap", "window", "market"]))
def test_more_room_never_hurts(case: Case, more: str) -> None:
    before = bound(case)
    if more == "cap":
        after = bound(replace(case, setting=replace(case.setting, max_spot_vcpus=case.setting.max_spot_vcpus * 2)))
    elif more == "window":
        after = bound(replace(case, setting=replace(case.setting, window_s=case.setting.window_s * 2)))
    else:
        fewer = {market: case.prices[market] for market in sorted(case.prices)[:1]}
        before, after = bound(replace(case, prices=fewer)), before
    assume(before[Outcome.FINISHED])
    assert after[Outcome.FINISHED]
    assert after[Outcome.COST_MICROS] <= before[Outcome.COST_MICROS] * (1 + 1e-5) + 2


# -- by hand: 16 vCPU-hours of work on at most 16 vCPUs of `small` ----------------------------------------------------

PLAIN = JobParameters(
    work_vcpu_s=16 * HOUR,
    window_s=4 * HOUR,
    max_spot_vcpus=16,
    reliable_count=0,
    resize_overhead_s=0,
    eviction_overhead_s=0,
)


def plain(prices: Mapping[Market, Events], start_s: int = 0, grid_s: int = 120, **changes: int) -> tuple[int, ...]:
    """Return (cost, run time, paid vCPU-seconds, free ones, finished)."""
    row = bound(Case(prices, SchemeId.PROTEUS, start_s, setting=replace(PLAIN, **changes)), grid_s=grid_s)
    columns = (Outcome.COST_MICROS, Outcome.RUNTIME_S, Outcome.PAID_VCPU_S, Outcome.FREE_VCPU_S, Outcome.FINISHED)
    return tuple(int(row[column]) for column in columns)


def test_at_a_price_that_never_rises_all_work_is_paid() -> None:
    cost, _, paid, free, finished = plain({A: ((0, 20_000),)})
    assert cost == nearly(8 * 20_000)
    assert (paid, free, finished) == (16 * HOUR, 0, 1)


def test_it_waits_for_a_lower_price_while_nothing_else_is_paid() -> None:
    prices = {A: ((0, 20_000), (2 * HOUR, 10_000))}
    assert plain(prices)[0] == nearly(8 * 10_000)
    assert plain(prices, window_s=2 * HOUR)[0] == nearly(8 * 20_000)


def test_waiting_costs_what_the_reliable_machines_cost() -> None:
    """An hour at the higher price is 0.08 $ more than at the lower one; two hours of waiting are 0.06 or 0.10 $.

    Less 6 minutes at most: what lapses makes room 240 s before its end, and the last bin is for nothing.
    """
    prices = {A: ((0, 20_000), (2 * HOUR, 10_000))}
    for micros, waits in ((30_000, True), (50_000, False)):
        cost, runtime, *_ = plain(prices, reliable_count=1, reliable_micros=micros)
        spot, hours = (8 * 10_000, 3) if waits else (8 * 20_000, 1)
        assert (runtime > 2 * HOUR) == waits
        assert spot + micros * (hours - 0.1) - ROUNDED_MICROS <= cost <= spot + micros * hours


def test_the_hour_before_a_rise_is_free_and_a_rise_each_hour_makes_all_free() -> None:
    """A rise at 3000 s: the 16 vCPUs work 3000 s for nothing, the rest is paid."""
    cost, _, paid, free, _ = plain({A: ((0, 20_000), (3000, DEAR), (3100, 20_000))})
    assert (paid, free) == (16 * 600, 16 * 3000)
    assert cost == nearly(8 * 20_000 * 600 / HOUR)
    often = [(at_s + later, price) for at_s in range(0, 4 * HOUR, 2400) for later, price in ((0, 20_000), (2390, DEAR))]
    assert plain({A: often}) == (0, plain({A: often})[1], 0, 16 * HOUR, 1)


def test_a_rise_an_hour_after_the_purchase_frees_nothing_but_the_hour_before_it() -> None:
    """In bins of a second: at 0 s the record of 3600 s comes too late; who waits a second has 3599 s.

    What lapses makes room for the last second, so that a slot may do 3601.
    """
    prices = {A: ((0, 20_000), (HOUR, DEAR))}
    strict = {"grid_s": 1, "renewal_lead_s": 1, "window_s": HOUR}
    assert plain(prices, **strict, work_vcpu_s=16 * 3599)[0] == 0
    assert plain(prices, **strict, work_vcpu_s=16 * 3601)[0] == nearly(8 * 20_000)


def test_free_is_who_was_bought_below_the_record() -> None:
    """The rise to 0.03 $ is none for who bought at 0.03 $ before; only the 400 s at 0.02 $ are free."""
    prices = {A: ((0, 30_000), (1000, 20_000), (1400, 30_000))}
    *_, free, finished = plain(prices)
    assert (finished, free) == (1, pytest.approx(16 * 400, abs=16 * 120))


def test_above_on_demand_hours_are_renewed_and_nothing_is_bought() -> None:
    """From 100 s on nothing is on sale; bought before, and bid 0.112 $, it is kept for an hour, and then taken free."""
    prices = [(0, 20_000), (100, 112_000), (200, 110_000), (HOUR + 1000, 120_000)]
    until = {"window_s": HOUR + 1000, "work_vcpu_s": 16 * (HOUR + 1000)}
    assert plain({A: prices}, grid_s=1, **until)[0] == nearly(8 * 20_000)
    # without the rise at its end the second hour is paid, at 0.11 $
    assert plain({A: prices[:-1]}, grid_s=1, **until)[0] == nearly(8 * 20_000 + 8 * 110_000 / 3.6)
    # and who may buy above on-demand leaves out the first one, but for 100 s
    free = plain({A: prices}, grid_s=1, ceiling=0, window_s=HOUR + 1000, work_vcpu_s=16 * 3600)
    assert (free[0], free[4]) == (0, 1)
    assert plain({A: prices[1:]}, window_s=HOUR)[4] == 0


def test_reliable_machines_that_compute_leave_less_to_do() -> None:
    cost, *_ = plain({A: ((0, 20_000),)}, window_s=HOUR, reliable_count=2, reliable_works=1, max_spot_vcpus=8)
    assert cost == pytest.approx(4 * 20_000, rel=0.04)


def test_checkpoints_take_their_share() -> None:
    cost, *_ = plain({A: ((0, 20_000),)}, efficiency_ppm=500_000)
    assert cost == nearly(16 * 20_000)


def test_a_job_that_does_not_fit_into_its_window_is_not_finished() -> None:
    """Its cost is that of its reliable machines: 2 at 0.03 $ for 1800 s."""
    told = plain({A: ((0, 20_000),)}, window_s=1800, reliable_count=2, reliable_micros=30_000)
    assert told == (29_999, 1800, 0, 0, 0)
    assert plain({A: ((10**6, 20_000),)})[4] == 0


def test_an_end_that_is_missed_by_less_than_a_second_of_one_vcpu_is_not_given_up() -> None:
    """3601 s a slot is all that an hour has (see above); a second later the reliable machine has cost 0.28 $ more."""
    prices = {A: ((0, 20_000), (HOUR, DEAR), (HOUR + 1, 20_000))}
    strict = {"grid_s": 1, "renewal_lead_s": 1, "reliable_count": 1, "reliable_micros": 10**9}
    exact = plain(prices, **strict, work_vcpu_s=16 * 3601)
    missed = plain(prices, **strict, work_vcpu_s=16 * 3601, efficiency_ppm=999_999)
    assert (exact[1], exact[4]) == (HOUR, 1)
    assert missed[4] == 1
    assert exact[0] <= missed[0] <= exact[0] + 300_000


def test_before_its_start_a_job_does_nothing() -> None:
    """It starts in the middle of a bin, 900 s before a rise."""
    prices = {A: ((0, 20_000), (1000, DEAR), (1001, 20_000))}
    assert plain(prices, start_s=100, work_vcpu_s=16 * 900)[:4:3] == (0, 16 * 900)
    cost, _, paid, free, _ = plain(prices, start_s=100, work_vcpu_s=16 * 910)
    assert (paid, free) == (16 * 10, 16 * 900)
    assert cost > 0
    # what comes after the first bin is counted whole
    again = {A: (*prices[A], (2501, DEAR), (2502, 20_000))}
    assert plain(again, start_s=100, work_vcpu_s=16 * (900 + 1500))[0] == 0


def test_shorter_bins_bring_the_bound_nearer() -> None:
    prices = {A: ((0, 20_000), (3010, DEAR), (3100, 20_000)), C: ((0, 25_000), (5000, 40_000), (5010, 25_000))}
    told = [
        plain(prices, start_s=7, grid_s=grid_s, reliable_count=1, reliable_micros=99_999)[0]
        for grid_s in (600, 120, 24, 6)
    ]
    assert told == sorted(told)
    assert told[-1] - told[-2] < told[1] - told[0]


@pytest.mark.parametrize(("changes", "grid_s"), [({}, 7), ({}, 0), ({"renewal_lead_s": 3599}, 120)])
def test_bins_that_do_not_fit_are_refused(changes: dict[str, int], grid_s: int) -> None:
    with pytest.raises(ValueError, match=r"grid_s is|renewal_lead_s is"):
        plain({A: ((0, 20_000),)}, grid_s=grid_s, **changes)


# -- many jobs --------------------------------------------------------------------------------------------------------

DAY = 86_400
MARKETS = by_zone((B, A, C))["all"]
REFERENCE = cheapest(MARKETS, TYPES)


@pytest.fixture(scope="module")
def traces() -> TraceSet:
    on_demand = {market: TYPES[market.instance_type].on_demand_micros for market in MARKETS}
    return TraceSet(generate(on_demand, 0, 8 * DAY, np.random.default_rng(1), climate=TYPICAL))


@pytest.fixture(scope="module")
def generated(traces: TraceSet) -> Markets:
    return pack(traces, MARKETS, TYPES)


STARTS_S = draw_starts(np.random.default_rng(0), 4 * DAY, 8 * DAY, 2, 120)


@pytest.mark.parametrize("name", [*SCHEMES, "fixed-delta:0.01", "oracle"])
def test_it_stands_below_each_scheme_start_by_start(traces: TraceSet, generated: Markets, name: str) -> None:
    table = pack_table(fit(traces, 0, 4 * DAY), MARKETS, fit_forecast(traces, TYPES, 0, 4 * DAY))
    told = run(generated, table, scheme(name), STARTS_S, 2, REFERENCE)
    least = clairvoyant.run(generated, STARTS_S, 2, REFERENCE, scheme=scheme(name))
    assert least.finished.all()
    assert (least.relative_cost <= told.relative_cost)[told.finished].all()


def test_it_tells_what_a_scheme_tells_and_threads_change_nothing(generated: Markets) -> None:
    told = clairvoyant.run(generated, STARTS_S, 2, REFERENCE)
    assert 0 < told.relative_cost.mean() < 0.3
    assert (told.rows[:, Outcome.ON_DEMAND_VCPU_S] == 12 * told.rows[:, Outcome.RUNTIME_S]).all()
    spot = told.rows[:, Outcome.PAID_VCPU_S] + told.rows[:, Outcome.FREE_VCPU_S]
    assert (spot == 512 * 2 * HOUR).all()
    assert (told.evictions > 0).any()
    again = clairvoyant.run(generated, STARTS_S, 2, REFERENCE, threads=3)
    assert (again.rows == told.rows).all()
    assert clairvoyant.run(generated, STARTS_S[:0], 2, REFERENCE).rows.shape == (0, len(Outcome))


def test_settings_may_be_changed(generated: Markets) -> None:
    without = clairvoyant.run(generated, STARTS_S, 2, REFERENCE, reliable_count=0)
    assert (without.relative_cost <= clairvoyant.run(generated, STARTS_S, 2, REFERENCE).relative_cost).all()


@pytest.mark.slow
@pytest.mark.skipif("PROTEUS_TRACES" not in os.environ, reason="PROTEUS_TRACES names no folder of real price files")
@pytest.mark.parametrize("index", [0, 1, 2])
def test_on_real_prices_nearly_everything_is_free(index: int) -> None:
    from proteus_spot.benchmarks.market.backtest_field import FILES, real

    on = real(Path(os.environ["PROTEUS_TRACES"]), FILES[index])
    starts_s = draw_starts(np.random.default_rng(0), on.from_s, on.until_s, 20, 100)
    told = clairvoyant.run(on.packed(on.markets)[0], starts_s, 20, on.reference, threads=2)
    assert told.finished.all()
    assert 0.012 < told.relative_cost.mean() < 0.02
