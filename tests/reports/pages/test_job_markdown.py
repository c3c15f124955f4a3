"""The page of a job in the Prefect UI, from records."""

from pathlib import Path

import pytest

from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.infra.state.records import JobState, ObservationKind
from proteus_spot.infra.state.store import Store
from proteus_spot.reports.pages.job_markdown import eta_text, job_markdown, machines_text, state_text, text
from proteus_spot.reports.pages.job_page import Table
from proteus_spot.tasks.reports.job_report import gather, read_facts
from tests.support.job_states import HOSTILE, JOB, record_job

BEGIN_S = 1000.0
COSTS = Table("costs", "What it has cost", ("market", "spent"), (("a", "$1"),), foot=(("all", "$1"),))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(f"sqlite:///{tmp_path / 'state.db'}")


def test_the_whole_job_is_on_one_page(store: Store) -> None:
    record_job(store)
    facts = read_facts(store, JOB)
    page = job_markdown(facts, gather(store, JOB), COSTS, b"png", "file:///report.html", ["proteus cost job-1"])
    for part in ("# job-1: finished", "| Cost |", "| Against on-demand |", "| Machines |", "## Next", "base64,cG5n"):
        assert part in page
    assert "## Last purchase, at " in page
    assert page.count("eviction within the hour") == 1
    assert "| all | $1 |" in page
    without = job_markdown(facts, gather(store, JOB), COSTS, b"", "", [])
    assert "![" not in without
    assert "Report:" not in without


def test_texts_of_others_are_shown_and_not_obeyed() -> None:
    shown = text(f"{HOSTILE} | [x](javascript:1) `a`\n# b")
    assert not set("<>|[]`\n#*") & set(shown.replace("&#", ""))


def open_job(store: Store, **training: float) -> None:
    store.jobs.create_job("job", {"job_id": "job", "training": training}, BEGIN_S)
    for number in range(11):
        store.jobs.observe("job", BEGIN_S + 100 * number, ObservationKind.PROGRESS, {"clock": 10 * number, "loss": 0.5})


def test_the_end_is_foreseen_by_clocks_or_hours_whichever_is_earlier(store: Store) -> None:
    open_job(store, clocks=200, hours=1.0)
    # 100 of 200 clocks in 1000 s: 1000 s are left, less than of the hour
    assert eta_text(read_facts(store, "job")).startswith("50% done, 0:16:40 left: about ")


def test_the_end_of_a_job_by_hours(store: Store) -> None:
    open_job(store, hours=0.5)
    left_s = HOUR_S // 2 - 1000
    assert f"0:{left_s // 60:02}:{left_s % 60:02} left" in eta_text(read_facts(store, "job"))


def test_a_stopped_job_says_why_and_not_that_it_is_done(store: Store) -> None:
    open_job(store, clocks=200)
    assert machines_text(read_facts(store, "job")) == ("0 on demand, 0 spot", "")
    store.jobs.move_job("job", JobState.STOPPED, BEGIN_S + 1500, result={"stopped": "enough"})
    facts = read_facts(store, "job")
    assert state_text(facts) == "stopped (enough)"
    assert eta_text(facts).startswith("ended ")
    assert "100%" not in job_markdown(facts, gather(store, "job"), COSTS, b"", "", [])
