"""A sweep as its reports see it, made by hand."""

from dataclasses import replace

import numpy as np

from proteus_spot.bidding.tuning.space import parse_parameter
from proteus_spot.reports.sweep_view import SweepView, TrialLine, TrialMachine

BEGUN_S = 1_466_000_000


def small_view() -> SweepView:
    """Three trials on four machines: one goes on, one was stopped early, one failed without a value."""
    steps = np.arange(1, 141)
    space = {
        "alpha": parse_parameter({"log": [1e-5, 1e-1], "points": 3}),
        "penalty": parse_parameter({"choice": ["l1", "l2"]}),
    }
    trials = (
        TrialLine(
            0, {"alpha": 1e-5, "penalty": "l1"}, "stopped_early", "3 others are better", 140, 140, 4, 0.5, 0.45, 0.02,
            40_000, 20_000, 1, "", steps, 0.5 + 1 / steps,
        ),
        TrialLine(
            1, {"alpha": 1e-3, "penalty": "l2"}, "running", "", 120, 200, 0, 0.2, 0.15, None, 30_000, 0, 0,
            "m4.large/us-east-1b", steps[:120], 0.2 + 30 / steps[:120],
        ),
        TrialLine(2, {"alpha": 1e-1, "penalty": "l1"}, "failed", "ValueError: <b>odd</b> | data", evictions=1),
    )  # fmt: skip
    machines = (
        TrialMachine(0, "s-t0-0", "r4.large/us-east-1a", 30_000, BEGUN_S + 60, BEGUN_S + 2000, "evicted", 0, 20_000),
        TrialMachine(0, "s-t0-1", "m4.large/us-east-1b", 25_000, BEGUN_S + 2100, BEGUN_S + 5000, "user", 40_000, 0),
        TrialMachine(1, "s-t1-0", "m4.large/us-east-1b", None, BEGUN_S + 60, None, "", 30_000, 0),
        TrialMachine(2, "s-t2-0", "r4.large/us-east-1a", 30_000, BEGUN_S + 60, BEGUN_S + 900, "evicted", 0, 0),
    )
    prices = {
        "r4.large/us-east-1a": (np.array([BEGUN_S, BEGUN_S + 1900]), np.array([20_000, 90_000])),
        "m4.large/us-east-1b": (np.array([BEGUN_S]), np.array([18_000])),
        "c4.large/us-east-1c": (np.array([BEGUN_S]), np.array([50_000])),
    }
    return SweepView(
        sweep_id="digits", state="running", why="", trial="my_trial:train", metric="loss", direction="minimize",
        max_trial_steps=200, trial_count=4, space=space, begun_s=BEGUN_S, last_s=BEGUN_S + 6000, ended_s=None,
        trials=trials, machines=machines, prices=prices, spent_micros=70_000, refunded_micros=20_000,
        budget_micros=5_000_000, best_number=1,
    )  # fmt: skip


def empty_view() -> SweepView:
    """A sweep that was only recorded."""
    return replace(
        small_view(),
        trials=(),
        machines=(),
        prices={},
        spent_micros=0,
        refunded_micros=0,
        budget_micros=None,
        best_number=None,
    )
