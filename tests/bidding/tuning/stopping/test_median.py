import numpy as np

from proteus_spot.bidding.tuning.stopping.base import VerdictKind
from proteus_spot.bidding.tuning.stopping.median import MedianRule
from tests.bidding.tuning.stopping.sweeps import Plan, falling, run_sweep, view

RULE = MedianRule()


def test_a_trial_worse_than_the_median_of_the_others_stops() -> None:
    views = [view(n, falling(0.1 * n)[:30], 90) for n in range(9)]
    verdicts = RULE.decide(views, Plan())
    averages = np.array([falling(0.1 * n)[:30].mean() for n in range(9)])
    worse = {n for n in range(9) if falling(0.1 * n)[:30].min() > np.median(np.delete(averages, n))}
    assert set(verdicts) == worse
    assert worse
    assert all(verdict.kind is VerdictKind.STOP for verdict in verdicts.values())


def test_a_maximised_metric_stops_the_smallest() -> None:
    views = [view(n, [n / 10] * 30, 90) for n in range(9)]
    assert sorted(RULE.decide(views, Plan(direction="maximize"))) == [0, 1, 2, 3]


def test_no_trial_stops_in_its_first_steps_or_beside_few_others_or_at_its_end() -> None:
    far = [view(n, [0.0] * 30, 90) for n in range(3)]
    bad = [9.0] * 90
    assert 3 in RULE.decide([*far, view(3, bad[:30], 90)], Plan())
    assert 3 not in RULE.decide([*far, view(3, bad[:8], 90)], Plan())
    assert 3 not in RULE.decide([*far[:2], view(3, bad[:30], 90)], Plan())
    assert 3 not in RULE.decide([*far, view(3, bad[:40], 90)], Plan())  # no other has come to step 40
    assert 3 not in RULE.decide([view(n, [0.0] * 90, 90, "finished") for n in range(3)] + [view(3, bad, 90)], Plan())


def test_a_trial_without_a_number_stops_where_others_have_one() -> None:
    views = [view(n, [0.5] * 30, 90) for n in range(3)]
    assert list(RULE.decide([*views, view(3, [np.nan] * 30, 90)], Plan())) == [3]
    assert not RULE.decide([view(n, [np.nan] * 30, 90) for n in range(4)], Plan())


def test_verdicts_do_not_depend_on_how_often_reports_are_read() -> None:
    curves = {number: falling(0.1 * number) for number in range(9)}
    views = [view(n, curves[n][:32], 90) for n in range(9)]
    later = [view(n, curves[n][:34], 90) for n in range(9)]
    assert RULE.decide(views, Plan()) == RULE.decide(later, Plan())
    order = iter(range(10**6))
    state, _, _ = run_sweep(RULE, curves, Plan(), lambda running: running[next(order) % len(running)])
    assert state[0] == "finished"
    assert state[8] == "stopped_early"
