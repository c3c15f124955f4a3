"""The next job of a queue takes over what it can use of the one before, in one transaction; each pays its own time."""

from typing import Any

import pytest

import proteus_spot.tasks.market.hand_over
from proteus_spot.bidding.engine.events import AllocationHandedOver, AllocationTaken
from proteus_spot.bidding.market.model import HOUR_S, EndCause
from proteus_spot.infra.state.job_tables import JobTables
from proteus_spot.infra.state.records import AllocationRecord, JobState, ObservationKind
from proteus_spot.infra.storage.leases import read_lease
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks import job_leases
from proteus_spot.tasks.job_ends import request_stop
from proteus_spot.tasks.job_leases import extend_leases
from proteus_spot.tasks.job_queues import next_to_take_over
from proteus_spot.tasks.job_records import record_job
from proteus_spot.tasks.market.bookkeeping import book_ledger, spending_now
from proteus_spot.tasks.market.costs import cost_rows
from proteus_spot.tasks.market.decisions import decide
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.hand_over import take_over
from proteus_spot.tasks.market.ingest import fetch_prices, history_days, markets_of
from proteus_spot.tasks.market.job_opening import close_job, open_job, reopen_job
from proteus_spot.tasks.market.listed_machines import end, job_machines
from proteus_spot.tasks.market.purchases.reliable_purchases import secure_reliable_tier
from proteus_spot.tasks.market.reaping import orphans
from proteus_spot.tasks.supervision.machine_ends import end_machines
from proteus_spot.tasks.training.work_left import vcpu_seconds
from tests.support import task_runtime
from tests.support.market_bill import bill_of, by_hour, by_second
from tests.support.plain_ticks import plain_tick
from tests.support.task_runtime import MARKET, OTHER, TaskRuntime, plain, spec

BILLINGS = ["hourly-refund", "per-second-first-hour-free"]


class Killed(BaseException):
    """The process ends here."""


def queued(job_id: str, **fields: Any) -> JobSpec:
    transient = fields.pop("transient", {})
    return JobSpec.model_validate(spec(job_id, **transient).model_dump() | {"queue": "nightly", **fields})


def first_ends(here: TaskRuntime, second: JobSpec, after_s: int = 1800, **transient: Any) -> None:
    """Have the first job hold its machines, the second be recorded, and the first end."""
    first = queued("one", transient=transient)
    here.begin(first)
    plain(take_over)(first, JobEngine("one"))
    here.tick(first)
    here.clock.at_s += after_s
    plain(record_job)(second)
    plain(close_job)(JobEngine("one"), {"clocks": 3})


def begin(here: TaskRuntime, second: JobSpec) -> None:
    plain(fetch_prices)(markets_of(second), history_days())
    for step in (open_job, take_over, secure_reliable_tier):
        plain(step)(second, JobEngine(second.job_id))


def held(here: TaskRuntime, job_id: str) -> dict[str, AllocationRecord]:
    return {record.allocation_id: record for record in here.store.purchases.allocations(job_id, alive=True)}


def alive(here: TaskRuntime) -> list[str]:
    return sorted(fact.instance_id for fact in here.market.log() if fact.alive)


@pytest.fixture(autouse=True)
def no_prefect(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> Any:
    return plain_tick(monkeypatch)


def test_the_machines_change_their_job_and_nothing_is_bought(here: TaskRuntime, no_prefect: Any) -> None:
    second = queued("two", transient={"billing": "per-second-first-hour-free"})
    first_ends(here, second, billing="per-second-first-hour-free")
    bought = alive(here)
    assert len(bought) == 3
    here.clock.at_s += 120
    assert no_prefect("one") == "nothing to do", "the machines of the first are kept for the second"
    assert alive(here) == bought
    begin(here, second)
    assert alive(here) == bought == sorted(name for record in held(here, "two").values() for name in record.living_ids)
    assert sorted(held(here, "two")) == ["two-reliable-0", "two-taken-0"]
    assert held(here, "one") == {}
    at_s = int(here.store.jobs.job("one").ended_at_s or 0)
    assert {(r.end_cause, r.ended_at_s) for r in here.store.purchases.allocations("one")} == {(EndCause.USER, at_s)}
    assert {(r.bought_for, r.held_from_s) for r in held(here, "two").values()} == {("one", at_s)}
    kinds = {job: [e.record["kind"] for e in here.store.journals.entries(job)] for job in ("one", "two")}
    assert kinds["one"].count(AllocationHandedOver.__name__) == kinds["two"].count(AllocationTaken.__name__) == 2
    for _ in range(3):  # whatever tags they have, the first job's ticks and the reaper leave them alone
        here.clock.at_s += 1200
        no_prefect("one")
        here.tick(second)
    assert alive(here) == bought
    assert plain(orphans)() == {}
    assert job_machines("one") == []


def test_a_machine_learns_of_its_job_by_the_lease_where_it_looks(here: TaskRuntime) -> None:
    second = queued("two", transient={"billing": "per-second-first-hour-free"})
    first_ends(here, second, billing="per-second-first-hour-free")
    plain(extend_leases)("one")
    now_s = here.clock.at_s
    (name, *_) = alive(here)
    assert read_lease(here.runtime.blobs, "one", name).until_s > now_s + 900, "it lives until it is taken over"
    begin(here, second)
    lease = read_lease(here.runtime.blobs, "one", name)
    assert (lease.job, lease.order.startswith("two-")) == ("two", True)
    end("two", [name])
    assert read_lease(here.runtime.blobs, "one", name).until_s == int(here.clock.at_s)


@pytest.mark.parametrize("billing", BILLINGS)
@pytest.mark.parametrize("idle_s", [30, 300, 3000])
@pytest.mark.parametrize("taken", [False, True])
def test_both_ledgers_are_the_bill_and_the_idle_time_is_the_next_jobs(
    here: TaskRuntime, billing: str, idle_s: int, taken: bool
) -> None:
    second = queued("two", transient={"billing": billing})
    first_ends(here, second, billing=billing)
    plain(book_ledger)("one")
    paid = here.store.purchases.spent("one")
    here.clock.at_s += idle_s
    plain(book_ledger)("one")
    assert here.store.purchases.spent("one") == paid, "nothing is booked for the time in which the second is awaited"
    begin(here, second)
    plain(book_ledger)("two")
    here.clock.at_s += 1000
    if taken:  # the market takes one of the spot machines
        here.market.shut_down(held(here, "two")["two-taken-0"].living_ids[0])
    plain(book_ledger)("one")
    first = here.store.purchases.spent("one")
    plain(close_job)(JobEngine("two"), {"clocks": 3})
    plain(end_machines)(JobEngine("two"))
    here.clock.at_s += 7200
    for job_id in ("two", "one"):
        plain(book_ledger)(job_id)
    rule = by_second if second.billing_model.by_second else by_hour
    assert here.store.purchases.spent("one") == first > 0, (
        "what comes after its end does not change what the first has paid"
    )
    assert here.store.purchases.spent("one") + here.store.purchases.spent("two") == sum(
        bill_of(here.market, rule, rule).values()
    )
    for job_id in ("one", "two"):
        assert sum(row.spent for row in cost_rows([job_id])) == here.store.purchases.spent(job_id)


def test_a_budget_counts_what_the_next_job_pays_alone(here: TaskRuntime) -> None:
    second = queued("two", budget_usd=5.0)
    first_ends(here, second, after_s=3000)
    begin(here, second)
    spending = spending_now(second, JobEngine("two").cached())
    assert spending is not None
    bought = queued("alone", budget_usd=5.0, queue=None)
    here.begin(bought)
    here.tick(bought)
    anew = spending_now(bought, JobEngine("alone").cached())
    assert anew is not None
    assert spending.committed_micros < anew.committed_micros, "the hour that the first has paid is not counted"


def test_what_the_next_job_cannot_use_is_let_go(here: TaskRuntime, no_prefect: Any) -> None:
    reliable = {"count": 1, "instance_type": OTHER.instance_type, "zone": OTHER.zone}
    second = queued("two", reliable=reliable, transient={"max_vcpus": 2, "allocation_vcpus": 2})
    first_ends(here, second, billing="hourly-refund")
    begin(here, second)
    assert sorted(held(here, "two")) == ["two-reliable-0"], "another type, and more vCPUs than it may hold"
    assert held(here, "two")["two-reliable-0"].bought_for is None
    here.clock.at_s += 120
    no_prefect("one")
    assert [r.allocation.tier for r in held(here, "one").values()] == ["transient"], "on demand they go at once"
    for _ in range(15):
        here.clock.at_s += 120
        no_prefect("one")
    assert held(here, "one") == {}, "spot machines at the end of their hour"


def test_spot_machines_of_a_market_that_the_next_job_excludes_are_not_taken_over(here: TaskRuntime) -> None:
    markets = {"markets": [str(MARKET), str(OTHER)], "exclude_markets": [str(MARKET)]}
    second = queued("two", transient=markets)
    first_ends(here, second)
    begin(here, second)
    assert sorted(held(here, "two")) == ["two-reliable-0"]


@pytest.mark.parametrize("other", [{"queue": "another"}, {"transient": {"billing": "hourly-refund"}}])
def test_without_a_next_job_that_can_take_them_the_machines_go(
    here: TaskRuntime, no_prefect: Any, other: dict[str, Any]
) -> None:
    second = queued("two", **other)
    first_ends(here, second, billing="per-second-first-hour-free")
    here.clock.at_s += 120
    no_prefect("one")
    here.clock.at_s += 120
    no_prefect("one")
    assert alive(here) == []


def test_a_next_job_that_does_not_begin_in_time_lets_the_machines_go(here: TaskRuntime, no_prefect: Any) -> None:
    first_ends(here, queued("two"), billing="per-second-first-hour-free")
    for _ in range(10):
        here.clock.at_s += 120
        no_prefect("two")
        no_prefect("one")
    assert "did not open it within 15 minutes" in str(here.store.jobs.job("two").failure)
    assert alive(here) == []
    assert here.store.purchases.spent("one") == sum(bill_of(here.market, by_second, by_second).values()), (
        "the last one's, then"
    )


@pytest.mark.parametrize("billing", BILLINGS)
def test_machines_are_kept_for_one_job_to_start_and_paid_by_the_first_from_then_on(
    here: TaskRuntime, no_prefect: Any, billing: str
) -> None:
    third = queued("three", transient={"billing": billing})
    first_ends(here, queued("two", transient={"billing": billing}), after_s=3300, billing=billing)
    here.clock.at_s += 1
    plain(record_job)(third)
    bought = alive(here)
    for _ in range(5):
        here.clock.at_s += 120
        no_prefect("one")
    assert alive(here) == bought
    plain(close_job)(JobEngine("two"), None, "its run did not open it")
    here.clock.at_s += 60
    no_prefect("one")
    assert len(alive(here)) == (0 if billing == BILLINGS[1] else 2), "the rest is no longer kept: its hour is paid"
    begin(here, third)
    assert set(held(here, "three")) >= ({"three-taken-0"} if billing == BILLINGS[0] else set())
    plain(close_job)(JobEngine("three"), {"clocks": 3})
    plain(end_machines)(JobEngine("three"))
    here.clock.at_s += 7200
    for job_id in ("three", "two", "one"):
        plain(book_ledger)(job_id)
    rule = by_second if billing == BILLINGS[1] else by_hour
    spent = sum(here.store.purchases.spent(job_id) for job_id in ("one", "two", "three"))
    assert spent == sum(bill_of(here.market, rule, rule).values())
    assert not [line for line in here.store.purchases.ledger("three") if "taken" in line.allocation_id], (
        "the hour that began before is the first one's"
    )


@pytest.mark.parametrize("stopped", ["two", "three"])
def test_a_job_that_is_stopped_while_it_waits_leaves_the_machines_to_the_others(
    here: TaskRuntime, no_prefect: Any, stopped: str
) -> None:
    billing = {"billing": "per-second-first-hour-free"}
    first_ends(here, queued("two", transient=billing), **billing)
    here.clock.at_s += 1
    plain(record_job)(queued("three", transient=billing))
    bought = alive(here)
    here.clock.at_s += 120
    request_stop(stopped, "asked", by="a user")
    no_prefect(stopped)
    assert here.store.jobs.job(stopped).state is JobState.STOPPED
    here.clock.at_s += 120
    no_prefect("one")
    assert alive(here) == bought
    (other,) = {"two", "three"} - {stopped}
    begin(here, queued(other, transient=billing))
    assert alive(here) == bought == sorted(name for record in held(here, other).values() for name in record.living_ids)
    plain(close_job)(JobEngine(other), {"clocks": 3})
    plain(end_machines)(JobEngine(other))
    here.clock.at_s += 7200
    for job_id in (other, "one"):
        plain(book_ledger)(job_id)
    spent = here.store.purchases.spent("one") + here.store.purchases.spent(other)
    assert spent == sum(bill_of(here.market, by_second, by_second).values())
    assert here.store.purchases.spent(stopped) == 0


def test_without_another_job_that_waits_the_machines_go_when_the_waiting_one_is_stopped(
    here: TaskRuntime, no_prefect: Any
) -> None:
    first_ends(here, queued("two"), billing="per-second-first-hour-free")
    request_stop("two", "asked", by="a user")
    no_prefect("two")
    here.clock.at_s += 120
    no_prefect("one")
    here.clock.at_s += 120
    no_prefect("one")
    assert alive(here) == []


def test_an_end_that_was_ordered_before_the_job_ended_is_carried_out_while_the_next_is_awaited(
    here: TaskRuntime, no_prefect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = queued("one")
    here.begin(first)
    here.tick(first)
    bought = alive(here)
    (position,) = held(here, "one").keys() - {"one-reliable-0"}
    unused = held(here, "one")[position].living_ids[0]
    here.store.jobs.observe("one", here.clock.at_s, ObservationKind.OFFER, {"nodes": [unused], "machines": 1})
    here.clock.at_s += HOUR_S - 200
    with monkeypatch.context() as patch:
        patch.setattr(task_runtime, "let_go", lambda *_: None)  # the tick dies
        assert "Lapse" in [type(order).__name__ for order in here.tick(first)]
    assert alive(here) == bought
    plain(record_job)(queued("two"))
    plain(close_job)(JobEngine("one"), {"clocks": 3})
    here.clock.at_s += 60
    no_prefect("one")
    assert alive(here) == sorted({*bought} - {unused})


def test_a_hand_over_while_leases_are_extended_leaves_those_of_the_next_job(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = queued("two")
    first_ends(here, second)
    bought = alive(here)

    def late(*_: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(job_leases, "next_to_take_over", next_to_take_over)
            begin(here, second)

    monkeypatch.setattr(job_leases, "next_to_take_over", late)
    plain(extend_leases)("one")
    assert {read_lease(here.runtime.blobs, "one", name).job for name in bought} == {"two"}


def test_a_process_that_dies_after_the_transaction_is_followed_by_a_tick(
    here: TaskRuntime, no_prefect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = queued("two")
    first_ends(here, second)
    bought = alive(here)

    def die(*_: Any) -> None:
        raise Killed

    plain(fetch_prices)(markets_of(second), history_days())
    plain(open_job)(second, JobEngine("two"))
    for place, name in ((JobTables, "observe"), (proteus_spot.tasks.market.hand_over, "extend_leases")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, die)
            with pytest.raises(Killed):
                plain(take_over)(second, JobEngine("two"))
        assert sorted(held(here, "two")) == ["two-reliable-0", "two-taken-0"]
    here.clock.at_s += 120
    no_prefect("one")
    no_prefect("two")
    assert alive(here) == bought
    assert {read_lease(here.runtime.blobs, "one", name).job for name in bought} == {"two"}


def test_a_machine_that_was_handed_over_has_one_life(here: TaskRuntime) -> None:
    first_ends(here, queued("two"))
    launched_at_s = here.market.log()[0].launched_at_s
    begin(here, queued("two"))
    here.clock.at_s += 600
    lives = here.store.markets.lives([MARKET], launched_at_s, int(here.clock.at_s))
    assert [(life.launched_at_s, life.until_s) for life in lives] == [(launched_at_s, int(here.clock.at_s))] * 2


def test_a_machine_goes_on_from_job_to_job_and_back_to_one_that_is_begun_again(
    here: TaskRuntime, no_prefect: Any
) -> None:
    first_ends(here, queued("two"))
    bought = alive(here)
    begin(here, queued("two"))
    here.store.jobs.observe("two", here.clock.at_s, ObservationKind.NODES, dict.fromkeys(bought, "ready"))
    here.clock.at_s += 600
    plain(record_job)(queued("three"))
    plain(close_job)(JobEngine("two"), None, "it raised")
    begin(here, queued("three"))
    assert {record.bought_for for record in held(here, "three").values()} == {"one"}
    assert {read_lease(here.runtime.blobs, "one", name).job for name in bought} == {"three"}
    here.clock.at_s += 600
    for job_id in ("one", "two", "three"):
        no_prefect(job_id)
    assert (
        alive(here) == bought == sorted(name for record in held(here, "three").values() for name in record.living_ids)
    )
    assert job_machines("one") == job_machines("two") == []

    plain(close_job)(JobEngine("three"), {"clocks": 3})
    plain(reopen_job)(JobEngine("two"))
    here.clock.at_s += 120
    no_prefect("three")
    assert alive(here) == bought, "what the second took over in its first life does not count"
    plain(take_over)(queued("two"), JobEngine("two"))
    assert sorted(held(here, "two")) == ["two-reliable-0-again-1", "two-taken-1"]
    here.clock.at_s += 300
    assert vcpu_seconds(queued("two"), here.clock.at_s) == len(bought) * 2 * (600 + 120 + 300), "no time counts twice"
    plain(close_job)(JobEngine("two"), {"clocks": 3})
    plain(end_machines)(JobEngine("two"))
    here.clock.at_s += 7200
    for job_id in ("three", "two", "one"):
        plain(book_ledger)(job_id)
    spent = {job_id: here.store.purchases.spent(job_id) for job_id in ("one", "two", "three")}
    assert sum(spent.values()) == sum(bill_of(here.market, by_hour, by_hour).values())


def test_a_market_that_lists_nothing_of_the_job_before_does_not_hold_the_next_one_up(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = queued("two")
    first_ends(here, second)
    here.clock.at_s += 600
    plain(fetch_prices)(markets_of(second), history_days())
    plain(open_job)(second, JobEngine("two"))
    with monkeypatch.context() as patch:
        patch.setattr(here.market, "describe", lambda *_: [])
        plain(take_over)(second, JobEngine("two"))
    assert held(here, "two") == {}
    assert sorted(held(here, "one")) == ["one-buy-0", "one-reliable-0"], "they are the first job's to end"


def test_of_two_jobs_that_have_ended_no_more_is_taken_over_than_the_next_may_hold(here: TaskRuntime) -> None:
    for job_id in ("one", "two"):
        here.begin(queued(job_id))
        here.tick(queued(job_id))
        here.clock.at_s += 60
    assert len(alive(here)) == 6
    for job_id in ("one", "two"):
        plain(close_job)(JobEngine(job_id), {"clocks": 3})
    plain(record_job)(queued("three"))
    begin(here, queued("three"))
    assert {name: record.living_count for name, record in held(here, "three").items()} == {
        "three-reliable-0": 1,
        "three-taken-0": 2,
    }


def ending_one(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have the first job order the end of one of its spot machines, and end; return the machine, which lives."""
    first = queued("one")
    here.begin(first)
    here.tick(first)
    unused = next(record for record in held(here, "one").values() if record.allocation.bid_micros).living_ids[0]
    here.store.jobs.observe("one", here.clock.at_s, ObservationKind.OFFER, {"nodes": [unused], "machines": 1})
    here.clock.at_s += HOUR_S - 200
    with monkeypatch.context() as patch:
        patch.setattr(task_runtime, "let_go", lambda *_: None)  # the tick dies
        assert "Lapse" in [type(order).__name__ for order in here.tick(first)]
    plain(record_job)(queued("two"))
    plain(close_job)(JobEngine("one"), {"clocks": 3})
    return unused


def test_machines_of_which_some_are_to_end_are_not_taken_over(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending_one(here, monkeypatch)
    begin(here, queued("two"))
    assert sorted(held(here, "two")) == ["two-reliable-0"]


def test_a_machine_that_is_noticed_after_its_end_was_ordered_is_left_to_the_market(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hour is refunded."""
    unused = ending_one(here, monkeypatch)
    engine, takes_at_s = JobEngine("one"), {unused: int(here.clock.at_s) + 120}
    (order,) = plain(decide)(engine, job_machines("one"), {}, {})
    assert order.instance_ids == (unused,)
    assert plain(decide)(engine, job_machines("one"), {}, takes_at_s) == []
