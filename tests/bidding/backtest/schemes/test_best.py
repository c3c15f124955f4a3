"""The compiled rule `best`, held against a walk second by second in which the live policy decides."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.backtest.schemes import SchemeId
from tests.bidding.backtest.cases import TYPES, Case
from tests.bidding.backtest.test_simulate import cases, check, events
from tests.support.forecasts import foresights
from tests.support.markets import PROPERTY


@st.composite
def foreseeing(draw: st.DrawFn) -> Case:
    """Cases of a rule for jobs that lose nothing, which bids the very price: long ones, with much that happens."""
    case = draw(cases(rules=(SchemeId.BEST,)))
    resize_s, eviction_s = draw(st.sampled_from([(20, 60), (20, 300), (20, 300), (0, 60), (130, 60), (0, 0)]))
    setting = replace(
        case.setting,
        work_vcpu_s=41 * 9000,
        window_s=draw(st.sampled_from([3500, 7500, 7500])),
        resize_overhead_s=resize_s,
        eviction_overhead_s=eviction_s,
        checkpoint_s=0,
        restart_s=0,
        patient=draw(st.sampled_from([0, 1, 1, 1])),
    )
    prices = {market: draw(events(at_least=15)) for market in case.prices}
    return replace(case, prices=prices, foresight=draw(foresights()), setting=setting)


@settings(PROPERTY, max_examples=15)  # long walks
@given(case=foreseeing())
def test_a_job_that_foresees_is_what_a_walk_over_its_seconds_makes_of_it(case: Case) -> None:
    """The live policy decides in the walk: at all times as the compiled rule does, to the last bit."""
    check(case)


@settings(PROPERTY, max_examples=10)  # long walks
@given(case=foreseeing())
def test_where_bids_decide_nothing_both_go_by_the_table_whatever_was_foreseen(case: Case) -> None:
    there = replace(case, evictions=replace(case.evictions, bids_decide=False))
    check(there)
    told = there.compiled()
    assert all(bid == max(TYPES[market.instance_type].on_demand_micros, bid) for market, _, _, bid, _, _ in told.lives)
