"""The journal of a sweep: a round trip of each record, and what cannot be read."""

import json

import pytest

from proteus_spot.bidding.economics.budget import Spending
from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.engine.events import AllocationGranted, BidEvent
from proteus_spot.bidding.engine.journal import JournalError
from proteus_spot.bidding.engine.reconcile import reconcile
from proteus_spot.bidding.market.model import ORDER_TAG, Allocation, EndCause, InstanceFact, InstanceState, Tier
from proteus_spot.bidding.tuning.sweep_events import (
    SamplerFailed,
    SweepClosed,
    SweepExtended,
    SweepReopened,
    SweepStopRequested,
    SweepTick,
    TrialReported,
    TrialsProposed,
)
from proteus_spot.bidding.tuning.sweep_journal import from_record, replay, to_record
from proteus_spot.bidding.tuning.sweep_orders import Deploy, Finish, PauseTrial, Release, SweepOrder
from proteus_spot.bidding.tuning.sweep_plan import Direction
from proteus_spot.bidding.tuning.trials import SweepState
from proteus_spot.bidding.tuning.views import result_view
from tests.support.markets import LARGE, START_S, XLARGE
from tests.support.sweeps import OFFERS, SweepWorld, offer_of, opened_sweep, plan_of, settings_of

ITEMS: tuple[BidEvent | SweepOrder, ...] = (
    opened_sweep(plan_of(direction=Direction.MAXIMIZE, bound=0.99, adaptive=True), {"c4.large": 1.5}),
    TrialsProposed(1, settings_of(3)),
    SamplerFailed(1, "because"),
    TrialReported(1, 2, "s-t2-0", ((1, 0.5), (2, None)), 2, 1.25, "paused", "why", 1000, 2.5),
    TrialReported(1, 2, "s-t2-0"),
    SweepTick(1, OFFERS, False, {LARGE: "stale"}, Spending(1, 2, 3), TimeLeft(4, 5, 6.0, 7.0)),
    SweepTick(1, {}),
    SweepStopRequested(1, "budget"),
    SweepReopened(1),
    SweepClosed(1),
    SweepExtended(1, 9),
    AllocationGranted(1, "s-t2-0", Allocation("s-t2-0", LARGE, 1, 1, bid_micros=5), ("i-1",)),
    Deploy("s-t2-0", 2, XLARGE, None, 3, 10, "because"),
    PauseTrial("s-t2-0", 2, "because"),
    Release("s-t2-0", "because"),
    Finish(SweepState.STOPPED, "budget"),
)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: type(item).__name__)
def test_a_record_is_read_as_it_was_written(item: BidEvent | SweepOrder) -> None:
    record = json.loads(json.dumps(to_record(item), allow_nan=False))
    assert from_record(record) == item


@pytest.mark.parametrize(
    "change", [{"kind": "JobOpened"}, {"schema": 2}, {"plan": {"trials": 0, "max_trial_steps": 1}}, {"plan": None}]
)
def test_a_record_that_cannot_be_read_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(JournalError):
        from_record(to_record(opened_sweep(plan_of())) | change)


def test_the_journal_of_a_sweep_leads_to_the_same_state_and_orders() -> None:
    world = SweepWorld(plan_of(trials=3, stop="earlycurve", theta=0.5, mcnt=1, max_trial_steps=12))
    records = []
    handle = world.engine.handle

    def recorded(event: BidEvent) -> tuple[SweepOrder, ...]:
        orders = handle(event)
        records.extend(json.loads(json.dumps([to_record(item) for item in (event, *orders)])))
        return orders

    world.engine = type(world.engine)()
    handle = world.engine.handle
    world.engine.handle = recorded  # type: ignore[method-assign]
    world.__post_init__()
    world.run()
    assert result_view(replay(records).sweep) == result_view(world.engine.sweep)


def test_what_was_bought_by_other_rules_is_found_again() -> None:
    """An entry of the journal says what was bought, also where the rules of today would have bought otherwise."""
    plan = plan_of(trials=2, parallel=2)
    dear = {LARGE: offer_of("0.30", on_demand="0.10"), XLARGE: offer_of("0.05", on_demand="0.20")}
    bought = [
        Deploy("s-t0-0", 0, LARGE, 310_000, 0, 10, "as before"),  # above on demand, in a market of its own choice
        Deploy("s-t1-0", 1, LARGE, 310_000, 0, 10, "as before"),
    ]
    grants = [
        AllocationGranted(START_S, order.order_id, Allocation(order.order_id, LARGE, 1, START_S, bid_micros=310_000))
        for order in bought
    ]
    reports = [TrialReported(START_S, order.trial, order.order_id, ((1, 0.5),), 1) for order in bought]
    settings = TrialsProposed(START_S, settings_of(2))
    items = [opened_sweep(plan), settings, SweepTick(START_S, dear), *bought, *grants, *reports]
    engine = replay(map(to_record, items))
    engine.validate()
    assert {name: its.allocation.market for name, its in engine.holdings.positions.items()} == {
        "s-t0-0": LARGE,
        "s-t1-0": LARGE,
    }
    assert [(trial.state, trial.steps, trial.orders) for trial in engine.sweep.trials.values()] == [
        ("running", 1, 1)
    ] * 2
    # And where nothing was bought, nothing is open.
    waited = replay(map(to_record, [opened_sweep(plan), settings, SweepTick(START_S, dear), Release("x", "")]))
    assert (waited.sweep.open_orders, waited.sweep.deployments) == ({}, {})
    assert [trial.orders for trial in waited.sweep.trials.values()] == [0, 0]


def fact_of(order: Deploy, **changes: object) -> InstanceFact:
    values = {"notice_at_s": None, "state": InstanceState.RUNNING, "ended_at_s": None, "end_cause": None} | changes
    return InstanceFact(
        "i-1",
        order.market,
        launched_at_s=START_S,
        bid_micros=5,
        token="",
        tags={ORDER_TAG: order.order_id},
        **values,  # type: ignore[arg-type]
    )


def test_the_facts_of_the_market_are_compared_as_a_jobs_are() -> None:
    world = SweepWorld(plan_of(trials=1))
    assert reconcile(type(world.engine)().holdings, {}, {}, START_S) == []  # not opened yet
    (order,) = world.tell(SweepTick(START_S, OFFERS))
    assert isinstance(order, Deploy)
    for fact, state in (
        (fact_of(order), "running"),
        (fact_of(order, notice_at_s=START_S + 200), "running"),
        (
            fact_of(order, state=InstanceState.TERMINATED, ended_at_s=START_S + 200, end_cause=EndCause.EVICTED),
            "evicted",
        ),
    ):
        events = reconcile(
            world.engine.holdings, {order.order_id: [fact]}, {order.order_id: Tier.TRANSIENT}, START_S + 1
        )
        assert len(events) == 1
        world.tell(events[0])
        assert world.engine.sweep.trials[0].state == state
        assert reconcile(world.engine.holdings, {order.order_id: [fact]}, {}, START_S + 1) == []
