"""Ticks and renewals as prefect.yaml deploys them, on a real server: duplicated, killed, repeated, each without harm.

The tests share one server and one training job, and depend on their order.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from proteus_spot.bidding.market.model import HOUR_S, ORDER_TAG
from proteus_spot.infra.state.records import IntentState, JobState
from tests.support.cli_process import bill_micros
from tests.support.deployed_job import JOB, LEAD_S, ON_DEMAND_USD, RENEW, SPEC, TICK_S, TRAIN, Story, told
from tests.support.prefect import rendezvous, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.storm]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with told(tmp_path_factory.mktemp("ticks")) as begun:
        yield begun


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
    assert [one["tags"][ORDER_TAG] for one in deployed.market_log()] == [f"{JOB}-reliable-0"]


def test_a_tick_is_killed_between_its_purchase_and_the_record_and_the_next_one_finds_the_machine(story: Story) -> None:
    deployed = story.deployed
    deployed.market_fault(kind="delay", operation="launch", delay_s=60, times=1)
    killed = story.tick()
    wait_until(lambda: bool(story.sold()), "the purchase", 60)
    deployed.flow_process(killed).kill()
    (sold,) = story.sold()
    assert story.spot() == [], "nobody has heard the market's answer"
    (intent,) = deployed.store.purchases.intents(JOB, [IntentState.PLANNED])
    assert (intent.token, intent.order_id) == (sold["token"], f"{JOB}-buy-0")
    deployed.await_state(killed, "CRASHED", 30)

    assert story.claimed(), "nobody has released it"
    story.let_claim_end()
    deployed.clock.jump_to(deployed.clock.now_s() + 2 * TICK_S)
    story.done(story.tick())
    (held,) = story.spot()
    assert (held.order_id, list(held.instance_ids)) == (f"{JOB}-buy-0", [sold["instance_id"]])
    assert [one["instance_id"] for one in story.sold()] == [sold["instance_id"]]
    assert [one["order_id"] for one in story.journal("Acquire")] == [sold["tags"][ORDER_TAG]]
    assert not deployed.store.purchases.intents(JOB, [IntentState.PLANNED])


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
    assert story.done(beside) == f"{JOB}: skipped: another tick of this job is running"
    assert story.claimed()
    at_work.resume()
    assert story.done(acts) == f"{JOB}: wait"
    assert len(story.journal("TickDue")) == before + 1


def test_a_renewal_is_booked_once_and_decided_once_however_often_it_is_started(story: Story) -> None:
    deployed = story.deployed
    (allocation,) = [record.allocation for record in story.spot()]
    name = f"renew-{allocation.allocation_id}-h0"
    due_s = allocation.launched_at_s + HOUR_S - LEAD_S
    assert deployed.runs(RENEW) == [], "it is not due soon"
    deployed.clock.jump_to(due_s - 2 * TICK_S + 10)
    for _ in range(2):
        story.done(story.tick())
    (booked,) = deployed.runs(RENEW)
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


def test_an_ended_job_tells_its_result_to_every_run_that_asks(story: Story) -> None:
    deployed = story.deployed
    first = story.runs["first"]
    deployed.python("-m", "proteus_spot.flows.cli.main", "stop", JOB)
    story.done(story.tick())  # ticks carry it out
    deployed.await_state(first, "COMPLETED", 60)
    job = deployed.store.jobs.job(JOB)
    assert job.state is JobState.STOPPED
    sold = deployed.market_log()
    custom = deployed.start(TRAIN, {"spec": SPEC})
    deployed.retry(first)
    deployed.await_state(custom, "COMPLETED", 60)
    wait_until(lambda: deployed.run(first)["run_count"] == 2, "the retry of what is done", 40)
    deployed.await_state(first, "COMPLETED", 40)
    assert deployed.store.jobs.job(JOB) == job
    assert [one["instance_id"] for one in deployed.market_log()] == [one["instance_id"] for one in sold]

    story.done(story.tick())  # books what has begun
    now_s = int(deployed.clock.now_s())
    bill = bill_micros(deployed.market_log(), deployed.directory / "prices.csv", ON_DEMAND_USD, now_s)
    assert deployed.store.purchases.spent(JOB) == bill, "money spent is the sum of the ledger, after all of this"
