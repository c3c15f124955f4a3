"""Eviction notices: who reports them, and that one run handles a burst."""

from typing import Any

import pytest
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_KEY, temporary_settings

import proteus_spot.tasks.market.eviction_notices
from proteus_spot.infra.ec2.notice_poller import notice_event
from proteus_spot.tasks.market.eviction_notices import EvictionNotice, burst_of, events_url, notices_in, report_notice
from tests.support.task_runtime import TaskRuntime, spec

SOON_S = 100


def about(job_id: str, allocation_id: str, takes_at_s: int) -> dict[str, Any]:
    return {"job_id": job_id, "allocation_id": allocation_id, "takes_at_s": takes_at_s}


@pytest.fixture
def asked(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[EvictionNotice]]:
    """What the controllers of two jobs have received, by job."""
    for job_id in ("one", "two"):
        here.store.jobs.create_job(job_id, spec(job_id).model_dump(mode="json"), here.clock.at_s)
    found: dict[str, list[EvictionNotice]] = {}
    monkeypatch.setattr(
        proteus_spot.tasks.market.eviction_notices, "seen_notices", lambda job_id: found.get(job_id, [])
    )
    return found


def test_one_run_handles_the_notices_of_a_burst_in_all_jobs(
    here: TaskRuntime, asked: dict[str, list[EvictionNotice]]
) -> None:
    soon_s, past_s = int(here.clock.at_s) + SOON_S, int(here.clock.at_s) - SOON_S
    first = EvictionNotice.model_validate(about("one", "a", soon_s))
    asked["one"] = [first, EvictionNotice.model_validate(about("one", "b", soon_s + 3))]
    asked["two"] = [EvictionNotice.model_validate(about("two", name, at_s)) for name, at_s in
                    (("c", soon_s), ("old", past_s))]  # fmt: skip
    assert burst_of(first) == {"one": {"a": soon_s, "b": soon_s + 3}, "two": {"c": soon_s}}


def test_a_notice_is_handled_also_where_its_controller_does_not_answer(
    here: TaskRuntime, asked: dict[str, list[EvictionNotice]]
) -> None:
    notice = EvictionNotice.model_validate(about("one", "a", int(here.clock.at_s) + SOON_S))
    assert burst_of(notice) == {"one": {"a": notice.takes_at_s}}


def test_machines_report_nothing_to_a_server_that_wants_a_secret(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "http://prefect:4200/api"
    settings = here.runtime.settings.model_copy(update={"events_url": url})
    monkeypatch.setattr(here, "runtime", here.runtime.__class__(**{**vars(here.runtime), "settings": settings}))
    with temporary_settings(restore_defaults={PREFECT_API_AUTH_STRING, PREFECT_API_KEY}):
        assert events_url() == url
    for secret in (PREFECT_API_AUTH_STRING, PREFECT_API_KEY):
        with temporary_settings({secret: "user:secret"}):
            assert events_url() is None


def test_the_flow_reports_the_event_that_a_machine_would(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr("prefect.events.emit_event", lambda event, **rest: said.append((event, rest)))
    payload = about("one", "a", 7) | {"instance_id": "i-1"}
    again, other = payload | {"takes_at_s": 9}, payload | {"instance_id": "i-2"}
    notice, second = notices_in({"notices": [{"about": one} for one in (payload, None, again, other)]})
    assert (second.taken, notice_event(other)["id"] == notice_event(payload)["id"]) == ("i-2", False)
    report_notice(notice)
    ((name, rest),) = said
    theirs = notice_event(payload)
    assert (name, str(rest["id"]), rest["payload"]) == (theirs["event"], theirs["id"], payload)
    assert rest["resource"] == theirs["resource"]
