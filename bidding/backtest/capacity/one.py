"""Jobs of one machine on records of one market, which has it or has it not."""

from collections.abc import Callable
from types import MappingProxyType

import numpy as np

from proteus_spot.bidding.backtest.capacity.job import CapacityJob, JobFigure
from proteus_spot.bidding.backtest.capacity.record import Floats
from proteus_spot.bidding.jit import entry
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.traces import Int64s
from proteus_spot.bidding.policies.deadline.one_machine import looks_at_spot, next_machine
from proteus_spot.bidding.policies.deadline.slack_plan import Choices, slack_plan
from proteus_spot.bidding.policies.deadline.spot_spells import AGES

_COST, _FINISHED, _SPOT = int(JobFigure.COST_USD), int(JobFigure.FINISHED_S), int(JobFigure.SPOT_S)
_ON_DEMAND, _LOST, _STARTED = int(JobFigure.ON_DEMAND_S), int(JobFigure.LOST), int(JobFigure.STARTED)
_EVEN, _DEADLINE, _REMEMBERS = range(3)
#: {name: code in the compiled loop}.
RULES = MappingProxyType({"uniform-progress": _EVEN, "deadline": _DEADLINE, "deadline+memory": _REMEMBERS})


def _one(version: int) -> Callable[..., int]:
    def one(
        rule: int, choices: Choices, plan_step_s: float, plan_slack_s: float, there: Int64s, step_s: float,
        spot: float, on_demand: float, starts: Int64s, work_s: float, deadline_s: float, restart_s: float, out: Floats,
    ) -> int:  # fmt: skip
        for job in range(len(starts)):
            row = out[job]
            row[:] = 0.0
            row[_FINISHED] = np.inf
            held, done_s, restart_left_s, since_s = 0, 0.0, 0.0, -np.inf
            for step in range(len(there) - starts[job]):
                up = there[starts[job] + step] > 0
                elapsed_s = step * step_s
                if step > 0 and up != (there[starts[job] + step - 1] > 0):
                    since_s = elapsed_s
                lost = held == 1 and not up
                if lost:
                    held = 0
                    row[_LOST] += 1
                left_s, time_left_s = work_s - done_s, deadline_s - elapsed_s
                if rule == _EVEN:
                    to = 2
                    if left_s + 2.0 * restart_s + step_s <= time_left_s:
                        if held == 2:
                            ahead = done_s >= (elapsed_s + 2.0 * restart_s) * work_s / deadline_s
                        else:
                            ahead = up or done_s >= elapsed_s * work_s / deadline_s
                        if ahead:
                            to = 1 if up else 0
                else:
                    age = AGES - 1
                    looks = True
                    if rule == _REMEMBERS:
                        age = int(min((elapsed_s - since_s) / plan_step_s, float(AGES - 1)))
                    else:
                        age = 0 if lost else AGES - 1
                        looks = looks_at_spot(elapsed_s, step_s, time_left_s, time_left_s - left_s, restart_s)
                    to = next_machine(
                        choices, plan_step_s, plan_slack_s, time_left_s, left_s, step_s, restart_s, restart_left_s,
                        held, age if up else AGES + age, looks,
                    )  # fmt: skip
                if to != held:
                    restart_left_s = restart_s
                    row[_STARTED] += to == 1
                held = to
                if held == 0:
                    continue
                used_s = min(step_s, restart_left_s + left_s)
                done_s += max(used_s - restart_left_s, 0.0)
                restart_left_s = max(restart_left_s - used_s, 0.0)
                row[_COST] += (spot if held == 1 else on_demand) * used_s
                row[_SPOT if held == 1 else _ON_DEMAND] += used_s
                if done_s >= work_s - 1e-6:
                    row[_FINISHED] = elapsed_s + used_s
                    break
        return version

    return one


_run = entry(_one)


def run_one(
    name: str, there: Int64s, step_s: float, spot: float, on_demand: float, job: CapacityJob, starts: Int64s
) -> Floats:
    """Return the results of jobs of one machine, shape (jobs, len(JobFigure)).

    Parameters
    ----------
    name : of `RULES`.
    there : machines that could be had at each step.
    spot, on_demand : dollars an hour.
    """
    plan = slack_plan(step_s, job.work_s, job.deadline_s, job.restart_s)
    out = np.zeros((len(starts), len(JobFigure)))
    _run(
        RULES[name], *plan, there, float(step_s), spot / HOUR_S, on_demand / HOUR_S, starts, job.work_s,
        job.deadline_s, float(job.restart_s), out,
    )  # fmt: skip
    return out
