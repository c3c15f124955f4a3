import numpy as np
import pytest

from proteus_spot.bidding.tuning.stopping.base import VerdictKind
from proteus_spot.bidding.tuning.stopping.early_curve_rule import EarlyCurveRule
from tests.bidding.tuning.stopping.sweeps import Plan, falling, run_sweep, view

RULE = EarlyCurveRule()


def at_theta(**others: np.ndarray) -> list:
    curves = [falling(0.1 * number)[:63] for number in range(9)]
    for name, values in others.items():
        curves[int(name[1:])] = values
    return [view(number, values, 63, "paused") for number, values in enumerate(curves)]


def test_the_best_predicted_go_on_and_the_others_stop() -> None:
    # Trial 0 is the worst until theta, and the only one that still falls fast.
    crossing = 40 / (np.arange(1, 91) + 10.0)
    verdicts = RULE.decide(at_theta(t0=crossing[:63]), Plan())
    assert crossing[62] > falling(0.3)[62]
    assert {n for n, verdict in verdicts.items() if verdict.kind is VerdictKind.GO_ON} == {1, 2, 3}
    assert all(verdict.until_step == 90 for verdict in verdicts.values() if verdict.kind is VerdictKind.GO_ON)
    assert verdicts[0].predicted == pytest.approx(crossing[-1], rel=1e-3)
    verdicts = RULE.decide(at_theta(t0=crossing[:63] - 0.2), Plan())
    assert {n for n, verdict in verdicts.items() if verdict.kind is VerdictKind.GO_ON} == {0, 1, 2}
    assert verdicts[3].kind is VerdictKind.STOP
    assert verdicts[3].why.endswith("number 4: the best 3 have 0.252654 or better")


def test_a_maximised_metric_keeps_the_largest() -> None:
    views = [view(n, 1 - falling(0.1 * n)[:63] / 10, 63, "paused") for n in range(9)]
    verdicts = RULE.decide(views, Plan(direction="maximize"))
    assert [n for n, verdict in sorted(verdicts.items()) if verdict.kind is VerdictKind.GO_ON] == [0, 1, 2]


def test_nothing_is_decided_before_the_last_trial_is_at_theta() -> None:
    views = at_theta()
    late = [*views[:8], view(8, falling(0.8)[:62], 63)]
    assert not RULE.decide(late, Plan())
    assert not RULE.decide(views[:8], Plan())
    assert len(RULE.decide([*views[:8], view(8, falling(0.8)[:20], 63, "failed")], Plan())) == 8
    assert not RULE.decide([view(n, falling(0.1 * n), 90) for n in range(9)], Plan(theta=1.0))


def test_what_cannot_be_predicted_runs_on_beside_the_best_and_what_diverged_stops() -> None:
    gone = np.concatenate([falling(0.0)[:50], np.full(13, np.nan)])
    sparse = np.full(63, np.nan)
    sparse[[3, 20, 62]] = 0.1
    verdicts = RULE.decide(at_theta(t0=gone, t8=sparse), Plan())
    assert verdicts[0].kind is VerdictKind.STOP
    assert "diverged" in verdicts[0].why
    assert (verdicts[8].kind, verdicts[8].predicted) == (VerdictKind.GO_ON, None)
    assert "cannot be predicted" in verdicts[8].why
    assert sum(verdict.kind is VerdictKind.GO_ON for verdict in verdicts.values()) == 4


def test_a_plateau_is_finished_and_takes_a_place_among_the_best() -> None:
    flat = np.concatenate([falling(0.0)[:20], np.full(20, 0.15)])
    views = at_theta(t0=flat)
    verdicts = RULE.decide(views, Plan())
    assert (verdicts[0].kind, verdicts[0].predicted) == (VerdictKind.FINISH, pytest.approx(0.15))
    assert [n for n, verdict in sorted(verdicts.items()) if verdict.kind is VerdictKind.GO_ON] == [1, 2]
    finished = [view(0, flat, 63, "finished"), *views[1:]]
    assert [n for n, v in sorted(RULE.decide(finished, Plan()).items()) if v.kind is VerdictKind.GO_ON] == [1, 2]


def test_ties_and_identical_curves_go_to_the_lowest_numbers() -> None:
    views = [view(n, falling(0.3)[:63], 63, "paused") for n in range(9)]
    verdicts = RULE.decide(views, Plan())
    assert [n for n, verdict in sorted(verdicts.items()) if verdict.kind is VerdictKind.GO_ON] == [0, 1, 2]


def test_a_sweep_ends_with_mcnt_finished_trials_in_any_order() -> None:
    curves = {number: falling(0.1 * number) for number in range(9)}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        state, done, log = run_sweep(RULE, curves, Plan(), lambda running, rng=rng: int(rng.choice(running)))
        assert [n for n in state if state[n] == "finished"] == [0, 1, 2]
        assert sum(done.values()) == 3 * 90 + 6 * 63
        assert len(log) == 9


@pytest.mark.parametrize("offset", [0.0, 5000.0, -5000.0, -0.1])
def test_a_constant_changes_no_decision(offset: float) -> None:
    steps = np.arange(1, 31)
    quick, slow = 0.20 + 0.6 / steps**1.5 + offset, 0.10 + 4.0 / steps + offset
    views = [view(0, quick, 30, "paused"), view(1, slow, 30, "paused")]
    verdicts = RULE.decide(views, Plan(max_trial_steps=100, theta=0.3, mcnt=1, trials=2))
    assert [verdicts[number].kind for number in (0, 1)] == [VerdictKind.STOP, VerdictKind.GO_ON]
    flat = np.concatenate([quick[:10], np.full(20, quick[10])])
    (only,) = RULE.decide([view(0, flat, 90), view(1, slow, 90)], Plan(max_trial_steps=100)).values()
    assert (only.kind, only.why) == (VerdictKind.FINISH, "its curve has been a plateau since step 11")
