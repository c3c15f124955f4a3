"""A job learns how fast the types of its markets are, and buys the faster one."""

from pathlib import Path

import pytest

from proteus_spot.bidding.market.model import Market
from proteus_spot.infra.state.records import JobState
from proteus_spot.studies.job_spec import JobSpec
from tests.support.flow_processes import Boundary
from tests.support.job_world import MARKETS, JobWorld, spec

HOUR_S = 3600
#: Of the two types, which cost the same, the first works half as fast.
SLOW, FAST = MARKETS
SPEEDS = {SLOW.instance_type: 0.5}


def job(policy: str, deadline: str | None = None) -> JobSpec:
    fields: dict[str, object] = {
        "policy": policy,
        "rules": "today",
        "billing": "per-second-first-hour-free",
        "allocation_vcpus": None,
    }
    reliable: dict[str, object] = {"count": 1, "instance_type": FAST.instance_type, "zone": SLOW.zone}
    return spec(clocks=120, transient=fields, reliable=reliable, deadline=deadline)


def spot_seconds(here: JobWorld) -> dict[Market, float]:
    """Return how long spot machines of each market lived."""
    lived = dict.fromkeys(MARKETS, 0.0)
    for fact in here.ours():
        if fact.bid_micros is not None:
            lived[fact.market] += (fact.ended_at_s or here.now_s) - fact.launched_at_s
    return lived


@pytest.mark.parametrize(("policy", "deadline"), [("deadline", None), ("deadline", "9h"), ("best", None)])
def test_a_job_learns_which_of_two_types_is_the_faster_and_buys_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, deadline: str | None
) -> None:
    boundary = Boundary()
    here = JobWorld(tmp_path, monkeypatch, boundary, job(policy, deadline), taken_after_s=None, second_micros=20_000)
    here.training.speeds = dict(SPEEDS)
    here.train()
    here.advance(here.now_s + 2 * HOUR_S)
    assert here.store.jobs.job(here.job_id).state is JobState.FINISHED
    lived = spot_seconds(here)
    assert 0 < lived[SLOW] < lived[FAST], "nothing is known at first, and the first of equals is bought"
    reasons = [
        str(entry.record["decision"]["reason"])
        for entry in here.store.journals.entries(here.job_id)
        if entry.record["kind"] == "Acquire"
    ]
    assert "times the usual speed" not in reasons[0]
    assert any(f"a vCPU of {FAST.instance_type} works at 1." in reason for reason in reasons)
    assert here.store.purchases.spent(here.job_id) == here.bill()
    assert here.faults == []
