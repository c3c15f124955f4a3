"""Settings by grid, by seeded draws, and by Optuna's samplers, whose study is rebuilt for each proposal."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proteus_spot.infra.errors import InputError
from proteus_spot.tasks.sweeps.samplers import SampledTrial, check_sampler, is_adaptive, propose, sampled_trials
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec, parse_sweep, read_sweep
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
    seen = sampled_trials(world.engine.sweep)
    assert [(trial.number, trial.is_running) for trial in seen] == [(0, False), (1, False), (2, True), (3, True)]
    assert [trial.value for trial in seen[:2]] == [0.25, 1.25]
    world.engine.sweep.trials[1].predicted = 1.1
    assert sampled_trials(world.engine.sweep)[1].value == 1.1


# -- first settings, earlier trials, more trials ----------------------------------------------------------------------

FIRST = {"first": [{"alpha": 0.01, "penalty": "l2"}, {"alpha": 1e-3, "penalty": "l1"}]}


def searched(sampler: str, **changes: object) -> SweepSpec:
    record = {
        "trial": "mine:train",
        "code": "mine.py",
        "space": {"alpha": {"log": [1e-4, 1e-1], "points": 4}, "penalty": {"choice": ["l1", "l2"]}},
        "metric": {"name": "loss"},
        "max_trial_steps": 5,
        "sampler": sampler,
        **({} if sampler == "grid" else {"trials": 5}),
        **changes,
    }
    return parse_sweep(record)


@pytest.mark.parametrize("sampler", ["grid", "random", "TPESampler", "QMCSampler", "CmaEsSampler"])
def test_first_settings_come_before_all_others(sampler: str) -> None:
    if sampler == "CmaEsSampler":
        pytest.importorskip("cmaes")
    spec = searched(sampler, **FIRST)
    found = propose(spec, (), spec.trial_count)
    assert [number for number, _ in found] == list(range(8 if sampler == "grid" else 5))
    settings = [params for _, params in found]
    assert settings[:2] == FIRST["first"]
    assert len({json.dumps(params, sort_keys=True) for params in settings}) == len(settings)
    # One after another they are the same: a sampler that learns knows the first ones, too.
    trials = tuple(SampledTrial(number, params, float(number), False) for number, params in found[:2])
    assert propose(spec, trials[:1], 1) == found[1:2]
    assert propose(spec, trials, 1)[0][0] == 2


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ({"alpha": 0.01}, "first.0.penalty is missing"),
        ({"alpha": 0.01, "penalty": "l2", "rate": 1}, "first.0.rate is not a parameter of the space"),
        ({"alpha": 2, "penalty": "l2"}, "alpha: 2 is not in [0.0001, 0.1]"),
        ({"alpha": True, "penalty": "l2"}, "alpha: True is not in"),
        ({"alpha": 0.01, "penalty": "l3"}, "penalty: 'l3' is none of its choices"),
    ],
)
def test_a_first_setting_that_is_none_is_refused(first: dict[str, object], why: str) -> None:
    with pytest.raises(InputError) as refused:
        searched("random", first=[first])
    assert why in str(refused.value)
    with pytest.raises(InputError, match="first: has 6 settings for 5 trials; give fewer"):
        searched("random", first=[{"alpha": 0.01, "penalty": "l2"}] * 6)


def test_a_grid_does_not_repeat_what_earlier_sweeps_have_finished() -> None:
    grid = searched("grid").settings
    earlier = [
        {"params": grid[0], "value": 0.5},
        {"params": grid[1], "value": 0.4, "finished": False},
        {"params": {"rate": 1}, "value": 0.1},
    ]
    spec = searched("grid", earlier=earlier)
    assert (spec.settings, spec.trial_count) == (grid[1:], 7)
    with pytest.raises(InputError, match="nothing left to try"):
        searched("grid", earlier=[{"params": params, "value": 1.0} for params in grid])


def test_a_sampler_learns_from_earlier_trials() -> None:
    rng = np.random.default_rng(0)
    known = [{"alpha": float(10 ** rng.uniform(-4, -1)), "penalty": "l1"} for _ in range(40)]
    earlier = [{"params": params, "value": abs(np.log10(params["alpha"]) + 2)} for params in known]
    spec = searched("TPESampler", earlier=earlier, trials=20)
    found = [np.log10(params["alpha"]) for _, params in propose(spec, (), 20)]  # type: ignore[arg-type]
    plain = [np.log10(params["alpha"]) for _, params in propose(searched("TPESampler", trials=20), (), 20)]  # type: ignore[arg-type]
    assert np.median(np.abs(np.array(found) + 2)) < 0.5 * np.median(np.abs(np.array(plain) + 2))


def test_earlier_trials_are_read_from_a_result(tmp_path: Path) -> None:
    result = {
        "trials": [
            {"params": {"a": 1}, "value": 0.5, "state": "finished"},
            {"params": {"a": 2}, "value": 0.7, "state": "stopped_early"},
            {"params": {"a": 3}, "value": None, "state": "failed"},
        ]
    }
    (tmp_path / "x.json").write_text(json.dumps(result))
    described = {"trial": "t:train", "code": "t.py", "space": {"a": {"choice": [1, 2, 3]}}, "metric": {"name": "loss"}}
    sweep = tmp_path / "s.yaml"
    sweep.write_text(json.dumps({**described, "max_trial_steps": 3, "earlier": [str(tmp_path / "x.json")]}))
    spec = read_sweep(sweep)
    assert spec.settings == ({"a": 2}, {"a": 3})
    assert [(trial.value, trial.finished) for trial in spec.earlier] == [(0.5, True), (0.7, False)]
    for text, why in (("{}", "is not a result of a sweep"), ("no", "is not a result of a sweep")):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(InputError, match=why):
            read_sweep(sweep)
    (tmp_path / "x.json").unlink()
    with pytest.raises(InputError, match="earlier: "):
        read_sweep(sweep)
