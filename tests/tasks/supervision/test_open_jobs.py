"""A job whose flow is dead goes on by its ticks, which hold it to its deadlines; nothing stays bought when it ends."""

from typing import Any

import pytest

import proteus_spot.tasks.training.running_controller
from proteus_spot.bidding.engine.events import AllocationGone
from proteus_spot.bidding.market.model import EndCause
from proteus_spot.bidding.market.spot_market import MarketUnreachable
from proteus_spot.infra.errors import JobFailed
from proteus_spot.infra.state.records import JobState, ObservationKind
from proteus_spot.tasks.job_records import record_job, ticking_jobs, training_begun
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.ingest import fetch_prices, history_days, markets_of
from proteus_spot.tasks.market.job_opening import close_job, open_job, reopen_job
from proteus_spot.tasks.training.running_controller import follow
from tests.support.fake_controllers import FakeControllers
from tests.support.task_runtime import ON_DEMAND, TaskRuntime, plain, spec
from tests.tasks.supervision.conftest import TICK_S, Ticks

DAY_S = 86_400


def alive(here: TaskRuntime) -> list[str]:
    """The orders of the machines that the market says are alive."""
    return sorted(fact.order_id for fact in here.facts(spec()) if fact.alive)


def orders(here: TaskRuntime) -> list[tuple[str, EndCause | None]]:
    """What was bought on demand, and how it ended."""
    return [
        (r.order_id, r.end_cause) for r in here.store.purchases.allocations("job") if r.allocation.bid_micros is None
    ]


def end_controllers_machine(here: TaskRuntime, controllers: FakeControllers) -> None:
    machine = controllers.machine()
    assert machine is not None
    here.market.terminate([machine.instance_id])


def test_the_reliable_tier_of_a_failed_job_is_released_by_a_tick(here: TaskRuntime, ticks: Ticks) -> None:
    here.begin(spec())
    ticks(2)
    plain(close_job)(JobEngine("job"), None, "the application raised")  # and its flow dies before the release
    ticks()
    assert "job-reliable-0" not in alive(here)
    while ticking_jobs():
        ticks()
    assert alive(here) == []
    assert here.store.jobs.job("job").failure == "the application raised"
    reliable = [line for line in here.store.purchases.ledger("job") if "reliable" in line.allocation_id]
    assert [line.amount_micros for line in reliable] == [ON_DEMAND]


def test_a_release_that_dies_is_repeated_by_the_next_tick(
    here: TaskRuntime, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    plain(close_job)(JobEngine("job"), {"clocks": 3})
    terminate = here.market.terminate

    def throttled(_ids: Any) -> None:
        raise MarketUnreachable("RequestLimitExceeded", "slow down")

    monkeypatch.setattr(here.market, "terminate", throttled)
    for _ in range(3):
        with pytest.raises(MarketUnreachable):
            ticks()
    assert alive(here) == ["job-reliable-0"]
    monkeypatch.setattr(here.market, "terminate", terminate)
    ticks()
    assert alive(here) == []


def test_a_controllers_machine_that_dies_without_a_flow_is_bought_again_and_trains_on(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    here.begin(spec())
    ticks(3)
    end_controllers_machine(here, controllers)
    first, second = "job-reliable-0", "job-reliable-0-again-1"
    ticks()
    assert orders(here) == [(first, EndCause.USER), (second, None)], "in the tick that finds its end"
    clock = controllers.clock
    ticks()
    assert controllers.started == [f"tcp://{first}", f"tcp://{second}"]
    assert here.store.jobs.job("job").controller_address == f"tcp://{second}"
    ticks()
    assert controllers.clock > clock - 1, "it goes on from the last clock that was kept"
    assert orders(here) == [(first, EndCause.USER), (second, None)]
    assert here.store.jobs.job("job").state is JobState.RUNNING


def test_the_controllers_machine_is_bought_again_while_another_of_the_tier_lives(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    job = spec()
    here.begin(job.model_copy(update={"reliable": job.reliable.model_copy(update={"count": 2})}))
    ticks(2)
    end_controllers_machine(here, controllers)
    ticks(2)
    assert orders(here) == [
        ("job-reliable-0", EndCause.USER),
        ("job-reliable-1", None),
        ("job-reliable-0-again-1", None),
    ]


def test_one_of_several_reliable_machines_that_is_lost_is_bought_again(here: TaskRuntime, ticks: Ticks) -> None:
    job = spec()
    here.begin(job.model_copy(update={"reliable": job.reliable.model_copy(update={"count": 3})}))
    ticks(2)
    lost = next(fact for fact in here.facts(job) if fact.order_id == "job-reliable-1")
    here.market.terminate([lost.instance_id])
    ticks(3)
    assert alive(here).count("job-reliable-1") == 1
    assert alive(here).count("job-reliable-1-again-1") == 1
    assert [name for name, _ in orders(here)] == ["job-reliable-0", "job-reliable-1", "job-reliable-1-again-1"]


def test_a_reliable_machine_that_comes_back_after_another_was_bought_in_its_place_ends(
    here: TaskRuntime, ticks: Ticks
) -> None:
    here.begin(spec())
    ticks(2)
    record = here.store.purchases.allocations("job")[0]
    JobEngine("job").commit(  # given up by mistake: it lives
        lambda engine: [AllocationGone(int(here.clock.at_s), record.allocation_id, EndCause.USER)]
    )
    with pytest.MonkeyPatch.context() as patch:
        describe = here.market.describe
        patch.setattr(
            here.market, "describe", lambda *names: [f for f in describe(*names) if f.order_id != record.order_id]
        )
        ticks(1)
    assert {"job-reliable-0", "job-reliable-0-again-1"} <= {*alive(here)}
    ticks(3)
    assert "job-reliable-0" not in alive(here)
    assert "job-reliable-0-again-1" in alive(here)
    assert here.store.purchases.spent("job") >= 2 * ON_DEMAND


def test_a_controller_that_starts_anew_on_its_machine_gets_its_job_again(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    here.begin(spec())
    ticks(2)
    controllers.started.clear()
    ticks()
    assert controllers.started == ["tcp://job-reliable-0"]
    assert orders(here) == [("job-reliable-0", None)]


def test_a_reliable_tier_that_is_lost_again_and_again_ends_the_job(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    here.begin(spec())
    for _ in range(12):
        if controllers.machine() is not None:
            end_controllers_machine(here, controllers)
        ticks(2)
    job = here.store.jobs.job("job")
    assert job.state is JobState.FAILED
    assert "the reliable tier was lost 6 times; find out what ends it" in str(job.failure)
    assert len(orders(here)) == 6
    assert "reliable" not in " ".join(alive(here))


def test_a_job_whose_flow_died_before_its_first_purchase_is_begun_by_a_tick(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    plain(record_job)(spec())
    plain(fetch_prices)(markets_of(spec()), history_days())
    plain(open_job)(spec(), JobEngine("job"))
    ticks(2)
    assert controllers.started == ["tcp://job-reliable-0"]
    assert here.store.jobs.job("job").state is JobState.RUNNING


def test_a_job_that_was_not_opened_in_time_fails_and_begins_when_it_is_run_again(
    here: TaskRuntime, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proteus_spot.tasks.supervision.cancelled_runs._cancelled", lambda run_ids: [])
    plain(record_job)(spec())
    ticks.minutes(10)
    here.store.jobs.observe("job", here.clock.at_s, ObservationKind.FOLLOWER, {"flow_run_id": "1", "resumes": False})
    ticks.minutes(14)
    assert here.store.jobs.job("job").state is JobState.STARTING, "another run had begun it"
    ticks.minutes(4)
    job = here.store.jobs.job("job")
    assert job.state is JobState.FAILED
    assert job.failure == (
        "job job: its run of `train` did not open it within 15 minutes, so nothing was bought; read the log of that "
        "run, and run `train` again: the job begins then"
    )
    plain(reopen_job)(JobEngine("job"))
    ticks.minutes(14)
    assert here.store.jobs.job("job").state is JobState.STARTING
    assert here.market.log() == []


def test_a_controller_that_never_starts_is_given_another_machine_and_then_the_job_fails(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proteus_spot.tasks.market.decisions.training_begun", training_begun)
    here.begin(spec())
    controllers.silent = True
    ticks.minutes(14)
    assert alive(here) == ["job-reliable-0"]
    ticks.minutes(4)
    assert alive(here) == ["job-reliable-0-again-1"]
    ticks.minutes(38)
    job = here.store.jobs.job("job")
    names = [name for record in here.store.purchases.allocations("job") for name in record.instance_ids]
    assert job.state is JobState.FAILED
    assert len(names) == 3
    assert job.failure == (
        f"job job: no controller answered within 15 minutes on any of 3 machines ({', '.join(names)}); read "
        f"`proteus logs job`, or the console log of {names[-1]}"
    )
    assert alive(here) == []


def test_a_controller_that_falls_silent_for_long_is_given_another_machine(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    here.begin(spec())
    ticks(2)
    controllers.silent = True
    ticks.minutes(12)
    assert orders(here) == [("job-reliable-0", None)], "its machine may restart it"
    ticks.minutes(6)
    controllers.silent = False
    ticks()
    assert orders(here) == [("job-reliable-0", EndCause.USER), ("job-reliable-0-again-1", None)]
    assert controllers.started[-1] == "tcp://job-reliable-0-again-1"


def test_a_tick_begins_the_training_that_a_dead_flow_did_not(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    here.begin(spec())
    ticks()
    assert controllers.started == ["tcp://job-reliable-0"]
    assert here.store.jobs.job("job").state is JobState.RUNNING


def test_a_machine_that_does_not_join_is_let_go_in_time(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    here.begin(spec())
    ticks(2)
    absent, present = (fact for fact in here.facts(spec()) if fact.bid_micros is not None)
    controllers.absent = {absent.instance_id}
    ticks.minutes(12)
    assert {fact.alive for fact in here.facts(spec())} == {True}
    ticks.minutes(4)
    living = {fact.instance_id for fact in here.facts(spec()) if fact.alive}
    assert absent.instance_id not in living
    assert present.instance_id in living
    (cooled,) = [e.record for e in here.store.journals.entries("job") if e.record["kind"] == "MarketCooled"]
    assert cooled["market"] == str(absent.market)
    assert cooled["why"] == f"its machines did not join within 15 minutes ({absent.instance_id})"
    until_s = int(cooled["at_s"]) + 600
    while here.clock.at_s + TICK_S < until_s:
        ticks()
        assert len([fact for fact in here.market.log() if fact.bid_micros is not None]) == 2, "its market is cooled"
    ticks(2)
    assert len([fact for fact in here.market.log() if fact.bid_micros is not None]) > 2


def test_a_machine_has_its_time_to_join_a_controller_that_has_started_anew(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    here.begin(spec())
    ticks.minutes(30)
    end_controllers_machine(here, controllers)
    ticks(2)  # the new one is bought, and begins
    controllers.absent = {fact.instance_id for fact in here.facts(spec()) if fact.bid_micros is not None}
    ticks.minutes(12)
    assert "job-buy-0" in alive(here)
    ticks.minutes(6)
    assert "job-buy-0" not in alive(here)


def test_a_job_that_pays_and_makes_no_progress_is_stopped_and_leaves_nothing(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    here.begin(spec())
    ticks.minutes(20)
    clock = controllers.clock
    assert here.store.jobs.job("job").state is JobState.RUNNING
    controllers.stuck = True
    ticks.minutes(56)
    assert here.store.jobs.job("job").state is JobState.RUNNING
    ticks.minutes(8)
    why = f"no progress: clock {clock} was the last for 60 minutes"
    assert (here.store.jobs.job("job").stop_why, here.store.jobs.job("job").stop_by) == (why, "a tick")
    ticks.minutes(70)
    job = here.store.jobs.job("job")
    assert (job.state, dict(job.result or {})["stopped"]) == (JobState.STOPPED, why)
    ticks.minutes(62)
    assert alive(here) == []
    assert ticking_jobs() == []


def test_a_job_that_waits_for_a_node_is_not_stopped(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    ticks(2)
    describe = controllers.describe
    monkeypatch.setattr(controllers, "describe", lambda address: describe(address) | {"state": "waiting"})
    controllers.stuck = True
    ticks.minutes(180)
    assert here.store.jobs.job("job").state is JobState.WAITING
    assert "job-reliable-0" in alive(here)


def test_a_job_that_goes_on_buys_no_spot_machines_before_its_training_has_begun_again(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proteus_spot.tasks.market.decisions.training_begun", training_begun)
    address = controllers.address
    monkeypatch.setattr(controllers, "address", lambda *_: address() and "tcp://the-same-in-every-life")
    monkeypatch.setattr(proteus_spot.tasks.training.running_controller, "meet_controller", controllers.address)
    here.begin(spec())
    ticks(2)
    assert "job-buy-0" in alive(here)
    plain(close_job)(JobEngine("job"), None, "the application raised")
    ticks.minutes(70)
    assert alive(here) == []
    controllers.started.clear()
    controllers.silent = True  # its next machine boots
    plain(reopen_job)(JobEngine("job"))
    ticks(4)
    assert alive(here) == ["job-reliable-0-again-1"]
    controllers.silent = False
    ticks(2)
    assert controllers.started == ["tcp://the-same-in-every-life"]
    assert [name for name in alive(here) if "buy" in name], "what it needs is bought once it trains"


def test_a_start_whose_process_died_before_it_was_recorded_is_recorded_by_a_tick(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proteus_spot.tasks.market.decisions.training_begun", training_begun)
    here.begin(spec())
    controllers.started.append("tcp://job-reliable-0")
    ticks(2)
    assert "job-buy-0" in alive(here)


def test_a_clock_that_takes_long_is_not_taken_for_standing_still(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    ticks(2)
    describe = controllers.describe
    monkeypatch.setattr(controllers, "describe", lambda address: describe(address) | {"seconds_per_clock": 900.0})
    controllers.stuck = True
    ticks.minutes(120)
    assert here.store.jobs.job("job").state is JobState.RUNNING
    ticks.minutes(40)
    assert here.store.jobs.job("job").state is JobState.STOPPING


def test_a_model_with_lost_effects_fails_the_job_at_a_tick(here: TaskRuntime, ticks: Ticks) -> None:
    here.begin(spec())
    ticks(2)
    here.runtime.blobs.write_set("jobs/job/model", {}, {"clocks": 3, "lost_micro_tasks": 2})
    ticks(2)
    job = here.store.jobs.job("job")
    assert job.state is JobState.FAILED
    assert "the updates of 2 tasks are not in its model" in str(job.failure)
    assert "job-reliable-0" not in alive(here)


def test_nothing_is_concluded_from_the_time_without_ticks(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    here.begin(spec())
    ticks(2)
    here.clock.at_s += 3 * 3600.0
    controllers.silent = True
    ticks(2)
    assert orders(here) == [("job-reliable-0", None)], "it did not answer twice, after an outage of the ticks"
    controllers.silent = False
    ticks(2)
    assert here.store.jobs.job("job").state is JobState.RUNNING


def test_a_job_that_a_tick_has_failed_fails_its_follower(
    here: TaskRuntime, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    ticks(2)
    plain(close_job)(JobEngine("job"), None, "no controller answered")
    with pytest.raises(JobFailed, match="no controller answered"):
        plain(follow)(spec(), lambda _status: None)
