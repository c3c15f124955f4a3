"""The ledger is the bill after pauses of the ticks, and a budget is not reached by machines that did not live."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.bidding.market.model import Market, PricePoint
from proteus_spot.bidding.market.spot_market import MarketUnreachable
from proteus_spot.infra.simulated_ec2.rules.behaviour import IMMEDIATE
from proteus_spot.infra.state.ledger import unpriced_hours
from proteus_spot.infra.state.records import JobState
from proteus_spot.tasks.job_records import ticking_jobs
from tests.storms.test_fault_scripts import live, world
from tests.support.fault_scripts import FaultScript
from tests.support.job_world import BEGIN_S, MARKETS, TICK_S, JobWorld

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


def unpriced(world: JobWorld, refuse: bool) -> None:
    """Have the market report no prices of one zone any more, or refuse to report any."""
    report = world.market.price_history

    def price_history(markets: Sequence[Market], from_s: int, until_s: int) -> list[PricePoint]:
        if refuse:
            raise MarketUnreachable("Unavailable", "not now")
        return [point for point in report(markets, from_s, until_s) if point.market != MARKETS[1]]

    world.market.price_history = price_history  # type: ignore[method-assign]


@pytest.mark.parametrize("billing", ["hourly-refund", PER_SECOND["billing"]])
@pytest.mark.parametrize("refuse", [False, True])
@pytest.mark.parametrize("hours", [4, 40])
def test_hours_without_a_price_are_booked_at_the_bid_and_corrected(
    billing: str, refuse: bool, hours: int, tmp_path: Path
) -> None:
    script = FaultScript(0, (), events=[(3060, lambda here: unpriced(here, refuse))])
    with world(tmp_path, script, transient={"billing": billing}) as here:
        run = here.train()
        assert run.error is None
        here.advance(BEGIN_S + hours * HOUR)
        assert here.failures == []
        lacks = unpriced_hours(here.store.ledger(here.job_id))
        if billing != "hourly-refund":
            assert lacks, "the hour in progress"
        assert {line.allocation_id for line in lacks}.isdisjoint(["job-reliable-0"])
        spent, bill = here.store.spent(here.job_id), here.bill()
        assert (spent > bill) if lacks else (spent == bill)
        with here.boundary.outside():
            assert ticking_jobs() == ([here.job_id] if lacks and hours == 4 else []), "prices are waited for, for a day"
        del here.market.price_history  # type: ignore[method-assign]
        if hours == 4:
            here.advance(here.now_s + HOUR)
            assert here.store.spent(here.job_id) == bill
            with here.boundary.outside():
                assert ticking_jobs() == []


@pytest.mark.parametrize("ahead_s", [-1, -30, -600])
def test_a_head_whose_clock_is_behind_books_the_last_hour(ahead_s: int, tmp_path: Path) -> None:
    with world(tmp_path, FaultScript(0, (), IMMEDIATE), transient=PER_SECOND) as here:
        here.clock.ahead_s = ahead_s
        live(here)
        assert here.store.job(here.job_id).state is JobState.FINISHED
        assert here.store.spent(here.job_id) == here.bill()
