"""What one machine does with its slack: the least expected cost of finishing in time, by backward induction.

Slack is the time left less the work left. Waiting uses it up second by second, and each change to another machine uses
up a restart; work itself uses none, whichever machine does it. So the question at each step is what slack buys most
of: waiting for spot, or going to spot and back.
"""

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.jit import compiled, inline_jit, jitable
from proteus_spot.bidding.market.model import MINUTE_S
from proteus_spot.bidding.policies.deadline.spot_spells import AGES, Floats, hazards

Choices = NDArray[np.int8]

#: What a machine does, or what is held.
WAIT, SPOT, ON_DEMAND = 0, 1, 2
#: Shortest step of a plan; a longer one is this many times a power of two.
_STEP_S: Final = 5.0 * MINUTE_S
#: Most steps to a deadline, and number of slacks from 0 to the slack at the start.
_STEPS: Final = 500
_SLACKS: Final = 401
#: Price of a second of spot, of one on demand. The plan hardly depends on it: from a tenth to a half it is the same
#: but for a hundredth of its choices.
_SPOT_PRICE: Final = 0.3


class SlackPlan(NamedTuple):
    """The plan of a job.

    Attributes
    ----------
    choices : WAIT, SPOT or ON_DEMAND, shape (steps left, machine held, 2 * AGES, slacks)
        By the age of what spot does: there in the first AGES columns, away in the others.
    step_s, slack_s : seconds of a step, and from one slack to the next.
    """

    choices: Choices
    step_s: float
    slack_s: float


def slack_plan(gap_s: float, work_s: float, deadline_s: float, restart_s: float) -> SlackPlan:
    """Return the plan of a job of `work_s` that decides every `gap_s`; `deadline_s` counts from its start."""
    step_s = _STEP_S
    while step_s < max(gap_s, deadline_s / _STEPS):
        step_s *= 2
    return _plan(step_s, max(deadline_s, step_s), max(deadline_s - work_s, 1.0), restart_s)


@lru_cache(maxsize=16)
def _plan(step_s: float, time_s: float, most_slack_s: float, restart_s: float) -> SlackPlan:
    slack_s = most_slack_s / (_SLACKS - 1)
    steps = int(np.ceil(time_s / step_s - 1e-9))
    choices = np.empty((steps + 1, 3, 2 * AGES, _SLACKS), dtype=np.int8)
    _induce(step_s, slack_s, restart_s, _SPOT_PRICE, hazards(step_s), choices)
    return SlackPlan(choices, step_s, slack_s)


@inline_jit
def _later(cost: Floats, slack: float) -> float:
    """Return the cost to come at a slack, a number of grid steps; by interpolation."""
    if slack <= 0.0:
        return float(cost[0])
    at = int(slack)
    if at >= len(cost) - 1:
        return float(cost[-1])
    return float(cost[at] + (cost[at + 1] - cost[at]) * (slack - at))


@compiled
def _induce(
    step_s: float, slack_s: float, restart_s: float, spot_price: float, changes: Floats, choices: Choices
) -> None:
    """Write the choices: those with the least expected cost, where on demand costs 1 a second.

    Notes
    -----
    A restart is charged when it begins. Beyond the safety net there is on demand alone.
    """
    ages, slacks = changes.shape[1], choices.shape[3]
    cost = np.zeros((3, 2 * ages, slacks))
    expected = np.zeros((3, 2 * ages, slacks))
    choices[0] = 0
    for steps in range(1, len(choices)):
        for age in range(ages):
            older = min(age + 1, ages - 1)
            lost, back = changes[0, age], changes[1, age]
            for slack in range(slacks):
                for machine in range(3):
                    there, away = cost[machine, older, slack], cost[machine, ages + older, slack]
                    taken = cost[0 if machine == 1 else machine, ages, slack]
                    expected[machine, age, slack] = there + (taken - there) * lost
                    expected[machine, ages + age, slack] = away + (cost[machine, 0, slack] - away) * back
        for state in range(2 * ages):
            for slack in range(slacks):
                left_s = steps * step_s - slack * slack_s
                if left_s <= 0.0:
                    cost[:, state, slack] = 0.0
                    choices[steps, :, state, slack] = 0
                    continue
                spare_s = slack * slack_s - 2.0 * restart_s
                waiting = np.inf
                if spare_s >= 2.0 * step_s:
                    waiting = _later(expected[0, state], slack - step_s / slack_s)
                for held in range(3):
                    best, choice = waiting, 0
                    for machine in range(1, 3):
                        if machine == 1 and (state >= ages or spare_s < step_s):
                            continue
                        begin_s = 0.0 if machine == held else restart_s
                        price = spot_price if machine == 1 else 1.0
                        total = price * min(step_s, left_s + begin_s)
                        total += _later(expected[machine, state], slack - begin_s / slack_s)
                        if total < best:
                            best, choice = total, machine
                    cost[held, state, slack] = best
                    choices[steps, held, state, slack] = choice


@jitable
def planned(
    choices: Choices, step_s: float, slack_step_s: float, time_left_s: float, slack_s: float, held: int, state: int
) -> int:
    """Return the plan's choice; `state` is a column of ages."""
    steps = min(max(int(time_left_s / step_s + 0.999999), 0), choices.shape[0] - 1)
    slack = min(max(int(slack_s / slack_step_s + 0.5), 0), choices.shape[3] - 1)
    return int(choices[steps, held, state, slack])
