"""`best` by hand; that it decides as the compiled rule is held in tests/bidding/backtest."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.facts.rates import TypeSpeed
from proteus_spot.bidding.forecast import Forecast, MarketFeatures
from proteus_spot.bidding.market.model import Allocation
from proteus_spot.bidding.policies import policy
from proteus_spot.bidding.policies.base import Choice, MarketView
from proteus_spot.bidding.policies.best import BestPolicy
from tests.support.forecasts import foresight_of, foresights, signals
from tests.support.markets import BIG, LARGE, MARKETS, PROPERTY, START_S, XLARGE, XLARGE_B, reliable, spot, view, views

BEST = BestPolicy()
#: A bid at the price is taken in half of the hours, one of a tenth more in three of ten, one of twice as much seldom.
CALM = foresight_of(((0.2, 0.5), (0.1, 0.3), (0.01, 0.02)))
JOB = JobModel(resize_overhead_s=20, eviction_overhead_s=60, allocation_vcpus=64, max_spot_vcpus=64)
#: ω of the very price: a fifth are gone after 15 minutes, half after the hour.
USEFUL_S = 900 * 0.9 + 2700 * 0.65
FLAT = MarketFeatures(50_000, 50_000, 600, 0, 0, 50_000.0, 50_000.0, 50_000.0)


def shown(*footprint: Allocation, foresight: Forecast | None = CALM, **more: Any) -> MarketView:
    """Return a view of two markets, c4.xlarge at 5 cents and its twin at 6, with signals that tell nothing."""
    prices = more.pop("prices", {XLARGE: "0.05", XLARGE_B: "0.06"})
    here = view(*footprint, prices=prices, job=more.pop("job", JOB), cooling=more.pop("cooling", frozenset()))
    return replace(here, **{"signals": dict.fromkeys(MARKETS, FLAT), "foresight": foresight} | more)


# -- buying -----------------------------------------------------------------------------------------------------------


def test_all_of_the_cap_is_bought_where_work_costs_least_at_the_very_price():
    decision = BEST.acquisition(shown(reliable(count=3)))
    best = decision.chosen
    assert best is not None
    assert (best.market, best.count, best.delta_micros, best.bid_micros) == (XLARGE, 16, 0, 50_000)
    work = 64 * (USEFUL_S - 20 - 0.5 * 60) / 3600
    cost = 0.5 * 0.05 * 16 + 3 * 0.20 * USEFUL_S / 3600  # the tier's share, for as long as it is expected to last
    assert (best.eviction_prob, best.cost_usd, best.work) == pytest.approx((0.5, cost, work))
    assert best.cost_per_work == pytest.approx(cost / work)
    assert decision.reason == (
        f"16 x {XLARGE} at $0.0500, bid $0.0500 (eviction within the hour 50%): {work:.2f} vCPU-h of work are expected "
        f"for ${cost / work:.5f}/vCPU-h, the least of 2 markets"
    )
    assert "dearer than the best" in decision.candidates[1].why_not


def test_where_evictions_cost_much_a_higher_bid_is_made():
    best = BEST.acquisition(shown(job=replace(JOB, eviction_overhead_s=3000))).chosen
    assert best is not None
    assert (best.delta_micros, best.bid_micros) == (50_000, 100_000)


def test_what_is_alive_answers_for_the_pause_of_a_purchase_and_counts_in_the_cap_while_it_lapses():
    held, lapsing = spot("held", LARGE, 4), spot("lapsing", XLARGE_B, 4)
    best = BEST.acquisition(shown(held, lapsing=(lapsing,))).chosen
    assert best is not None
    assert best.count == 10  # of 64 vCPUs 8 and 16 are alive
    assert best.work == pytest.approx((40 * (USEFUL_S - 50) - 24 * 50) / 3600)
    full = BEST.acquisition(shown(held, lapsing=(replace(lapsing, count=14),)))
    assert full.reason == "nothing can be bought: all of 64 spot vCPUs are held"


def test_the_reliable_tier_is_no_other_even_if_it_works():
    works = BEST.acquisition(shown(reliable(count=3), job=replace(JOB, reliable_works=True)))
    assert works == BEST.acquisition(shown(reliable(count=3), job=replace(JOB, reliable_works=False)))


def test_an_allocation_is_as_large_as_the_job_wants_it():
    best = BEST.acquisition(shown(job=replace(JOB, allocation_vcpus=10))).chosen
    assert best is not None
    assert best.count == 2


@pytest.mark.parametrize(("since_s", "waits"), [(0, True), (39, True), (40, False), (41, False)])
def test_after_an_eviction_nothing_is_bought_that_would_only_stand_still(since_s: int, waits: bool):
    decision = BEST.acquisition(shown(last_eviction_s=START_S - since_s))
    assert (decision.verdict is Choice.WAIT) is waits
    if waits:
        assert decision.reason == f"not buying: the job is still recovering from an eviction ({40 - since_s} s)"


def test_without_a_foresight_nothing_is_bought_and_a_market_without_signal_is_left_out():
    assert "no foresight" in BEST.acquisition(shown(foresight=None)).reason
    best = BEST.acquisition(shown(signals={XLARGE_B: FLAT})).chosen
    assert best is not None
    assert best.market == XLARGE_B
    assert BEST.acquisition(shown(signals={})).reason == (
        "nothing can be bought: nothing is known of the recent past of a market"
    )


def test_what_the_published_policy_refuses_is_refused_here_too():
    assert (
        "larger than an allocation"
        in BEST.acquisition(shown(prices={BIG: "0.1"}, job=replace(JOB, allocation_vcpus=16))).reason
    )
    assert "left alone" in BEST.acquisition(shown(cooling=frozenset({XLARGE, XLARGE_B}))).reason
    assert "on-demand price" in BEST.acquisition(shown(prices={XLARGE: "0.2001"})).reason
    assert BEST.acquisition(shown(prices={})).reason == "nothing can be bought: no market has a price"


def test_where_no_work_is_to_be_expected_it_waits():
    decision = BEST.acquisition(shown(job=replace(JOB, resize_overhead_s=3600)))
    assert decision.verdict is Choice.WAIT
    assert decision.reason == f"no work is to be expected of any of 2 markets, {XLARGE} among them"
    assert {c.why_not for c in decision.candidates} == {"no work is to be expected of it"}


def test_ties_go_to_the_lower_delta_and_to_the_first_market():
    alike = foresight_of(((0.1, 0.1),) * 3)
    for prices in ({XLARGE: "0.05", XLARGE_B: "0.05"}, {XLARGE_B: "0.05", XLARGE: "0.05"}):
        decision = BEST.acquisition(shown(prices=prices, foresight=alike))
        assert [(c.market, c.delta_micros) for c in decision.candidates] == [(XLARGE, 0), (XLARGE_B, 0)]


# -- the hour's end ---------------------------------------------------------------------------------------------------

HELD = spot("held", XLARGE, 16, "0.05")


@pytest.mark.parametrize(
    ("price", "verdict", "said"),
    [
        ("0.0501", Choice.RENEW, "has passed the bid of $0.0500"),
        ("0.05", Choice.RENEW, "its very bid"),
        ("0.0499", Choice.LAPSE, "has fallen below the bid of $0.0500"),
    ],
)
def test_only_the_very_price_is_renewed_and_what_is_being_taken_is_left_to_the_market(
    price: str, verdict: Choice, said: str
):
    decision = BEST.renewal(shown(HELD, prices={XLARGE: price, XLARGE_B: "0.06"}), HELD)
    assert decision.verdict is verdict
    assert said in decision.reason


def test_staying_needs_no_pause_and_is_worth_no_more_than_the_best_fresh_purchase():
    """With σ a twin may be a little cheaper, and staying is still the better one."""
    stays = 0.5 * 0.05 * 16 / (64 * (USEFUL_S - 30) / 3600)
    turn = stays * (64 * (USEFUL_S - 50) / 3600) / (0.5 * 16)  # the twin's price at which both cost the same
    assert turn < 0.05
    for twin, verdict in ((turn + 0.00001, Choice.RENEW), (turn - 0.00001, Choice.LAPSE)):
        decision = BEST.renewal(shown(HELD, prices={XLARGE: "0.05", XLARGE_B: f"{twin:.6f}"}), HELD)
        assert decision.verdict is verdict
        assert f"its next hour of work costs ${stays:.5f}/vCPU-h" in decision.reason
        assert f"the best fresh purchase's ${decision.cost_per_work:.5f}/vCPU-h" in decision.reason
        assert decision.cost_per_work == pytest.approx(stays, rel=1e-3)


def test_a_tie_renews():
    free_of_pauses = replace(JOB, resize_overhead_s=0)
    alike = shown(HELD, prices={XLARGE: "0.05", XLARGE_B: "0.05"}, job=free_of_pauses)
    assert BEST.renewal(alike, HELD).verdict is Choice.RENEW


def test_what_does_no_work_or_has_become_dearer_than_on_demand_lapses():
    idle = shown(HELD, job=replace(JOB, eviction_overhead_s=36_000))
    assert BEST.renewal(idle, HELD).verdict is Choice.LAPSE
    dear = spot("held", XLARGE, 16, "0.21")
    decision = BEST.renewal(shown(dear, prices={XLARGE: "0.21"}), dear)
    assert (decision.verdict, "on-demand" in decision.reason) == (Choice.LAPSE, True)
    decision = BEST.renewal(shown(dear, prices={XLARGE: "0.21"}, job=replace(JOB, ceiling_on_demand=False)), dear)
    assert decision.verdict is Choice.RENEW


@pytest.mark.parametrize("unknown", [{"prices": {}}, {"signals": {}}, {"foresight": None}])
def test_what_nothing_can_be_compared_with_is_kept(unknown: dict[str, Any]):
    decision = BEST.renewal(shown(HELD, **unknown), HELD)
    assert decision.verdict is Choice.RENEW
    assert "not known" in decision.reason


# -- where bids decide nothing ----------------------------------------------------------------------------------------

#: A twentieth is taken within the hour in one zone, a fifth in the other, half of those in the first half hour.
BY_CAPACITY = EvictionTable((400_000,), {XLARGE: ((0.2, 1800.0),), XLARGE_B: ((0.05, 1800.0),)}, bids_decide=False)
OFTEN_S, SELDOM_S = 0.8 * 3600 + 0.2 * 1800, 0.95 * 3600 + 0.05 * 1800


def today(*footprint: Allocation, **more: Any) -> MarketView:
    """Return the view of two markets in which bids decide nothing; what a foresight would say is not to be asked."""
    return shown(*footprint, **{"foresight": None, "signals": {}, "evictions": BY_CAPACITY} | more)


def test_by_capacity_the_table_says_what_is_worth_most_and_the_on_demand_price_is_bid():
    prices = {XLARGE: "0.05", XLARGE_B: "0.05"}
    free = BEST.acquisition(today(prices=prices)).chosen
    assert free is not None
    assert (free.market, free.bid_micros) == (XLARGE, 200_000), "an hour that is taken is not paid"
    cost, work = 0.8 * 0.05 * 16, 64 * (OFTEN_S - 20 - 0.2 * 60) / 3600
    assert (free.eviction_prob, free.cost_usd, free.work) == pytest.approx((0.2, cost, work))
    dear = BEST.acquisition(today(prices=prices, job=replace(JOB, eviction_overhead_s=6000))).chosen
    assert dear is not None
    assert (dear.market, dear.eviction_prob) == (XLARGE_B, 0.05), "where evictions cost much, the quiet zone"


def test_by_capacity_a_foresight_of_price_rises_is_not_asked():
    plain, foreseen = today(), today(foresight=CALM, signals=dict.fromkeys(MARKETS, FLAT))
    assert BEST.acquisition(plain) == BEST.acquisition(foreseen)
    held = spot("held", XLARGE, 16, "0.2")
    assert BEST.renewal(today(held), held) == BEST.renewal(replace(foreseen, footprint=(held,)), held)


def test_by_capacity_above_on_demand_only_the_price_itself_can_be_bid():
    above = {XLARGE: "0.25"}
    assert "on-demand price" in BEST.acquisition(today(prices=above)).reason
    best = BEST.acquisition(today(prices=above, job=replace(JOB, ceiling_on_demand=False))).chosen
    assert best is not None
    assert best.bid_micros == 250_000


def test_by_capacity_a_price_below_the_bid_is_no_reason_to_leave():
    held = spot("held", XLARGE, 16, "0.2")
    stays = 0.8 * 0.05 * 16 / (64 * (OFTEN_S - 0.2 * 60) / 3600)
    turn = stays * (64 * (SELDOM_S - 20 - 0.05 * 60) / 3600) / (0.95 * 16)
    for twin, verdict in ((turn + 0.00001, Choice.RENEW), (turn - 0.00001, Choice.LAPSE)):
        decision = BEST.renewal(today(held, prices={XLARGE: "0.05", XLARGE_B: f"{twin:.6f}"}), held)
        assert decision.verdict is verdict
        assert f"where bids decide nothing: its next hour of work costs ${stays:.5f}/vCPU-h" in decision.reason
    taken = BEST.renewal(today(held, prices={XLARGE: "0.2001"}), held)
    assert (taken.verdict, "passed the bid" in taken.reason) == (Choice.RENEW, True)


# -- properties -------------------------------------------------------------------------------------------------------


@st.composite
def seen(draw: st.DrawFn) -> MarketView:
    """Views with signals, a foresight, and what lapses."""
    held = draw(views())
    known = draw(st.dictionaries(st.sampled_from(MARKETS), signals()))
    lapsing = draw(st.sampled_from([(), (spot("lapsing", LARGE, 3),)]))
    evicted_s = draw(st.sampled_from([None, START_S - 600, START_S - 30]))
    return replace(held, signals=known, foresight=draw(foresights()), lapsing=lapsing, last_eviction_s=evicted_s)


@PROPERTY
@given(seen())
def test_the_cap_the_ceiling_and_the_cooldown_hold_and_losers_are_told_why(here: MarketView):
    decision = BEST.acquisition(here)
    event(decision.verdict)
    alive = here.spot_vcpus + sum(map(here.vcpus_of, here.lapsing))
    for c in decision.candidates:
        kind = here.types[c.market.instance_type]
        assert 1 <= c.count <= here.job.allocation_vcpus // kind.vcpu
        assert alive + c.count * kind.vcpu <= here.job.max_spot_vcpus
        assert c.market not in here.cooling
        assert c.market in here.signals
        assert c.price_micros <= kind.on_demand_micros or not here.job.ceiling_on_demand
        assert c.work >= 0
        assert c.cost_per_work == pytest.approx(c.cost_usd / c.work if c.work else float("inf"))
    each = [c.cost_per_work for c in decision.candidates]
    assert each == sorted(each)
    assert all(c.why_not for c in decision.candidates[decision.verdict is Choice.ACQUIRE :])
    assert "\n" not in decision.reason
    assert "nan" not in decision.reason


@PROPERTY
@given(seen(), st.randoms(use_true_random=False))
def test_the_same_view_gets_the_same_decision_in_whatever_order_its_mappings_are(here: MarketView, shuffle: Any):
    prices, known = list(here.prices.items()), list(here.signals.items())
    shuffle.shuffle(prices)
    shuffle.shuffle(known)
    again = replace(here, prices=dict(prices), signals=dict(known))
    assert BEST.acquisition(again) == BEST.acquisition(here)
    for allocation in here.footprint:
        assert BEST.renewal(again, allocation) == BEST.renewal(here, allocation)


def test_it_is_called_best():
    assert isinstance(policy("best"), BestPolicy)


def test_the_faster_type_is_the_cheaper_work():
    here = shown(prices={LARGE: "0.0249", XLARGE: "0.05"})
    assert BEST.acquisition(here).chosen.market == LARGE
    speeds = {"c4.xlarge": TypeSpeed(1.2, 3, START_S), "c4.large": TypeSpeed(1.2, 3, START_S)}
    assert BEST.acquisition(replace(here, speeds=speeds)).chosen.market == LARGE, "as fast as one another"
    faster = replace(here, speeds=speeds | {"c4.large": TypeSpeed(0.8, 3, START_S)})
    best = BEST.acquisition(faster).chosen
    assert (best.market, best.count) == (XLARGE, 16), "the cap counts vCPUs all the same"
    held = spot(market=LARGE, count=4, bid="0.0249")
    assert BEST.renewal(replace(here, footprint=(held,)), held).verdict is Choice.RENEW
    assert BEST.renewal(replace(faster, footprint=(held,)), held).verdict is Choice.LAPSE
