"""The engine of a sweep: trials through machines, evictions, rules and limits to their ends."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from bidding.economics.budget import Spending
from bidding.economics.deadline import TimeLeft
from bidding.engine.events import (
    AllocationGone,
    AllocationGranted,
    AllocationRefused,
    JobClosed,
    MachineGone,
    MachineNoticed,
    MachineSeen,
    MachinesUnlisted,
    NoticeSeen,
)
from bidding.market.model import HOUR_S, Allocation, EndCause
from bidding.tuning.engine import SweepEngine
from bidding.tuning.events import (
    SamplerFailed,
    SweepClosed,
    SweepReopened,
    SweepStopRequested,
    SweepTick,
    TrialReported,
    TrialsProposed,
)
from bidding.tuning.orders import Deploy, Finish, PauseTrial, Release
from bidding.tuning.record import SweepError
from bidding.tuning.stopping.base import StoppingPlan, TrialView, Verdict, VerdictKind
from bidding.tuning.trials import SweepState, TrialRecord, TrialState
from bidding.tuning.views import result_view
from tests.support.markets import LARGE, XLARGE, XLARGE_B
from tests.support.sweeps import OFFERS, TICK_S, SweepWorld, offer_of, opened_sweep, plan_of, settings_of


def deploys(orders: object) -> list[Deploy]:
    return [order for order in orders if isinstance(order, Deploy)]  # type: ignore[attr-defined]


def kinds(orders: object) -> list[str]:
    return [type(order).__name__ for order in orders]  # type: ignore[attr-defined]


def one_trial(**changes: object) -> tuple[SweepWorld, TrialRecord]:
    """Return a sweep of one trial that has trained one step on its first machine."""
    world = SweepWorld(plan_of(**{"trials": 1, **changes}))
    world.tick()
    world.train()
    return world, world.engine.trials[0]


# -- to the end -----------------------------------------------------------------------------------------------------


def test_a_grid_of_eight_runs_every_step() -> None:
    world = SweepWorld(plan_of(trials=8, parallel=3))
    finish = world.run()
    assert (finish.state, finish.why) == (SweepState.FINISHED, "")
    result = result_view(world.engine)
    for trial in result.trials:
        assert (trial.state, trial.steps, trial.repeated_steps) == (TrialState.FINISHED, 10, 0)
        assert trial.deployments == (f"s-t{trial.number}-0",)
    assert (result.best, result.evictions) == (0, 0)


def test_the_best_by_prediction_go_on_from_their_states() -> None:
    plan = plan_of(trials=5, max_trial_steps=40, stop="earlycurve", theta=0.5, mcnt=2, parallel=5)
    world = SweepWorld(plan, lambda trial, step: 1 / (0.1 * step + 1) + 0.2 * ((trial + 2) % 5), steps_a_tick=4)
    world.run()
    trials = result_view(world.engine).trials
    assert [(t.state, t.steps) for t in trials] == [
        (TrialState.STOPPED_EARLY, 20),
        (TrialState.STOPPED_EARLY, 20),
        (TrialState.STOPPED_EARLY, 20),
        (TrialState.FINISHED, 40),  # its floor is the lowest
        (TrialState.FINISHED, 40),
    ]
    again = [order for order in deploys(world.orders) if order.order_id.endswith("-1")]
    assert [(order.trial, order.from_step, order.until_step) for order in again] == [(3, 20, 40), (4, 20, 40)]
    assert "number 1 of the best 2" in again[0].reason
    assert all(trial.predicted is not None for trial in trials)
    assert "predicted" in trials[0].why


def test_a_trial_that_cannot_be_predicted_runs_all_its_steps_and_says_so() -> None:
    plan = plan_of(trials=3, max_trial_steps=6, stop="earlycurve", theta=0.5, mcnt=1)
    world = SweepWorld(plan, lambda trial, step: None if trial == 1 else 1.0 / step + trial, steps_a_tick=3)
    world.run()
    trial = world.engine.trials[1]
    if trial.state is TrialState.FINISHED:
        assert "it cannot be predicted, so it runs all steps" in deploys(world.orders)[-1].reason
    else:
        assert (trial.state, trial.value) == (TrialState.STOPPED_EARLY, None)
        assert "diverged" in trial.why


def test_a_running_trial_that_the_rule_stops_pauses_first() -> None:
    world = SweepWorld(plan_of(stop="median", max_trial_steps=40), lambda trial, step: trial + 1 / step, steps_a_tick=4)
    finish = world.run()
    assert finish.state is SweepState.FINISHED
    stopped = [trial for trial in world.engine.trials.values() if trial.state is TrialState.STOPPED_EARLY]
    assert stopped
    for trial in stopped:
        assert 0 < trial.saved_step == trial.steps < 40
        assert "worse than the median" in trial.why
        assert PauseTrial(f"s-t{trial.number}-0", trial.number, trial.why) in world.orders


class StopWhileRunning:
    """A rule that stops a trial as soon as it runs."""

    def first_target(self, plan: StoppingPlan) -> int:
        return 5

    def decide(self, trials: Sequence[TrialView], plan: StoppingPlan) -> Mapping[int, Verdict]:
        return {t.number: Verdict(VerdictKind.STOP, "enough") for t in trials if t.state == "running" and t.last_step}


@pytest.mark.parametrize(("step", "state"), [(4, "stopped_early"), (5, "stopped_early"), (10, "finished")])
def test_a_trial_that_is_to_stop_ends_wherever_it_has_come_to(step: int, state: str) -> None:
    world = SweepWorld(plan_of(trials=1), engine=SweepEngine(StopWhileRunning()))
    world.tick()
    world.train()
    assert world.tell(SweepTick(world.now_s, OFFERS)) == (PauseTrial("s-t0-0", 0, "enough"),)
    world.tell(
        TrialReported(world.now_s, 0, "s-t0-0", tuple((n, 1.0) for n in range(2, step + 1)), step, 1.0, "paused")
    )
    assert world.engine.trials[0].state == state
    world.end("s-t0-0", EndCause.USER)
    assert kinds(world.tick()) == ["Finish"]


def test_a_sweep_without_a_value_has_failed() -> None:
    world = SweepWorld(plan_of(trials=1, max_trial_steps=2), lambda trial, step: None)
    finish = world.run()
    assert (finish.state, finish.why) == (SweepState.FAILED, "no trial has a value")
    assert result_view(world.engine).best is None


def test_a_trial_that_ends_without_a_report_of_its_metric_has_failed() -> None:
    world = SweepWorld(plan_of(trials=1))
    world.tick()
    world.report("s-t0-0", ended="finished")
    trial = world.engine.trials[0]
    assert (trial.state, trial.why) == (TrialState.FAILED, "it ended without a report of its metric")
    assert world.run().why == "no trial has a value; it ended without a report of its metric"


def test_a_trial_may_return_before_its_last_step() -> None:
    world, trial = one_trial()
    world.report("s-t0-0", saved=1, ended="finished")
    assert (trial.state, trial.steps, trial.value) == (TrialState.FINISHED, 1, 1.0)
    assert world.run().state is SweepState.FINISHED


def test_settings_of_an_adaptive_sampler_come_as_machines_become_free() -> None:
    world = SweepWorld(plan_of(trials=4, max_trial_steps=2, parallel=2, adaptive=True, stop="none"))
    engine = type(world.engine)()
    engine.handle(opened_sweep(world.plan))
    assert engine.wants_trials == 2
    engine.handle(TrialsProposed(0, settings_of(2)))
    assert engine.wants_trials == 0
    assert kinds(engine.handle(SweepTick(0, OFFERS))) == ["Deploy", "Deploy"]
    for number in range(2):
        name = f"s-t{number}-0"
        engine.handle(AllocationGranted(0, name, Allocation(name, LARGE, 1, 0, bid_micros=1)))
        engine.handle(TrialReported(0, number, name, ((1, 1.0), (2, 1.0)), 2, 1.0, "finished"))
        engine.handle(AllocationGone(0, name, EndCause.USER))
        assert engine.wants_trials == number + 1
    assert engine.handle(SweepTick(0, OFFERS)) == ()  # two are still to come
    assert engine.state is SweepState.RUNNING
    engine.handle(SweepStopRequested(0, "stop"))
    assert engine.wants_trials == 0


# -- machines -------------------------------------------------------------------------------------------------------


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
    world.engine.step_times.measure(1, LARGE.instance_type, 3.0)
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
    assert world.engine.trials[0].evictions == 0


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
    trial = world.engine.trials[0]
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


# -- failures -------------------------------------------------------------------------------------------------------


def test_three_failures_at_one_step_are_the_end_of_a_trial() -> None:
    world, trial = one_trial()
    name = "s-t0-0"
    for count in (1, 2, 3):
        world.training.pop(name, None)
        world.tell(
            TrialReported(world.now_s, 0, name, ((1, 1.0), (2, 0.5)), None, 1.0, "failed", "ValueError: bad alpha")
        )
        if count < 3:
            assert (trial.state, trial.steps) == (TrialState.WAITING, 0)
            assert trial.why == f"failed {count} of 3 times at step 2: ValueError: bad alpha"
            orders = world.tick()
            assert orders[0] == Release(name, "its trial has failed")
            name = deploys(orders)[0].order_id
    assert (trial.state, trial.why) == (TrialState.FAILED, "ValueError: bad alpha")
    assert [*kinds(world.tick()), *kinds(world.tick())] == ["Release", "Finish"]
    assert world.finish == Finish(SweepState.FINISHED, "")  # it has a value, all the same


def test_failures_at_different_steps_are_counted_apart() -> None:
    world, trial = one_trial()
    for step in (2, 3, 4, 5):
        present = trial.present
        assert present is not None
        world.tell(TrialReported(world.now_s, 0, present.order_id, ((step, 1.0),), step, 1.0, "failed", "boom"))
        assert trial.state is TrialState.WAITING
        world.tick()
    assert trial.failures == {2: 1, 3: 1, 4: 1, 5: 1}


def test_a_machine_that_ends_by_itself_counts_as_a_failure_and_an_eviction_does_not() -> None:
    world, trial = one_trial()
    for count in range(1, 4):
        present = trial.present
        assert present is not None
        world.end(present.order_id, EndCause.EVICTED if count == 1 else EndCause.USER)
        world.tick()
    assert trial.failures == {0: 2}
    assert (trial.state, trial.evictions) == (TrialState.RUNNING, 1)


def test_a_launch_that_failed_cools_its_market() -> None:
    world, trial = one_trial()
    world.end("s-t0-0", EndCause.FAILED)
    assert deploys(world.tick())[0].market == LARGE
    assert not trial.failures


# -- reports --------------------------------------------------------------------------------------------------------


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
    trial = world.engine.trials[0]
    why = "its metric at step 5 was not reported, so it runs all steps"
    assert (trial.state, trial.until_step, trial.why) == (TrialState.WAITING, 10, why)
    assert world.run().state is SweepState.FINISHED
    assert [trial.state for trial in world.engine.trials.values()] == [TrialState.FINISHED, TrialState.FINISHED]


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
    assert (trial.state, trial.evictions, world.engine.unlisted_since_s) == (TrialState.EVICTED, 1, world.now_s + 5)
    assert [order.trial for order in deploys(world.tell(SweepTick(world.now_s + 9, OFFERS)))] == [0]
    assert (world.engine.unlisted_since_s, world.engine.ticked_at_s) == (None, world.now_s + 9)


def test_a_state_that_does_not_fit_the_notice_is_uploaded_periodically_and_that_is_said() -> None:
    world, _ = one_trial()
    world.tell(TrialReported(world.now_s, 0, "s-t0-0", saved_step=1, state_bytes=3_000_000, upload_s=150.0))
    world.tell(NoticeSeen(world.now_s, "s-t0-0", world.now_s + 200))
    assert world.tick() == ()  # an upload would be lost
    world.end("s-t0-0", EndCause.EVICTED)
    (order,) = deploys(world.tick())
    assert "3000000 bytes took 150 s to upload, longer than the notice of 120 s" in order.reason
    assert "at most 2400000 bytes fit" in order.reason


# -- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["earlycurve", "asha", "median", "none"])
def test_a_sweep_whose_sampler_fails_ends_with_the_trials_that_it_has(stop: str) -> None:
    world = SweepWorld(plan_of(trials=27, max_trial_steps=27, adaptive=True, stop=stop, mcnt=1), proposes=4)
    world.tick()
    world.tell(SamplerFailed(world.now_s, "it is out of ideas"))
    assert world.engine.wants_trials == 0
    why = "only 4 of 27 trials were proposed: it is out of ideas"
    assert world.run() == Finish(SweepState.FINISHED, why)
    result = result_view(world.engine)
    assert (len(result.trials), result.best, result.trials[0].steps) == (4, 0, 27)


def test_a_sweep_whose_sampler_fails_before_the_first_trial_has_failed() -> None:
    world = SweepWorld(plan_of(adaptive=True), proposes=0)
    world.tell(SamplerFailed(world.now_s, "it needs a package"))
    why = "no trial has a value; only 0 of 4 trials were proposed: it needs a package"
    assert world.run() == Finish(SweepState.FAILED, why)


def test_a_stop_pauses_all_trials_and_keeps_the_best_so_far() -> None:
    world = SweepWorld(plan_of(trials=3, parallel=2))
    world.tick()
    world.train()
    world.tell(SweepStopRequested(world.now_s, "stop"))
    assert not world.engine.wants_offers(world.now_s)
    assert world.tick() == tuple(PauseTrial(f"s-t{number}-0", number, "the sweep stops") for number in (0, 1))
    assert kinds(world.tick()) == ["Release", "Release"]
    assert kinds(world.tick()) == ["Finish"]
    result = result_view(world.engine)
    assert (result.state, result.why, result.best) == (SweepState.STOPPED, "stop", 0)
    paused = (TrialState.PAUSED, 2)
    assert [(t.state, t.steps) for t in result.trials] == [paused, paused, (TrialState.WAITING, 0)]
    world.tell(SweepClosed(world.now_s))
    assert world.tick() == ()
    world.tell(SweepReopened(world.now_s))
    assert [order.from_step for order in deploys(world.tick())] == [2, 2]


def test_a_trial_that_does_not_pause_loses_its_machine() -> None:
    world, trial = one_trial()
    world.tell(SweepStopRequested(world.now_s, "stop"))
    for at_s in (0, 120, 240):
        assert kinds(world.tell(SweepTick(world.now_s + at_s, OFFERS))) == ["PauseTrial"]
    assert world.tell(SweepTick(world.now_s + 360, OFFERS)) == (Release("s-t0-0", "it did not pause in 360 s"),)
    assert (trial.state, trial.steps) == (TrialState.PAUSED, 0)


def test_a_deployment_that_is_open_at_a_stop_is_not_repeated_but_waited_for() -> None:
    world = SweepWorld(plan_of(trials=1))
    (order,) = deploys(world.tell(SweepTick(world.now_s, OFFERS)))
    world.tell(SweepStopRequested(world.now_s, "stop"))
    assert world.tell(SweepTick(world.now_s, OFFERS)) == ()
    assert list(world.engine.open_orders) == [order.order_id]
    world.grant(order)
    assert kinds(world.tell(SweepTick(world.now_s, OFFERS))) == ["Release"]
    world.end(order.order_id, EndCause.USER)
    assert world.tell(SweepTick(world.now_s, OFFERS)) == (Finish(SweepState.STOPPED, "stop"),)


def test_a_sweep_that_is_closed_at_once_buys_nothing_and_ends_its_machines() -> None:
    world = SweepWorld(plan_of(trials=3, parallel=1))
    world.tick()
    world.tell(SweepClosed(world.now_s))
    assert not world.engine.wants_offers(world.now_s)
    assert world.tick() == (PauseTrial("s-t0-0", 0, "the sweep stops"),)
    assert kinds(world.tick()) == ["Release"]
    assert world.tick() == ()


def test_a_trial_that_was_complete_when_its_sweep_stopped_has_finished_when_it_goes_on() -> None:
    world, trial = one_trial(max_trial_steps=3)
    world.end("s-t0-0", EndCause.EVICTED)
    (order,) = deploys(world.tell(SweepTick(world.now_s, OFFERS)))
    world.tell(SweepStopRequested(world.now_s, "stop"))
    world.tell(AllocationRefused(world.now_s, order.order_id, "InsufficientInstanceCapacity", ""))
    assert kinds(world.tick()) == ["Finish"]
    world.tell(SweepClosed(world.now_s))
    world.tell(TrialReported(world.now_s, 0, "s-t0-0", ((2, 0.5), (3, 0.3)), 3, 1.0))
    assert trial.state is TrialState.PAUSED
    world.tell(SweepReopened(world.now_s))
    assert trial.state is TrialState.FINISHED
    assert world.tick() == (Finish(SweepState.FINISHED, ""),)


def test_the_budget_ends_the_sweep_within_two_ticks() -> None:
    world, _ = one_trial()
    reached = Spending(1_000, 1_001, world.now_s + 240)
    tick = SweepTick(world.now_s, OFFERS, spending=reached)
    assert world.tell(tick) == (PauseTrial("s-t0-0", 0, "the sweep's budget is reached"),)
    assert kinds(world.tell(replace(tick, at_s=world.now_s + TICK_S))) == ["Release"]
    world.end("s-t0-0", EndCause.USER)
    assert world.tell(replace(tick, at_s=world.now_s + 2 * TICK_S)) == (Finish(SweepState.STOPPED, "budget"),)


def test_a_purchase_fits_in_the_budget() -> None:
    world = SweepWorld(plan_of(trials=3))
    offers = {XLARGE: offer_of("0.05", bid="0.36"), LARGE: offer_of("0.03", bid="0.18")}
    spending = Spending(50_000, 20_000, world.now_s + 240)  # 0.36 $ an hour is 0.024 $ in 240 s; 0.18 $ is 0.012 $
    first, *others = deploys(world.tick(offers, spending=replace(spending, ends_by_s=world.now_s + TICK_S + 240)))
    assert first.market == XLARGE
    assert others == []  # 0.006 dollars are left
    spending = Spending(40_000, 20_000, world.now_s + TICK_S + 240)
    (second,) = deploys(world.tick(offers, spending=spending))
    assert second.market == LARGE
    assert "the budget leaves no machine of c4.xlarge/us-east-1a, which may cost $0.3600 an hour" in second.reason
    assert world.engine.state is SweepState.RUNNING


def test_a_budget_that_buys_nothing_stops_the_sweep() -> None:
    world = SweepWorld(plan_of(trials=2))
    assert world.tick(spending=Spending(100, 0, world.now_s + 400)) == (Finish(SweepState.STOPPED, "budget"),)


def test_without_slack_the_deadline_buys_on_demand() -> None:
    world, _ = one_trial(parallel=1, max_trial_steps=10)
    far = TimeLeft(world.now_s + 10 * HOUR_S, 0, 0.0, 300.0)
    world.tick(time_left=far)  # 8 steps of 120 s are left then
    world.end("s-t0-0", EndCause.EVICTED)
    # The fastest type takes 10 * 120 s, and 15 % more.
    near = replace(far, deadline_s=world.now_s + TICK_S + 300 + 1380)
    assert deploys(world.tick(time_left=replace(near, deadline_s=near.deadline_s + 1)))[0].bid_micros is not None
    world.end("s-t0-1", EndCause.EVICTED)
    (order,) = deploys(world.tick(time_left=near))
    assert (order.bid_micros, order.market) == (None, XLARGE)
    assert "on demand, since the deadline is in" in order.reason
    world.end("s-t0-2", EndCause.USER)
    (order,) = deploys(world.tick(time_left=far))
    assert (order.bid_micros, order.market) == (None, LARGE)  # it stays on demand, on the cheapest that ends in time


def test_a_spot_machine_that_would_end_after_the_deadline_is_left_for_one_on_demand() -> None:
    world = SweepWorld(plan_of(trials=1, max_trial_steps=100))
    small = {LARGE: OFFERS[LARGE]}
    world.tick(small)
    world.tick(small)
    # 99 steps of 120 s are left on 2 vCPUs. On the 32 of the fastest type a quarter of each is as long, by caution.
    needed_s = int(1.15 * 99 * 120 * (0.25 + 0.75 / 16) + 180)
    near = TimeLeft(world.now_s + TICK_S + needed_s + 300, 0, 0.0, 300.0)
    assert world.tell(SweepTick(world.now_s + TICK_S, small, time_left=replace(near, deadline_s=10**10))) == ()
    assert world.tell(SweepTick(world.now_s + TICK_S - 1, small, time_left=near)) == (), "there is slack"
    poor = Spending(10_000, 0, world.now_s + 400)
    assert world.tell(SweepTick(world.now_s + TICK_S, small, time_left=near, spending=poor)) == (), "none is affordable"
    orders = world.tell(SweepTick(world.now_s + TICK_S, small, time_left=near))
    assert [order.why.partition(",")[0] for order in orders if isinstance(order, PauseTrial)] == [
        f"the deadline is in {needed_s + 300} s"
    ]
    world.carry_out(orders)
    (order,) = deploys(world.tick(time_left=near))
    assert (order.bid_micros, order.market) == (None, XLARGE)
    world.tick(time_left=near)
    assert not [order for order in world.tick(time_left=near) if isinstance(order, PauseTrial)], "it stays there"


def test_the_budget_wins_over_the_deadline() -> None:
    world, _ = one_trial(parallel=1)
    world.end("s-t0-0", EndCause.EVICTED)
    at_s = world.now_s + TICK_S
    spending = Spending(10_000, 0, at_s + 240)  # 0.10 $ an hour is 0.0067 $; 0.20 $ on demand is 0.0133 $
    offers = {XLARGE: offer_of("0.05", on_demand="0.20", bid="0.10")}
    (order,) = deploys(world.tick(offers, spending=spending, time_left=TimeLeft(at_s + 60, 0, 0.0, 0.0)))
    assert order.bid_micros == 100_000
    assert "but the budget leaves no machine on demand" in order.reason


# -- bad events -----------------------------------------------------------------------------------------------------


def test_an_event_that_cannot_be_is_refused() -> None:
    world, _ = one_trial()
    for event in (
        opened_sweep(world.plan),
        TrialsProposed(0, settings_of(2)),
        TrialReported(0, 0, "s-t0-7"),
        TrialReported(0, 1, "s-t0-0"),
        TrialReported(0, 0, "s-t0-0", ended="vanished"),
        AllocationGone(0, "nothing", EndCause.USER),
        JobClosed(0),
    ):
        with pytest.raises(SweepError):
            world.engine.handle(event)
