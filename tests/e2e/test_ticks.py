"""Ticks and renewals as prefect.yaml deploys them, on a real server: doubled, killed, missed, and each harmless.

The tests share one server and stand in the order of a story: one job that trains all the while.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bidding.model import HOUR_S, Market
from bidding.traces import Trace, TraceSet
from infra.cluster import ControllerClient
from infra.records import AllocationRecord, IntentState, JobState
from tests.support import paced
from tests.support.command import bill_micros
from tests.support.prefect import Deployed, rendezvous, wait_until, without_settings

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

JOB = "ticked"
MARKET = Market("c4.large", "us-east-1a")
DAY_S = 86_400
T0 = 1464739200  # 2016-06-01T00:00:00Z
START_S = T0 + 14 * DAY_S
TICK_S = 120
#: So many ticks are missed while the server is away; the next one is due so many real seconds later.
MISSED = 4
SOON_S = 30
LEAD_S = 240
ON_DEMAND_USD = {"c4.large": "0.105"}
TICK, RENEW, TRAIN = "allocation-tick/default", "renew-hour/default", "train/train"
#: What a tick of ours may buy: one allocation of one machine at a time.
SPEC: dict[str, Any] = {
    "job_id": JOB,
    "training": {
        "data": "digits",
        "app": "paced:Paced",
        "code": str(Path(paced.__file__)),
        "partitions": 2,
        "shards": 2,
        "hours": 1.0,
    },
    "reliable": {"count": 1, "instance_type": "c4.large", "zone": "us-east-1a"},
    # `best` would wait some seconds after an eviction, and a tick here is to buy at once
    "transient": {"markets": [str(MARKET)], "allocation_vcpus": 2, "max_vcpus": 2, "policy": "proteus"},
}


def market() -> TraceSet:
    """One market: calm but for an hour a day of the past, so that bids have a price."""
    days = np.arange(14)[:, None] * DAY_S + np.array([0, 12 * HOUR_S, 13 * HOUR_S])[None, :]
    times = np.concatenate([T0 + days.ravel(), [START_S, START_S + DAY_S]])
    return TraceSet({MARKET: Trace(times, np.concatenate([np.tile([20_000, 600_000, 20_000], 14), [20_000, 21_000]]))})


@dataclass
class Story:
    """What one chapter leaves to the next."""

    deployed: Deployed
    runs: dict[str, str] = field(default_factory=dict)

    def status(self) -> dict[str, Any]:
        """What the job's controller tells of itself."""
        return ControllerClient(rendezvous(self.deployed.blob_url, JOB)["address"], 10.0).status()

    def tick(self, **more: str) -> str:
        """Start a tick of the job."""
        return self.deployed.start(TICK, {"job_id": JOB}, **more)

    def done(self, run_id: str) -> str:
        """Wait for a tick, or a renewal, to have done its work; return what it said."""
        self.deployed.await_state(run_id, "COMPLETED", 60)

        def said() -> list[str]:
            return [
                line for line in self.deployed.logs(run_id).splitlines() if line.startswith((f"{JOB}: ", "skipped: "))
            ]

        wait_until(lambda: bool(said()), "the last line of the run's log")  # it may come after the run's end
        return "\n".join(said())

    def journal(self, kind: str) -> list[dict[str, Any]]:
        """The journal's records of a kind."""
        return [dict(e.record) for e in self.deployed.store.journal(JOB) if e.record["kind"] == kind]

    def claimed(self) -> bool:
        """Whether a tick of the job is at its work."""
        with closing(sqlite3.connect(self.deployed.directory / "state.db")) as database:
            rows = database.execute("SELECT count(*) FROM claims WHERE name = ?", (f"tick/{JOB}",))
            return bool(rows.fetchone()[0])

    def spot(self) -> list[AllocationRecord]:
        """The spot allocations that are in the book, oldest first."""
        return [r for r in self.deployed.store.allocations(JOB) if r.allocation.bid_micros is not None]

    def sold(self) -> list[dict[str, Any]]:
        """The spot machines that the market has sold, by its own record."""
        return [one for one in self.deployed.market_log() if one["bid_micros"] is not None]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with pytest.MonkeyPatch.context() as patch:
        without_settings(patch)
        deployed = Deployed(tmp_path_factory.mktemp("ticks"), market(), START_S)
        with deployed:
            for name in (
                TICK,
                "reap/default",
                "ingest-prices/default",
            ):  # each chapter says itself when there is a tick
                deployed.post(f"/deployments/{deployed.deployment_id(name)}/pause_deployment")
            yield Story(deployed)
        left = [process.cmdline() for process in deployed.processes()]
        assert not left, f"still running: {left}"


def test_a_copy_of_a_run_attaches_and_another_job_of_its_name_is_refused(story: Story) -> None:
    deployed = story.deployed
    first = story.runs["first"] = deployed.start(TRAIN, {"spec": SPEC})
    deployed.await_task(first, "follow training", 90)
    controller = rendezvous(deployed.blob_url, JOB)

    copy = deployed.start(TRAIN, deployed.run(first)["parameters"])  # what "Copy to new run" sends
    other = deployed.start(TRAIN, {"spec": SPEC | {"training": SPEC["training"] | {"seed": 7}}})
    deployed.await_task(copy, "follow training", 60)
    refused = deployed.await_state(other, "FAILED", 60)["state"]["message"]
    assert f"job {JOB}: " in refused
    deployed.retry(other)
    wait_until(lambda: deployed.run(other)["run_count"] == 2, "the retry of what was refused", 40)
    assert deployed.await_state(other, "FAILED", 40)["state"]["message"] == refused

    assert rendezvous(deployed.blob_url, JOB) == controller
    assert story.status()["state"] == "running", "the job that was there goes on"
    assert deployed.at_task(first, "follow training")
    assert [one["token"] for one in deployed.market_log()] == [f"{JOB}-reliable-0"]


def test_a_tick_is_killed_between_its_purchase_and_the_record_and_the_next_one_finds_the_machine(story: Story) -> None:
    deployed = story.deployed
    deployed.market_fault(kind="delay", operation="launch", delay_s=60, times=1)
    killed = story.tick()
    wait_until(lambda: bool(story.sold()), "the purchase", 60)
    deployed.flow_process(killed).kill()
    (sold,) = story.sold()
    assert story.spot() == [], "nobody has heard the market's answer"
    (intent,) = deployed.store.intents(JOB, [IntentState.PLANNED])
    assert intent.token == sold["token"] == f"{JOB}-buy-0"
    deployed.await_state(killed, "CRASHED", 30)

    deployed.clock.jump_to(deployed.clock.now_s() + 2 * TICK_S)  # the dead tick's claim has ended by then
    story.done(story.tick())
    (held,) = story.spot()
    assert (held.order_id, list(held.instance_ids)) == (sold["token"], [sold["instance_id"]])
    assert [one["instance_id"] for one in story.sold()] == [sold["instance_id"]]
    assert [one["order_id"] for one in story.journal("Acquire")] == [sold["token"]]
    assert not deployed.store.intents(JOB, [IntentState.PLANNED])


def test_of_two_ticks_at_one_time_on_two_workers_one_acts(story: Story) -> None:
    deployed = story.deployed
    deployed.command("work-queue", "create", "second", "--pool", "proteus")
    deployed.start_worker("second")
    before = len(story.journal("TickDue"))
    deployed.market_fault(kind="delay", operation="describe", delay_s=8, times=1)
    acts = story.tick(work_queue_name="default")
    wait_until(story.claimed, "the first tick at its work", 60)
    at_work = deployed.flow_process(acts)
    at_work.suspend()  # it takes as long as it takes
    beside = story.tick(work_queue_name="second")
    assert story.done(beside) == f"{JOB}: somebody else is at it"
    assert story.claimed()
    at_work.resume()
    assert story.done(acts) == f"{JOB}: wait"
    assert len(story.journal("TickDue")) == before + 1


def test_a_renewal_is_booked_once_and_decided_once_however_often_it_is_started(story: Story) -> None:
    deployed = story.deployed
    (allocation,) = [record.allocation for record in story.spot()]
    name = f"renew-{allocation.allocation_id}-h0"
    (booked,) = deployed.runs(RENEW)  # two ticks have booked it by now
    due_s = allocation.launched_at_s + HOUR_S - LEAD_S
    assert (booked["name"], booked["idempotency_key"], booked["state_type"]) == (name, name, "SCHEDULED")
    hour_end = {"job_id": JOB, "allocation_id": allocation.allocation_id, "hour": 0, "patience_s": 60.0}
    assert booked["parameters"] == {"hour_end": hour_end}
    ahead_s = datetime.fromisoformat(booked["expected_start_time"]) - datetime.now(UTC)
    assert ahead_s.total_seconds() == pytest.approx(due_s - deployed.clock.now_s(), abs=1)

    deployed.clock.jump_to(due_s + 1)
    again = deployed.ask(RENEW, {"hour_end": hour_end}, idempotency_key=name)
    assert again.json()["id"] == booked["id"], "the same key is the same run"
    by_hand = deployed.start(RENEW, {"hour_end": hour_end})
    now = datetime.now(UTC).isoformat()
    at_once = {"type": "SCHEDULED", "state_details": {"scheduled_time": now}}
    deployed.post(f"/flow_runs/{booked['id']}/set_state", state=at_once, force=True)  # "Run now"
    assert {story.done(run_id) for run_id in (by_hand, booked["id"])} == {f"{JOB}: renew, wait", f"{JOB}: wait"}
    decided = [(one["allocation_id"], one["hour"]) for one in story.journal("Renew") + story.journal("Lapse")]
    assert decided == [(allocation.allocation_id, 1)]
    assert len(deployed.runs(RENEW)) == 2


def test_ticks_that_an_absent_server_missed_are_skipped_and_nothing_is_bought_twice(story: Story) -> None:
    deployed = story.deployed
    tick_id = deployed.deployment_id(TICK)
    deployed.post(f"/deployments/{tick_id}/resume_deployment")
    wait_until(lambda: len(to_come(deployed)) > 2 * MISSED, "the ticks to come", 30)
    wait_until(lambda: quiet(deployed), "a while without a tick", 60)
    earlier = {run["id"] for run in deployed.runs(TICK)} - {run["id"] for run in to_come(deployed)}
    first = min(moment(run, "expected_start_time") for run in to_come(deployed))
    next_s = (first - datetime.now(UTC)).total_seconds()
    decided = len(story.journal("TickDue"))
    deployed.kill_server()
    clock = story.status()["clock"]
    deployed.market_fault(kind="kill", market=str(MARKET))  # so that there is something to buy
    deployed.let_schedule_pass(next_s + (MISSED - 1) * TICK_S + TICK_S - SOON_S)
    wait_until(lambda: story.status()["clock"] > clock + 1, "clocks without a server")
    back = datetime.now(UTC)
    deployed.start_server()

    def begun() -> list[dict[str, Any]]:
        """The scheduled ticks whose time has come, oldest first."""
        now = datetime.now(UTC)
        runs = [
            run
            for run in deployed.runs(TICK)
            if run["auto_scheduled"] and run["id"] not in earlier and moment(run, "expected_start_time") < now
        ]
        return sorted(runs, key=lambda run: moment(run, "expected_start_time"))

    def over() -> bool:
        """Whether a tick that nobody missed has ended, and every one before it."""
        runs = begun()
        return (
            bool(runs)
            and moment(runs[-1], "expected_start_time") > back
            and {run["state_type"] for run in runs} == {"COMPLETED"}
        )

    wait_until(over, "the missed ticks, and the next one", 90)
    deployed.post(f"/deployments/{tick_id}/pause_deployment")
    runs = [run for run in begun() if run["state_type"] == "COMPLETED"]
    period = timedelta(seconds=TICK_S)
    assert len([run for run in runs if moment(run, "expected_start_time") < back]) == MISSED
    said = {run["id"]: story.done(run["id"]) for run in runs}
    acted = [one for one in said.values() if one.startswith(f"{JOB}: ")]
    for run in runs:
        overtaken_at = moment(run, "expected_start_time") + period
        if moment(run, "start_time") > overtaken_at:
            assert said[run["id"]] == "skipped: a later tick is due already"
        if moment(run, "end_time") < overtaken_at:
            assert said[run["id"]].startswith(f"{JOB}: "), "who is in time acts"
    assert len(acted) <= len(runs) - (MISSED - 1)
    assert 1 <= len(story.journal("TickDue")) - decided <= len(acted), "one tick a period, and no more"
    assert [one["end_cause"] for one in story.sold()] == ["evicted", None]
    assert len({one["token"] for one in story.sold()}) == 2
    assert [record.alive for record in story.spot()] == [False, True]


def to_come(deployed: Deployed) -> list[dict[str, Any]]:
    """The ticks that the schedule has made ahead."""
    return [run for run in deployed.runs(TICK) if run["auto_scheduled"] and run["state_type"] == "SCHEDULED"]


def quiet(deployed: Deployed) -> bool:
    """Whether no tick runs, and none is so near that a worker may have taken it already."""
    soon = datetime.now(UTC) + timedelta(seconds=20)
    scheduled = [run for run in deployed.runs(TICK) if run["auto_scheduled"]]
    begun = [run for run in scheduled if run["state_type"] != "SCHEDULED" or moment(run, "expected_start_time") < soon]
    return {run["state_type"] for run in begun} <= {"COMPLETED"}


def moment(run: dict[str, Any], which: str) -> datetime:
    """One of a run's times."""
    return datetime.fromisoformat(run[which])


def test_an_ended_job_tells_its_result_to_every_run_that_asks(story: Story) -> None:
    deployed = story.deployed
    first = story.runs["first"]
    deployed.python("-m", "flows.cli", "stop", JOB)
    deployed.await_state(first, "COMPLETED", 60)
    job = deployed.store.job(JOB)
    assert job.state is JobState.STOPPED
    sold = deployed.market_log()
    custom = deployed.start(TRAIN, {"spec": SPEC})
    deployed.retry(first)
    deployed.await_state(custom, "COMPLETED", 60)
    wait_until(lambda: deployed.run(first)["run_count"] == 2, "the retry of what is done", 40)
    deployed.await_state(first, "COMPLETED", 40)
    assert deployed.store.job(JOB) == job
    assert [one["instance_id"] for one in deployed.market_log()] == [one["instance_id"] for one in sold]

    story.done(story.tick())  # books what has begun
    now_s = int(deployed.clock.now_s())
    bill = bill_micros(deployed.market_log(), deployed.directory / "prices.csv", ON_DEMAND_USD, now_s)
    assert deployed.store.spent(JOB) == bill, "money spent is the sum of the ledger, after all of this"
