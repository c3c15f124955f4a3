"""The ledger by use: it adds up to the ledger."""

from bidding.model import EndCause
from bidding.spending import Use
from tasks.costs import cost_rows
from tasks.jobs import close_job
from tasks.ledger import book_ledger
from tasks.training import NODES
from tests.support.tasks import TaskWorld, plain, spec


def _names(here: TaskWorld, allocation_id: str) -> tuple[str, ...]:
    return next(r.instance_ids for r in here.store.allocations("job") if r.allocation_id == allocation_id)


def test_the_uses_of_all_rows_add_up_to_the_ledger(here: TaskWorld) -> None:
    here.begin(spec())
    here.tick(spec())
    names = [*_names(here, "job-buy-0"), *_names(here, "job-reliable-0")]
    here.store.observe("job", here.clock.now_s() + 600, NODES, dict.fromkeys(names, "ready"))
    here.clock.at_s += 1800
    plain(close_job)("job", {"clocks": 3})
    plain(book_ledger)("job")
    rows = cost_rows(["job"])
    assert sum(row.spent for row in rows) == here.store.spent("job") > 0
    spot = next(row for row in rows if row.tier == "transient")
    assert spot.machine_hours == 2
    third = spot.charged / 3  # ready after 600 s, done after 1800 s of the paid hour; each machine's share is rounded
    assert abs(spot.uses[Use.USEFUL] - third) <= spot.machine_hours
    assert spot.uses[Use.IDLE] == spot.charged - spot.uses[Use.USEFUL]


def test_what_the_market_took_is_refunded(taking: TaskWorld) -> None:
    taking.begin(spec(ceiling_on_demand=False))
    taking.tick(spec(ceiling_on_demand=False))
    taking.clock.at_s += 1600
    taking.tick(spec(ceiling_on_demand=False))
    ends = {record.allocation_id: record.end_cause for record in taking.store.allocations("job")}
    assert ends["job-buy-0"] is EndCause.EVICTED
    rows = cost_rows()
    assert sum(row.spent for row in rows) == taking.store.spent("job")
    assert sum(row.uses.get(Use.REFUNDED, 0) for row in rows if row.tier == "transient") > 0


def test_a_job_without_a_ledger_has_no_rows(here: TaskWorld) -> None:
    assert cost_rows() == []
