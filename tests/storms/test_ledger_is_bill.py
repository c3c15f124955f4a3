"""The ledger is the bill after pauses of the ticks, and a budget is not reached by machines that did not live."""

from pathlib import Path

import numpy as np
import pytest

from proteus_spot.infra.state.records import JobState
from tests.storms.test_fault_scripts import live, world
from tests.support.fault_scripts import FaultScript
from tests.support.job_world import BEGIN_S, TICK_S, JobWorld

HOUR = 3600
PER_SECOND = {"billing": "per-second-first-hour-free"}


def pause(script: FaultScript, from_s: int, hours: float) -> None:
    """Have no tick run for so long; the leases end the machines meanwhile."""

    def set_ticks(run: bool) -> None:
        script.events.append((from_s if not run else from_s + round(hours * HOUR), lambda here: _set(here, run)))

    set_ticks(False)
    set_ticks(True)


def _set(here: JobWorld, run: bool) -> None:
    here.ticks_run = run


SEEDS = [pytest.param(seed, marks=() if seed < 5 else pytest.mark.storm) for seed in range(100)]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_ledger_is_the_bill_after_random_pauses(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    script, at_s = FaultScript(seed, ()), 0
    pauses: list[tuple[float, float]] = []
    for _ in range(int(random.integers(1, 4))):
        at_s += int(random.integers(600, 5400))
        hours = float(random.choice([0.5, 1, 1.5, 2, 3, 6, 26, 60]))
        pause(script, at_s, hours)
        pauses.append((BEGIN_S + at_s, BEGIN_S + at_s + hours * HOUR))
        at_s += round(hours * HOUR)
    billing = str(random.choice(["hourly-refund", PER_SECOND["billing"]]))
    with world(tmp_path, script, transient={"billing": billing}, budget_usd=1.5) as here:
        live(here)
        here.advance(BEGIN_S + at_s + 9 * HOUR)
        job = here.store.job(here.job_id)
        assert (job.state, job.stop_why, job.failure) == (JobState.FINISHED, None, None)
        assert here.living() == []
        spent, bill = here.store.spent(here.job_id), here.bill()
        # An end that the job's own flow ordered after the last tick may be unseen: charged to the end of the lease.
        assert job.ended_at_s is not None
        if any(begins_s - TICK_S <= job.ended_at_s <= ends_s for begins_s, ends_s in pauses):
            assert bill <= spent <= here.spec.budget_micros
        else:
            assert spent == bill
