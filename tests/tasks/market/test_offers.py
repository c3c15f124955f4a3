"""A job offers machines for release: they lapse at the end of their hour, and none is bought in their place."""

from typing import Any

import numpy as np
import pytest

from bidding.engine.events import NodesOffered
from bidding.engine.journal import from_record, to_record
from bidding.engine.orders import Acquire, Lapse, Renew, Wait
from bidding.market.model import HOUR_S
from infra.state.records import ObservationKind
from tasks.market.engine_journal import JobEngine
from tasks.training import controller
from tests.support.task_runtime import BEGIN_S, TaskRuntime, spec


def status(offered: list[str], machines: int | None) -> dict[str, Any]:
    """Return what the controller of a running job reports."""
    names = [f"i-{n}" for n in range(3)]
    nodes = [{"name": name, "state": "ready", "offered": name in offered} for name in [*names, *offered]]
    return {"state": "running", "clock": 5, "losses": [[5, 0.1]], "stage": 2, "nodes": nodes, "machines": machines,
            "repeated_micro_tasks": 0}  # fmt: skip


def held(world: TaskRuntime) -> list[str]:
    """Return the spot machines that live, in the order of their allocations."""
    records = world.store.allocations("job", alive=True)
    return [name for record in records if record.allocation.bid_micros is not None for name in record.living_ids]


def test_machines_that_the_job_offers_lapse_at_their_hours_end_and_are_not_bought_again(here: TaskRuntime) -> None:
    job = spec(allocation_vcpus=2)  # one small machine an allocation
    here.begin(job)
    assert [type(order) for order in here.tick(job)] == [Acquire]
    here.clock.at_s += 600
    here.tick(job)
    first, second = held(here)
    note = controller.note
    note("job", status([], None))
    assert here.store.last_observation("job", ObservationKind.OFFER) is None, "nothing was offered so far"
    note("job", status([second], 1))
    here.clock.at_s += 120
    (order,) = here.tick(job)
    assert isinstance(order, Wait)
    assert JobEngine("job").current().offer == ({second}, 1)
    records = [entry.record for entry in here.store.journal("job", 0)]
    (record,) = [entry for entry in records if entry["kind"] == "NodesOffered"]
    assert from_record(record) == NodesOffered(int(here.clock.at_s), (second,), 1)
    lead_s = here.runtime.settings.renewal_lead_s
    here.clock.at_s = BEGIN_S + HOUR_S - lead_s // 2
    renewed = [order for order in here.tick(job) if not isinstance(order, Wait)]
    assert [type(order) for order in renewed] == [Renew], "the other one goes on"
    assert held(here) == [first, second], "its hour is paid"
    here.clock.at_s = BEGIN_S + 600 + HOUR_S - lead_s // 2
    lapse, wait = here.tick(job)
    assert isinstance(lapse, Lapse)
    assert "offers it for release" in lapse.decision.reason
    assert isinstance(wait, Wait)
    assert "fits on 1 spot machine" in wait.decision.reason
    note("job", status([], 1))
    here.clock.at_s += 240
    assert [type(order) for order in here.tick(job)] == [Wait], "as many are held as the job has a use for"
    assert held(here) == [first]
    note("job", status([], None))
    here.clock.at_s += 240
    assert [type(order) for order in here.tick(job)] == [Acquire], "its memory has risen"
    assert sum(entry.record["kind"] == "NodesOffered" for entry in here.store.journal("job", 0)) == 3


@pytest.mark.parametrize(("machines", "bought"), [(None, 2), (1, 1), (0, 0)])
def test_no_more_are_bought_than_the_job_has_a_use_for(here: TaskRuntime, machines: int | None, bought: int) -> None:
    job = spec()  # both small machines at once
    here.begin(job)
    controller.note("job", status(["i-other"], machines))
    (order,) = here.tick(job)
    assert (order.count if isinstance(order, Acquire) else 0) == bought
    assert len(held(here)) == bought
    if isinstance(order, Acquire):
        assert np.isfinite(to_record(order)["decision"]["candidates"][0]["work"])


@pytest.mark.parametrize(("offered", "ends"), [(1, Renew), (2, Lapse)])
def test_an_allocation_lapses_only_if_all_of_its_machines_are_offered(
    here: TaskRuntime, offered: int, ends: type
) -> None:
    job = spec()  # both small machines at once
    here.begin(job)
    here.tick(job)
    controller.note("job", status(held(here)[:offered], 2 - offered))
    here.clock.at_s = BEGIN_S + HOUR_S - here.runtime.settings.renewal_lead_s // 2
    assert [type(order) for order in here.tick(job)] == [ends, Wait]
