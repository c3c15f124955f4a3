"""Purchases that are refused, each by its class, and jobs that go on after a failure."""

import re
from dataclasses import replace

import pytest

from proteus_spot.bidding.market.model import EndCause, InstanceFact, LaunchRequest
from proteus_spot.bidding.market.spot_market import AccessRefused, BadRequest, LaunchRefused
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.state.records import JobState, ObservationKind
from proteus_spot.tasks.job_records import record_job, settle_job, ticking_jobs
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_job, reopen_job
from proteus_spot.tasks.market.purchases.reliable_purchases import release_reliable_tier
from proteus_spot.tasks.market.purchases.sending import PurchaseBlocked, buy
from proteus_spot.tasks.market.purchases.waiting import what_purchases_wait_for
from tests.support.purchases import TICK_S, alive, opened, patched, refusing, secure, states
from tests.support.task_runtime import BEGIN_S, MARKET, TaskRuntime, plain, spec


def test_a_controllers_machine_that_cannot_be_bought_again_is_waited_for_and_bought_when_there_is_capacity(
    here: TaskRuntime,
) -> None:
    here.begin(spec())
    here.tick(spec())
    machine = next(fact for fact in here.facts(spec()) if fact.bid_micros is None)
    here.clock.at_s += 600
    here.market.terminate([machine.instance_id])
    here.tick(spec())
    here.market.add_fault(Fault(FaultKind.CAPACITY, operation="launch", times=2))
    for tries in range(1, 3):
        waits = secure(here)
        assert "waits" in str(waits)
        assert "InsufficientInstanceCapacity" in str(waits)
        job = here.store.jobs.job("job")
        assert job.state is JobState.WAITING
        line = what_purchases_wait_for(here.store, job)
        assert line.startswith(f"{MARKET}: InsufficientInstanceCapacity: ")
        assert line.endswith("asked for again at each tick, in the same market")
        assert secure(here) is not None, "at most once a tick"
        assert list(states(here).values()).count("refused") == tries
        here.clock.at_s += TICK_S
    assert secure(here) is None
    assert what_purchases_wait_for(here.store, here.store.jobs.job("job")) == ""
    held = [r.order_id for r in here.store.purchases.allocations("job", alive=True) if r.allocation.bid_micros is None]
    assert held == ["job-reliable-0-again-3"]


@pytest.mark.parametrize(
    "error",
    [
        AccessRefused("RequestExpired", "Request has expired."),
        AccessRefused("ExpiredToken", "The security token included in the request is expired"),
        AccessRefused("UnauthorizedOperation", "You are not authorized to perform: ec2:RunInstances"),
        BadRequest("InvalidAMIID.NotFound", "The image id '[ami-1]' does not exist"),
        BadRequest("InvalidSubnetID.NotFound", "The subnet ID 'subnet-1' does not exist"),
    ],
    ids=lambda error: error.code,
)
def test_credentials_and_settings_that_are_wrong_raise_an_alarm_and_the_job_stays_as_it_is(
    here: TaskRuntime, error: Exception
) -> None:
    opened(here)
    with patched(here, launch=refusing(error)):
        for _ in range(3):
            with pytest.raises(
                PurchaseBlocked, match="^job job: the reliable tier cannot be bought: .*" + re.escape(str(error))
            ):
                secure(here)
            assert here.store.jobs.job("job").state is JobState.STARTING
            assert states(here) == {"job-reliable-0": "planned"}
            assert "each tick tries again" in what_purchases_wait_for(here.store, here.store.jobs.job("job"))
            here.clock.at_s += TICK_S
    assert secure(here) is None, "once it is fixed"
    assert states(here) == {"job-reliable-0": "done"}


def test_a_setting_that_is_mended_is_in_the_next_request_unless_the_first_may_have_bought(here: TaskRuntime) -> None:
    opened(here)
    sent: list[LaunchRequest] = []

    def wrong(request: LaunchRequest) -> list[InstanceFact]:
        sent.append(request)
        raise BadRequest("InvalidAMIID.NotFound", "no such image")

    fixed = here.runtime.settings.model_copy(update={"node_python": "/opt/python"})
    for doubtful in (False, True):
        with patched(here, launch=wrong):
            with pytest.raises(PurchaseBlocked):
                secure(here)
            here.clock.at_s += TICK_S
            if doubtful:
                here.store.purchases.begin_sending("job-reliable-0", {}, here.clock.at_s)
            here.runtime = replace(here.runtime, settings=fixed)
    assert "/opt/python" not in sent[0].user_data
    assert "/opt/python" in sent[1].user_data


def test_a_quota_means_fewer_machines_and_the_user_hears_of_it(here: TaskRuntime) -> None:
    here.begin(spec(max_vcpus=8, allocation_vcpus=8))
    job = spec(max_vcpus=8, allocation_vcpus=8)
    launch = here.market.launch

    def limited(request: LaunchRequest) -> list[InstanceFact]:
        if request.count > 1:
            raise LaunchRefused("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
        return launch(request)

    reasons = []
    with patched(here, launch=limited):
        for _ in range(6):
            (order,) = here.tick(job)
            reasons.append(order.decision.reason)
            here.clock.at_s += TICK_S
    counts = [intent.params["count"] for intent in here.store.purchases.intents("job") if "buy" in intent.order_id]
    assert counts == [4, 2, 1]
    assert sum(fact.bid_micros is not None for fact in alive(here)) == 1
    assert "the account's quota allows 2 spot vCPUs" in reasons[2]
    assert "MaxSpotInstanceCountExceeded" not in states(here)
    here.clock.at_s += 3600
    here.tick(job)
    assert here.store.purchases.intents("job")[-1].params["count"] > 1, "the quota may be higher now"


def test_machines_that_never_ran_are_named_with_the_reason_and_not_bought_every_tick(here: TaskRuntime) -> None:
    here.begin(spec())
    here.market.add_fault(Fault(FaultKind.DIE, operation="launch", code="Client.VolumeLimitExceeded"))
    for _ in range(5):
        here.tick(spec())
        here.clock.at_s += TICK_S
    dead = [fact for fact in here.market.log() if fact.end_cause is EndCause.FAILED]
    assert len(dead) == 2, "one purchase of two machines in ten minutes"
    answer = here.store.purchases.intent("job-buy-0").answer
    assert answer is not None
    assert answer["code"] == "Client.VolumeLimitExceeded"


def test_machines_that_end_by_themselves_at_once_are_charged_named_and_not_bought_every_tick(here: TaskRuntime) -> None:
    here.begin(spec())
    for _ in range(8):
        here.tick(spec())
        for fact in alive(here):
            if fact.bid_micros is not None:
                here.market.shut_down(fact.instance_id)
        here.clock.at_s += TICK_S
    spot = [fact for fact in here.market.log() if fact.bid_micros is not None]
    assert len(spot) == 4, "two purchases of two machines in a quarter of an hour"
    assert {record.end_cause for record in here.store.purchases.allocations("job") if record.allocation.bid_micros} == {
        EndCause.USER
    }, "they ran, so they are charged"
    line = what_purchases_wait_for(here.store, here.store.jobs.job("job"))
    assert "Client.InstanceInitiatedShutdown" in line
    assert line.endswith("the market is left alone for a while")


def test_a_request_that_is_refused_in_one_market_leaves_the_others(here: TaskRuntime) -> None:
    here.begin(spec())
    error = BadRequest("InvalidSubnetID.NotFound", "The subnet ID 'subnet-1' does not exist")
    with patched(here, launch=refusing(error)):
        (order,) = here.tick(spec())
        outcome = plain(buy)(spec(), JobEngine("job"), order)
    assert outcome.blocked or outcome.line == "answered meanwhile", "the alarm stays"
    assert states(here)["job-buy-0"] == "refused"
    assert JobEngine("job").refresh().holdings.open_orders == {}
    assert JobEngine("job").refresh().holdings.cooling.keys() == {order.market}


def test_reliable_machines_that_die_of_capacity_never_fail_the_job(here: TaskRuntime) -> None:
    opened(here)
    here.market.add_fault(Fault(FaultKind.DIE, operation="launch", code="Server.InternalError", times=8))
    for _ in range(9):
        secure(here)
        here.clock.at_s += 10
        here.tick(spec())
        here.clock.at_s += 610
    assert here.store.jobs.job("job").state is not JobState.FAILED
    assert len([fact for fact in alive(here) if fact.bid_micros is None]) == 1
    assert here.store.purchases.spent("job") <= 105_000, "launches that failed cost nothing"


def test_a_reliable_machine_that_never_ran_raises_an_alarm_and_is_not_bought_every_tick(here: TaskRuntime) -> None:
    opened(here)
    here.market.add_fault(Fault(FaultKind.DIE, operation="launch", code="Client.InternalError", times=1))
    assert secure(here) is None
    here.clock.at_s += 10
    here.tick(spec())
    for _ in range(4):
        with pytest.raises(PurchaseBlocked, match=r"Client\.InternalError"):
            secure(here)
        here.clock.at_s += TICK_S
    here.clock.at_s += 600
    assert secure(here) is None
    assert len([fact for fact in here.market.log() if fact.bid_micros is None]) == 2


def test_a_job_that_failed_goes_on_under_its_id(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())
    plain(close_job)(JobEngine("job"), None, "the application raised")
    plain(release_reliable_tier)(JobEngine("job"))
    failed = here.store.jobs.job("job")
    assert (failed.state, failed.failure) == (JobState.FAILED, "the application raised")
    here.clock.at_s += 600
    here.store.jobs.observe("job", BEGIN_S, ObservationKind.CLOCK, {"clock": 2, "state": "running"})
    plain(reopen_job)(JobEngine("job"))
    plain(reopen_job)(JobEngine("job"))
    seen = here.store.jobs.last_observation("job", ObservationKind.CLOCK)
    assert seen is not None
    assert seen.payload == {}, "the time that it was not running counts as no standstill"
    job = here.store.jobs.job("job")
    assert (job.state, job.failure, job.ended_at_s) == (JobState.STARTING, None, None)
    assert not JobEngine("job").refresh().holdings.closed
    kinds = [entry.record["kind"] for entry in here.store.journals.entries("job")]
    assert kinds.count("JobReopened") == 1
    assert secure(here) is None
    held = [r.order_id for r in here.store.purchases.allocations("job", alive=True) if r.allocation.bid_micros is None]
    assert held == ["job-reliable-0-again-1"]
    plain(close_job)(JobEngine("job"), {"clocks": 3})
    assert here.store.jobs.job("job").state is JobState.FINISHED


def test_a_job_that_was_settled_before_it_went_on_gets_ticks_to_its_last_hour(here: TaskRuntime) -> None:
    here.begin(spec())
    plain(close_job)(JobEngine("job"), None, "it broke")
    plain(release_reliable_tier)(JobEngine("job"))
    settle_job("job", int(here.clock.at_s))
    assert ticking_jobs() == []
    here.clock.at_s += 600
    plain(reopen_job)(JobEngine("job"))
    assert ticking_jobs() == ["job"]
    secure(here)
    plain(close_job)(JobEngine("job"), {"clocks": 3})
    plain(release_reliable_tier)(JobEngine("job"))
    assert ticking_jobs() == ["job"], "what it has cost since is not booked yet"
    settle_job("job", int(here.clock.at_s))
    assert ticking_jobs() == []


def test_a_job_that_failed_before_it_was_opened_starts_again(here: TaskRuntime) -> None:
    plain(record_job)(spec())
    plain(close_job)(JobEngine("job"), None, "no prices")
    plain(reopen_job)(JobEngine("job"))
    assert here.store.jobs.job("job").state is JobState.STARTING
