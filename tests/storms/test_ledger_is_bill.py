"""The ledger is the bill whatever happens to the head, and a budget is not reached by machines that did not live."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.bidding.market.model import EndCause, Market, PricePoint
from proteus_spot.bidding.market.spot_market import MarketUnreachable
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.simulated_ec2.rules.behaviour import IMMEDIATE
from proteus_spot.infra.state.ledger import unpriced_hours
from proteus_spot.infra.state.records import JobState
from proteus_spot.tasks.job_records import ticking_jobs
from tests.storms.test_fault_scripts import live, world
from tests.support.fault_scripts import FaultScript
from tests.support.job_world import BEGIN_S, MARKETS, JobWorld

HOUR = 3600
Event = Callable[[JobWorld], None]
PER_SECOND = {"billing": "per-second-first-hour-free"}


#: What may happen to a head, for so many hours each.
TROUBLES: dict[str, Sequence[float]] = {
    "pause": (0.5, 1, 1.5, 2, 3, 6, 26, 60),
    "bucket": (0.5, 3),
    "credentials": (0.5, 3),
    "database": (0.5, 3),
    "ahead": (0.2, 1, 3),
    "behind": (0.2, 1, 3),
    "restore": (0.2, 0.5, 0.7),
}
#: Seconds by which a clock may be wrong. EC2 refuses requests of another time, and so does S3.
STEPS_S = (90, 240, 1200, 3600)
_EC2_REFUSES_S, _S3_REFUSES_S = 300, 900


def between(script: FaultScript, from_s: int, hours: float, begin: Event, end: Event) -> None:
    """Have `begin` happen at a time, and `end` so many hours later."""
    script.events += [(from_s, begin), (from_s + round(hours * HOUR), end)]


def setting(name: str, value: object) -> Event:
    """Return the event that sets an attribute of the world."""
    return lambda here: setattr(here, name, value)


def pause(script: FaultScript, from_s: int, hours: float) -> None:
    """Have no tick run for so long; the leases end the machines meanwhile."""
    between(script, from_s, hours, setting("ticks_run", False), setting("ticks_run", True))


def wrong_clock(script: FaultScript, from_s: int, hours: float, ahead_s: int) -> None:
    """Have the head's clock be wrong for so long."""

    def step(here: JobWorld, by_s: int) -> None:
        here.clock.ahead_s = by_s
        here.bucket_fails = abs(by_s) > _S3_REFUSES_S

    between(script, from_s, hours, lambda here: step(here, ahead_s), lambda here: step(here, 0))
    if abs(ahead_s) > _EC2_REFUSES_S:
        refuse(script, from_s, hours, "RequestExpired")


def refuse(script: FaultScript, from_s: int, hours: float, code: str) -> None:
    begins_s = BEGIN_S + from_s
    script.faults.append(Fault(FaultKind.DENIED, begins_s, begins_s + round(hours * HOUR), code=code))


def restore(script: FaultScript, from_s: int, hours: float, copy: Path) -> None:
    """Have the database come back from a copy that is so old: less than the market lists ended machines."""
    between(script, from_s, hours, lambda here: here.copy_database(copy), lambda here: here.restore_database(copy))


def trouble(script: FaultScript, kind: str, from_s: int, hours: float, random: np.random.Generator, copy: Path) -> None:
    """Add trouble of a kind to a script."""
    if kind == "pause":
        pause(script, from_s, hours)
    elif kind in ("bucket", "database"):
        between(script, from_s, hours, setting(f"{kind}_fails", True), setting(f"{kind}_fails", False))
    elif kind == "credentials":
        refuse(script, from_s, hours, "ExpiredToken")
    elif kind == "restore":
        restore(script, from_s, hours, copy)
    else:
        step_s = int(random.choice(STEPS_S))
        wrong_clock(script, from_s, hours, step_s if kind == "ahead" else -step_s)


def live_on(here: JobWorld, until_s: float) -> None:
    """Let the job happen; a train run that failed or died is retried every half hour."""
    run = here.train()
    while (run.error is not None or run.dead) and here.now_s < until_s:
        here.advance(here.now_s + HOUR / 2)
        run = here.train()
    here.advance(until_s)


SEEDS = [pytest.param(seed, marks=() if seed < 5 else pytest.mark.storm) for seed in range(100)]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_ledger_is_the_bill_after_whatever_happens_to_the_head(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    script, at_s = FaultScript(seed, ()), 0
    for number in range(int(random.integers(1, 4))):
        at_s += int(random.integers(600, 3600))
        kind = str(random.choice(list(TROUBLES)))
        hours = float(random.choice(TROUBLES[kind]))
        trouble(script, kind, at_s, hours, random, tmp_path / f"copy-{number}.db")
        at_s += round(hours * HOUR)
    billing = str(random.choice(["hourly-refund", PER_SECOND["billing"]]))
    taken_after_s = [None, 2400][int(random.integers(2))]
    with world(tmp_path, script, taken_after_s, clocks=90, transient={"billing": billing}, budget_usd=3) as here:
        live_on(here, BEGIN_S + at_s + 12 * HOUR)
        job = here.store.jobs.job(here.job_id)
        assert (job.state, job.stop_why, job.failure) == (JobState.FINISHED, None, None)
        assert here.living() == []
        assert here.bought_twice() == {}
        spent, bill = here.store.purchases.spent(here.job_id), here.bill()
        assert bill <= spent <= here.spec.budget_micros
        # of a machine that the market took and forgot before anybody looked no refund is known
        assert spent == bill or EndCause.EVICTED in here.ended_unseen().values()


@pytest.mark.parametrize("billing", ["hourly-refund", PER_SECOND["billing"]])
@pytest.mark.parametrize(
    ("kind", "hours"),
    [("pause", 6), ("pause", 26), ("pause", 60), ("bucket", 3), ("credentials", 3), ("database", 3)],
)
def test_hours_without_ticks_or_one_of_their_services_cost_what_the_market_bills(
    kind: str, hours: float, billing: str, tmp_path: Path
) -> None:
    script = FaultScript(0, ())
    trouble(script, kind, 1500, hours, np.random.default_rng(0), tmp_path)
    with world(tmp_path, script, None, transient={"billing": billing}, budget_usd=1.5) as here:
        live_on(here, BEGIN_S + (9 + hours) * HOUR)
        assert here.store.jobs.job(here.job_id).state is JobState.FINISHED
        assert here.store.purchases.spent(here.job_id) == here.bill()


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
        lacks = unpriced_hours(here.store.purchases.ledger(here.job_id))
        if billing != "hourly-refund":
            assert lacks, "the hour in progress"
        assert {line.allocation_id for line in lacks}.isdisjoint(["job-reliable-0"])
        spent, bill = here.store.purchases.spent(here.job_id), here.bill()
        assert (spent > bill) if lacks else (spent == bill)
        with here.boundary.outside():
            assert ticking_jobs() == ([here.job_id] if lacks and hours == 4 else []), "prices are waited for, for a day"
        del here.market.price_history  # type: ignore[method-assign]
        if hours == 4:
            here.advance(here.now_s + HOUR)
            assert here.store.purchases.spent(here.job_id) == bill
            with here.boundary.outside():
                assert ticking_jobs() == []


@pytest.mark.parametrize("ahead_s", [-1, -30, -600])
def test_a_head_whose_clock_is_behind_books_the_last_hour(ahead_s: int, tmp_path: Path) -> None:
    with world(tmp_path, FaultScript(0, (), IMMEDIATE), transient=PER_SECOND) as here:
        here.clock.ahead_s = ahead_s
        live(here)
        assert here.store.jobs.job(here.job_id).state is JobState.FINISHED
        assert here.store.purchases.spent(here.job_id) == here.bill()
