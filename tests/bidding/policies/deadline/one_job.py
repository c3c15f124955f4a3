"""A naive simulation of one machine's job, gap by gap, under any rule, with spot that may end within a gap."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proteus_spot.bidding.policies.deadline.one_machine import Choice, Machine

Rule = Callable[[float, float, float, float, float, float, float, Machine | None, bool], Choice]


@dataclass(frozen=True)
class Job:
    work_s: float
    deadline_s: float
    restart_s: float


@dataclass(frozen=True)
class Outcome:
    finished_s: float
    spot_s: float
    on_demand_s: float
    choices: tuple[Choice, ...]


def run(rule: Rule, job: Job, gaps_s: Sequence[float], there: Sequence[float]) -> Outcome:
    """Return what becomes of the job; `there`: the share of each gap after which spot ends, 0: it is not there.

    What a machine has done by the moment at which it is lost counts.
    """
    elapsed = done = restart_left = spot_s = on_demand_s = 0.0
    held: Machine | None = None
    choices = []
    at = 0
    while True:
        gap, share = gaps_s[at % len(gaps_s)], there[at % len(there)]
        choice = rule(
            elapsed,
            gap,
            job.work_s,
            done,
            job.deadline_s,
            job.restart_s,
            restart_left if held else 0.0,
            held,
            share > 0,
        )
        choices.append(choice)
        if held == "spot" and share <= 0:
            held = None
        if choice == "wait":
            held = None
        else:
            assert choice == "on-demand" or share > 0, "spot was taken that is not there"
            if choice != held:
                restart_left = job.restart_s
            held = choice
            lives = gap * share if choice == "spot" else gap
            used = min(lives, restart_left + job.work_s - done)
            works = max(used - restart_left, 0.0)
            restart_left = max(restart_left - used, 0.0)
            done += works
            spot_s, on_demand_s = (spot_s + used, on_demand_s) if choice == "spot" else (spot_s, on_demand_s + used)
            if done >= job.work_s - 1e-6:
                return Outcome(elapsed + used, spot_s, on_demand_s, tuple(choices))
            if lives < gap:
                held = None
        elapsed += gap
        at += 1
        assert elapsed < 3 * job.deadline_s + 10 * job.work_s + 100 * gap, "it never ends"
