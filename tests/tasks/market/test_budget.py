"""A job under a budget in a simulated market: whatever the market does, its ledger never passes the budget."""

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.engine.orders import Acquire, Wait
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.state.ledger import due_lines
from proteus_spot.infra.state.records import JobState
from proteus_spot.infra.storage.blobs import BlobMissing
from proteus_spot.infra.storage.leases import FIRST_S, read_lease
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.job_ends import is_active, stop_urgency
from proteus_spot.tasks.market.bookkeeping import (
    book_ledger,
    lives_within_budget,
    on_demand_spending_now,
    spending_now,
    stop_at_budget,
)
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_job
from proteus_spot.tasks.market.purchases.reliable_purchases import release_reliable_tier
from tests.support.plain_ticks import plain_tick
from tests.support.task_runtime import BEGIN_S, MARKET, ON_DEMAND, OTHER, T0, TaskRuntime, plain, spec

TICK_S = 120
BILLING = {
    "hourly-refund": {"billing": "hourly-refund"},
    "per-second": {"billing": "per-second-first-hour-free"},
    "at-change": {"billing": "per-second-first-hour-free", "reprice": "change"},
    "flat": {"billing": "flat", "flat_price": "0.021"},
}


def budgeted(budget: float, **transient: Any) -> JobSpec:
    """A job that may spend `budget` dollars."""
    return spec(**transient).model_copy(update={"budget_usd": budget})


def wait(world: TaskRuntime, job: JobSpec, seconds: float) -> None:
    """Let time pass; each machine ends when its lease does, as its guard has it."""
    until_s = world.clock.at_s + seconds
    while True:
        ends: dict[str, float] = {}
        for fact in world.facts(job):
            if fact.alive:
                try:
                    ends[fact.instance_id] = read_lease(world.runtime.blobs, job.job_id, fact.instance_id).until_s
                except BlobMissing:
                    ends[fact.instance_id] = fact.launched_at_s + FIRST_S
        due = [name for name, at_s in ends.items() if at_s <= until_s]
        if not due:
            break
        first = min(due, key=ends.__getitem__)
        world.clock.at_s = max(world.clock.at_s, ends[first])
        world.market.terminate([first])
    world.clock.at_s = until_s


def end(world: TaskRuntime, job: JobSpec, drain_s: float) -> None:
    """End the job as its ticks do after a stop: drained, closed, its machines released."""
    wait(world, job, drain_s)
    plain(close_job)(JobEngine(job.job_id), {"stopped": "budget"})
    plain(release_reliable_tier)(JobEngine(job.job_id))


def run(world: TaskRuntime, job: JobSpec, hours: float, chance: random.Random, loss: float = 0.0) -> bool:
    """Tick until the budget is reached, or for so long, and then until nothing lives; return whether it was reached.

    Parameters
    ----------
    loss : probability that ticks are lost; for how long is random, up to two hours.
    """
    reached = False
    world.begin(job)
    ends_s = world.clock.at_s + hours * HOUR_S
    while world.clock.at_s < ends_s:
        wait(world, job, TICK_S * (chance.randrange(1, 60) if chance.random() < loss else 1))
        spending = spending_now(job, JobEngine(job.job_id).refresh())
        assert spending is not None
        reached = spending.is_reached
        if reached:
            break
        world.tick(job)
        assert world.store.purchases.spent(job.job_id) <= spending.budget_micros
    end(world, job, chance.uniform(0, 240))
    while world.store.purchases.allocations(job.job_id, alive=True):
        world.clock.at_s += TICK_S
        world.tick(job)
    plain(book_ledger)(job.job_id)
    return reached


def spent_by_the_market(world: TaskRuntime, job: JobSpec) -> int:
    """What the ledger comes to if it is made anew from what was held."""
    lines = due_lines(
        world.store.purchases.allocations(job.job_id),
        world.market.traces,
        world.runtime.catalog,
        world.runtime.now_s(),
        job.transient.billing_model,
    )
    return sum(line.amount_micros for line in lines)


def random_prices(rng: np.random.Generator) -> Trace:
    """Calm prices, and spikes above every bid."""
    times = [T0, *sorted(set(rng.integers(BEGIN_S, BEGIN_S + 12 * HOUR_S, size=int(rng.integers(0, 40))).tolist()))]
    prices = np.where(rng.random(len(times)) < 0.2, 900_000, rng.integers(5_000, 100_000, size=len(times)))
    prices[0] = 20_000
    return Trace(np.array(times), prices)


@pytest.mark.parametrize("name", BILLING)
def test_a_job_that_reaches_its_budget_has_used_it_and_not_passed_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = TaskRuntime(tmp_path, monkeypatch)
    budget = 500_000 if name == "hourly-refund" else 150_000
    job = budgeted(budget / 1e6, **BILLING[name])
    assert run(world, job, 6.0, random.Random(0))
    spent = world.store.purchases.spent(job.job_id)
    assert 0.5 * budget < spent <= budget
    assert spent == spent_by_the_market(world, job)
    world.close()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(sorted(BILLING)),
    policy=st.sampled_from(["proteus", "standard", "just-above", "fixed-delta:0.3"]),
    budget=st.integers(106_000, 1_500_000),
    seed=st.integers(0, 2**32 - 1),
    loss=st.sampled_from([0.0, 0.1, 0.5]),
)
def test_whatever_the_market_does_the_ledger_never_passes_the_budget(
    tmp_path_factory: pytest.TempPathFactory, name: str, policy: str, budget: int, seed: int, loss: float
) -> None:
    rng = np.random.default_rng(seed)
    traces = TraceSet({market: random_prices(rng) for market in (MARKET, OTHER)})
    with pytest.MonkeyPatch.context() as patch:
        world = TaskRuntime(tmp_path_factory.mktemp("world"), patch, traces=traces)
        markets = [str(MARKET), str(OTHER)]
        job = budgeted(budget / 1e6, policy=policy, markets=markets, max_vcpus=8, **BILLING[name])
        run(world, job, 4.0, random.Random(seed), loss)
        assert world.store.purchases.spent(job.job_id) <= budget
        assert world.store.purchases.spent(job.job_id) == spent_by_the_market(world, job)
        assert not [fact for fact in world.facts(job) if fact.alive]
        world.close()


def test_a_purchase_that_does_not_fit_is_not_made(here: TaskRuntime) -> None:
    job = budgeted(ON_DEMAND / 1e6 + 0.001)
    here.begin(job)
    (order,) = here.tick(job)
    assert isinstance(order, Wait)
    assert "the budget of" in order.decision.reason
    wealthy = budgeted(1.0).model_copy(update={"job_id": "other"})
    here.begin(wealthy)
    (order,) = here.tick(wealthy)
    assert isinstance(order, Acquire)


def test_what_was_requested_and_not_answered_is_committed(here: TaskRuntime) -> None:
    job = budgeted(1.0)
    here.begin(job)
    before = spending_now(job, JobEngine("job").refresh())
    params = {"market": str(MARKET), "count": 2, "bid_micros": 40_000}
    here.store.purchases.plan("job-buy-0", "job", "acquire", "job-buy-0", params, here.clock.now_s())
    after = spending_now(job, JobEngine("job").refresh())
    assert before is not None
    assert after is not None
    assert after.committed_micros - before.committed_micros == 2 * 40_000


@pytest.mark.parametrize("generation", ["", "g2-3fa94c02-"])
def test_a_reliable_machine_that_was_requested_is_committed_once(here: TaskRuntime, generation: str) -> None:
    job = budgeted(1.0, policy="on-demand")
    here.begin(job)
    here.clock.at_s += TICK_S
    here.market.terminate([fact.instance_id for fact in here.facts(job)])
    here.clock.at_s += TICK_S
    here.tick(job)
    missing = spending_now(job, JobEngine("job").refresh())
    order_id = f"job-{generation}reliable-0-again-1"
    params = {"market": f"{job.reliable.instance_type}/{job.reliable.zone}", "count": 1, "bid_micros": None}
    here.store.purchases.plan(order_id, "job", "acquire", order_id, params, here.clock.now_s())
    requested = spending_now(job, JobEngine("job").refresh())
    assert missing is not None
    assert requested is not None
    assert requested.committed_micros == missing.committed_micros


def test_a_reliable_machine_that_is_lost_is_still_committed(here: TaskRuntime) -> None:
    job = budgeted(1.0, policy="on-demand")
    here.begin(job)
    before = spending_now(job, JobEngine("job").refresh())
    here.clock.at_s += TICK_S
    here.market.terminate([fact.instance_id for fact in here.facts(job)])
    here.clock.at_s += TICK_S
    here.tick(job)
    after = spending_now(job, JobEngine("job").refresh())
    assert before is not None
    assert after is not None
    assert after.committed_micros == before.committed_micros + ON_DEMAND, "it is bought again"


def test_without_prices_the_bids_stand_for_them(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    job = budgeted(1.0, **BILLING["per-second"])
    here.begin(job)
    here.tick(job)
    here.clock.at_s += TICK_S
    known = spending_now(job, JobEngine("job").refresh())
    here.market.add_fault(Fault(FaultKind.UNAVAILABLE, operation="price_history"))
    unknown = spending_now(job, JobEngine("job").refresh())
    assert known is not None
    assert unknown is not None
    assert unknown.committed_micros > known.committed_micros


def test_a_budget_is_not_asked_for_by_a_job_without_one(here: TaskRuntime) -> None:
    here.begin(spec())
    assert spending_now(spec(), JobEngine("job").refresh()) is None
    assert here.store.jobs.job("job").state is JobState.STARTING


def test_where_the_budget_is_passed_no_machine_lives_on_to_its_decided_hours_end(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())
    lives = lives_within_budget(spec().model_copy(update={"budget_usd": 0.01}), JobEngine("job").cached())
    assert lives is not None
    records = here.store.purchases.allocations("job", alive=True)
    assert {lives(record) for record in records} == {int(here.clock.at_s)}
    assert len(records) == 2


def test_an_ended_job_commits_nothing_to_a_reliable_tier_that_it_does_not_buy(here: TaskRuntime) -> None:
    job = budgeted(1.0, policy="on-demand")
    here.begin(job)
    here.clock.at_s += TICK_S
    end(here, job, 0.0)
    spending = spending_now(job, JobEngine("job").refresh())
    assert spending is not None
    assert spending.committed_micros == ON_DEMAND, "the hour that it has paid"


def test_the_reliable_tier_counts_in_no_limit_of_machines_on_demand(here: TaskRuntime) -> None:
    job = spec(on_demand_usd=1.0)
    here.begin(job)
    here.tick(job)
    limit = on_demand_spending_now(job, JobEngine("job").refresh())
    assert limit is not None
    assert limit.committed_micros == 0


def committed(job: JobSpec) -> int:
    spending = spending_now(job, JobEngine("job").refresh())
    assert spending is not None
    return spending.committed_micros


def test_a_budget_that_suffices_once_ends_are_seen_stops_no_job(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_tick(monkeypatch)
    job = budgeted(1.0, **BILLING["per-second"])
    here.begin(job)
    here.tick(job)
    here.clock.at_s += 600
    here.market.add_fault(Fault(FaultKind.KILL, market=MARKET))
    here.clock.at_s += 2400
    unseen = committed(job)
    tight = job.model_copy(update={"budget_usd": Decimal(unseen - 1) / 1_000_000})
    assert not stop_at_budget(tight, JobEngine("job")), "the machines have ended since"
    assert is_active("job")
    assert committed(job) < unseen


@pytest.mark.parametrize(("lasts", "urgency"), [(True, 1), (False, 2)])
def test_a_job_whose_budget_does_not_last_until_its_model_is_saved_ends_at_once(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch, lasts: bool, urgency: int
) -> None:
    plain_tick(monkeypatch)
    job = budgeted(1.0, policy="on-demand", **BILLING["per-second"])
    here.begin(job)
    here.clock.at_s += HOUR_S
    least = committed(job)
    tight = job.model_copy(update={"budget_usd": Decimal(least - 1 if lasts else least * 3 // 4) / 1_000_000})
    assert stop_at_budget(tight, JobEngine("job"))
    assert stop_urgency("job") == 1, "the model is saved, whatever is left"
    assert stop_at_budget(tight, JobEngine("job"))
    assert stop_urgency("job") == urgency
