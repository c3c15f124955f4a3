"""A job on a Prefect server that wants a user and a password: the worker and its flows have them, no machine does."""

from pathlib import Path

import httpx
import pytest

from proteus_spot.infra.state.records import JobState
from tests.support.deployed_job import JOB, SPEC, TRAIN, told
from tests.support.prefect import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.storm, pytest.mark.timeout(900)]

PASSWORD = "not-on-any-machine"
HANDLER = "handle-eviction/default"


def test_a_notice_reaches_the_handler_and_no_machine_has_the_password(tmp_path: Path) -> None:
    with told(tmp_path, f"operator:{PASSWORD}") as story:
        deployed = story.deployed
        refused = httpx.post(f"{deployed.api_url}/flow_runs/filter", json={})
        assert refused.status_code == httpx.codes.UNAUTHORIZED

        run = deployed.start(TRAIN, {"spec": SPEC})
        deployed.await_task(run, "follow training", 120)
        story.done(story.tick())
        ready = "the spot machine"
        wait_until(lambda: sum(node["state"] == "ready" for node in story.status()["nodes"]) == 2, ready, 60)
        (spot,) = story.spot()
        (machine,) = spot.instance_ids
        deployed.market_fault(kind="mark", instance_id=machine)
        # machine -> controller -> the run of `train`, which reports it -> event -> automation -> run
        wait_until(lambda: bool(deployed.runs(HANDLER)), "the handler's run", 60)
        (handler,) = deployed.runs(HANDLER)
        assert handler["parameters"]["notice"]["instance_id"] == machine
        deployed.await_state(handler["id"], "COMPLETED", 60)
        noticed = story.journal("NoticeSeen") + story.journal("MachineNoticed")
        assert [one["allocation_id"] for one in noticed] == [spot.allocation_id]

        deployed.python("-m", "proteus_spot.flows.cli.main", "stop", JOB)
        story.done(story.tick())
        deployed.await_state(run, "COMPLETED", 90)
        assert deployed.store.jobs.job(JOB).state is JobState.STOPPED
        disks = deployed.directory / "world" / "machines"
        files = [path for path in disks.rglob("*") if path.is_file()]
        assert any(path.name == "user-data" for path in files)
        assert not [path for path in files if PASSWORD.encode() in path.read_bytes()]
