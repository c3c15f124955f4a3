"""The engine of a sweep: trials that cannot work, and deployments that bring nothing, cost no more than a bound."""

from collections.abc import Callable

import pytest

from proteus_spot.bidding.engine.events import NoticeSeen
from proteus_spot.bidding.market.model import EndCause
from proteus_spot.bidding.tuning.sweep_events import SweepReopened, SweepTick, TrialReported
from proteus_spot.bidding.tuning.sweep_orders import Deploy, Release
from proteus_spot.bidding.tuning.sweep_progress import MOST_IDLE
from proteus_spot.bidding.tuning.trials import SweepState, TrialState
from tests.support.markets import LARGE, XLARGE
from tests.support.sweep_engines import deploys, one_trial
from tests.support.sweeps import OFFERS, TICK_S, SweepWorld, offer_of, plan_of

#: What a machine reports at its end, by deployment.
End = Callable[[SweepWorld, Deploy], None]


def play(world: SweepWorld, end: End, most_ticks: int = 400) -> int:
    """Tick until the sweep finishes; each machine ends as `end` says. Return the number of machines."""
    machines = 0
    while world.finish is None:
        assert most_ticks > 0, "the sweep does not finish"
        most_ticks -= 1
        world.now_s += TICK_S
        for order in world.tell(SweepTick(world.now_s, OFFERS)):
            world.carry_out([order])
            if isinstance(order, Deploy):
                world.training.pop(order.order_id)
                machines += 1
                end(world, order)
    return machines


def fails(why: str) -> End:
    return lambda world, order: world.tell(
        TrialReported(world.now_s, order.trial, order.order_id, ended="failed", why=why.format(order.trial))
    )  # type: ignore[return-value]


# -- before the first step ------------------------------------------------------------------------------------------


def test_one_trial_trains_a_step_before_the_others_begin() -> None:
    world = SweepWorld(plan_of(trials=4, parallel=4, probe=True))
    assert [order.order_id for order in deploys(world.tell(SweepTick(world.now_s, OFFERS)))] == ["s-t0-0"]
    assert len(deploys(world.tell(SweepTick(world.now_s, OFFERS)))) == 1  # repeated, and no other
    world.grant(world.orders[0])  # type: ignore[arg-type]
    assert world.tell(SweepTick(world.now_s, OFFERS)) == ()
    world.tick()  # it trains a step
    assert world.engine.sweep.working == 4
    assert world.run().state is SweepState.FINISHED


def test_a_first_step_that_takes_long_holds_the_others_up_for_as_long_as_a_machine_may_be_silent() -> None:
    world = SweepWorld(plan_of(trials=2, parallel=2, probe=True, silence_s=600))
    (order,) = deploys(world.tick())
    world.training.pop(order.order_id)
    world.tell(TrialReported(world.now_s, 0, order.order_id))  # it works, and has not done a step
    begun_s = world.now_s
    while not deploys(world.tick()):
        continue
    assert world.now_s - begun_s == 600


@pytest.mark.parametrize("trials", [1, 2, 24])
def test_three_equal_failures_before_any_step_end_the_sweep(trials: int) -> None:
    world = SweepWorld(plan_of(trials=trials, parallel=8, probe=True))
    assert play(world, fails("No module named 'x' at 0x7f{0}")) == 3
    assert world.finish is not None
    assert world.finish.state is SweepState.FAILED
    assert world.finish.why.startswith("3 tries failed alike before the first step: No module named 'x'")
    assert {trial.state for trial in world.engine.sweep.trials.values()} == {TrialState.FAILED}
    # Once the code is right, the same sweep goes on.
    world.finish = None
    world.tell(SweepReopened(world.now_s))
    assert world.run().state is SweepState.FINISHED


def test_failures_of_single_settings_do_not_end_the_sweep() -> None:
    world = SweepWorld(plan_of(trials=5, parallel=8, probe=True))

    def end(world: SweepWorld, order: Deploy) -> None:
        if order.trial < 2:
            fails("setting {0} is bad")(world, order)
        else:
            world.report(order.order_id, [(step, 1.0) for step in range(1, 11)], saved=10, ended="finished")

    assert play(world, end) == 2 * 3 + 3
    assert [trial.state for trial in world.engine.sweep.trials.values()] == ["failed"] * 2 + ["finished"] * 3


def test_without_a_first_step_of_any_trial_no_more_than_one_machine_works() -> None:
    world = SweepWorld(plan_of(trials=6, parallel=8, probe=True))
    most = 0

    def end(world: SweepWorld, order: Deploy) -> None:
        nonlocal most
        most = max(most, world.engine.sweep.working)
        fails("setting {0} is bad")(world, order)

    assert play(world, end) == 6 * 3
    assert most == 1


# -- deployments without progress -----------------------------------------------------------------------------------


def test_a_metric_of_every_fifth_step_is_judged_at_the_target_and_trained_to_the_end() -> None:
    world = SweepWorld(plan_of(trials=3, max_trial_steps=20, stop="earlycurve", theta=0.7, mcnt=1, parallel=3))

    def end(world: SweepWorld, order: Deploy) -> None:
        values = tuple((step, 1.0 / step) for step in range(5, order.until_step + 1, 5))
        last = order.until_step == 20
        world.tell(
            TrialReported(
                world.now_s,
                order.trial,
                order.order_id,
                values,
                ended="finished" if last else "paused",
                done_step=order.until_step,
            )
        )

    assert play(world, end) == 2 * 3  # too few values to predict: all go on
    assert [(trial.state, trial.steps, trial.value) for trial in world.engine.sweep.trials.values()] == [
        ("finished", 20, 0.05)
    ] * 3


@pytest.mark.parametrize(
    "how",
    [
        {"ended": "paused"},  # of itself, before its target
        {"ended": "paused", "done_step": 3, "values": ((3, 1.0),)},
        {"ended": "paused", "saved_step": 0, "done_step": 2},
        None,  # its machine ended without a word
    ],
)
def test_three_deployments_without_progress_fail_the_trial_with_that_reason(how: dict[str, object] | None) -> None:
    world = SweepWorld(plan_of(trials=1))
    ends = iter(range(1, 100))

    def end(world: SweepWorld, order: Deploy) -> None:
        if how is None:
            world.report(order.order_id, [(next(ends), 1.0)])  # each gets a step further, and saves nothing
            world.end(order.order_id, EndCause.USER)
        else:
            world.tell(TrialReported(world.now_s, 0, order.order_id, **how))  # type: ignore[arg-type]

    assert play(world, end) == 3
    trial = world.engine.sweep.trials[0]
    assert trial.state is TrialState.FAILED
    assert trial.why.startswith("3 tries in a row ended without progress: none saved a state after step 0")


def test_failures_at_other_steps_without_a_state_are_bounded_too() -> None:
    world = SweepWorld(plan_of(trials=1, max_trial_steps=1000))
    steps = iter(range(1, 1000))

    def end(world: SweepWorld, order: Deploy) -> None:
        world.report(order.order_id, [(next(steps), 1.0)])
        fails("out of luck")(world, order)

    assert play(world, end) == 3


def test_progress_begins_the_count_anew() -> None:
    world = SweepWorld(plan_of(trials=1, max_trial_steps=5))
    count = 0

    def end(world: SweepWorld, order: Deploy) -> None:
        nonlocal count
        count += 1
        saved = order.from_step + (count % 3 == 0)  # each third machine saves a step more
        last = saved == 5
        world.report(order.order_id, [(saved, 1.0)], saved or None, "finished" if last else "paused")

    assert play(world, end) == 15
    assert world.engine.sweep.trials[0].state is TrialState.FINISHED


def test_evictions_without_progress_have_a_bound_of_their_own() -> None:
    world = SweepWorld(plan_of(trials=1))

    def end(world: SweepWorld, order: Deploy) -> None:
        world.tell(NoticeSeen(world.now_s, order.order_id, world.now_s + 1))
        world.end(order.order_id, EndCause.EVICTED)

    assert play(world, end) == MOST_IDLE
    trial = world.engine.sweep.trials[0]
    assert (trial.state, trial.evictions) == (TrialState.FAILED, MOST_IDLE)


def test_a_stop_is_no_deployment_without_progress() -> None:
    world, trial = one_trial()
    for _ in range(5):
        world.tell(SweepTick(world.now_s, OFFERS))
        (name,) = world.training
        world.engine._progress.stop("stop")
        world.tell(SweepTick(world.now_s + 1, OFFERS))
        world.training.pop(name)
        world.tell(TrialReported(world.now_s, 0, name, ended="paused", why="the sweep stops"))
        world.end(name, EndCause.USER)
        world.tell(SweepTick(world.now_s + 2, OFFERS))
        world.tell(SweepReopened(world.now_s))
        world.tick()
    assert trial.state is TrialState.RUNNING


# -- markets above on demand ----------------------------------------------------------------------------------------


def test_refused_markets_are_named_and_a_trial_waits_for_one() -> None:
    world = SweepWorld(plan_of(trials=1))
    dear = {LARGE: offer_of("0.11", on_demand="0.10"), XLARGE: offer_of("0.21", on_demand="0.20")}
    assert world.tick(dear) == ()
    assert world.engine.sweep.trials[0].why == "waited for a market: 2 above on demand"
    (order,) = deploys(world.tick(dear | {LARGE: offer_of("0.10", on_demand="0.10")}))
    assert order.market == LARGE
    assert "1 above on demand" in order.reason
    assert not [order for order in world.orders if isinstance(order, Release)]
