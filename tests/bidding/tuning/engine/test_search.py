"""The engine of a sweep: trials to their ends, failures and reports."""

from collections.abc import Mapping, Sequence

import pytest

from proteus_spot.bidding.engine.events import AllocationGone, AllocationGranted, JobClosed
from proteus_spot.bidding.market.model import Allocation, EndCause
from proteus_spot.bidding.tuning.stopping.base import StoppingPlan, TrialView, Verdict, VerdictKind
from proteus_spot.bidding.tuning.sweep_engine import SweepEngine
from proteus_spot.bidding.tuning.sweep_events import SweepStopRequested, SweepTick, TrialReported, TrialsProposed
from proteus_spot.bidding.tuning.sweep_orders import Finish, PauseTrial, Release
from proteus_spot.bidding.tuning.sweep_record import SweepError
from proteus_spot.bidding.tuning.trials import SweepState, TrialState
from proteus_spot.bidding.tuning.views import result_view
from tests.support.markets import LARGE
from tests.support.sweep_engines import deploys, kinds, one_trial
from tests.support.sweeps import OFFERS, SweepWorld, opened_sweep, plan_of, settings_of


def test_a_grid_of_eight_runs_every_step() -> None:
    world = SweepWorld(plan_of(trials=8, parallel=3))
    finish = world.run()
    assert (finish.state, finish.why) == (SweepState.FINISHED, "")
    result = result_view(world.engine.sweep)
    for trial in result.trials:
        assert (trial.state, trial.steps, trial.repeated_steps) == (TrialState.FINISHED, 10, 0)
        assert trial.deployments == (f"s-t{trial.number}-0",)
    assert (result.best, result.evictions) == (0, 0)


def test_the_best_by_prediction_go_on_from_their_states() -> None:
    plan = plan_of(trials=5, max_trial_steps=40, stop="earlycurve", theta=0.5, mcnt=2, parallel=5)
    world = SweepWorld(plan, lambda trial, step: 1 / (0.1 * step + 1) + 0.2 * ((trial + 2) % 5), steps_a_tick=4)
    world.run()
    trials = result_view(world.engine.sweep).trials
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
    trial = world.engine.sweep.trials[1]
    if trial.state is TrialState.FINISHED:
        assert "it cannot be predicted, so it runs all steps" in deploys(world.orders)[-1].reason
    else:
        assert (trial.state, trial.value) == (TrialState.STOPPED_EARLY, None)
        assert "diverged" in trial.why


def test_a_running_trial_that_the_rule_stops_pauses_first() -> None:
    world = SweepWorld(plan_of(stop="median", max_trial_steps=40), lambda trial, step: trial + 1 / step, steps_a_tick=4)
    finish = world.run()
    assert finish.state is SweepState.FINISHED
    stopped = [trial for trial in world.engine.sweep.trials.values() if trial.state is TrialState.STOPPED_EARLY]
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
    assert world.engine.sweep.trials[0].state == state
    world.end("s-t0-0", EndCause.USER)
    assert kinds(world.tick()) == ["Finish"]


def test_a_sweep_without_a_value_has_failed() -> None:
    world = SweepWorld(plan_of(trials=1, max_trial_steps=2), lambda trial, step: None)
    finish = world.run()
    assert (finish.state, finish.why) == (SweepState.FAILED, "no trial has a value")
    assert result_view(world.engine.sweep).best is None


def test_a_trial_that_ends_without_a_report_of_its_metric_has_failed() -> None:
    world = SweepWorld(plan_of(trials=1))
    world.tick()
    world.report("s-t0-0", ended="finished")
    trial = world.engine.sweep.trials[0]
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
    assert engine.sweep.state is SweepState.RUNNING
    engine.handle(SweepStopRequested(0, "stop"))
    assert engine.wants_trials == 0


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
