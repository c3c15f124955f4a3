"""The deployment sweep/sweep on a Prefect server at scale 1: started, retried, copied, cancelled, killed, scheduled.

The tests share one server and stand in the order of a story.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proteus_spot.bidding.market.model import DAY_S, Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.state.records import JobKind, JobState
from tests.support import tiny_trial
from tests.support.prefect import Deployed, wait_until, without_settings

pytestmark = [pytest.mark.storm, pytest.mark.e2e, pytest.mark.timeout(1800)]  # ticks at scale 1 take their time

MARKET = Market("c4.large", "us-east-1a")
T0 = 1464739200  # 2016-06-01T00:00:00Z
START_S = T0 + 14 * DAY_S


@dataclass
class Story:
    """State that one test passes to the next."""

    deployed: Deployed
    hurry: Path
    runs: dict[str, str] = field(default_factory=dict)

    @property
    def spec(self) -> dict[str, Any]:
        """The sweep, as the form has it."""
        return {
            "sweep": "nightly",
            "trial": "tiny_trial:train",
            "code": str(Path(tiny_trial.__file__)),
            "space": {"rate": {"choice": [0.01, 0.02]}, "hurry": {"choice": [str(self.hurry)]}},
            "metric": {"name": "loss"},
            "max_trial_steps": 400,
            "stop": "none",
            "markets": [str(MARKET)],
            "billing": "hourly-refund",
        }

    def sweep_of(self, run: str) -> str:
        """The id of the sweep of a run that was given none."""
        return f"nightly-{self.runs[run].replace('-', '')[-12:]}"

    def tick(self) -> None:
        """Have a tick, whenever the schedule has the next one."""
        self.deployed.await_state(self.deployed.start("allocation-tick/default", {}), "COMPLETED", 120)

    def until(self, sweep_id: str, kind: str) -> None:
        """Tick until the journal of a sweep has a record of a kind."""

        def has_it() -> bool:
            job = self.deployed.store.jobs.find_job(sweep_id)
            if job is None or not self.deployed.store.journals.entries(sweep_id, kinds=("SweepOpened",)):
                return False
            self.tick()
            return bool(self.deployed.store.journals.entries(sweep_id, kinds=(kind,)))

        wait_until(has_it, f"{kind} of {sweep_id}", 600)

    def to_the_end(self, run: str) -> None:
        """Tick until the sweep of a run has ended, and the run has."""

        def has_ended() -> bool:
            self.tick()
            return self.deployed.store.jobs.job(self.sweep_of(run)).state.terminal

        wait_until(has_ended, f"the end of {self.sweep_of(run)}", 600)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    directory = tmp_path_factory.mktemp("deployed")
    calm = TraceSet({MARKET: Trace(np.array([T0, START_S + DAY_S]), np.array([20_000, 20_000]))})
    with pytest.MonkeyPatch.context() as patch:
        without_settings(patch)
        deployed = Deployed(directory, calm, START_S)
        with deployed:
            yield Story(deployed, directory / "hurry")
        left = [process.cmdline() for process in deployed.processes()]
        assert not left, f"still running: {left}"


def test_a_run_is_a_sweep_of_its_own_and_each_machine_a_task_run(story: Story) -> None:
    story.runs["first"] = story.deployed.start("sweep/sweep", {"spec": story.spec})
    sweep_id = story.sweep_of("first")
    story.until(sweep_id, "AllocationGranted")
    story.hurry.touch()
    story.to_the_end("first")
    run = story.deployed.await_state(story.runs["first"], "COMPLETED", 120)
    assert run["name"] == f"{sweep_id}: finished"
    job = story.deployed.store.jobs.job(sweep_id)
    assert (job.kind, job.state) == (JobKind.SWEEP, JobState.FINISHED)
    tasks = story.deployed.post("/task_runs/filter", flow_runs={"id": {"any_": [story.runs["first"]]}})
    named = {task["name"]: task for task in tasks if task["name"].startswith("trial-")}
    assert set(named) == {f"trial-{number:02d} on {MARKET}" for number in range(2)}
    assert all(f"sweep:{sweep_id}" in task["tags"] for task in named.values())
    assert {task["state_name"] for task in named.values()} == {"Finished"}


def test_a_retry_goes_on_with_the_same_sweep_which_has_finished(story: Story) -> None:
    bought = len(story.deployed.market_log())
    story.deployed.retry(story.runs["first"])

    def has_run_again() -> bool:
        run = story.deployed.run(story.runs["first"])
        return bool(run["run_count"] == 2 and run["state_type"] == "COMPLETED")

    wait_until(has_run_again, "the second run", 180)
    assert len(story.deployed.market_log()) == bought
    assert [job.job_id for job in story.deployed.store.jobs.list_jobs()] == [story.sweep_of("first")]


def test_a_copy_is_a_new_sweep_and_cancelling_it_stops_that(story: Story) -> None:
    story.hurry.unlink()
    story.runs["copy"] = story.deployed.start("sweep/sweep", {"spec": story.spec})
    sweep_id = story.sweep_of("copy")
    assert sweep_id != story.sweep_of("first")
    story.until(sweep_id, "TrialReported")
    story.deployed.post(
        f"/flow_runs/{story.runs['copy']}/set_state", state={"type": "CANCELLING", "name": "Cancelling"}, force=True
    )
    wait_until(lambda: story.deployed.run(story.runs["copy"])["state_type"] == "CANCELLED", "the cancellation", 120)
    story.to_the_end("copy")
    job = story.deployed.store.jobs.job(sweep_id)
    assert (job.state, job.stop_why) == (JobState.STOPPED, "cancelled in the Prefect UI")
    assert not story.deployed.store.purchases.allocations(sweep_id, alive=True)
    reports = story.deployed.store.journals.entries(sweep_id, kinds=("TrialReported",))
    assert any(entry.record["saved_step"] for entry in reports), "its trials saved their states"


def test_a_retry_after_the_cancellation_goes_on_from_what_was_saved(story: Story) -> None:
    story.hurry.touch()
    story.deployed.retry(story.runs["copy"])
    wait_until(lambda: not story.deployed.store.jobs.job(story.sweep_of("copy")).state.terminal, "its new life", 120)
    story.to_the_end("copy")
    assert story.deployed.store.jobs.job(story.sweep_of("copy")).state is JobState.FINISHED


def test_a_killed_run_is_retried_and_goes_on_with_its_sweep(story: Story) -> None:
    story.hurry.unlink()
    run = story.runs["killed"] = story.deployed.start("sweep/sweep", {"spec": story.spec})
    sweep_id = story.sweep_of("killed")
    story.until(sweep_id, "TrialReported")
    story.deployed.flow_process(run).kill()
    story.deployed.await_state(run, "CRASHED", 60)  # its worker reports it
    assert not story.deployed.store.jobs.job(sweep_id).state.terminal
    story.tick()  # goes on without a flow that follows
    story.deployed.retry(run)
    wait_until(lambda: story.deployed.run(run)["state_type"] == "RUNNING", "its second run", 120)
    story.hurry.touch()
    story.to_the_end("killed")
    story.deployed.await_state(run, "COMPLETED", 120)
    assert story.deployed.store.jobs.job(sweep_id).state is JobState.FINISHED
    bought = [record.order_id for record in story.deployed.store.purchases.allocations(sweep_id)]
    assert sorted(bought) == [f"{sweep_id}-t0-0", f"{sweep_id}-t1-0"], "no machine was bought again"


def test_a_scheduled_run_is_a_new_sweep(story: Story) -> None:
    deployment = story.deployed.deployment_id("sweep/sweep")
    story.hurry.touch()
    # The server makes the runs of a schedule seconds after it was written: an interval of a day would miss the first.
    schedule = {"interval": 150, "anchor_date": datetime.now(UTC).isoformat(), "timezone": "UTC"}
    body = [{"schedule": schedule, "active": True, "parameters": {"spec": story.spec}}]
    answer = story.deployed.send("POST", f"/deployments/{deployment}/schedules", body)
    assert answer.is_success, answer.text
    begun = set(story.runs.values())

    def is_there() -> bool:
        found = [run for run in story.deployed.runs("sweep/sweep") if run["id"] not in begun]
        running = [run["id"] for run in found if run["state_type"] in ("RUNNING", "COMPLETED")]
        story.runs["scheduled"] = running[0] if running else ""
        return bool(running)

    wait_until(is_there, "the scheduled run", 300)
    story.deployed.send("DELETE", f"/deployments/{deployment}/schedules/{answer.json()[0]['id']}")
    story.until(story.sweep_of("scheduled"), "SweepTick")
    story.to_the_end("scheduled")
    assert story.deployed.store.jobs.job(story.sweep_of("scheduled")).state is JobState.FINISHED
