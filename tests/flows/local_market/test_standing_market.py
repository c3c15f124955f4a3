"""`proteus up` as a user runs it: the tutorial's commands, by which a job is submitted, seen and stopped, and Ctrl-C.

The tests share one `proteus up` and stand in the order of a story.
"""

import json
import re
import shlex
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from proteus_spot.infra.clock import ScaledClock
from proteus_spot.infra.local_market.environment import clock_file
from proteus_spot.infra.simulated_ec2.server import KEY_HEADER
from proteus_spot.infra.state.records import JobState, ObservationKind
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.urls import sqlite_url
from tests.support import slow_apps as paced
from tests.support.cli_process import Outcome, Running, processes_of, proteus, running
from tests.support.market_servers import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

#: Ticks that leave the processors to other tests.
TICK_S = 400
CALM = {"PROTEUS_TICK_S": str(TICK_S), "PROTEUS_RENEWAL_LEAD_S": "480"}
TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial.md"


@dataclass(frozen=True)
class Up:
    """A `proteus up` in the directory `here`/runs/up, and what a user types beside it."""

    here: Path
    process: Running

    def call(self, *words: str) -> Outcome:
        outcome = proteus(*words, cwd=self.here, home=self.here / "home")
        assert outcome.code == 0, outcome
        return outcome

    def is_in(self, job_id: str, state: JobState) -> bool:
        assert self.process.process.poll() is None, self.process.text()
        with Store.open(sqlite_url(self.process.directory / "state.db")) as store:
            job = store.jobs.find_job(job_id)
        assert job is None or job.state is state or not job.state.terminal, job
        return job is not None and job.state is state

    def trains(self, job_id: str) -> bool:
        """Whether a job has trained a clock, and a spot machine was bought for it."""
        if not self.is_in(job_id, JobState.RUNNING):
            return False
        with Store.open(sqlite_url(self.process.directory / "state.db")) as store:
            point = store.jobs.last_observation(job_id, ObservationKind.PROGRESS)
            bought = [
                record for record in store.purchases.allocations(job_id) if record.allocation.bid_micros is not None
            ]
        return bool(bought) and point is not None and point.payload["clock"] > 0

    @property
    def ready(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.here / "ready.json").read_text())
        return found

    def living(self, job_id: str) -> list[dict[str, Any]]:
        """The job's living machines, by the market's own record."""
        announced = json.loads((self.process.directory / "endpoint.json").read_text())
        key = {KEY_HEADER: announced["access_key_id"]}
        answer = httpx.get(f"{announced['url']}/_market/log", headers=key).raise_for_status()
        return [one for one in answer.json() if one["ended_at_s"] is None and one["tags"]["proteus:job"] == job_id]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    here = tmp_path_factory.mktemp("up")
    options = ("--scale", "40", "--json", str(here / "ready.json"))
    with running(here / "runs" / "up", *options, verb="up", output=here / "up.txt", **CALM) as process:
        process.wait_said(r"(?m)^ready: ", 120)
        yield Up(here, process)


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_tutorial_can_be_typed(up: Up) -> None:
    """A job is submitted, seen and stopped; two ticks later no machine lives but those that `stop` named."""
    page = TUTORIAL.read_text()
    (job,) = blocks(page, "yaml")
    assert "hours: 2," in job
    assert "max_vcpus: 8," in job
    long = f'app: "slow_apps:SlowMlr", code: {paced.__file__}, hours: 40'  # under way until `stop`, however slowly
    (up.here / "job.yaml").write_text(job.replace("hours: 2", long).replace("max_vcpus: 8", "max_vcpus: 4"))
    start, *commands = [line for block in blocks(page, "sh") for line in block.splitlines()]
    assert start == "proteus up"
    said: dict[str, str] = {}
    for line in commands:
        _, verb, *words = shlex.split(line)
        said[verb] = up.call(verb, *words).out
        if verb == "submit":
            wait_for(lambda: up.trains("tutorial"), "a job that trains on a spot machine", 60)
            (run_id,) = re.findall(rf"^its run:  {up.ready['ui_url']}/runs/flow-run/(\S+)$", said[verb], re.MULTILINE)
            with httpx.Client(base_url=up.ready["api_url"], timeout=60) as api:
                assert api.get(f"/flow_runs/{run_id}").status_code == httpx.codes.UNAUTHORIZED
                api.auth = tuple(up.ready["auth"].split(":"))
                run = api.get(f"/flow_runs/{run_id}").raise_for_status().json()
            assert (run["name"], run["state_type"], run["tags"]) == ("tutorial", "RUNNING", ["job:tutorial"])
    assert list(said) == ["submit", "jobs", "cost", "logs", "stop", "report"]
    assert "tutorial" in (up.here / "tutorial.html").read_text()

    named = set(re.findall(r"^(i-\w+) \(", said["stop"], re.MULTILINE))
    wait_for(lambda: up.is_in("tutorial", JobState.STOPPED), "the job's end", 60)
    clock = ScaledClock(clock_file(up.process.directory))
    ticked_s = clock.now_s() + 2 * TICK_S
    wait_for(lambda: clock.now_s() > ticked_s, "two ticks", 60)
    reliable = "the reliable tier's end"
    wait_for(lambda: not [one for one in up.living("tutorial") if one["bid_micros"] is None], reliable, 30)
    assert {one["instance_id"] for one in up.living("tutorial")} <= named


def test_ctrl_c_leaves_nothing(up: Up) -> None:
    api_url = up.ready["api_url"]
    assert up.process.signal(signal.SIGINT) == 130
    last = up.process.text().splitlines()[-1]
    assert re.fullmatch(r"proteus: interrupted: nothing is left running; to go on: \S*proteus up --dir \S+", last)
    assert processes_of(up.process.directory) == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{api_url}/health")
    assert not (up.process.directory / "up.json").exists()
    outcome = proteus("submit", "job.yaml", cwd=up.here, home=up.here / "home")
    assert (outcome.code, outcome.out) == (2, "")
    assert re.fullmatch(r"proteus: PREFECT_API_URL: is not set; name the server, .*\n", outcome.err)
