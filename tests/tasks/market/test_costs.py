"""The ledger by use: it adds up to the ledger."""

import pytest

from proteus_spot.bidding.billing import total_micros
from proteus_spot.bidding.billing.spending import Use
from proteus_spot.bidding.market.model import EndCause
from proteus_spot.infra.state.records import ObservationKind
from proteus_spot.tasks.market.bookkeeping import book_ledger
from proteus_spot.tasks.market.costs import cost_rows
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_job
from tests.support.task_runtime import MARKET, OTHER, TaskRuntime, plain, spec


def _names(here: TaskRuntime, allocation_id: str) -> tuple[str, ...]:
    return next(r.instance_ids for r in here.store.purchases.allocations("job") if r.allocation_id == allocation_id)


def test_the_uses_of_all_rows_add_up_to_the_ledger(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())
    names = [*_names(here, "job-buy-0"), *_names(here, "job-reliable-0")]
    here.store.jobs.observe("job", here.clock.now_s() + 600, ObservationKind.NODES, dict.fromkeys(names, "ready"))
    here.clock.at_s += 1800
    plain(close_job)(JobEngine("job"), {"clocks": 3})
    plain(book_ledger)("job")
    rows = cost_rows(["job"])
    assert sum(row.spent for row in rows) == here.store.purchases.spent("job") > 0
    spot = next(row for row in rows if row.tier == "transient")
    assert spot.machine_hours == 2
    third = spot.charged / 3  # ready after 600 s, done after 1800 s of the paid hour; each machine's share is rounded
    assert abs(spot.uses[Use.USEFUL] - third) <= spot.machine_hours
    assert spot.uses[Use.IDLE] == spot.charged - spot.uses[Use.USEFUL]


def test_what_the_market_took_is_refunded(taking: TaskRuntime) -> None:
    taking.begin(spec(ceiling_on_demand=False))
    taking.tick(spec(ceiling_on_demand=False))
    taking.clock.at_s += 1600
    taking.tick(spec(ceiling_on_demand=False))
    ends = {record.allocation_id: record.end_cause for record in taking.store.purchases.allocations("job")}
    assert ends["job-buy-0"] is EndCause.EVICTED
    rows = cost_rows()
    assert sum(row.spent for row in rows) == taking.store.purchases.spent("job")
    assert sum(row.uses.get(Use.REFUNDED, 0) for row in rows if row.tier == "transient") > 0


BILLINGS = [
    {"billing": "hourly-refund"},
    {"billing": "per-second-first-hour-free"},
    {"billing": "per-second-first-hour-free", "reprice": "change"},
    {"billing": "flat", "flat_price": "0.0301"},
]


@pytest.mark.parametrize("billing", BILLINGS, ids=lambda fields: " ".join(fields.values()))
def test_under_every_billing_model_rows_ledger_and_the_markets_bill_are_the_same(
    taking: TaskRuntime, billing: dict[str, str]
) -> None:
    asked = spec(markets=[str(MARKET), str(OTHER)], **billing)
    taking.begin(asked)
    for seconds in (0, 1600, 2400, 4000):
        taking.clock.at_s += seconds
        taking.tick(asked)
    plain(close_job)(JobEngine("job"), {"clocks": 3})
    closed_s = taking.clock.at_s
    while any(
        record.allocation.bid_micros is not None for record in taking.store.purchases.allocations("job", alive=True)
    ):
        taking.clock.at_s += 120
        taking.tick(asked)
    assert (taking.clock.at_s - closed_s > 600) == (billing["billing"] == "hourly-refund"), "seconds are not waited out"
    taking.tick(asked)
    records = [r for r in taking.store.purchases.allocations("job") if r.allocation.bid_micros is not None]
    assert {record.end_cause for record in records} >= {EndCause.EVICTED, EndCause.USER}
    assert not any(record.alive for record in records)
    model, now_s = asked.transient.billing_model, taking.clock.at_s
    owed = sum(
        total_micros(
            model.charges(taking.market.traces[r.allocation.market], 1, r.allocation.launched_at_s, *end, now_s)
        )
        for r in records
        for end in ((life.ended_at_s, life.end_cause) for life in r.machines)
    )
    names = {record.allocation_id for record in records}
    booked = [line for line in taking.store.purchases.ledger("job") if line.allocation_id in names]
    assert sum(line.amount_micros for line in booked) == owed > 0
    rows = cost_rows()
    assert sum(row.spent for row in rows) == taking.store.purchases.spent("job")
    assert sum(row.spent for row in rows if row.tier == "transient") == owed


def test_a_job_without_a_ledger_has_no_rows(here: TaskRuntime) -> None:
    assert cost_rows() == []
