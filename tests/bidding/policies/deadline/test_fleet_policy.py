"""The policy `deadline` of live jobs: one decision over all machines, with reasons in words and numbers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.facts.known import DatedFigure, MarketKnown
from proteus_spot.bidding.facts.learning import prior_known
from proteus_spot.bidding.facts.rates import TypeSpeed
from proteus_spot.bidding.facts.records import Source
from proteus_spot.bidding.market.model import HOUR_S, Allocation, Market, Tier
from proteus_spot.bidding.policies import AT_ONCE, policy
from proteus_spot.bidding.policies.base import Choice, Decision, MarketView
from proteus_spot.bidding.policies.deadline import DeadlinePolicy
from tests.support.markets import (
    LARGE,
    MARKETS,
    PROPERTY,
    START_S,
    XLARGE,
    XLARGE_B,
    reliable,
    spot,
    view,
    views,
)

POLICY = DeadlinePolicy()
JOB = JobModel(allocation_vcpus=100, max_spot_vcpus=100, billing="per-second-first-hour-free")
#: A large one is half as dear as an xlarge one, and half as large.
PRICES = {LARGE: "0.026", XLARGE: "0.05", XLARGE_B: "0.06"}


def needs(seen: MarketView, vcpus: float, hours: float = 10.0) -> MarketView:
    """Return the view of a job that needs so many vCPUs on average until its deadline."""
    seconds = hours * HOUR_S
    left = TimeLeft(seen.now_s + round(seconds), round(vcpus * seconds), 1.0, 0.0)
    room = seen.job.max_spot_vcpus - seen.spot_vcpus - seen.noticed_vcpus
    return replace(seen, time_left=left, markets=MARKETS, on_demand_room_vcpus=room)


def on_demand(name: str = "d", market: Market = XLARGE, count: int = 4) -> Allocation:
    return Allocation(name, market, count, START_S, Tier.TRANSIENT)


def bought(decisions: tuple[Decision, ...]) -> list[tuple[Market, int, bool]]:
    return [(d.chosen.market, d.chosen.count, d.chosen.on_demand) for d in decisions if d.chosen is not None]


def test_it_is_found_by_name_and_buys_all_of_the_cap() -> None:
    assert isinstance(policy("deadline"), DeadlinePolicy)
    assert "deadline" in AT_ONCE


def test_it_buys_the_cheapest_work_and_says_so() -> None:
    decisions = POLICY.purchases(view(prices=PRICES, job=JOB))
    assert bought(decisions) == [(XLARGE, 25, False)]
    (decision,) = decisions
    assert decision.reason.startswith(f"25 x {XLARGE} at $0.0500 (loss within the hour 25%): work costs $0.0")
    assert decision.reason.endswith("of 3 markets")
    assert decision.chosen is not None
    assert decision.chosen.cost_per_work > 0.0125, "losses and joining cost"
    assert "costs more than the" in decision.candidates[1].why_not


def test_several_markets_are_bought_in_at_once() -> None:
    job = replace(JOB, value_of_time_usd_per_h=5.0, allocation_vcpus=40)
    decisions = POLICY.purchases(view(prices=PRICES, job=job))
    assert bought(decisions) == [(XLARGE, 10, False), (LARGE, 20, False), (XLARGE_B, 5, False)]


def granting(market: Market, share: float) -> MarketKnown:
    known = prior_known([market], START_S)[market]
    return replace(known, share_granted=DatedFigure(share, Source.OWN, START_S))


def test_it_asks_each_for_what_it_is_expected_to_grant_and_for_the_rest_in_hope() -> None:
    """The prior expects about half of what is asked."""
    job = replace(JOB, value_of_time_usd_per_h=5.0)
    seen = replace(view(prices=PRICES, job=job), known=prior_known(MARKETS, START_S))
    asked = bought(POLICY.purchases(seen))
    assert [market for market, *_ in asked] == [XLARGE, LARGE]
    assert sum(count * (4 if market == XLARGE else 2) for market, count, _ in asked) == 100
    alone = replace(view(prices={XLARGE: "0.05"}, job=job), known=prior_known(MARKETS, START_S))
    assert bought(POLICY.purchases(alone)) == [(XLARGE, 25, False)]


def test_dearer_work_is_left_where_time_is_worth_nothing_also_while_the_cheap_rests() -> None:
    held = spot(market=XLARGE, count=16)
    seen = view(held, prices=PRICES, job=JOB, cooling=frozenset({XLARGE, LARGE}))
    (waits,) = POLICY.purchases(seen)
    assert waits.verdict is Choice.WAIT
    assert f"the cheapest work on sale, of {XLARGE_B}, costs" in waits.reason
    assert POLICY.releases(seen) == ()


def test_what_the_quota_leaves_no_machine_of_is_not_waited_for() -> None:
    beyond = frozenset({XLARGE, LARGE})
    seen = replace(view(prices=PRICES, job=JOB, cooling=beyond), beyond_quota=beyond)
    assert bought(POLICY.purchases(seen)) == [(XLARGE_B, 25, False)]


def test_dearer_work_is_bought_where_time_has_its_price_or_the_deadline_needs_it() -> None:
    held, cooling = spot(market=XLARGE, count=10), frozenset({XLARGE, LARGE})
    known = {market: granting(market, 0.2) for market in PRICES}
    here = replace(view(held, prices=PRICES, job=JOB, cooling=cooling), known=known)
    valued = replace(here, job=replace(JOB, value_of_time_usd_per_h=5.0))
    assert [market for market, *_ in bought(POLICY.purchases(valued))] == [XLARGE_B]
    needed = POLICY.purchases(needs(here, 60))
    assert (XLARGE_B, 15, False) in bought(needed)
    assert needed[-1].reason.endswith("; the deadline needs 60 vCPUs on average, 40 are held")
    (enough,) = POLICY.purchases(needs(here, 20))
    assert enough.verdict is Choice.WAIT


def test_the_reliable_tier_and_its_price_count() -> None:
    here = view(reliable(count=4), prices=PRICES, job=JOB)
    assert bought(POLICY.purchases(here)) == [(XLARGE, 25, False)]
    few = replace(here, known={market: granting(market, 0.1) for market in PRICES})
    assert LARGE in [market for market, *_ in bought(POLICY.purchases(few))], "an hour of the tier costs $0.80"
    alone = replace(few, footprint=())
    assert [market for market, *_ in bought(POLICY.purchases(alone))] == [XLARGE]
    assert bought(POLICY.purchases(needs(here, 10)))[0][2] is False, "it works 16 vCPUs: no need on demand"


def test_on_demand_is_bought_first_and_only_what_the_net_needs() -> None:
    quick = replace(JOB, boot_s=0.0, resize_overhead_s=0.0)
    first, *others = bought(POLICY.purchases(needs(view(prices=PRICES, job=quick), 86.5)))
    assert first == (LARGE, 11, True)
    assert others == [(XLARGE, 19, False)], "spot works beside it"
    last = needs(view(prices=PRICES, job=JOB), 99)
    assert bought(POLICY.purchases(last)) == [(LARGE, 50, True)]


def test_on_demand_that_is_not_needed_any_more_is_let_go() -> None:
    here = view(on_demand(count=10), prices=PRICES, job=JOB)
    (release,) = POLICY.releases(needs(here, 20))
    assert (release.allocation_id, release.count) == ("d", 10)
    assert release.decision.verdict is Choice.LAPSE
    assert "the deadline is kept with 0 vCPUs on demand" in release.decision.reason
    assert POLICY.releases(needs(view(on_demand(count=25), prices=PRICES, job=JOB), 99)) == ()


def test_where_on_demand_cannot_be_had_the_deadline_is_at_risk_and_spot_is_bought() -> None:
    seen = replace(needs(view(prices=PRICES, job=JOB), 99), on_demand_cooling=frozenset(MARKETS))
    risk, *others = POLICY.purchases(seen)
    assert risk.verdict is Choice.WAIT
    assert risk.reason.startswith("the deadline is at risk: the deadline needs 100 vCPUs on demand")
    assert sum(count for _, count, _ in bought(tuple(others))) >= 25


def test_nothing_on_sale_says_why() -> None:
    (decision,) = POLICY.purchases(view(job=JOB))
    assert decision.reason == "nothing can be bought: no market has a price"


def test_what_is_left_is_shorter_than_a_boot() -> None:
    seen = view(prices=PRICES, job=replace(JOB, boot_s=120))
    seen = replace(seen, time_left=TimeLeft(START_S + HOUR_S, 100, 1.0, 0.0))
    (decision,) = POLICY.purchases(seen)
    assert decision.reason == "a new machine would not work before it is taken, or before the job ends"


def test_a_full_job_says_so() -> None:
    (decision,) = POLICY.purchases(view(spot(market=XLARGE, count=25), prices=PRICES, job=JOB))
    assert decision.reason == "100 of at most 100 spot vCPUs are held"


def test_no_more_is_bought_than_the_job_has_a_use_for() -> None:
    seen = replace(view(prices=PRICES, job=JOB), machines=3)
    assert bought(POLICY.purchases(seen)) == [(XLARGE, 3, False)]
    tasks = replace(JOB, tasks=8, max_spot_vcpus=8)
    assert bought(POLICY.purchases(view(spot(market=XLARGE, count=1), prices=PRICES, job=tasks))) == [
        (XLARGE, 1, False)
    ]
    five = replace(JOB, tasks=8, max_spot_vcpus=7)
    assert bought(POLICY.purchases(view(prices={LARGE: "0.026"}, job=five))) == [(LARGE, 2, False)], "6 are no faster"


def test_it_goes_on_where_nothing_is_cheaper_with_joining() -> None:
    held = spot(market=XLARGE, count=16)
    assert POLICY.renewal(view(held, prices=PRICES, job=JOB), held).verdict is Choice.RENEW
    cheaper = view(held, prices={**PRICES, XLARGE_B: "0.02"}, job=JOB)
    leaves = POLICY.renewal(cheaper, held)
    assert leaves.verdict is Choice.LAPSE
    assert leaves.reason.startswith(f"16 of 16 x {XLARGE} are let go: its work costs $0.0125")
    assert POLICY.releases(cheaper)[0].decision == leaves
    assert POLICY.renewal(view(held, prices={}, job=JOB), held).verdict is Choice.RENEW


def test_what_is_in_hand_is_not_let_go_for_little() -> None:
    """A request for what is a tenth cheaper may be refused, and the machines would be gone."""
    held = spot(market=XLARGE, count=25)
    assert POLICY.releases(view(held, prices={**PRICES, XLARGE_B: "0.045"}, job=JOB)) == ()
    assert POLICY.releases(view(held, prices={**PRICES, XLARGE_B: "0.035"}, job=JOB)) != ()


def test_a_held_market_without_a_price_keeps_no_other_from_being_bought_in() -> None:
    held = spot(market=XLARGE, count=10)
    seen = view(held, prices={XLARGE_B: "0.06"}, job=JOB)
    assert bought(POLICY.purchases(seen)) == [(XLARGE_B, 15, False)]
    assert POLICY.releases(seen) == ()


def test_the_youngest_machines_of_a_market_go_first() -> None:
    old, young = spot("a", XLARGE, 13), spot("b", XLARGE, 12, launched_at_s=START_S + 60)
    quick = replace(JOB, boot_s=0.0, resize_overhead_s=0.0)
    seen = needs(view(old, young, prices=PRICES, job=quick, now_s=START_S + 600), 86.5)
    releases = POLICY.releases(seen)
    assert [release.allocation_id for release in releases] == ["b"], "those on demand take their place"
    assert releases[0].count == 6
    assert "take its place" in releases[0].decision.reason


def test_after_the_last_clock_nothing_is_bought_or_let_go() -> None:
    seen = replace(view(spot(), prices=PRICES, job=JOB), time_left=TimeLeft(START_S, 0, 1.0, 0.0))
    assert [decision.reason for decision in POLICY.purchases(seen)] == ["no clock is left to train"]
    assert POLICY.releases(seen) == ()


@PROPERTY
@given(seen=views(), vcpus=st.none() | st.floats(1, 300))
def test_it_never_exceeds_the_cap_and_answers_twice_the_same(seen: MarketView, vcpus: float | None) -> None:
    seen = seen if vcpus is None else needs(seen, vcpus)
    decisions = POLICY.purchases(seen)
    assert decisions == POLICY.purchases(seen)
    assert decisions
    total = 0
    for decision in decisions:
        if decision.chosen is not None:
            total += decision.chosen.count * seen.types[decision.chosen.market.instance_type].vcpu
            assert decision.chosen.delta_micros >= 0 or not seen.job.ceiling_on_demand
    assert total == 0 or total <= seen.left_vcpus
    held = {each.allocation_id: each.count for each in seen.footprint}
    assert all(0 < release.count <= held[release.allocation_id] for release in POLICY.releases(seen))


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_a_value_of_time_that_cannot_be_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="value_of_time_usd_per_h"):
        JobModel(value_of_time_usd_per_h=value)


@pytest.mark.parametrize("changes", [{"boot_s": -1.0}, {"gap_s": 0.0}, {"gap_s": float("inf")}])
def test_a_boot_or_a_gap_that_cannot_be_is_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="boot_s"):
        replace(JobModel(), **changes)


def fast(seen: MarketView, **speeds: float) -> MarketView:
    """Return the view with measured speeds of the types c4.NAME."""
    return replace(seen, speeds={f"c4.{name}": TypeSpeed(value, 3, START_S) for name, value in speeds.items()})


def test_the_faster_type_is_the_cheaper_work_and_takes_the_place_of_the_other() -> None:
    prices = {LARGE: "0.025", XLARGE: "0.05"}
    held = spot(market=LARGE, count=50)
    seen = fast(view(held, prices=prices, job=JOB), large=0.7, xlarge=1.4)
    assert [(each.allocation_id, each.count) for each in POLICY.releases(seen)] == [("a", 50)]
    (decision,) = POLICY.purchases(fast(view(prices=prices, job=JOB), large=0.7, xlarge=1.4))
    assert decision.chosen is not None
    assert (decision.chosen.market, decision.chosen.count, decision.chosen.work) == (XLARGE, 25, pytest.approx(140.0))
    assert POLICY.releases(fast(view(held, prices=prices, job=JOB), large=1.0, xlarge=1.0)) == ()


def test_a_slow_type_on_demand_needs_more_machines_for_the_same_deadline() -> None:
    seen = needs(view(prices={}, job=JOB), vcpus=40)
    usual = [d.chosen for d in POLICY.purchases(seen) if d.chosen is not None]
    slow = [d.chosen for d in POLICY.purchases(fast(seen, large=0.5, xlarge=0.5)) if d.chosen is not None]
    assert [each.on_demand for each in usual + slow] == [True, True]
    kinds = {LARGE.instance_type: 2, XLARGE.instance_type: 4}
    assert all(each.market.instance_type not in kinds for each in slow), "other types cost less for their work"
    only = replace(fast(seen, large=0.5, xlarge=0.5), markets=(XLARGE,))
    (few,), (many,) = ([d.chosen for d in POLICY.purchases(one)] for one in (replace(only, speeds={}), only))
    assert few is not None
    assert many is not None
    assert many.count > few.count


@PROPERTY
@given(seen=views(), factor=st.sampled_from([0.25, 0.5, 2.0, 4.0]))
def test_speeds_that_are_all_the_same_change_no_choice(seen: MarketView, factor: float) -> None:
    here = replace(seen, job=replace(seen.job, exclude_markets=()), crossing_usd_per_vcpu_h=0.0, time_left=None)
    here = replace(here, markets=MARKETS, on_demand_room_vcpus=here.job.max_spot_vcpus)
    speeds = {name: TypeSpeed(factor, 1, here.now_s) for name in here.types}
    assert bought(POLICY.purchases(here)) == bought(POLICY.purchases(replace(here, speeds=speeds)))
