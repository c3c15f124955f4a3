"""The engine: the end of paid hours, the end of a job, and what it refuses."""

import math
from dataclasses import replace

import pytest

from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.engine.allocations import AllocationState
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import JobClosed, JobReopened, MachineSeen, NoticeSeen
from proteus_spot.bidding.engine.holdings import EngineError
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Renew, Wait
from proteus_spot.bidding.market.model import HOUR_S, EndCause, Market
from proteus_spot.bidding.policies.base import Candidate, Choice, Decision
from proteus_spot.bidding.policies.proteus import ProteusPolicy
from tests.support.bid_engines import ENDS_S, JOB, PRICES, TICK_S, bought, engine_of, full, kinds
from tests.support.markets import LARGE, START_S, XLARGE, XLARGE_B, gone, granted, opened, reliable, spot, tick


@pytest.mark.parametrize(("before_s", "decides"), [(241, False), (240, True), (1, True)])
def test_the_hours_end_is_decided_within_the_lead(before_s, decides):
    orders = full(reliable(), spot()).handle(tick(ENDS_S - before_s, PRICES))
    assert kinds(orders) == ["Renew", "Wait"][not decides :]


def test_each_hour_is_decided_once():
    engine = full(reliable(), spot())
    decided = []
    for at_s in range(START_S, START_S + 3 * HOUR_S, TICK_S):
        decided += [(at_s, order.hour) for order in engine.handle(tick(at_s, PRICES)) if isinstance(order, Renew)]
    assert decided == [(START_S + hour * HOUR_S - 240, hour) for hour in (1, 2, 3)]


@pytest.mark.parametrize(
    ("doubt", "why"),
    [
        (
            NoticeSeen(ENDS_S - 300, "a", ENDS_S - 180),
            "the market had given notice that it takes the allocation when the hour began",
        ),
        (NoticeSeen(ENDS_S + 300, "a", ENDS_S + 420), "no tick came before the hour began"),
        (gone("a", ENDS_S - 300, EndCause.USER), "the allocation was taken for gone when the hour began"),
    ],
)
def test_an_hour_that_began_while_the_allocation_was_not_held_says_why_it_is_paid_for(doubt, why):
    engine = full(reliable(), spot(count=1, bid="9"))
    engine.handle(doubt)
    assert "Renew" not in kinds(engine.handle(tick(doubt.at_s + 60, PRICES)))
    engine.handle(MachineSeen(ENDS_S + 600, "a", "i-a-0"))
    renewal = engine.handle(tick(ENDS_S + 600, PRICES))[0]
    assert (type(renewal), renewal.hour) == (Renew, 1)
    assert why in renewal.decision.reason
    orders = engine.handle(tick(ENDS_S + 2 * HOUR_S + 5, PRICES))
    assert [order.hour for order in orders if "no tick came" in order.decision.reason] == [2, 3]


def test_a_dear_allocation_lapses_and_no_longer_counts():
    engine = full(reliable(), spot(bid="9"), spot("b"))
    orders = engine.handle(tick(ENDS_S - 240, {XLARGE: "0.29"}))
    lapse = orders[0]
    assert (lapse.allocation_id, lapse.hour, lapse.before_s) == ("a", 1, ENDS_S)
    assert lapse.decision.verdict is Choice.LAPSE
    assert engine.holdings.positions["a"].standing is AllocationState.LAPSING
    assert "a" not in [allocation.allocation_id for allocation in engine.holdings.footprint]


def test_a_lapse_is_ordered_again_until_the_allocation_is_gone():
    engine = full(reliable(), spot(bid="9"))
    lapse, _ = engine.handle(tick(ENDS_S - 240, {XLARGE: "3"}))
    assert isinstance(lapse, Lapse)
    # cheap again, and the hour over: it was let go all the same
    for at_s in (ENDS_S - 120, ENDS_S + 120, ENDS_S + 2 * HOUR_S):
        assert engine.handle(replace(tick(at_s, {XLARGE: "0.01"}), buy=False)) == (lapse,)
    engine.handle(gone("a", ENDS_S - 1, EndCause.USER))
    assert kinds(engine.handle(tick(ENDS_S + 240, {}))) == ["Wait"]


def test_what_lapses_makes_room_for_another():
    engine = engine_of(reliable(), spot(bid="9", count=8))
    orders = engine.handle(tick(ENDS_S - 100, {XLARGE: "3", XLARGE_B: "0.05"}))
    assert kinds(orders) == ["Lapse", "Acquire"]
    assert orders[1].market == XLARGE_B
    engine.validate()


def test_a_lapsing_allocation_that_the_market_takes_is_left_to_it():
    engine = full(reliable(), spot(bid="9"))
    engine.handle(tick(ENDS_S - 240, {XLARGE: "3"}))
    engine.handle(NoticeSeen(ENDS_S - 200, "a", ENDS_S - 80))
    assert kinds(engine.handle(tick(ENDS_S - 120, {XLARGE: "3"}))) == ["Wait"]  # leaving first would forgo the refund


def test_a_noticed_allocation_is_not_decided_and_counts_in_the_cap_until_it_is_gone():
    engine = engine_of(reliable(), spot(count=8))  # at the cap
    engine.handle(NoticeSeen(ENDS_S - 200, "a", ENDS_S - 80))
    assert engine.holdings.footprint == (reliable(),)
    (wait,) = engine.handle(tick(ENDS_S - 180, PRICES))
    assert "all of 32 spot vCPUs are held" in wait.decision.reason
    engine.handle(gone("a", ENDS_S - 80))
    (order,) = engine.handle(tick(ENDS_S - 60, PRICES))
    assert (type(order), order.count) == (Acquire, 4)
    engine.handle(NoticeSeen(ENDS_S - 70, "a", ENDS_S - 80))  # too late: it stays gone
    assert engine.holdings.positions["a"].standing is AllocationState.GONE


def test_hours_that_began_undecided_are_recorded_as_renewed():
    engine = full(reliable(), spot())
    orders = engine.handle(tick(ENDS_S, PRICES))  # on the boundary the next hour has begun
    assert [(type(o), getattr(o, "hour", None)) for o in orders] == [(Renew, 1), (Wait, None)]
    assert "no tick came" in orders[0].decision.reason
    # two hours without a tick, and the end of the one after is near: all three
    orders = engine.handle(tick(START_S + 4 * HOUR_S - 60, PRICES))
    assert [(type(o), getattr(o, "hour", None)) for o in orders] == [(Renew, 2), (Renew, 3), (Renew, 4), (Wait, None)]
    assert ["no tick came" in o.decision.reason for o in orders[:3]] == [True, True, False]
    assert kinds(engine.handle(tick(START_S + 4 * HOUR_S, PRICES))) == ["Wait"]


def test_a_tick_before_the_launch_decides_no_hour():
    engine = full(reliable(), spot(launched_at_s=START_S + 3))
    assert kinds(engine.handle(tick(START_S, PRICES))) == ["Wait"]
    assert engine.holdings.positions["a"].decided == {0}


def test_the_reliable_tier_is_never_let_go():
    engine = full(reliable())
    for at_s in range(START_S, START_S + 3 * HOUR_S, TICK_S):
        assert kinds(engine.handle(tick(at_s, {}))) == ["Wait"]
    engine.handle(JobClosed(START_S + 3 * HOUR_S))
    assert engine.handle(tick(START_S + 4 * HOUR_S - 1, {})) == ()
    assert engine.holdings.footprint == (reliable(),)


def test_an_eviction_on_the_hours_boundary_ends_it_before_the_hour_is_recorded():
    engine = full(reliable(), spot())
    assert kinds(engine.handle(tick(ENDS_S - 240, PRICES))) == ["Renew", "Wait"]
    engine.handle(gone("a", ENDS_S))
    position = engine.holdings.positions["a"]
    assert (position.ended_at_s, position.cause) == (ENDS_S, EndCause.EVICTED)
    assert kinds(engine.handle(tick(ENDS_S, {}))) == ["Wait"]
    engine.handle(gone("a", ENDS_S + 5, EndCause.USER))  # the first word counts
    assert engine.holdings.positions["a"].ended_at_s == ENDS_S


def test_an_allocation_whose_market_has_no_price_is_still_decided():
    orders = full(reliable(), spot()).handle(tick(ENDS_S - 60, {}))
    assert kinds(orders) == ["Renew", "Wait"]
    assert "unknown price" in orders[0].decision.reason


def test_ends_of_two_allocations_are_decided_in_the_order_of_their_grants_the_second_knowing_the_first():
    # Two alike, dear, under high bids: for the second, the first is no longer there.
    engine = full(reliable(count=20), spot("b", bid="9"), spot("a", bid="9"), resize_overhead_s=0)
    orders = engine.handle(tick(ENDS_S - 60, {XLARGE: "3"}))
    assert [(type(o), o.allocation_id) for o in orders[:2]] == [(Lapse, "b"), (Lapse, "a")]
    assert orders[0].decision.cost_per_work > orders[1].decision.cost_per_work


def test_what_was_renewed_counts_to_the_end_of_its_new_hour():
    def shown(now_s):
        return engine._view(tick(now_s, PRICES)).paid_until_s

    engine = full(reliable(), spot())
    assert shown(ENDS_S - 241) == {"a": ENDS_S}
    assert kinds(engine.handle(tick(ENDS_S - 240, PRICES))) == ["Renew", "Wait"]
    assert shown(ENDS_S - 240) == shown(ENDS_S + HOUR_S - 1) == {"a": ENDS_S + HOUR_S}
    engine.handle(NoticeSeen(ENDS_S - 100, "a", ENDS_S))
    assert shown(ENDS_S - 100) == {}


def test_a_price_that_is_missing_is_the_last_one_seen():
    engine = full(reliable(), spot(bid="9"))
    engine.handle(tick(START_S, {XLARGE: "3"}))
    assert isinstance(engine.handle(tick(ENDS_S - 60, {}))[0], Lapse)  # at its bid or at nothing it would not


def test_after_the_end_nothing_is_bought_and_spot_stays_to_its_hours_end():
    engine = engine_of(reliable(), spot())
    engine.handle(JobClosed(START_S + 100))
    assert engine.holdings.closed
    assert engine.handle(tick(START_S + 120, PRICES)) == ()
    (lapse,) = engine.handle(tick(ENDS_S - 240, PRICES))
    assert isinstance(lapse, Lapse)
    assert lapse.before_s == ENDS_S
    assert "done" in lapse.decision.reason
    assert math.isinf(lapse.decision.cost_per_work)


def test_after_the_end_who_pays_by_the_second_leaves_at_once():
    for billing in ("per-second-first-hour-free", "flat"):
        engine = BidEngine()
        engine.handle(opened(JobModel(billing=billing, flat_micros=12_000)))
        engine.handle(granted(spot()))
        engine.handle(JobClosed(START_S + 100))
        (lapse,) = engine.handle(tick(START_S + 120, PRICES))
        assert (type(lapse), lapse.hour, lapse.before_s) == (Lapse, 1, START_S + 120)
        assert "every further second would cost" in lapse.decision.reason
        assert engine.handle(tick(START_S + 240, PRICES)) == (lapse,)


def test_an_hour_that_began_after_the_end_is_paid_for_but_no_renewal_and_the_next_lapses():
    engine = engine_of(spot())
    engine.handle(JobClosed(START_S + 100))
    assert engine.handle(tick(ENDS_S + 10, PRICES)) == ()
    assert engine.holdings.positions["a"].decided == {0, 1}
    (lapse,) = engine.handle(tick(ENDS_S + HOUR_S - 10, PRICES))
    assert (type(lapse), lapse.hour) == (Lapse, 2)


def test_the_end_takes_back_an_hour_that_was_renewed_and_has_not_begun():
    engine = full(reliable(), spot())
    renewed, _ = engine.handle(tick(ENDS_S - 240, PRICES))
    assert (type(renewed), renewed.hour) == (Renew, 1)
    engine.handle(JobClosed(ENDS_S - 200))
    (lapse,) = engine.handle(tick(ENDS_S - 120, PRICES))
    assert (type(lapse), lapse.hour, lapse.before_s) == (Lapse, 1, ENDS_S)
    assert engine.handle(tick(ENDS_S - 60, PRICES)) == (lapse,)


def test_an_unanswered_purchase_stays_open_after_the_end_and_is_not_repeated():
    engine = engine_of(reliable())
    (order,) = engine.handle(tick(START_S, PRICES))
    engine.handle(JobClosed(START_S + 1))
    assert engine.handle(tick(START_S + 120, PRICES)) == ()
    assert engine.holdings.open_orders == {order.order_id: order}
    engine.handle(granted(bought(order, START_S)))
    (lapse,) = engine.handle(tick(ENDS_S - 60, PRICES))
    assert lapse.allocation_id == order.order_id


def test_the_end_twice_is_the_first_one():
    engine = engine_of()
    engine.handle(JobClosed(START_S + 1))
    engine.handle(JobClosed(START_S + 2))
    assert engine.holdings.closed


def test_what_cannot_follow_is_refused():
    engine = BidEngine()
    assert (engine.holdings.job_id, engine.holdings.closed, engine.holdings.open_orders) == (None, False, {})
    for impossible in (tick(START_S, PRICES), granted(spot())):
        with pytest.raises(EngineError, match="not opened"):
            engine.handle(impossible)
    engine.handle(opened(JOB))
    with pytest.raises(EngineError, match="opened before"):
        engine.handle(opened(JOB))
    for unknown in (NoticeSeen(START_S, "x", START_S), gone("x", START_S)):
        with pytest.raises(EngineError, match="no allocation 'x'"):
            engine.handle(unknown)
    with pytest.raises(EngineError, match=r"x9\.huge"):
        engine.handle(granted(spot(market=Market("x9.huge", "us-east-1a"))))
    assert engine.holdings.positions == {}
    engine.validate()


def test_an_unknown_policy_leaves_the_engine_unopened():
    engine = BidEngine()
    with pytest.raises(ValueError, match="unknown policy"):
        engine.handle(opened(JOB, policy="hope"))
    assert engine.holdings.job_id is None


def test_validate_sees_a_broken_invariant():
    engine = engine_of(reliable())
    engine.handle(tick(START_S, PRICES))
    engine.validate()
    engine.holdings.answered.add("j-buy-0")
    with pytest.raises(EngineError, match="open and answered"):
        engine.validate()


def test_a_policy_that_exceeds_the_cap_is_stopped_before_its_purchase_is_ordered(monkeypatch):
    engine = engine_of(reliable(), spot(count=7))
    monkeypatch.setattr(ProteusPolicy, "acquisition", lambda self, view: _bid_for(LARGE, 3))
    with pytest.raises(EngineError, match="policy proteus: 34 spot vCPUs would be held, of at most 32"):
        engine.handle(tick(START_S, PRICES))
    assert engine.holdings.open_orders == {}


def _bid_for(market: Market, count: int) -> Decision:
    candidate = Candidate(market, count, 50_000, 100, 0.1, 1.0, 1.0, 1.0)
    return Decision(Choice.ACQUIRE, "", 1.0, (candidate,))


def test_a_job_that_is_opened_again_buys_and_renews_again():
    engine = engine_of(reliable())
    assert engine.holdings.begun_at_s == START_S
    engine.handle(JobClosed(START_S + 100))
    assert engine.handle(tick(START_S + 120, PRICES)) == ()
    engine.handle(JobReopened(START_S + 200))
    assert (engine.holdings.closed, engine.holdings.begun_at_s) == (False, START_S + 200)
    (order,) = engine.handle(tick(START_S + 240, PRICES))
    assert isinstance(order, Acquire)
    engine.handle(JobClosed(START_S + 300))
    assert engine.holdings.closed, "it can end again"
