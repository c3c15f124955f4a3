"""Two jobs of one queue on a real server: the second begins on the machines of the first, without a purchase."""

from pathlib import Path
from typing import Any

import pytest

from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.infra.nodes.controller_client import ControllerClient
from proteus_spot.infra.state.records import JobState
from tests.support import slow_apps as paced
from tests.support.deployed_job import SPEC, TICK, TRAIN, told
from tests.support.prefect import Deployed, rendezvous, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

QUEUED: dict[str, Any] = SPEC | {
    "queue": "nightly",
    "training": SPEC["training"] | {"app": "slow_apps:Slow", "hours": None, "clocks": 2000},
}


def tick(deployed: Deployed) -> None:
    """Have every job that needs it decide."""
    deployed.await_state(deployed.start(TICK, {}), "COMPLETED", 90)


def living(deployed: Deployed) -> set[str]:
    return {one["instance_id"] for one in deployed.market_log() if one["ended_at_s"] is None}


def test_the_second_job_of_a_queue_begins_on_the_machines_of_the_first(tmp_path: Path) -> None:
    with told(tmp_path) as story:
        deployed = story.deployed
        first = deployed.start(TRAIN, {"spec": QUEUED | {"job_id": "first"}})
        deployed.await_task(first, "follow training", 120)
        tick(deployed)
        assert len(living(deployed)) == 2, "the controller's machine, and a spot machine"
        second = deployed.start(TRAIN, {"spec": QUEUED | {"job_id": "second"}})
        deployed.await_task(second, "wait for the turn", 60)
        tick(deployed)
        bought = living(deployed)
        assert (len(bought), deployed.store.purchases.allocations("second")) == (2, [])

        hurry = deployed.directory / "blobs" / paced.HURRY
        hurry.touch()
        wait_until(lambda: deployed.store.jobs.job("first").state is JobState.FINISHED, "the end of the first", 120)
        hurry.unlink()
        deployed.await_state(first, "COMPLETED", 60)
        deployed.await_task(second, "follow training", 120)
        meeting = rendezvous(deployed.blob_url, "second")
        assert meeting["name"] in bought, "the controller's machine of the first runs that of the second"
        wait_until(lambda: _ready(deployed, "second") == bought, "both machines at the second job", 60)
        assert living(deployed) == bought
        records = deployed.store.purchases.allocations("second", alive=True)
        assert {name for record in records for name in record.living_ids} == bought
        assert deployed.store.purchases.allocations("first", alive=True) == []

        hurry.touch()
        deployed.await_state(second, "COMPLETED", 120)
        deployed.clock.jump_to(deployed.clock.now_s() + HOUR_S)
        for _ in range(2):
            tick(deployed)
        wait_until(lambda: living(deployed) == set(), "the end of every machine")
        assert len(deployed.market_log()) == 2, "nothing was bought for the second"
        assert {job.job_id: job.state for job in deployed.store.jobs.list_jobs()} == dict.fromkeys(
            ("first", "second"), JobState.FINISHED
        )


def _ready(deployed: Deployed, job_id: str) -> set[str]:
    status = ControllerClient(rendezvous(deployed.blob_url, job_id)["control"], 10.0).status()
    return {node["name"] for node in status["nodes"] if node["state"] == "ready"}
