"""Views of a sweep whose curves are known, and a run of a rule over them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from proteus_spot.bidding.tuning.stopping.base import TrialStoppingRule, TrialView, Verdict, VerdictKind


@dataclass(frozen=True)
class Plan:
    max_trial_steps: int = 90
    direction: str = "minimize"
    bound: float | None = None
    theta: float = 0.7
    mcnt: int = 3
    trials: int = 9


def view(number: int, values: np.ndarray | list[float], until_step: int, state: str = "running") -> TrialView:
    metric = np.asarray(values, dtype=float)
    return TrialView(number, np.arange(1, len(metric) + 1), metric, until_step, state)


def falling(floor: float, steps: int = 90) -> np.ndarray:
    return 1 / (0.2 * np.arange(1, steps + 1) + 1) + floor


def run_sweep(
    rule: TrialStoppingRule, curves: Mapping[int, np.ndarray], plan: Plan, pick: Callable[[list[int]], int]
) -> tuple[dict[int, str], dict[int, int], list[tuple[int, Verdict]]]:
    """Run trials a few steps at a time in the order of `pick`: states, steps run, and the verdicts as they came."""
    until = dict.fromkeys(curves, rule.first_target(plan))
    done = dict.fromkeys(curves, 0)
    state = dict.fromkeys(curves, "running")
    log: list[tuple[int, Verdict]] = []
    while running := [n for n in curves if state[n] == "running"]:
        number = pick(running)
        done[number] = min(done[number] + 7, until[number])
        if done[number] == until[number]:
            state[number] = "finished" if done[number] == plan.max_trial_steps else "paused"
        views = [view(n, curves[n][: done[n]], until[n], state[n]) for n in curves]
        for n, verdict in sorted(rule.decide(views, plan).items()):
            assert state[n] not in ("finished", "stopped_early")
            log.append((n, verdict))
            if verdict.kind is VerdictKind.GO_ON:
                assert until[n] < verdict.until_step <= plan.max_trial_steps
                until[n], state[n] = verdict.until_step, "running"
            else:
                state[n] = {"stop": "stopped_early", "finish": "finished"}[verdict.kind]
    return state, done, log
