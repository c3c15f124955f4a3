"""A deadline in a simulated market: on-demand machines finish the job when its slack is gone, if the budget allows."""

from typing import Any

import pytest

from proteus_spot.bidding.engine.orders import Acquire, Wait
from proteus_spot.bidding.market.model import HOUR_S, Tier
from proteus_spot.infra.local_market.job_stores import JobStore
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.simulated_ec2.rules.behaviour import Ec2Behaviour
from proteus_spot.infra.state.records import IntentState, ObservationKind
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.job_ends import lateness
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_job
from proteus_spot.tasks.reports.job_list import job_lines
from proteus_spot.tasks.reports.job_report import gather
from proteus_spot.tasks.reports.job_summary import summary
from proteus_spot.tasks.training.work_left import time_left
from tests.support.task_runtime import BEGIN_S, MARKET, TaskRuntime, plain, spec

TICK_S = 120
#: Seconds of one vCPU that a clock takes.
CLOCK_VCPU_S = 60.0


def timed(deadline: str | None, clocks: int, **fields: Any) -> JobSpec:
    """A job with one reliable machine of 2 vCPUs and at most 4 others, which counts its work in clocks."""
    job = spec()
    record = job.model_dump() | {"deadline": deadline, **fields}
    record["training"] = {**record["training"], "clocks": clocks}
    return JobSpec.model_validate(record)


class Training:
    """A training that goes as fast as the machines allow, as its observations report it."""

    def __init__(self, world: TaskRuntime, job: JobSpec) -> None:
        self.world, self.job, self.clocks = world, job, 0.0

    def note(self) -> None:
        """Record the nodes and the progress, as the follower of a controller does."""
        store, now_s = self.world.store, self.world.clock.now_s()
        nodes = {fact.instance_id: "ready" for fact in self.world.facts(self.job) if fact.alive}
        store.jobs.observe(self.job.job_id, now_s, ObservationKind.NODES, nodes)
        progress = {"clock": int(self.clocks), "seconds_per_clock": 10.0}
        store.jobs.observe(self.job.job_id, now_s, ObservationKind.PROGRESS, progress)

    def wait(self, seconds: float) -> None:
        """Let the machines that live now work for some time."""
        vcpus = sum(2 for fact in self.world.facts(self.job) if fact.alive)
        self.clocks += vcpus * seconds / CLOCK_VCPU_S
        self.world.clock.at_s += seconds
        self.note()

    def to_the_end(self, within_h: float) -> float:
        """Tick until all clocks are trained; return the hours that it took, infinity where that is too long."""
        self.note()
        while self.clocks < (self.job.training.clocks or 0):
            if self.world.clock.at_s > BEGIN_S + within_h * HOUR_S:
                return float("inf")
            self.world.tick(self.job)
            self.wait(TICK_S)
        return (self.world.clock.at_s - BEGIN_S) / HOUR_S

    @property
    def on_demand(self) -> int:
        """Machines on the transient tier that were bought on demand."""
        records = self.world.store.purchases.allocations(self.job.job_id)
        bought = [r.allocation for r in records if r.allocation.tier is Tier.TRANSIENT]
        return sum(allocation.count for allocation in bought if allocation.bid_micros is None)


def without_capacity(world: TaskRuntime) -> None:
    """Let the market give no spot machine: its price stands above every bid."""
    world.market.traces = type(world.market.traces)(
        {market: type(trace)(trace.times_s, trace.prices_micros * 50) for market, trace in world.market.traces.items()}
    )


#: On 6 vCPUs the work takes 2 h, on the reliable machine alone 6 h.
CLOCKS = int(6 * 2 * HOUR_S / CLOCK_VCPU_S)


def test_a_market_that_gives_machines_keeps_the_deadline_without_on_demand_ones(here: TaskRuntime) -> None:
    job = timed("4h", CLOCKS)
    here.begin(job)
    training = Training(here, job)
    assert training.to_the_end(5) < 2.5
    assert training.on_demand == 0


def test_in_a_market_that_gives_nothing_on_demand_machines_finish_the_job_in_time(here: TaskRuntime) -> None:
    without_capacity(here)
    job = timed("4h", CLOCKS)
    here.begin(job)
    training = Training(here, job)
    hours = training.to_the_end(7)
    assert 3.0 < hours < 4.0, "as late as possible, and in time"
    assert training.on_demand == 2
    late = timed(None, CLOCKS).model_copy(update={"job_id": "late"})
    assert time_left(late.model_copy(update={"job_id": job.job_id})) is None


def test_a_quota_that_has_room_for_one_of_two_machines_on_demand_gives_one(here: TaskRuntime) -> None:
    without_capacity(here)
    here.market.behaviour = Ec2Behaviour(quotas={"L-1216C47A": 4})  # of which the reliable machine has 2
    job = timed("5h", CLOCKS)
    here.begin(job)
    training = Training(here, job)
    assert training.to_the_end(7) < 5.5, "alone it takes 6 h"
    assert training.on_demand == 1
    asked = [
        intent
        for intent in here.store.purchases.intents("job", [IntentState.REFUSED])
        if intent.params["bid_micros"] is None
    ]
    assert [intent.params["count"] for intent in asked] == [2], "the quota is not asked again at each tick"


def test_machines_that_are_taken_late_are_replaced_on_demand(here: TaskRuntime) -> None:
    job = timed("150m", CLOCKS)
    here.begin(job)
    training = Training(here, job)
    while training.clocks < CLOCKS / 2:
        here.tick(job)
        training.wait(TICK_S)
    assert training.on_demand == 0
    here.market.add_fault(Fault(FaultKind.KILL, market=MARKET))
    without_capacity(here)
    assert training.to_the_end(5) < 2.5
    assert training.on_demand == 2


def test_the_budget_wins_over_the_deadline(here: TaskRuntime) -> None:
    without_capacity(here)
    job = timed("4h", CLOCKS, budget_usd=0.33)
    here.begin(job)
    training = Training(here, job)
    assert training.to_the_end(4.0) == float("inf")
    assert training.on_demand == 0
    reasons = [
        entry.record["decision"]["reason"]
        for entry in here.store.journals.entries("job")
        if entry.record["kind"] == "Wait"
    ]
    assert any("slack is gone" in reason and "the budget of $0.3300 leaves" in reason for reason in reasons)


def test_what_is_left_is_measured_on_the_machines_that_worked(here: TaskRuntime) -> None:
    job = timed("4h", CLOCKS)
    here.begin(job)
    assert time_left(job) is None, "nothing is measured yet"
    training = Training(here, job)
    training.note()
    here.tick(job)
    training.wait(3600)
    training.wait(600)
    left = time_left(job)
    assert left is not None
    assert left.deadline_s == BEGIN_S + 4 * HOUR_S
    assert left.clocks == CLOCKS - int(training.clocks)
    # what was bought counts from when it is ready, so the first hour of the spot machines does not
    assert left.clocks_per_vcpu_s == pytest.approx(int(training.clocks) / (2 * 4200 + 4 * 600))


@pytest.mark.parametrize("kind", [Acquire, Wait])
def test_a_decision_of_the_deadline_names_its_cause(here: TaskRuntime, kind: type) -> None:
    without_capacity(here)
    job = timed("125m" if kind is Acquire else "9h", CLOCKS)
    here.begin(job)
    training = Training(here, job)
    training.note()
    training.wait(TICK_S)
    (order,) = here.tick(job)
    assert isinstance(order, kind)
    assert ("slack is gone" in order.decision.reason) == (kind is Acquire)


def test_a_job_that_is_late_says_so_in_the_list_the_report_and_the_result(here: TaskRuntime) -> None:
    here.begin(timed("90m", 10**6))
    here.clock.at_s = BEGIN_S + 5399
    Training(here, spec()).note()
    assert _said(here) == ("", "in 0:00:01", 0.0)
    here.clock.at_s = BEGIN_S + 2 * HOUR_S
    Training(here, spec()).note()
    late = "its deadline, 2016-06-03 01:30 UTC, passed 0.50 h ago"
    assert _said(here) == (f"late: {late}", "missed by 0:30:00", 1800.0)
    plain(close_job)(JobEngine("job"), {"clocks": 10**6})
    here.clock.at_s += HOUR_S
    ended = "late by 0.50 h: its deadline was 2016-06-03 01:30 UTC"
    assert _said(here) == (ended, "missed by 0:30:00", 1800.0)
    (line,) = job_lines(JobStore(here.store, None), [])
    assert line.why == ended


def _said(here: TaskRuntime) -> tuple[str, str, float]:
    """What the list of jobs, the report (and so the page in Prefect) and the result say of the deadline."""
    job = here.store.jobs.job("job")
    (figure,) = [figure for figure in gather(here.store, "job").figures if figure.label == "Deadline"]
    assert "2016-06-03 01:30:00 UTC" in figure.note
    return lateness(job, here.clock.at_s), figure.value, summary("job")["late_seconds"]
