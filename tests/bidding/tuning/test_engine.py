"""The engine of a sweep: trials through machines, evictions, rules and limits to their ends."""

from bidding.tuning.trials import SweepState, TrialState
from bidding.tuning.views import result_view
from tests.support.sweeps import SweepWorld, plan_of


def test_a_grid_of_eight_runs_every_step() -> None:
    world = SweepWorld(plan_of(trials=8, parallel=3))
    finish = world.run()
    assert (finish.state, finish.why) == (SweepState.FINISHED, "")
    for trial in result_view(world.engine).trials:
        assert (trial.state, trial.steps, trial.repeated_steps) == (TrialState.FINISHED, 10, 0)
    assert result_view(world.engine).best == 0
