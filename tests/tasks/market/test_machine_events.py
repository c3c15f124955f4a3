"""Events of the deployment's queue, dealt with as what a machine reports itself."""

import logging
from pathlib import Path
from typing import Any

import pytest

import proteus_spot.flows.allocation_tick
import proteus_spot.tasks.market.machine_events
from proteus_spot.bidding.facts.records import Rebalance, Source
from proteus_spot.bidding.market.spot_market import MarketUnreachable
from proteus_spot.flows.allocation_tick import allocation_tick
from proteus_spot.infra.ec2.event_messages import RESERVATION_WARNINGS
from proteus_spot.infra.simulated_ec2.event_queue import SimEvents, event_message
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.facts.rebalances import record_rebalances
from proteus_spot.tasks.market.machine_events import is_time_to_ask, taken_events
from tests.support.flow_processes import run_coroutine
from tests.support.local_cluster import LocalCluster
from tests.support.task_runtime import BEGIN_S, MARKET, TaskRuntime, spec

JOB = spec(rules="today", policy="deadline", billing="per-second-first-hour-free", allocation_vcpus=None, max_vcpus=8)
STRANGER = "i-0fedcba9876543210"


@pytest.fixture
def queue(here: TaskRuntime) -> SimEvents:
    """The queue of a world in which a job has four spot machines."""
    events = SimEvents(here.market)
    here.use_events(events)
    here.begin(JOB)
    here.tick(JOB)
    here.clock.at_s += 60
    return events


def spot_ids(here: TaskRuntime) -> list[str]:
    return [fact.instance_id for fact in here.market.log() if fact.bid_micros is not None]


def noticed(job_id: str = "job") -> list[str]:
    """The machines that the engine knows to be taken."""
    positions = JobEngine(job_id).refresh().holdings.positions.values()
    return sorted(name for each in positions for name, its in each.machines.items() if its.takes_at_s is not None)


def test_a_warning_is_a_notice_of_the_engine_once_however_often_it_comes(here: TaskRuntime, queue: SimEvents) -> None:
    name = spot_ids(here)[1]
    here.market.add_fault(Fault(FaultKind.MARK, instance_id=name))
    for _ in range(2):  # the second time the machine has told it, too
        with taken_events(["job"]) as notices:
            assert [(each.instance_id, each.takes_at_s) for each in notices] == [(name, BEGIN_S + 180)]
            here.tick(JOB, {each.taken: each.takes_at_s for each in notices})
        queue.send(event_message("EC2 Spot Instance Interruption Warning", name, BEGIN_S + 60))
    told = [entry.record for entry in here.store.journals.entries("job") if entry.record.get("instance_id") == name]
    assert len([each for each in told if each["kind"] == "MachineNoticed"]) == 1


def test_the_warning_of_a_reservation_is_the_same_notice(here: TaskRuntime, queue: SimEvents) -> None:
    name = spot_ids(here)[0]
    ends = {"instance-action": "terminate", "instance-termination-time": "2016-06-03T00:02:30Z"}
    queue.send(event_message(RESERVATION_WARNINGS[0], name, BEGIN_S + 30, **ends))
    with taken_events(["job"]) as notices:
        here.tick(JOB, {each.taken: each.takes_at_s for each in notices})
    assert [each.takes_at_s for each in notices] == [BEGIN_S + 150]
    assert noticed() == [name]
    assert queue.receive() == []


def test_a_recommendation_is_a_fact_that_the_machine_does_not_repeat(here: TaskRuntime, queue: SimEvents) -> None:
    name = spot_ids(here)[0]
    here.market.add_fault(Fault(FaultKind.REBALANCE, instance_id=name))
    with taken_events(["job"]) as notices:
        assert notices == []
    here.clock.at_s += 10
    record_rebalances(here.store.purchases.allocations("job"), {name: BEGIN_S + 70}, Source.METADATA)
    assert here.store.markets.rebalances([MARKET], 0) == [Rebalance(BEGIN_S + 60, MARKET, name, Source.EVENTS)]
    assert queue.receive() == []


def test_events_of_strangers_and_of_jobs_that_are_not_ticked_stay(here: TaskRuntime, queue: SimEvents) -> None:
    own = spot_ids(here)[0]
    queue.send(event_message("EC2 Instance Rebalance Recommendation", STRANGER, BEGIN_S))
    queue.send(event_message("EC2 Spot Instance Interruption Warning", own, BEGIN_S))
    for jobs in ([], ["another"]):
        with taken_events(jobs) as notices:
            assert notices == []
    assert {event.instance_id for event in queue.receive()} == {STRANGER, own}
    assert here.store.markets.rebalances([MARKET], 0) == []


def test_what_a_failed_tick_was_told_comes_again(here: TaskRuntime, queue: SimEvents) -> None:
    queue.send(event_message("EC2 Spot Instance Interruption Warning", spot_ids(here)[0], BEGIN_S))
    with pytest.raises(RuntimeError), taken_events(["job"]):
        raise RuntimeError
    with taken_events(["job"]) as notices:
        assert len(notices) == 1
    assert queue.receive() == []


def test_a_machine_that_has_ended_needs_no_notice(here: TaskRuntime, queue: SimEvents) -> None:
    name = spot_ids(here)[0]
    here.market.add_fault(Fault(FaultKind.KILL, instance_id=name))
    here.tick(JOB)
    queue.send(event_message("EC2 Spot Instance Interruption Warning", name, BEGIN_S + 60))
    with taken_events(["job"]) as notices:
        assert notices == []
    assert queue.receive() == []


def test_a_queue_that_does_not_answer_is_logged(
    here: TaskRuntime, queue: SimEvents, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*given: Any) -> Any:
        raise MarketUnreachable("ServiceUnavailable", "later")

    queue.send(event_message("EC2 Spot Instance Interruption Warning", spot_ids(here)[0], BEGIN_S))
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(queue, "remove", fail)
        with taken_events(["job"]) as notices:
            assert len(notices) == 1
        patch.setattr(queue, "receive", fail)
        with taken_events(["job"]) as notices:
            assert notices == []
    lines = [record.getMessage() for record in caplog.records if record.name.endswith("market.machine_events")]
    assert len(lines) == 2
    assert all(line.startswith("the queue of machine events does not answer: ") for line in lines)


def test_without_a_queue_nothing_is_asked(here: TaskRuntime) -> None:
    assert not is_time_to_ask()
    with taken_events(["job"]) as notices:
        assert notices == []


def test_between_ticks_it_is_asked_as_often_as_a_machine_looks(here: TaskRuntime, queue: SimEvents) -> None:
    assert [is_time_to_ask() for _ in range(3)] == [True, False, False]


def test_the_tick_gets_the_notices_of_each_job(
    here: TaskRuntime, queue: SimEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticked: list[Any] = []
    for name, value in {"tick_each": ticked.append, "is_overtaken": bool, "emit_tick": lambda jobs: None}.items():
        monkeypatch.setattr(proteus_spot.flows.allocation_tick, name, value)
    name = spot_ids(here)[0]
    queue.send(event_message("EC2 Spot Instance Interruption Warning", name, BEGIN_S))
    run_coroutine(allocation_tick.fn())
    run_coroutine(allocation_tick.fn())
    assert ticked == [{"job": {name: BEGIN_S + 120}}, {"job": {}}]


@pytest.mark.e2e
def test_the_controller_drains_the_machine_and_counts_a_notice_once(
    here: TaskRuntime, queue: SimEvents, tmp_path: Path
) -> None:
    name, missing = spot_ids(here)[:2]
    with LocalCluster(tmp_path / "nodes") as cluster:
        cluster.start_node(name)
        cluster.wait(lambda s: len(s["nodes"]) == 1, "the node to join")
        here.store.jobs.set_controller("job", cluster.client.address)
        for _ in range(2):
            queue.send(event_message("EC2 Spot Instance Interruption Warning", name, BEGIN_S + 60))
            with taken_events(["job"]):
                pass
        (notice,) = cluster.client.status()["notices"]
        assert (notice["node"], notice["about"]["takes_at_s"]) == (name, BEGIN_S + 180)
    queue.send(event_message("EC2 Spot Instance Interruption Warning", missing, BEGIN_S + 60))
    with taken_events(["job"]) as notices:
        assert len(notices) == 1
    assert [event.instance_id for event in queue.receive()] == [missing]  # its controller does not know yet
