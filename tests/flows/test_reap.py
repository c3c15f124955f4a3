"""The reaper: every orphan ends, also where the records of a job fail."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import proteus_spot.flows.allocation_tick
import proteus_spot.flows.reap
from proteus_spot.bidding.market.model import InstanceFact
from proteus_spot.tasks.market.reaping import orphans
from tests.support.task_runtime import TaskRuntime, plain, spec


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskRuntime]:
    made = TaskRuntime(tmp_path, monkeypatch)
    yield made
    made.close()


@pytest.fixture
def strays(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> dict[str, InstanceFact]:
    """A machine of each of three jobs, of which the first two are recorded, that nothing will end."""
    for name in ("enter", "orphans", "terminate"):
        monkeypatch.setattr(proteus_spot.flows.reap, name, plain(getattr(proteus_spot.flows.reap, name)))
    for job_id in ("job", "other"):
        here.begin(spec(job_id))
    bought = here.market.request_of(here.facts(spec())[0].instance_id)
    found = {}
    for job_id in ("job", "other", "unknown"):
        tags = {**bought.tags, "proteus:job": job_id, "proteus:order": f"{job_id}-stray"}
        (found[job_id],) = here.market.launch(replace(bought, token=f"{job_id}-stray", tags=tags))
    here.clock.at_s += 2 * here.runtime.settings.tick_s
    return found


def reap() -> Any:
    return asyncio.run(proteus_spot.flows.reap.reap.fn())


def test_orphans_end_and_the_jobs_that_are_known_get_a_tick(
    here: TaskRuntime, strays: dict[str, InstanceFact], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks: list[str] = []
    monkeypatch.setattr(proteus_spot.flows.reap, "tick_job", ticks.append)
    assert reap() == [fact.instance_id for fact in strays.values()]
    assert ticks == ["job", "other"]
    assert plain(orphans)() == {}
    assert not any(here.market.fact(fact.instance_id).alive for fact in strays.values())
    for job_id in ("job", "other"):
        assert f"{job_id}-stray" in [record.order_id for record in here.store.purchases.allocations(job_id)]


def test_one_bad_job_stops_the_end_of_no_machine(
    here: TaskRuntime, strays: dict[str, InstanceFact], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(job_id: str) -> None:
        if job_id == "job":
            raise ValueError("its journal cannot be read")

    monkeypatch.setattr(proteus_spot.flows.reap, "enter", fail)
    monkeypatch.setattr(proteus_spot.flows.reap, "tick_job", fail)
    with pytest.raises(ExceptionGroup, match="the reaper met several errors") as caught:
        reap()
    assert [str(error) for error in caught.value.exceptions] == ["its journal cannot be read"] * 2
    assert not any(here.market.fact(fact.instance_id).alive for fact in strays.values())


def test_a_tick_that_fails_for_its_only_job_is_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise ValueError("no such image")

    told: list[list[str]] = []
    calls: dict[str, Callable[..., Any]] = {
        "is_overtaken": lambda: False,
        "ticking_jobs": lambda job_id: ["job"],
        "tick_job": fail,
    }
    calls |= {"one_client": nullcontext, "label_run": lambda *about: None, "emit_tick": told.append}
    for name, call in calls.items():
        monkeypatch.setattr(proteus_spot.flows.allocation_tick, name, call)
    with pytest.raises(ValueError, match="no such image"):
        asyncio.run(proteus_spot.flows.allocation_tick.allocation_tick.fn())
    assert told == [["job"]]
