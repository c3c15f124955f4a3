"""Jobs of one queue run one after the other: the next waits, buys nothing, says what for, and can be stopped."""

import pytest
from pydantic import ValidationError

from proteus_spot.infra.errors import JobFailed
from proteus_spot.infra.local_market.job_stores import JobStore
from proteus_spot.infra.state.records import JobState, ObservationKind
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.job_ends import request_stop
from proteus_spot.tasks.job_queues import jobs_before, queue_line, turn_since_s
from proteus_spot.tasks.job_records import record_job
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_job
from proteus_spot.tasks.reports.job_list import job_lines
from proteus_spot.tasks.supervision.deadlines import check_start
from proteus_spot.tasks.supervision.turns import await_turn
from proteus_spot.tasks.training.submission import with_options
from tests.support.plain_ticks import plain_tick
from tests.support.task_runtime import TaskRuntime, plain, spec

HOUR_S = 3600


def queued(job_id: str, queue: str | None = "nightly") -> JobSpec:
    return spec(job_id).model_copy(update={"queue": queue})


def record(here: TaskRuntime, *job_ids: str, queue: str | None = "nightly") -> None:
    for job_id in job_ids:
        here.clock.at_s += 1
        plain(record_job)(queued(job_id, queue))


def before(here: TaskRuntime, job_id: str) -> list[str]:
    return [job.job_id for job in jobs_before(here.store, here.store.jobs.job(job_id))]


def end(here: TaskRuntime, job_id: str, failure: str | None = None) -> None:
    plain(close_job)(JobEngine(job_id), None if failure else {"clocks": 3}, failure)


def test_jobs_of_a_queue_wait_for_those_submitted_before_however_they_end(here: TaskRuntime) -> None:
    record(here, "third-by-name", "a-second", "b-last")
    record(here, "elsewhere", queue="other")
    record(here, "free", queue=None)
    assert before(here, "third-by-name") == before(here, "elsewhere") == before(here, "free") == []
    assert before(here, "b-last") == ["third-by-name", "a-second"]
    end(here, "third-by-name", "it raised")
    assert before(here, "a-second") == []
    assert before(here, "b-last") == ["a-second"]
    assert before(here, "third-by-name") == ["a-second", "b-last"], "one that is to go on waits for all"


def test_a_job_that_waits_buys_nothing_says_what_for_and_is_not_late_for_its_start(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    tick = plain_tick(monkeypatch)
    record(here, "one", "two", "three")
    lines = {line.job_id: line.why for line in job_lines(JobStore(here.store, None), [])}
    assert lines == {
        "one": "",
        "two": "waits in the queue nightly for job one",
        "three": "waits in the queue nightly for job one, 2 jobs before it",
    }
    here.clock.at_s += HOUR_S
    assert tick("two") == "nothing to do"
    assert (here.market.log(), here.store.jobs.job("two").state) == ([], JobState.STARTING)
    end(here, "one")
    assert queue_line(here.store, here.store.jobs.job("two")) == ""
    check_start(JobEngine("two"))
    here.clock.at_s += HOUR_S
    with pytest.raises(JobFailed, match="did not open it within 15 minutes"):
        check_start(JobEngine("two"))


def test_a_failed_job_that_waits_to_go_on_says_so(here: TaskRuntime) -> None:
    record(here, "one", "two")
    end(here, "one", "it raised")

    def why() -> str:
        return job_lines(JobStore(here.store, None), [])[0].why

    assert why() == "it raised"
    for resumes, line in ((False, "it raised"), (True, "waits in the queue nightly for job two; it raised")):
        run = {"flow_run_id": "again", "resumes": resumes}
        here.store.jobs.observe("one", here.clock.at_s, ObservationKind.FOLLOWER, run)
        assert why() == line
    end(here, "two")
    assert why() == "it raised"


def test_a_job_that_ends_while_it_waits_gives_the_next_one_no_more_time_to_begin(here: TaskRuntime) -> None:
    record(here, "one", "two", "three", "four")
    end(here, "one")
    begun_s = here.clock.at_s
    for job_id, since_s in (("four", begun_s), ("two", begun_s + HOUR_S)):
        here.clock.at_s = begun_s + HOUR_S
        end(here, job_id, "its worker was replaced")
        waiting = "two" if job_id == "four" else "three"
        assert turn_since_s(here.store, here.store.jobs.job(waiting)) == since_s


def test_a_job_that_waits_can_be_stopped(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    tick = plain_tick(monkeypatch)
    record(here, "one", "two", "three")
    request_stop("two", "asked", by="a user")
    plain(await_turn)("two")
    tick("two")
    assert here.store.jobs.job("two").state is JobState.STOPPED
    assert before(here, "three") == ["one"]


def test_the_wait_ends_with_the_job_before(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    record(here, "one", "two")
    waits: list[float] = []

    def wait_until(at_s: float, _wake: object = None) -> bool:
        waits.append(at_s)
        if len(waits) == 3:
            end(here, "one")
        return False

    monkeypatch.setattr(here.clock, "wait_until", wait_until)
    plain(await_turn)("two")
    assert len(waits) == 3


def test_the_option_puts_a_job_in_a_queue_and_a_bad_name_is_refused(here: TaskRuntime) -> None:
    assert with_options(spec("one"), {"queue": "nightly"}).queue == "nightly"
    assert with_options(queued("one"), {}).queue == "nightly"
    with pytest.raises(ValidationError, match="queue"):
        with_options(spec("one"), {"queue": "Not a name"})
    with pytest.raises(ValidationError, match="queue"):
        JobSpec.model_validate(spec("one").model_dump() | {"queue": "-"})


def test_two_failed_jobs_that_are_submitted_again_go_on_one_after_the_other(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(here, "one", "two")
    end(here, "one", "it raised")
    end(here, "two", "it raised")
    plain(await_turn)("one")  # it passes at its first look, and is not open yet
    record(here, "three")
    waits: list[str] = []

    def wait_until(_at_s: float, _wake: object = None) -> bool:
        waits.append(waiting)
        if len(waits) % 3 == 0:
            here.store.claims.release("queue/nightly", "one")  # it was not reopened in time
        return False

    monkeypatch.setattr(here.clock, "wait_until", wait_until)
    waiting = "three"
    plain(await_turn)("three")
    end(here, "three", "it raised")
    assert here.store.claims.claim("queue/nightly", "one", 60)
    waiting = "two"
    plain(await_turn)("two")
    assert waits == ["three"] * 3 + ["two"] * 3


def test_a_job_that_fails_while_it_waits_is_not_begun(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    record(here, "one", "two")

    def wait_until(_at_s: float, _wake: object = None) -> bool:
        end(here, "two", "its worker was replaced")
        return False

    monkeypatch.setattr(here.clock, "wait_until", wait_until)
    with pytest.raises(JobFailed, match="its worker was replaced"):
        plain(await_turn)("two")
