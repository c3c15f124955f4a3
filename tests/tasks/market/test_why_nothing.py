"""The list of jobs says why nothing was bought, whatever the reason is."""

from collections.abc import Callable
from typing import Any

import pytest

from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.evictions.fit_capacity import capacity_trace
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.infra.local_market.job_stores import JobStore
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.simulated_ec2.rules.behaviour import Ec2Behaviour
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.market.decisions import decide
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.reports.job_list import job_lines
from tests.support.task_runtime import BEGIN_S, MARKET, ON_DEMAND, OTHER, TaskRuntime, plain, spec

TODAY = {
    "rules": "today",
    "policy": "deadline",
    "billing": "per-second-first-hour-free",
    "allocation_vcpus": None,
    "max_vcpus": 8,
}
#: The quota of Service Quotas for spot machines of the standard families.
SPOT_QUOTA = "L-34B43A08"


def job(budget_usd: float | None = None, **transient: Any) -> JobSpec:
    return spec(**{**TODAY, **transient}).model_copy(update={"budget_usd": budget_usd})


def why(here: TaskRuntime) -> str:
    (line,) = job_lines(JobStore(here.store, None), [])
    return line.why


def no_capacity(here: TaskRuntime) -> None:
    here.market.capacity.traces = {market: capacity_trace([0, 99], 6 * HOUR_S, BEGIN_S) for market in (MARKET, OTHER)}


@pytest.mark.parametrize(
    ("of", "before", "says"),
    [
        (job(), no_capacity, "last answers: InsufficientInstanceCapacity in 1 of 1 markets"),
        (job(), no_capacity, "markets that refused, or take what they sold, are left alone for a while"),
        (
            job(markets=[str(MARKET), str(OTHER)], exclude_markets=[OTHER.zone]),
            no_capacity,
            "markets are excluded by the job (exclude_markets)",
        ),
        (job(budget_usd=0.04), None, "the budget of $0.0400 leaves"),
        (job(max_vcpus=1), None, "machines are larger than"),
    ],
    ids=["refused", "left alone", "excluded", "budget", "too large"],
)
def test_a_job_that_holds_nothing_says_why(
    here: TaskRuntime, of: JobSpec, before: Callable[[TaskRuntime], None] | None, says: str
) -> None:
    here.begin(of)
    if before is not None:
        before(here)
    for _ in range(2):
        here.tick(of)
        here.clock.at_s += 120
    assert why(here).startswith("nothing is bought: ")
    assert says in why(here)


def test_the_quota_of_the_account_is_named(here: TaskRuntime) -> None:
    here.begin(job())
    here.market.behaviour = Ec2Behaviour(quotas={SPOT_QUOTA: 1})
    here.tick(job())
    assert why(here) == "nothing is bought: nothing can be bought: the account's quota of spot vCPUs leaves no machine"


def test_a_market_above_its_price_on_demand_is_named(here: TaskRuntime) -> None:
    here.begin(job())
    plain(decide)(JobEngine("job"), here.facts(job()), {MARKET: 2 * ON_DEMAND}, {})
    assert why(here) == "nothing is bought: nothing can be bought: markets stand above their on-demand price"


def test_work_that_costs_too_much_is_named(here: TaskRuntime) -> None:
    """Without a price of time a market that usually sells cheaper work is waited for."""
    both = job(markets=[str(MARKET), str(OTHER)], max_vcpus=4)
    here.begin(both)
    here.market.add_fault(Fault(FaultKind.CAPACITY, market=MARKET))
    engine = JobEngine("job")
    facts = here.facts(both)
    plain(decide)(engine, facts, {MARKET: 1000}, {})
    here.tick(both)
    plain(decide)(JobEngine("job"), facts, {MARKET: 1000, OTHER: 100_000}, {})
    assert "the cheapest work on sale, of m4.large/us-east-1b, costs" in why(here)


def test_a_deadline_at_risk_is_said_at_once_also_while_spot_machines_work(here: TaskRuntime) -> None:
    of = job(on_demand_usd=0.0)
    here.begin(of)
    here.tick(of)
    assert why(here) == ""
    here.clock.at_s += 120
    left = TimeLeft(int(here.clock.at_s) + HOUR_S, 8 * HOUR_S, 1.0, 600.0)
    prices = {MARKET: 20_000}
    from proteus_spot.tasks.market.bookkeeping import on_demand_spending_now

    spending = on_demand_spending_now(of, JobEngine("job").cached())
    plain(decide)(JobEngine("job"), here.facts(of), prices, {}, left=left, on_demand_spending=spending)
    assert why(here).startswith("the deadline is at risk: the deadline needs ")
    assert "the limit for machines on demand (on_demand_usd) of $0.0000 leaves $0.0000" in why(here)


def test_what_is_full_says_nothing(here: TaskRuntime) -> None:
    here.begin(job())
    for _ in range(2):
        here.tick(job())
        here.clock.at_s += 120
    assert why(here) == ""
