import numpy as np
import pytest

from proteus_spot.bidding.tuning.stopping.asha import AshaRule, rung_steps
from proteus_spot.bidding.tuning.stopping.base import VerdictKind
from tests.bidding.tuning.stopping.sweeps import Plan, falling, run_sweep, view

RULE = AshaRule()
CURVES = {number: falling(0.1 * number) for number in range(9)}


@pytest.mark.parametrize(
    ("trials", "steps", "rungs"),
    [(9, 90, [10, 30, 90]), (16, 200, [23, 67, 200]), (2, 50, [50]), (27, 10, [1, 2, 4, 10]), (81, 2, [1, 2])],
)
def test_rungs_leave_one_trial_for_the_last(trials: int, steps: int, rungs: list[int]) -> None:
    assert rung_steps(Plan(trials=trials, max_trial_steps=steps)) == rungs


def test_a_trial_is_promoted_as_soon_as_it_is_in_the_best_third() -> None:
    def rung(*numbers: int) -> list:
        return [
            view(n, CURVES[n][: 10 if n in numbers else 4], 10, "paused" if n in numbers else "running")
            for n in range(9)
        ]

    assert not RULE.decide(rung(4, 5), Plan())
    assert list(RULE.decide(rung(4, 5, 6), Plan())) == [4]
    assert RULE.decide(rung(4, 5, 6), Plan())[4].until_step == 30
    # Nothing is stopped while others may come: with six in the rung two are promoted.
    assert list(RULE.decide(rung(3, 4, 5, 6, 7, 8), Plan())) == [3, 4]
    complete = RULE.decide(rung(*range(9)), Plan())
    assert [n for n, verdict in complete.items() if verdict.kind is VerdictKind.GO_ON] == [0, 1, 2]
    assert sum(verdict.kind is VerdictKind.STOP for verdict in complete.values()) == 6


def test_a_complete_rung_of_two_promotes_its_best_and_no_number_is_the_worst() -> None:
    plan = Plan(trials=3)
    views = [
        view(0, [0.5] * 29 + [np.nan], 30, "paused"),
        view(1, [0.9] * 30, 30, "paused"),
        view(2, [], 30, "failed"),
    ]
    verdicts = RULE.decide(views, plan)
    assert (verdicts[1].kind, verdicts[1].until_step) == (VerdictKind.GO_ON, 90)
    assert verdicts[0].kind is VerdictKind.STOP


def test_every_sweep_ends_with_its_best_trial_finished() -> None:
    best_at_rungs = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        state, done, _ = run_sweep(RULE, CURVES, Plan(), lambda running, rng=rng: int(rng.choice(running)))
        assert set(state.values()) == {"finished", "stopped_early"}
        best_at_rungs.append(state[0])
        # A third of the trials at most is promoted wrongly, at first: far less than all steps is run.
        assert sum(done.values()) < 500
    assert best_at_rungs == ["finished"] * 5


def test_in_turns_it_is_successive_halving() -> None:
    order = iter(range(10**6))
    state, done, _ = run_sweep(RULE, CURVES, Plan(), lambda running: running[next(order) % len(running)])
    assert [n for n in state if state[n] == "finished"] == [0]
    assert sorted(done.values()) == [10] * 6 + [30] * 2 + [90]
