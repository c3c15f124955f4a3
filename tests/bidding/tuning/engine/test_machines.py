"""The engine of a sweep: machines, evictions, and reports of them."""

import pytest

from proteus_spot.bidding.engine.events import (
    AllocationGone,
    AllocationGranted,
    AllocationRefused,
    MachineGone,
    MachineNoticed,
    MachineSeen,
    MachinesUnlisted,
    NoticeSeen,
)
from proteus_spot.bidding.market.model import HOUR_S, Allocation, EndCause
from proteus_spot.bidding.tuning.sweep_events import SweepTick, TrialReported
from proteus_spot.bidding.tuning.sweep_orders import Deploy, PauseTrial, Release
from proteus_spot.bidding.tuning.trials import SweepState, TrialState
from tests.support.markets import LARGE, XLARGE, XLARGE_B
from tests.support.sweep_engines import deploys, kinds, one_trial
from tests.support.sweeps import OFFERS, TICK_S, SweepWorld, offer_of, plan_of


def test_a_trial_goes_where_a_step_costs_least_and_says_by_which_figures() -> None:
    world = SweepWorld(plan_of(trials=1))
    (order,) = deploys(world.tick())
    # Twice the vCPUs, half the seconds of a step: 0.05 / 2 is less than 0.03 dollars.
    assert (order.market, order.bid_micros, order.from_step, order.until_step) == (XLARGE, 100_000, 0, 10)
    assert "0.25 s a step, $0.0500 an hour on average, 20% evicted" in order.reason


def test_what_was_measured_moves_the_choice() -> None:
    world = SweepWorld(plan_of(trials=2, parallel=1))
    world.tick()
    world.tell(TrialReported(world.now_s, 0, "s-t0-0", ((1, 1.0),), 1, 9.0, "finished"))  # slow on c4.xlarge: no change
    world.end("s-t0-0", EndCause.USER)
    assert deploys(world.tick())[0].market == XLARGE
    world.tell(TrialReported(world.now_s, 1, "s-t1-0", ((1, 1.0),), 1, 9.0))
    world.engine.sweep.step_times.measure(1, LARGE.instance_type, 3.0)
    world.end("s-t1-0", EndCause.EVICTED)
    (order,) = deploys(world.tick())
    assert (order.order_id, order.market, order.from_step) == ("s-t1-1", LARGE, 1)


def test_an_eviction_without_notice_repeats_what_was_not_saved() -> None:
    world, trial = one_trial()
    world.tick()
    assert (trial.state, trial.steps, trial.value) == (TrialState.RUNNING, 2, 0.5)
    world.tell(TrialReported(world.now_s, 0, "s-t0-0", saved_step=1))
    world.end("s-t0-0", EndCause.EVICTED)
    assert (trial.state, trial.steps, trial.value, trial.evictions) == (TrialState.EVICTED, 1, 1.0, 1)
    world.metric = lambda trial, step: 7.0
    (order,) = deploys(world.tick())
    assert (order.order_id, order.from_step) == ("s-t0-1", 1)
    world.run()
    assert (trial.repeated_steps, trial.state) == (1, TrialState.FINISHED)
    assert trial.curve.values.tolist() == [1.0, *[7.0] * 9]


def test_a_noticed_machine_pauses_its_trial_and_is_left_to_the_market() -> None:
    world, trial = one_trial()
    world.tell(NoticeSeen(world.now_s, "s-t0-0", world.now_s + 2 * TICK_S))
    world.training.pop("s-t0-0")  # the machine does not hear us yet
    orders = world.tick()
    assert orders == (PauseTrial("s-t0-0", 0, "the market takes its machine"),)
    world.report("s-t0-0", saved=1, ended="paused")
    assert (trial.state, trial.steps, trial.evictions) == (TrialState.EVICTED, 1, 1)
    (order,) = world.tick()  # no release: the machine is free if the market takes it
    assert isinstance(order, Deploy)
    assert (order.order_id, order.from_step, order.market) == ("s-t0-1", 1, LARGE)  # the other market cools down
    world.end("s-t0-0", EndCause.EVICTED)
    assert (trial.state, trial.evictions) == (TrialState.RUNNING, 1)
    assert world.run().state is SweepState.FINISHED


@pytest.mark.parametrize(
    ("billing", "p_evicted", "moves"),
    [
        ("per-second-first-hour-free", 0.5, True),
        ("per-second-first-hour-free", 0.0, False),  # a new machine brings nothing
        ("hourly-refund", 0.5, False),
        ("flat", 0.5, False),
    ],
)
def test_a_trial_moves_after_an_hour_where_a_refund_can_be_won(billing: str, p_evicted: float, moves: bool) -> None:
    world = SweepWorld(plan_of(trials=1, max_trial_steps=200, billing=billing, flat_micros=20_000))
    offers = {XLARGE: offer_of("0.05", p_evicted), XLARGE_B: offer_of("0.06", p_evicted)}
    for _ in range(HOUR_S // TICK_S):
        assert not [order for order in world.tick(offers) if not isinstance(order, Deploy)]
        assert not world.engine.wants_offers(world.now_s)
    assert world.engine.wants_offers(world.now_s + TICK_S) == (billing == "per-second-first-hour-free")
    orders = world.tick(offers)
    if not moves:
        assert orders == ()
        return
    (pause,) = orders
    assert isinstance(pause, PauseTrial)
    assert "its first hour is over" in pause.why
    orders = world.tick(offers)
    assert kinds(orders) == ["Release", "Deploy"]
    assert deploys(orders)[0].from_step == 30
    assert world.engine.sweep.trials[0].evictions == 0


def test_a_move_waits_for_the_step_that_is_under_way() -> None:
    world = SweepWorld(plan_of(trials=1, max_trial_steps=200))
    offers = {XLARGE: offer_of("0.05", 0.5), XLARGE_B: offer_of("0.06", 0.5)}
    world.tick(offers)
    begin_s, step_s = world.now_s, 1800

    def tick_at(at_s: int) -> tuple[object, ...]:
        return world.tell(SweepTick(begin_s + at_s, offers))

    world.tell(TrialReported(begin_s + 60, 0, "s-t0-0"))
    assert tick_at(HOUR_S + 60) == (), "it has not done a step yet"
    world.tell(TrialReported(begin_s + HOUR_S, 0, "s-t0-0", ((1, 1.0),), 1, float(step_s), upload_s=100.0))
    assert kinds(tick_at(HOUR_S + 120)) == ["PauseTrial"]
    patience_s = 300 + 2 * step_s + 100
    assert kinds(tick_at(HOUR_S + 120 + patience_s - 1)) == ["PauseTrial"], "the step is still under way"
    assert kinds(tick_at(HOUR_S + 120 + patience_s)) == ["Release", "Deploy"]


def test_a_trial_does_not_move_for_its_last_steps() -> None:
    world = SweepWorld(plan_of(trials=1, max_trial_steps=31, restart_s=600))
    for _ in range(31):
        world.tick()
    assert not [order for order in world.orders if isinstance(order, PauseTrial)]


def test_a_refused_deployment_goes_to_the_next_market() -> None:
    world = SweepWorld(plan_of(trials=1))
    orders = world.tell(SweepTick(world.now_s, OFFERS))
    assert world.tell(SweepTick(world.now_s + TICK_S, OFFERS)) == orders  # repeated until it is answered
    assert world.tell(SweepTick(world.now_s + TICK_S, OFFERS, left_out={XLARGE: "no price"})) == ()
    assert world.tell(SweepTick(world.now_s + TICK_S, OFFERS, buy=False)) == ()
    world.tell(AllocationRefused(world.now_s, "s-t0-0", "InsufficientInstanceCapacity", ""))
    trial = world.engine.sweep.trials[0]
    assert (trial.state, trial.deployments) == (TrialState.WAITING, [])
    (order,) = deploys(world.tell(SweepTick(world.now_s + 1, OFFERS)))
    assert (order.order_id, order.market) == ("s-t0-1", LARGE)
    world.tell(AllocationRefused(world.now_s, "s-t0-1", "InsufficientInstanceCapacity", ""))
    assert world.tell(SweepTick(world.now_s + 599, OFFERS)) == ()
    (order,) = deploys(world.tell(SweepTick(world.now_s + 600, OFFERS)))
    assert order.market == XLARGE


def test_a_quota_is_the_accounts_and_a_smaller_machine_is_tried() -> None:
    world = SweepWorld(plan_of(trials=2))
    first, second = deploys(world.tell(SweepTick(world.now_s, OFFERS)))
    world.grant(first)
    world.tell(AllocationRefused(world.now_s, second.order_id, "MaxSpotInstanceCountExceeded", ""))
    (order,) = deploys(world.tell(SweepTick(world.now_s + 1, OFFERS)))
    assert order.market == LARGE
    world.tell(AllocationRefused(world.now_s, order.order_id, "MaxSpotInstanceCountExceeded", ""))
    assert world.tell(SweepTick(world.now_s + 2, OFFERS)) == ()
    world.end(first.order_id, EndCause.EVICTED)  # now as large a one fits in again
    assert {order.market for order in deploys(world.tell(SweepTick(world.now_s + 3, OFFERS)))} == {XLARGE}


def test_a_machine_that_never_reports_is_given_up() -> None:
    world = SweepWorld(plan_of(trials=1))
    world.tick()
    world.training.clear()
    for _ in range(15):
        orders = world.tick()
    why = "no report within 1800 s of its grant"
    assert orders[0] == Release("s-t0-0", why)
    assert deploys(orders)[0].market == LARGE  # the other one cools down
    assert f"failed 1 of 3 times at step 0: {why}" in deploys(orders)[0].reason


def test_a_machine_that_no_order_bought_is_released_until_it_is_gone() -> None:
    world, _ = one_trial()
    world.tell(AllocationGranted(world.now_s, "red", Allocation("red", LARGE, 1, world.now_s, bid_micros=9)))
    stray = Release("red", "no trial was deployed by this order")
    assert world.tell(SweepTick(world.now_s, OFFERS)) == (stray,)
    assert world.tell(SweepTick(world.now_s, OFFERS)) == (stray,)
    world.end("red", EndCause.USER)
    assert world.tell(SweepTick(world.now_s, OFFERS)) == ()


def test_a_machine_whose_end_was_reported_by_mistake_trains_on_or_is_released() -> None:
    world, trial = one_trial()
    world.tell(AllocationGone(world.now_s, "s-t0-0", EndCause.EVICTED))
    world.tell(MachineSeen(world.now_s, "s-t0-0", "i-s-t0-0"))
    assert (trial.state, trial.evictions) == (TrialState.RUNNING, 0)
    world.tell(AllocationGone(world.now_s, "s-t0-0", EndCause.EVICTED))
    (order,) = deploys(world.tell(SweepTick(world.now_s, OFFERS)))
    world.tell(MachineSeen(world.now_s, "s-t0-0", "i-s-t0-0"))
    assert world.tell(SweepTick(world.now_s, OFFERS)) == (
        Release("s-t0-0", "its trial does not need it any more"),
        order,
    )


def test_a_deployment_that_was_refused_and_granted_all_the_same_is_released() -> None:
    world = SweepWorld(plan_of(trials=1))
    (order,) = deploys(world.tell(SweepTick(world.now_s, OFFERS)))
    world.tell(AllocationRefused(world.now_s, order.order_id, "Abandoned", ""))
    world.grant(order)
    orders = world.tell(SweepTick(world.now_s, OFFERS))
    assert kinds(orders) == ["Release", "Deploy"]
    assert deploys(orders)[0].order_id == "s-t0-1"


def test_a_report_may_come_after_the_end_of_its_machine() -> None:
    world, trial = one_trial(max_trial_steps=2)
    world.end("s-t0-0", EndCause.USER)
    world.tell(TrialReported(world.now_s, 0, "s-t0-0", ((2, 0.5),), 2, 1.0, "finished"))
    assert (trial.state, trial.failures) == (TrialState.FINISHED, {})
    world.tell(TrialReported(world.now_s, 0, "s-t0-0", ((2, 9.0),), 2, 1.0, "failed", "it ended before"))
    assert (trial.state, trial.value, trial.failures) == (TrialState.FINISHED, 0.5, {})
    assert kinds(world.tick()) == ["Finish"]


def test_a_late_report_of_an_earlier_machine_adds_what_its_state_holds() -> None:
    world, trial = one_trial()
    world.end("s-t0-0", EndCause.EVICTED)
    world.tick()
    world.tell(TrialReported(world.now_s, 0, "s-t0-0", ((2, 0.5), (3, 0.3), (4, 0.2)), 3, 1.0, "failed", "late"))
    assert trial.curve.steps.tolist() == [1, 2, 3]
    assert (trial.state, trial.saved_step, trial.failures) == (TrialState.RUNNING, 3, {})
    world.tell(TrialReported(world.now_s, 0, "s-t0-1", ((4, 0.2), (5, 0.1)), 5))
    world.tell(TrialReported(world.now_s, 0, "s-t0-0", ((2, 9.0),), 3))  # once more: it has a newer state by now
    world.end("s-t0-1", EndCause.EVICTED)
    assert deploys(world.tick())[0].from_step == 5
    assert trial.curve.values.tolist() == [1.0, 0.5, 0.3, 0.2, 0.1]


def test_a_late_report_of_the_target_saves_a_machine() -> None:
    world, trial = one_trial(max_trial_steps=3)
    world.end("s-t0-0", EndCause.EVICTED)
    (order,) = deploys(world.tell(SweepTick(world.now_s, OFFERS)))
    world.tell(TrialReported(world.now_s, 0, "s-t0-0", ((2, 0.5), (3, 0.3)), 3, 1.0, "finished"))
    world.tell(AllocationRefused(world.now_s, order.order_id, "InsufficientInstanceCapacity", ""))
    assert (trial.state, trial.steps) == (TrialState.FINISHED, 3)
    assert kinds(world.tick()) == ["Finish"]


def test_a_trial_whose_metric_at_the_target_was_lost_runs_all_steps_and_says_so() -> None:
    plan = plan_of(trials=2, max_trial_steps=10, stop="earlycurve", theta=0.5, mcnt=1)
    world = SweepWorld(plan)
    world.tick()
    world.end("s-t0-0", EndCause.EVICTED)  # its state of step 5 was uploaded, its report was not
    world.tick()
    world.tell(TrialReported(world.now_s, 0, "s-t0-1", (), 5, None, "paused"))
    world.training.pop("s-t0-1")
    trial = world.engine.sweep.trials[0]
    why = "its metric at step 5 was not reported, so it runs all steps"
    assert (trial.state, trial.until_step, trial.why) == (TrialState.WAITING, 10, why)
    assert world.run().state is SweepState.FINISHED
    assert [trial.state for trial in world.engine.sweep.trials.values()] == [TrialState.FINISHED, TrialState.FINISHED]


def test_a_repeated_report_changes_nothing() -> None:
    world, trial = one_trial()
    report = TrialReported(world.now_s, 0, "s-t0-0", ((1, 9.0), (2, 8.0)), 1, 1.0)
    world.tell(report)
    world.tell(report)
    assert trial.curve.values.tolist() == [9.0, 8.0]  # of a step that is reported twice the last report counts
    assert (trial.repeated_steps, trial.steps) == (0, 2)


def test_an_event_may_name_the_one_machine_of_a_deployment() -> None:
    world, trial = one_trial()
    world.tell(MachineNoticed(world.now_s, "s-t0-0", "i-s-t0-0", world.now_s + 120))
    assert kinds(world.tell(SweepTick(world.now_s, OFFERS))) == ["PauseTrial"]
    world.tell(MachineGone(world.now_s, "s-t0-0", "i-s-t0-0", EndCause.EVICTED))
    world.tell(MachineGone(world.now_s, "s-t0-0", "i-s-t0-0", EndCause.EVICTED))
    world.tell(MachinesUnlisted(world.now_s + 5, 1))
    assert (trial.state, trial.evictions, world.engine.holdings.unlisted_since_s) == (
        TrialState.EVICTED,
        1,
        world.now_s + 5,
    )
    assert [order.trial for order in deploys(world.tell(SweepTick(world.now_s + 9, OFFERS)))] == [0]
    assert (world.engine.holdings.unlisted_since_s, world.engine.holdings.ticked_at_s) == (None, world.now_s + 9)


def test_a_state_that_does_not_fit_the_notice_is_uploaded_periodically_and_that_is_said() -> None:
    world, _ = one_trial()
    world.tell(TrialReported(world.now_s, 0, "s-t0-0", saved_step=1, state_bytes=3_000_000, upload_s=150.0))
    world.tell(NoticeSeen(world.now_s, "s-t0-0", world.now_s + 200))
    assert world.tick() == ()  # an upload would be lost
    world.end("s-t0-0", EndCause.EVICTED)
    (order,) = deploys(world.tick())
    assert "3000000 bytes took 150 s to upload, longer than the notice of 120 s" in order.reason
    assert "at most 2400000 bytes fit" in order.reason


def test_a_deployment_that_is_found_is_not_ordered_again_under_its_id() -> None:
    world = SweepWorld(plan_of(trials=1))
    found = Allocation("s-t0-3", XLARGE, 1, world.now_s, bid_micros=100_000)  # bought after the backup
    world.tell(AllocationGranted(world.now_s, "s-t0-3", found, ("i-1",)))
    (order,) = deploys(world.tick())
    assert order.order_id == "s-t0-4"


def test_deployments_of_a_copied_database_have_its_generation_in_their_ids() -> None:
    world = SweepWorld(plan_of(trials=2))
    found = Allocation("s-g2-0a-t0-3", XLARGE, 1, world.now_s, bid_micros=100_000)
    world.tell(AllocationGranted(world.now_s, "s-g2-0a-t0-3", found, ("i-1",)))
    orders = deploys(world.tell(SweepTick(world.now_s, OFFERS, generation="g3-0b")))
    assert [order.order_id for order in orders] == ["s-g3-0b-t0-4", "s-g3-0b-t1-0"]
