"""A job offers machines for release: they lapse at the end of their hour, and none is bought in their place."""

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from proteus_spot.bidding.engine.allocations import AllocationState
from proteus_spot.bidding.engine.events import NodesOffered
from proteus_spot.bidding.engine.journal import from_record, to_record
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Renew, Wait
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.infra.state.records import IntentState, ObservationKind
from proteus_spot.tasks.market.bookkeeping import spending_now
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_job
from proteus_spot.tasks.training import running_controller as controller
from tests.support.market_bill import bill_of, by_hour
from tests.support.task_runtime import BEGIN_S, TaskRuntime, plain, spec


def status(offered: list[str], machines: int | None) -> dict[str, Any]:
    """Return what the controller of a running job reports."""
    names = [f"i-{n}" for n in range(3)]
    nodes = [{"name": name, "state": "ready", "offered": name in offered} for name in [*names, *offered]]
    return {"state": "running", "clock": 5, "losses": [[5, 0.1]], "stage": 2, "nodes": nodes, "machines": machines,
            "repeated_micro_tasks": 0}  # fmt: skip


def held(world: TaskRuntime) -> list[str]:
    """Return the spot machines that live, in the order of their allocations."""
    records = world.store.purchases.allocations("job", alive=True)
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
    assert here.store.jobs.last_observation("job", ObservationKind.OFFER) is None, "nothing was offered so far"
    note("job", status([second], 1))
    here.clock.at_s += 120
    (order,) = here.tick(job)
    assert isinstance(order, Wait)
    engine = JobEngine("job").refresh()
    assert (engine.holdings.offered, engine.holdings.machines_of_use) == ({second}, 1)
    records = [entry.record for entry in here.store.journals.entries("job", 0)]
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
    assert sum(entry.record["kind"] == "NodesOffered" for entry in here.store.journals.entries("job", 0)) == 3


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


def test_of_an_allocation_the_machines_that_are_offered_end_and_the_others_are_kept_and_paid(here: TaskRuntime) -> None:
    job = spec(allocation_vcpus=16, max_vcpus=16)  # eight small machines at once
    here.begin(job)
    here.tick(job)
    machines = held(here)
    assert len(machines) == 8
    controller.note("job", status(machines[3:], 3))
    spent = []
    for hour in (1, 2):
        here.clock.at_s = BEGIN_S + hour * HOUR_S - here.runtime.settings.renewal_lead_s // 2
        released, kept = (Lapse, Renew) if hour == 1 else (Renew, Wait)
        orders = here.tick(job)
        assert [type(order) for order in orders][:2] == [released, kept]
        if isinstance(orders[0], Lapse):
            assert orders[0].instance_ids == tuple(sorted(machines[3:]))
            assert "offers 5 of these 8 machines" in orders[0].decision.reason
        here.clock.at_s += 240
        assert [type(order) for order in here.tick(job)] == [Wait]
        assert held(here) == machines[:3]
        spent.append(here.store.purchases.spent("job"))
        assert spent[-1] == sum(bill_of(here.market, by_hour, by_hour).values())
    (intent,) = [intent for intent in here.store.purchases.intents("job") if intent.kind == "lapse"]
    assert (intent.state, intent.params["instance_ids"]) == (IntentState.DONE, sorted(machines[3:]))
    (position,) = [
        p for p in JobEngine("job").refresh().holdings.positions.values() if p.allocation.bid_micros is not None
    ]
    assert (position.standing, len(position.held()), position.allocation.count) == (AllocationState.HELD, 3, 8)
    ledger = [
        line for line in here.store.purchases.ledger("job") if line.allocation_id == position.allocation.allocation_id
    ]
    assert [line.amount_micros for line in ledger] == [count * ledger[0].price_micros for count in (8, 3, 3)]


def test_the_next_hour_of_a_machine_that_ends_does_not_count_in_the_budget(here: TaskRuntime) -> None:
    """The budget is enough for the next hour of three machines, and not for that of all eight, which it never pays."""
    job = spec(allocation_vcpus=16, max_vcpus=16)
    here.begin(job)
    here.tick(job)
    machines = held(here)
    controller.note("job", status(machines[3:], 3))
    here.clock.at_s = BEGIN_S + HOUR_S - here.runtime.settings.renewal_lead_s + 1
    engine, limited = JobEngine("job"), job.model_copy(update={"budget_usd": Decimal(100)})
    before = spending_now(limited, engine.refresh())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(here.market, "terminate", lambda ids: None)  # they work to the end of the paid hour
        released, *_ = here.tick(job)
    assert isinstance(released, Lapse)
    assert held(here) == machines
    after = spending_now(limited, JobEngine("job").refresh())
    (bought,) = [r.allocation for r in here.store.purchases.allocations("job") if r.allocation.bid_micros is not None]
    assert before is not None
    assert after is not None
    assert bought.bid_micros is not None
    assert after.committed_micros - before.committed_micros == 3 * bought.bid_micros


def test_a_job_that_ends_after_the_end_of_some_machines_was_ordered_orders_that_of_all(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the same hour, and as an order of its own."""
    job = spec(allocation_vcpus=8, max_vcpus=8)
    here.begin(job)
    here.tick(job)
    offered = sorted(held(here)[2:])
    controller.note("job", status(offered, 2))
    here.clock.at_s = BEGIN_S + HOUR_S - here.runtime.settings.renewal_lead_s + 1
    monkeypatch.setattr(here.market, "terminate", lambda ids: None)  # they work to the end of the paid hour
    here.tick(job)
    plain(close_job)(JobEngine("job"), {"clocks": 3})
    here.clock.at_s += 1
    here.tick(job)
    intents = [intent for intent in here.store.purchases.intents("job") if intent.kind == "lapse"]
    assert [intent.params.get("instance_ids") for intent in intents] == [offered, None]
    assert len({intent.params["before_s"] for intent in intents}) == 1
