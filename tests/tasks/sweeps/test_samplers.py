"""Settings by grid, by seeded draws, and by Optuna's samplers, whose study is rebuilt for each proposal."""

import logging
import sys
from typing import Any

import pytest

from infra.errors import InputError
from tasks.sweeps.samplers import SampledTrial, check_sampler, is_adaptive, propose, sampled_trials
from tasks.sweeps.spec import SweepSpec, parse_sweep
from tests.support.sweeps import SweepWorld, plan_of

SPACE = {"x": {"uniform": [-5.0, 5.0]}, "rate": {"log": [1e-4, 1.0]}, "kind": {"choice": [True, 1, "1", None]}}


def sweep(sampler: str, trials: int | None = 40, **changed: Any) -> SweepSpec:
    record = {"trial": "mlr", "space": SPACE, "metric": {"name": "loss"}, "max_trial_steps": 9, "sampler": sampler}
    return parse_sweep({**record, "trials": trials, **changed})


def run(spec: SweepSpec, batch: int = 1) -> list[SampledTrial]:
    """Run a sweep whose value is least at x = 2; `batch` trials at a time."""
    trials: list[SampledTrial] = []
    while proposed := propose(spec, trials, batch):
        for number, params in proposed:
            trials.append(SampledTrial(number, params, (float(str(params.get("x", 0))) - 2.0) ** 2, False))
    return trials


def test_a_grid_and_draws_are_proposed_in_any_pieces() -> None:
    grid = sweep("grid", None, space={"a": {"choice": [1, 2]}, "b": {"int": [1, 3], "points": 3}})
    for spec in (grid, sweep("random", 6)):
        assert not is_adaptive(spec)
        whole = [(trial.number, trial.params) for trial in run(spec, 6)]
        assert whole == [(trial.number, trial.params) for trial in run(spec, 4)]
        assert [number for number, _ in whole] == list(range(6))
    assert [trial.params for trial in run(grid)] == list(grid.settings)


@pytest.mark.parametrize("sampler", ["TPESampler", "QMCSampler", "NSGAIISampler"])
def test_a_sampler_of_optuna_proposes_the_same_settings_again(sampler: str, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("optuna")
    spec = sweep(sampler, 12, seed=3)
    with caplog.at_level(logging.INFO):
        trials = run(spec)
    assert not caplog.records
    assert propose(spec, trials[:7], 1) == ((7, trials[7].params),)  # whatever process asks
    assert len({repr(trial.params) for trial in trials}) == 12
    assert run(sweep(sampler, 2, seed=4))[1].params != trials[1].params
    for trial in trials:
        assert any(trial.params["kind"] is choice for choice in (True, 1, "1", None))


def test_tpe_learns_from_values_and_a_study_is_no_record() -> None:
    pytest.importorskip("optuna")
    away = {}
    for sampler in ("tpe", "random"):
        late = [abs(float(str(trial.params["x"])) - 2) for trial in run(sweep(sampler, 40, seed=2))[25:]]
        away[sampler] = sorted(late)[len(late) // 2]
    assert away["tpe"] < 1.2
    assert away["random"] > 1.8
    assert is_adaptive(sweep("tpe"))


def test_maximize_turns_the_search_around() -> None:
    pytest.importorskip("optuna")
    trials = run(sweep("tpe", 40, metric={"name": "score", "direction": "maximize"}))
    late = [float(str(trial.params["x"])) for trial in trials[25:]]
    assert sorted(late)[len(late) // 2] < -3.0  # (x - 2)^2 is greatest at -5


def test_running_and_failed_trials_are_no_values() -> None:
    pytest.importorskip("optuna")
    spec = sweep("tpe", 30)
    trials = [SampledTrial(n, trial.params, None, n % 2 == 0) for n, trial in enumerate(run(spec)[:20])]
    numbers = [number for number, _ in propose(spec, trials, 4)]
    assert numbers == [20, 21, 22, 23]


def test_a_sampler_that_cannot_be_used_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    with pytest.raises(InputError, match=r"^sampler BruteForceSampler: .*; choose another sampler$"):
        check_sampler(sweep("BruteForceSampler"))
    check_sampler(sweep("BruteForceSampler", space={"a": {"choice": [1, 2]}}))
    check_sampler(sweep("grid", None, space={"a": {"choice": [1]}}))
    monkeypatch.setitem(sys.modules, "cmaes", None)
    with pytest.raises(InputError, match=r"^sampler CmaEsSampler: needs cmaes, which is not installed; install it"):
        check_sampler(sweep("CmaEsSampler"))


def test_a_sampler_with_a_state_goes_on_from_the_recorded_settings() -> None:
    pytest.importorskip("optuna")
    spec = sweep("NSGAIISampler", 70)
    trials = [SampledTrial(n, {"x": 1.0, "rate": 0.01, "kind": "1"}, 1.0, False) for n in range(50)]
    children = [params for _, params in propose(spec, trials, 20)]
    assert sum(params["x"] == 1.0 for params in children) > 5, "a second generation takes values of the first"


def test_a_trial_that_has_paused_counts_with_its_prediction_or_else_its_value() -> None:
    world = SweepWorld(plan_of(stop="earlycurve", theta=0.4, mcnt=2, parallel=2), steps_a_tick=4)
    for _ in range(2):
        world.tick()
    seen = sampled_trials(world.engine)
    assert [(trial.number, trial.is_running) for trial in seen] == [(0, False), (1, False), (2, True), (3, True)]
    assert [trial.value for trial in seen[:2]] == [0.25, 1.25]
    world.engine.trials[1].predicted = 1.1
    assert sampled_trials(world.engine)[1].value == 1.1
