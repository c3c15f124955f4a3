"""A stop is a state in the database that ticks carry out, whether a controller answers or not."""

import html
from typing import Any

import pytest

from proteus_spot.bidding.market.model import LaunchRequest
from proteus_spot.infra.local_market.job_stores import JobStore
from proteus_spot.infra.state.records import IllegalTransition, JobState, UnknownRecord
from proteus_spot.infra.storage.blobs import BlobError, Blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.reports.pages.job_page import render
from proteus_spot.tasks.job_ends import is_active, request_stop
from proteus_spot.tasks.market.costs import cost_rows
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_job
from proteus_spot.tasks.market.purchases.reliable_purchases import secure_reliable_tier
from proteus_spot.tasks.market.purchases.sending import PurchaseBlocked
from proteus_spot.tasks.reports.job_list import job_lines
from proteus_spot.tasks.reports.job_report import gather
from proteus_spot.tasks.reports.job_summary import summary
from proteus_spot.tasks.training.running_controller import await_controller, follow
from tests.support.fake_controllers import FakeControllers
from tests.support.task_runtime import BEGIN_S, TaskRuntime, plain, spec
from tests.tasks.supervision.conftest import TICK_S, Ticks

HOUR_S = 3600


def alive(here: TaskRuntime) -> list[str]:
    """The orders of the machines that the market says are alive."""
    return sorted(fact.order_id for fact in here.facts(spec()) if fact.alive)


def records_of(here: TaskRuntime) -> list[str]:
    return [str(entry.record["kind"]) for entry in here.store.journals.entries("job")]


@pytest.mark.parametrize("state", [JobState.STARTING, JobState.WAITING, JobState.RUNNING])
def test_a_stop_is_written_from_every_live_state_and_its_first_reason_stays(here: TaskRuntime, state: JobState) -> None:
    here.begin(spec())
    here.store.jobs.move_job("job", state, BEGIN_S)
    assert is_active("job")
    here.clock.at_s += 7
    job = request_stop("job", "budget", by="a tick")
    assert (job.state, job.stop_why, job.stop_by, job.stop_at_s) == (JobState.STOPPING, "budget", "a tick", BEGIN_S + 7)
    here.clock.at_s += 7
    assert request_stop("job", "deadline") == job
    urgent = request_stop("job", "deadline", now=True)
    assert (urgent.stop_why, urgent.stop_at_s, urgent.stop_now) == ("budget", BEGIN_S + 7, True)
    assert request_stop("job", "deadline").stop_now, "it is not taken back"
    assert not is_active("job")
    with pytest.raises(IllegalTransition):
        here.store.jobs.move_job("job", JobState.RUNNING, BEGIN_S)


def test_a_job_that_has_ended_is_not_stopped_and_an_unknown_one_is_named(here: TaskRuntime) -> None:
    here.begin(spec())
    plain(close_job)(JobEngine("job"), {"clocks": 3})
    job = request_stop("job", "late", now=True)
    assert (job.state, job.stop_why, job.stop_now) == (JobState.FINISHED, None, False)
    with pytest.raises(UnknownRecord, match="job nothing: is not in the state database"):
        request_stop("nothing", "late")


def test_a_job_whose_controller_never_booted_ends_with_the_next_tick(here: TaskRuntime, ticks: Ticks) -> None:
    ticks.controllers.silent = True
    here.begin(spec())
    assert alive(here) == ["job-reliable-0"]
    request_stop("job", "cancelled")
    ticks()
    job = here.store.jobs.job("job")
    assert (job.state, job.failure) == (JobState.STOPPED, None)
    assert job.result == {
        "clocks": 0,
        "stopped": "cancelled",
        "without_model": "no model was saved: its training had not begun; there is no checkpoint",
    }
    assert alive(here) == []
    assert plain(await_controller)("job") is None
    plain(secure_reliable_tier)(spec(), JobEngine("job"))
    assert plain(follow)(spec(), lambda status: None)["stopped"] == "cancelled"
    assert alive(here) == [], "its own flow, if it is still there, buys nothing and ends"


def test_a_stopping_job_saves_its_model_and_keeps_spot_machines_to_the_end_of_their_paid_hour(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    here.begin(spec())
    ticks(3)
    assert alive(here) == ["job-buy-0", "job-buy-0", "job-reliable-0"]
    request_stop("job", "budget")
    ticks()
    job = here.store.jobs.job("job")
    assert (job.state, controllers.stopped[0]) == (JobState.STOPPED, "budget")
    assert job.result == controllers.result
    assert here.runtime.blobs.manifest(JobPaths("job").model) is not None
    assert alive(here) == ["job-buy-0", "job-buy-0"]
    bought = records_of(here).count("Acquire")
    (launched_s,) = {fact.launched_at_s for fact in here.facts(spec()) if fact.bid_micros is not None}
    while here.clock.at_s < launched_s + HOUR_S:
        ticks()
    assert alive(here) == []
    assert records_of(here).count("Acquire") == bought
    assert "Renew" not in records_of(here)
    assert not here.store.purchases.allocations("job", alive=True)


def test_the_last_loss_is_still_shown_when_the_job_has_stopped(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    here.begin(spec())
    ticks(3)
    request_stop("job", "cancelled in the Prefect UI")
    ticks()
    (line,) = job_lines(JobStore(here.store, None), [])
    assert (line.state, line.clock, line.loss) == ("stopped", controllers.clock, 1 / controllers.clock)


def test_machines_that_are_paid_by_the_second_go_with_the_job(here: TaskRuntime, ticks: Ticks) -> None:
    by_second = spec(billing="per-second-first-hour-free")
    here.begin(by_second)
    ticks(3)
    assert len(alive(here)) == 3
    request_stop("job", "budget")
    ticks(2)
    assert alive(here) == []


def test_a_stop_waits_for_a_silent_controller_and_then_ends_from_the_checkpoint(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    ticks(3)
    monkeypatch.setattr("proteus_spot.tasks.supervision.job_stop.newest_clock", lambda _blobs, _job: 2)
    controllers.silent = True
    request_stop("job", "asked")
    ticks(2)
    assert here.store.jobs.job("job").state is JobState.STOPPING, "four minutes of silence"
    assert "job-reliable-0" in alive(here)
    ticks(2)
    job = here.store.jobs.job("job")
    assert job.state is JobState.STOPPED
    assert job.result == {
        "clocks": 2,
        "stopped": "asked",
        "without_model": "no model was saved: no controller answered for 5 minutes; the last checkpoint is of clock 2",
    }
    assert "job-reliable-0" not in alive(here)


def test_a_stop_does_not_wait_for_a_machine_that_has_ended(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    here.begin(spec())
    ticks(2)
    machine = controllers.machine()
    assert machine is not None
    request_stop("job", "asked")
    here.market.terminate([machine.instance_id])
    ticks(2)  # the first one finds it ended
    assert here.store.jobs.job("job").state is JobState.STOPPED
    assert controllers.machine() is None, "none is bought for a job that is to stop"


def test_a_clock_that_never_ends_does_not_keep_a_stopping_job(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    here.begin(spec())
    ticks(2)
    controllers.stuck = True
    request_stop("job", "asked")
    ticks.minutes(50)
    assert here.store.jobs.job("job").state is JobState.STOPPING
    ticks.minutes(14)
    job = here.store.jobs.job("job")
    assert job.state is JobState.STOPPED
    assert "its controller did not end the clock under way in time" in dict(job.result or {})["without_model"]
    assert "job-reliable-0" not in alive(here)


def test_a_controller_that_has_started_anew_saves_the_model_of_its_checkpoint(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    here.begin(spec())
    ticks(2)
    controllers.started.clear()
    request_stop("job", "asked")
    ticks()
    assert controllers.started == ["tcp://job-reliable-0"]
    assert here.store.jobs.job("job").result == controllers.result


def test_a_job_that_finishes_while_it_is_to_stop_has_finished(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    here.begin(spec())
    ticks(2)
    request_stop("job", "asked")
    result = {"clocks": 9, "stopped": None, "lost_micro_tasks": 0}
    here.runtime.blobs.write_set(JobPaths("job").model, {}, result)
    ticks()
    assert (here.store.jobs.job("job").state, here.store.jobs.job("job").result) == (JobState.FINISHED, result)


def test_machines_end_at_once_where_that_was_asked_those_outside_the_book_too(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    here.begin(spec())
    ticks(3)
    found = next(fact for fact in here.facts(spec()) if fact.bid_micros is not None)
    request_stop("job", "asked", now=True)
    ticks()
    job = here.store.jobs.job("job")
    assert job.state is JobState.STOPPED
    assert controllers.checkpoints == 1
    assert dict(job.result or {})["without_model"].startswith("no model was saved: its machines were ended at once")
    assert alive(here) == []
    late = here.market.launch(request_like(found))  # a purchase that was on its way
    assert [fact.alive for fact in late] == [True]
    ticks()
    assert alive(here) == []


def fail_the_bucket(patch: pytest.MonkeyPatch) -> None:
    def fail(blobs: Blobs, *_: Any) -> None:
        raise BlobError(f"{blobs.url_of('x')}: SlowDown")

    for name in ("read_bytes", "write_bytes", "exists", "list"):
        patch.setattr(Blobs, name, fail)


def test_without_a_bucket_a_tick_ends_machines_at_once_and_closes_the_job_when_it_is_back(
    here: TaskRuntime, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    ticks(3)
    request_stop("job", "asked", now=True)
    with monkeypatch.context() as patch:
        fail_the_bucket(patch)
        with pytest.raises(PurchaseBlocked, match=r"job job: the bucket fails, so nothing is bought: .*SlowDown"):
            ticks()
    assert (alive(here), here.store.jobs.job("job").state) == ([], JobState.STOPPING)
    ticks()
    assert here.store.jobs.job("job").state is JobState.STOPPED


def test_without_a_bucket_a_tick_observes_and_books_and_buys_nothing(
    here: TaskRuntime, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    ticks(3)
    held, spent = len(alive(here)), here.store.purchases.spent("job")
    with monkeypatch.context() as patch:
        fail_the_bucket(patch)
        here.market.terminate([fact.instance_id for fact in here.facts(spec()) if fact.bid_micros is None])
        for _ in range(40):
            with pytest.raises(PurchaseBlocked, match="the bucket fails"):
                ticks()
    assert alive(here) == [
        r.order_id for r in here.store.purchases.allocations("job", alive=True) for _ in r.living_ids
    ]
    assert len(alive(here)) <= held - 1
    assert here.store.purchases.spent("job") > spent
    ticks(2)
    assert "job-reliable-0-again-1" in alive(here)


def request_like(fact: Any) -> Any:
    return LaunchRequest("job-buy-9", fact.market, 1, fact.bid_micros, "", dict(fact.tags))


def test_the_follower_of_a_stopped_job_ends_with_its_result(
    here: TaskRuntime, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    ticks(2)
    request_stop("job", "budget")
    ticks()
    result = plain(follow)(spec(), lambda status: None)
    assert result["stopped"] == "budget"
    assert here.clock.at_s < BEGIN_S + 5 * TICK_S


def test_why_a_job_was_stopped_is_in_its_list_its_costs_its_figures_and_its_report(
    here: TaskRuntime, ticks: Ticks, controllers: FakeControllers
) -> None:
    here.begin(spec())
    ticks(3)
    request_stop("job", "budget <b>", by="a tick")

    def shown() -> list[str]:
        (line,) = job_lines(JobStore(here.store, None), [])
        page = gather(here.store, "job")
        assert f'<p class="stop">{html.escape(page.stop)}</p>' in render(page)
        return [line.why, *{row.why for row in cost_rows(["job"])}, summary("job")["why"], page.stop]

    assert shown() == ["budget <b>"] * 4, "while it is to stop"
    controllers.silent = True
    ticks.minutes(8)
    assert here.store.jobs.job("job").state is JobState.STOPPED
    unsaved = "no model was saved: no controller answered for 5 minutes; there is no checkpoint"
    assert shown() == [f"budget <b>; {unsaved}"] * 4
