"""The server is down while ticks are due: of the missed ticks one decides, and so does the next one.

It takes four minutes, mostly waiting for ticks that must not run.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.deployed_job import JOB, MARKET, SPEC, TICK, TICK_S, TRAIN, Story, told
from tests.support.prefect import Deployed, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.storm, pytest.mark.timeout(900)]

#: So many ticks are missed while the server is away; the next one is due so many real seconds later.
MISSED = 10
SOON_S = 30


def test_ticks_that_an_absent_server_missed_are_skipped_and_nothing_is_bought_twice(tmp_path: Path) -> None:
    with told(tmp_path) as story:
        deployed = story.deployed
        run = deployed.start(TRAIN, {"spec": SPEC})
        deployed.await_task(run, "follow training", 90)
        story.done(story.tick())
        _miss_ticks(story)
        deployed.python("-m", "proteus_spot.flows.cli.main", "stop", JOB)
        story.done(story.tick())  # ticks carry it out
        deployed.await_state(run, "COMPLETED", 60)


def _miss_ticks(story: Story) -> None:
    deployed = story.deployed
    tick_id = deployed.deployment_id(TICK)
    deployed.post(f"/deployments/{tick_id}/resume_deployment")
    wait_until(lambda: len(to_come(deployed)) > 2 * MISSED, "the ticks to come", 30)
    wait_until(lambda: quiet(deployed), "a while without a tick", 60)
    earlier = {run["id"] for run in deployed.runs(TICK)} - {run["id"] for run in to_come(deployed)}
    first = min(moment(run, "expected_start_time") for run in to_come(deployed))
    next_s = (first - datetime.now(UTC)).total_seconds()
    decided = len(story.journal("TickDue"))
    deployed.kill_server()
    clock = story.status()["clock"]
    deployed.market_fault(kind="kill", market=str(MARKET))  # so that there is something to buy
    deployed.let_schedule_pass(next_s + (MISSED - 1) * TICK_S + TICK_S - SOON_S)
    wait_until(lambda: story.status()["clock"] > clock + 1, "clocks without a server")
    back = datetime.now(UTC)
    deployed.start_server()

    def begun() -> list[dict[str, Any]]:
        """The scheduled ticks whose time has come, oldest first."""
        now = datetime.now(UTC)
        runs = [
            run
            for run in deployed.runs(TICK)
            if run["auto_scheduled"] and run["id"] not in earlier and moment(run, "expected_start_time") < now
        ]
        return sorted(runs, key=lambda run: moment(run, "expected_start_time"))

    def over() -> bool:
        """Whether a tick that nobody missed has ended, and every one before it."""
        runs = begun()
        return (
            bool(runs)
            and moment(runs[-1], "expected_start_time") > back
            and {run["state_type"] for run in runs} == {"COMPLETED"}
        )

    wait_until(over, "the missed ticks, and the next one", 90)
    deployed.post(f"/deployments/{tick_id}/pause_deployment")
    runs = [run for run in begun() if run["state_type"] == "COMPLETED"]
    period = timedelta(seconds=TICK_S)
    assert len([run for run in runs if moment(run, "expected_start_time") < back]) == MISSED
    said = {run["id"]: story.done(run["id"]) for run in runs}
    acted = [one for one in said.values() if one.startswith(f"{JOB}: ")]
    for run in runs:
        overtaken_at = moment(run, "expected_start_time") + period
        if moment(run, "end_time") < overtaken_at:
            assert said[run["id"]].startswith(f"{JOB}: "), "who is in time acts"
        elif not said[run["id"]].startswith(f"{JOB}: "):
            assert said[run["id"]] == "skipped: it is late, and another late tick decides"
    late = [run for run in runs if moment(run, "start_time") > moment(run, "expected_start_time") + period]
    assert 1 <= len([run for run in late if said[run["id"]].startswith(f"{JOB}: ")]) <= 2, "one, or after a minute two"
    assert 1 <= len(story.journal("TickDue")) - decided <= len(acted), "one tick a period, and no more"
    assert [one["end_cause"] for one in story.sold()] == ["evicted", None]
    assert len({one["token"] for one in story.sold()}) == 2
    assert [record.alive for record in story.spot()] == [False, True]


def to_come(deployed: Deployed) -> list[dict[str, Any]]:
    """The ticks that the schedule has made ahead."""
    return [run for run in deployed.runs(TICK) if run["auto_scheduled"] and run["state_type"] == "SCHEDULED"]


def quiet(deployed: Deployed) -> bool:
    """Whether no tick runs, and none is so near that a worker may have taken it already."""
    soon = datetime.now(UTC) + timedelta(seconds=20)
    scheduled = [run for run in deployed.runs(TICK) if run["auto_scheduled"]]
    begun = [run for run in scheduled if run["state_type"] != "SCHEDULED" or moment(run, "expected_start_time") < soon]
    return {run["state_type"] for run in begun} <= {"COMPLETED"}


def moment(run: dict[str, Any], which: str) -> datetime:
    """One of a run's times."""
    return datetime.fromisoformat(run[which])
