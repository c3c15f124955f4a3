"""The engine of a sweep: stops, the budget and the deadline."""

from dataclasses import replace

import pytest

from proteus_spot.bidding.economics.budget import Spending
from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.engine.events import AllocationRefused
from proteus_spot.bidding.market.model import HOUR_S, EndCause
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
from proteus_spot.bidding.tuning.sweep_orders import Finish, PauseTrial, Release
from proteus_spot.bidding.tuning.sweep_record import SweepError
from proteus_spot.bidding.tuning.trials import SweepState, TrialState
from proteus_spot.bidding.tuning.views import result_view
from tests.support.markets import LARGE, XLARGE
from tests.support.sweep_engines import deploys, kinds, one_trial
from tests.support.sweeps import OFFERS, TICK_S, SweepWorld, offer_of, plan_of, settings_of


@pytest.mark.parametrize("stop", ["earlycurve", "asha", "median", "none"])
def test_a_sweep_whose_sampler_fails_ends_with_the_trials_that_it_has(stop: str) -> None:
    world = SweepWorld(plan_of(trials=27, max_trial_steps=27, adaptive=True, stop=stop, mcnt=1), proposes=4)
    world.tick()
    world.tell(SamplerFailed(world.now_s, "it is out of ideas"))
    assert world.engine.wants_trials == 0
    why = "only 4 of 27 trials were proposed: it is out of ideas"
    assert world.run() == Finish(SweepState.FINISHED, why)
    result = result_view(world.engine.sweep)
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
    result = result_view(world.engine.sweep)
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
    assert list(world.engine.sweep.open_orders) == [order.order_id]
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
    assert world.engine.sweep.state is SweepState.RUNNING


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


def test_an_ended_sweep_gets_more_trials_and_is_judged_with_them() -> None:
    world = SweepWorld(plan_of(trials=2, stop="earlycurve", theta=0.5, mcnt=1, max_trial_steps=12))
    assert world.run().state is SweepState.FINISHED
    world.tell(SweepClosed(world.now_s))
    world.finish = None
    with pytest.raises(SweepError, match="the sweep has 2 trials: 2 are no more"):
        world.tell(SweepExtended(world.now_s, 2))
    world.metric = lambda trial, step: 0.5 / step if trial == 3 else 1.0 / step + trial
    world.tell(SweepExtended(world.now_s, 4))
    assert world.engine.wants_trials == 2
    world.tell(TrialsProposed(world.now_s, settings_of(4)))
    assert world.run().state is SweepState.FINISHED
    states = [str(trial.state) for trial in world.engine.sweep.trials.values()]
    assert states == ["finished", "stopped_early", "stopped_early", "finished"], "trial 3 is the new best"
