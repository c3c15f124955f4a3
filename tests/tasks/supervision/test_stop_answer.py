"""The answer of `proteus stop`: no machine of the job lives that it does not name, and none longer than it says."""

from collections.abc import Iterator
from typing import Any

import pytest

from proteus_spot.bidding.market.model import LaunchRequest
from proteus_spot.bidding.market.spot_market import MarketUnreachable
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.state.records import JobState, ObservationKind
from proteus_spot.tasks.job_records import record_job
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_job
from proteus_spot.tasks.supervision.stop_answer import StopAnswer, stop_job
from tests.support.fake_controllers import FakeControllers
from tests.support.task_runtime import TaskRuntime, plain, spec
from tests.tasks.supervision.conftest import TICK_S, Ticks

HOUR_S = 3600


@pytest.fixture(autouse=True)
def settings(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The settings of a command name the same database."""
    monkeypatch.setenv("PROTEUS_DATABASE_URL", here.runtime.settings.database_url)
    load_settings.cache_clear()
    yield
    load_settings.cache_clear()


def living(here: TaskRuntime) -> set[str]:
    return {fact.instance_id for fact in here.market.log() if fact.alive}


def named(answer: StopAnswer) -> dict[str, float | None]:
    return {machine.instance_id: machine.until_s for machine in answer.stays}


def check_promise(here: TaskRuntime, ticks: Ticks, answer: StopAnswer) -> None:
    """See that every machine lives no longer than the answer says, with ticks, and for two more hours nothing else."""
    until_s = named(answer)
    for _ in range(2 * HOUR_S // TICK_S):
        ticks()
        late = {name for name in living(here) if (until_s.get(name) or 0.0) < here.clock.at_s}
        assert not late, (here.clock.at_s, until_s)
    assert living(here) == set()


@pytest.mark.parametrize("billing", ["hourly-refund", "per-second-first-hour-free"])
@pytest.mark.parametrize("after_minutes", [4, 30, 58])
def test_every_machine_is_named_and_ends_when_the_answer_says(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers, billing: str, after_minutes: int
) -> None:
    here.begin(spec(billing=billing))
    ticks.minutes(after_minutes)
    answer = stop_job("job", "enough")
    assert (answer.state, answer.why, answer.failed) == ("stopping", "enough", False)
    assert set(named(answer)) == living(here)
    assert len(answer.stays) == 3
    assert controllers.stopped == ["enough"], "the controller is asked at once"
    tiers = {machine.tier: machine.why for machine in answer.stays}
    assert tiers["reliable"] == "the training runs on it until the model is saved, or earlier"
    paid = "its hour is paid; an eviction until then would refund it"
    assert tiers["transient"] == (paid if billing == "hourly-refund" else "the next tick ends it")
    assert "its controller saves the model after the clock under way; a tick (every 120 s)" in answer.next[0]
    assert "if no tick runs, its machines end by themselves, at the latest at" in answer.next[1]
    assert answer.next[-1] == "`proteus stop job --now` ends its machines at once"
    check_promise(here, ticks, answer)


def test_without_a_controller_the_job_is_stopped_all_the_same(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    controllers.silent = True
    here.begin(spec())
    answer = stop_job("job", "enough")
    assert answer.state == "stopping"
    assert set(named(answer)) == living(here)
    assert answer.next[0].startswith("no controller answers yet; a tick (every 120 s) closes the job, from its last")
    check_promise(here, ticks, answer)
    assert stop_job("job", "again").state == "stopped"
    assert stop_job("job", "again").stays == []


def test_a_machine_that_the_book_lacks_is_named_and_ended(here: TaskRuntime, ticks: Ticks) -> None:
    here.begin(spec())
    (first,) = here.facts(spec())
    tags = dict(first.tags) | {"proteus:tier": "transient", "proteus:order": "job-buy-7"}
    here.market.launch(LaunchRequest("job-buy-7", first.market, 1, 40_000, "", tags))
    answer = stop_job("job", "enough")
    assert set(named(answer)) == living(here)
    assert len(answer.stays) == 2
    check_promise(here, ticks, answer)


def test_machines_end_at_once(here: TaskRuntime, ticks: Ticks, controllers: FakeControllers) -> None:
    here.begin(spec())
    ticks(3)
    before = living(here)
    answer = stop_job("job", "enough", at_once=True)
    assert (answer.state, answer.stays, answer.failed) == ("stopped", [], False)
    assert set(answer.ended) == before
    assert living(here) == set()
    assert controllers.checkpoints == 1
    assert not here.store.purchases.allocations("job", alive=True), "it is recorded"
    assert here.store.purchases.spent("job") > 0, "and booked"
    again = stop_job("job", "enough", at_once=True)
    assert (again.ended, again.failed) == ([], False)


def test_machines_that_were_ended_stay_ended_whatever_the_reads_of_the_market_show(
    here: TaskRuntime, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    ticks(3)
    before = living(here)
    shown = here.market.describe()
    monkeypatch.setattr(here.market, "describe", lambda *_: shown)
    answer = stop_job("job", "enough", at_once=True)
    assert set(answer.ended) == before
    assert (answer.stays, answer.next, answer.failed) == ([], [], False)


def test_spot_machines_of_an_ended_job_are_named_and_can_be_ended_at_once(here: TaskRuntime, ticks: Ticks) -> None:
    here.begin(spec())
    ticks(3)
    plain(close_job)(JobEngine("job"), {"clocks": 3})
    answer = stop_job("job", "too late")
    assert (answer.state, answer.why) == ("finished", "")
    assert set(named(answer)) == living(here)
    assert {machine.why for machine in answer.stays if machine.tier == "reliable"} == {"the next tick ends it"}
    ended = stop_job("job", "too late", at_once=True)
    assert set(ended.ended) == set(named(answer))
    assert living(here) == set()


@pytest.mark.parametrize("at_once", [False, True])
def test_where_the_market_does_not_answer_the_book_is_named_and_ticks_go_on(
    here: TaskRuntime, ticks: Ticks, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    here.begin(spec())
    ticks(3)

    def away(*_: Any) -> Any:
        raise MarketUnreachable("RequestLimitExceeded", "slow down")

    with monkeypatch.context() as patch:
        patch.setattr(here.market, "describe", away)
        answer = stop_job("job", "enough", at_once=at_once)
    assert answer.failed is at_once
    assert set(named(answer)) == living(here)
    assert answer.notes == [
        "the market does not answer (RequestLimitExceeded: slow down); the machines are those of the state database"
    ]
    assert here.store.jobs.job("job").state is JobState.STOPPING
    ticks()
    assert here.store.jobs.job("job").state is JobState.STOPPED
    if at_once:
        assert living(here) == set()


def test_a_purchase_that_was_not_answered_is_named(here: TaskRuntime, ticks: Ticks) -> None:
    here.begin(spec())
    here.store.purchases.plan("job-buy-0", "job", "acquire", "job-buy-0", {}, here.clock.at_s)
    answer = stop_job("job", "enough")
    assert answer.notes == ["the purchase job-buy-0 was not answered yet; a machine of it would be ended by a tick"]


def test_the_answer_for_an_ended_job_names_the_next_of_its_queue_that_takes_its_machines_over(
    here: TaskRuntime, ticks: Ticks
) -> None:
    here.begin(spec().model_copy(update={"queue": "nightly"}))
    ticks(3)
    plain(record_job)(spec("two").model_copy(update={"queue": "nightly"}))
    plain(close_job)(JobEngine("job"), {"clocks": 3})
    answer = stop_job("job", "enough")
    assert set(named(answer)) == living(here)
    assert len(answer.stays) == 3
    assert {(m.until_s, m.why) for m in answer.stays} == {(None, "job two of its queue takes it over, or lets it go")}
    assert stop_job("job", "enough", at_once=True).stays == []


def test_the_answer_for_a_failed_job_that_was_submitted_again_says_how_its_wait_is_ended(here: TaskRuntime) -> None:
    for job_id in ("job", "two"):
        plain(record_job)(spec(job_id).model_copy(update={"queue": "nightly"}))
    plain(close_job)(JobEngine("job"), None, "it raised")
    assert stop_job("job", "enough").next == []
    again = {"flow_run_id": "again", "resumes": True}
    here.store.jobs.observe("job", here.clock.at_s, ObservationKind.FOLLOWER, again)
    line = "a run of `train` that waits to have it go on is ended by Cancel in the Prefect UI"
    assert stop_job("job", "enough").next == [line]
