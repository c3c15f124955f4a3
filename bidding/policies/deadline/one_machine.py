"""One machine and a deadline: spot, on demand, or wait until the next decision.

Spot is used only where on demand could still finish in time after it was lost at the worst moment, so a job that on
demand would have finished in time is always in time.
"""

from math import floor
from typing import Literal

from proteus_spot.bidding.jit import jitable
from proteus_spot.bidding.policies.deadline.slack_plan import (
    ON_DEMAND,
    SPOT,
    WAIT,
    Choices,
    planned,
    slack_plan,
)
from proteus_spot.bidding.policies.deadline.spot_spells import AGES

Machine = Literal["spot", "on-demand"]
Choice = Literal["spot", "on-demand", "wait"]

_NAMES: tuple[Choice, Choice, Choice] = ("wait", "spot", "on-demand")
#: Number of times that a machine on demand looks at spot, of those that its slack could pay for.
_LOOKS = 3.0
#: The oldest age; without memory spot counts as old, unless it was lost just now.
_OLD = AGES - 1


@jitable
def safe_s(time_left_s: float, gap_s: float) -> float:
    """Return the time left in whole gaps, because a job may be seen to be done at the end of a gap only."""
    return min(floor(time_left_s / gap_s + 1e-9) * gap_s, time_left_s)


@jitable
def looks_at_spot(elapsed_s: float, gap_s: float, time_left_s: float, slack_s: float, restart_s: float) -> bool:
    """Return whether a machine on demand without memory may go to spot now.

    Spot that is found at a time that has nothing to do with its coming has mostly been there for long, and stays for
    long; spot that has just come has not. So the less slack there is for changes, the rarer are the looks.
    """
    every = int(time_left_s * 2.0 * restart_s / (_LOOKS * max(slack_s, 1.0) * gap_s) + 0.5)
    return every <= 1 or int(elapsed_s / gap_s + 0.5) % every == 0


@jitable
def next_machine(
    choices: Choices,
    step_s: float,
    slack_step_s: float,
    time_left_s: float,
    left_s: float,
    gap_s: float,
    restart_s: float,
    restart_left_s: float,
    held: int,
    state: int,
    looks: bool,
) -> int:
    """Return WAIT, SPOT or ON_DEMAND.

    Parameters
    ----------
    choices, step_s, slack_step_s : a `SlackPlan`.
    left_s : work left.
    restart_left_s : of the machine that is held.
    held : the machine that is still there.
    state : column of the plan: the age of what spot does, below AGES while it is there.
    looks : whether a machine on demand may go to spot now.
    """
    if left_s <= 0.0:
        return WAIT
    spare_s = safe_s(time_left_s, gap_s) - left_s - 2.0 * restart_s
    there = state < AGES
    if there and held == SPOT and spare_s >= gap_s:
        return SPOT
    slack_s = time_left_s - left_s - (restart_left_s if held != WAIT else 0.0)
    choice = planned(choices, step_s, slack_step_s, time_left_s, slack_s, held, state)
    if choice == SPOT and (not there or spare_s < gap_s or (held == ON_DEMAND and not looks)):
        return ON_DEMAND
    if choice == WAIT and spare_s < 2.0 * gap_s:
        return ON_DEMAND
    return choice


def one_machine(
    elapsed_s: float,
    gap_s: float,
    work_s: float,
    done_s: float,
    deadline_s: float,
    restart_s: float,
    restart_left_s: float,
    held: Machine | None,
    spot_available: bool,
) -> Choice:
    """Return what one machine does until the next decision, without memory.

    Parameters
    ----------
    elapsed_s, deadline_s : since the job began.
    gap_s : until the next decision.
    work_s, done_s : work in seconds of one machine.
    restart_s, restart_left_s : seconds until a new machine works, and until the held one does.
    held : the machine until now; spot that is not available any more is lost.

    Raises
    ------
    ValueError
        If `gap_s` is not above 0, `held` is unknown or a duration is negative.
    """
    machine = _held(gap_s, work_s, restart_s, held)
    lost = machine == SPOT and not spot_available
    plan = slack_plan(gap_s, work_s, deadline_s, restart_s)
    time_left_s = deadline_s - elapsed_s
    left_s = work_s - done_s
    choice = next_machine(
        *plan,
        time_left_s,
        left_s,
        gap_s,
        restart_s,
        restart_left_s,
        WAIT if lost else machine,
        _OLD if spot_available else AGES + (0 if lost else _OLD),
        looks_at_spot(elapsed_s, gap_s, time_left_s, time_left_s - left_s, restart_s),
    )
    return _NAMES[choice]


class OneMachine:
    """`one_machine` with memory: it knows how long spot has been there, or away.

    An instance follows one job; a step before the last one begins another job.
    """

    def __init__(self) -> None:
        self._there: bool | None = None
        self._since_s = 0.0
        self._at_s = 0.0

    def step(
        self,
        elapsed_s: float,
        gap_s: float,
        work_s: float,
        done_s: float,
        deadline_s: float,
        restart_s: float,
        restart_left_s: float,
        held: Machine | None,
        spot_available: bool,
    ) -> Choice:
        """Return what the machine does until the next decision; parameters and errors as of `one_machine`."""
        machine = _held(gap_s, work_s, restart_s, held)
        self._see(elapsed_s, bool(spot_available))
        plan = slack_plan(gap_s, work_s, deadline_s, restart_s)
        age = int(min(max((elapsed_s - self._since_s) / plan.step_s, 0.0), float(_OLD)))
        choice = next_machine(
            *plan,
            deadline_s - elapsed_s,
            work_s - done_s,
            gap_s,
            restart_s,
            restart_left_s,
            WAIT if machine == SPOT and not spot_available else machine,
            age if spot_available else AGES + age,
            True,
        )
        return _NAMES[choice]

    def _see(self, elapsed_s: float, there: bool) -> None:
        if self._there is None or elapsed_s < self._at_s:
            self._since_s = float("-inf")  # nobody knows for how long
        elif there != self._there:
            self._since_s = elapsed_s
        self._there, self._at_s = there, elapsed_s


def _held(gap_s: float, work_s: float, restart_s: float, held: str | None) -> int:
    if gap_s <= 0 or work_s < 0 or restart_s < 0:
        raise ValueError(f"gap_s is {gap_s}, work_s {work_s}, restart_s {restart_s}: want a gap above 0, none below 0")
    if held not in (None, "spot", "on-demand"):
        raise ValueError(f"held is {held!r}: want 'spot', 'on-demand' or None")
    return WAIT if held is None else SPOT if held == "spot" else ON_DEMAND
