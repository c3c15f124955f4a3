"""Machines: bought once, let go, kept over a pause, and found when nobody wants them."""

from dataclasses import replace

import pytest

from proteus_spot.bidding.billing.spending import Use
from proteus_spot.bidding.engine.orders import client_token
from proteus_spot.bidding.engine.reconcile import by_order, reconcile
from proteus_spot.bidding.market.model import OWNER_TAG, EndCause, InstanceState, LaunchRequest
from proteus_spot.infra.errors import JobFailed
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.state.records import JobState
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.tasks.job_records import record_job
from proteus_spot.tasks.local_market.pause import pause
from proteus_spot.tasks.market.costs import cost_rows
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_job
from proteus_spot.tasks.market.listed_machines import machine_names, terminate
from proteus_spot.tasks.market.purchases.reliable_purchases import (
    release_reliable_tier,
    secure_reliable_tier,
    surplus_machines,
)
from proteus_spot.tasks.market.reaping import orphans
from proteus_spot.tasks.reports.job_summary import summary
from proteus_spot.tasks.training.running_controller import await_controller
from tests.support.task_runtime import BEGIN_S, MARKET, ON_DEMAND, TaskRuntime, plain, spec


def test_the_reliable_tier_is_bought_once(here: TaskRuntime) -> None:
    here.begin(spec())
    plain(secure_reliable_tier)(spec(), JobEngine("job"))
    assert len(here.facts(spec())) == 1
    assert machine_names("job", {"job-reliable-0": ()}) == [here.facts(spec())[0].instance_id]


def _stray(here: TaskRuntime, job_id: str, token: str) -> str:
    tags = {OWNER_TAG: here.runtime.owner, "proteus:job": job_id, "proteus:order": token}
    return here.market.launch(LaunchRequest(token, MARKET, 1, None, "", tags))[0].instance_id


def test_orphans_are_what_no_open_job_and_no_book_wants(here: TaskRuntime) -> None:
    here.begin(spec())
    stray = _stray(here, "gone", "stray")
    grace_s = 2 * here.runtime.settings.tick_s
    assert plain(orphans)() == {}, "may not be in the book yet"
    here.clock.at_s += grace_s
    assert plain(orphans)() == {"gone": [stray]}
    found = plain(orphans)()
    plain(terminate)([name for names in found.values() for name in names])
    assert plain(orphans)() == {}


def test_a_spot_machine_that_waits_for_the_end_of_its_hour_is_no_orphan(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())
    plain(close_job)(JobEngine("job"), {})
    plain(release_reliable_tier)(JobEngine("job"))
    stray = _stray(here, "job", "stray")
    here.clock.at_s += 1000
    assert plain(orphans)() == {"job": [stray]}
    assert sum(fact.alive for fact in here.facts(spec())) == 3


def test_a_machine_that_somebody_stopped_is_an_orphan_once_the_book_has_lost_it(here: TaskRuntime) -> None:
    """It is not terminated: its disk is paid, and it may be started again."""
    job = spec()
    here.begin(job)
    (machine,) = here.market.log()
    here.market.add_fault(Fault(FaultKind.STOP, instance_id=machine.instance_id))
    here.clock.at_s += 3600
    here.tick(job)
    assert plain(orphans)() == {"job": [machine.instance_id]}
    plain(terminate)([machine.instance_id])
    assert here.market.log()[0].state is InstanceState.TERMINATED


def test_machines_of_another_owner_are_let_alone(here: TaskRuntime) -> None:
    here.market.launch(LaunchRequest("x", MARKET, 1, None, "", {OWNER_TAG: "db-other", "proteus:job": "theirs"}))
    here.clock.at_s += 100_000
    assert plain(orphans)() == {}


# -- broken off ----------------------------------------------------------------------------------------------------


def test_a_job_that_is_paused_in_a_market_that_stays_keeps_its_machines(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())
    before = here.facts(spec())
    said = pause("job", "proteus run", market_stays=True)
    assert said == "job job is paused at clock 0 ($0.1450 spent) and leaves nothing running; to go on: proteus run"
    assert here.facts(spec()) == before
    assert here.store.purchases.spent("job") == ON_DEMAND + 2 * 20_000 == _bill(here)
    assert not here.store.jobs.job("job").state.terminal


def test_a_job_that_is_paused_in_a_market_of_others_lets_all_go_and_buys_again(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())
    here.clock.at_s += 600
    said = pause("job", "proteus run", market_stays=False)
    assert "is paused" in said
    assert not any(fact.alive for fact in here.facts(spec()))
    assert not here.store.purchases.allocations("job", alive=True)
    assert {record.end_cause for record in here.store.purchases.allocations("job")} == {EndCause.USER}
    assert here.store.purchases.spent("job") == ON_DEMAND + 2 * 20_000 == _bill(here)
    assert pause("job", "proteus run", market_stays=False) == said

    plain(secure_reliable_tier)(spec(), JobEngine("job"))
    plain(secure_reliable_tier)(spec(), JobEngine("job"))
    orders = [record.order_id for record in here.store.purchases.allocations("job", alive=True)]
    assert orders == ["job-reliable-0-again-1"]


def test_a_reliable_tier_that_is_lost_again_and_again_ends_the_job(here: TaskRuntime) -> None:
    here.begin(spec())
    for _ in range(5):
        pause("job", "proteus run", market_stays=False)
        plain(secure_reliable_tier)(spec(), JobEngine("job"))
    pause("job", "proteus run", market_stays=False)
    with pytest.raises(JobFailed, match="job job: the reliable tier was lost 6 times; find out what ends it"):
        plain(secure_reliable_tier)(spec(), JobEngine("job"))


def test_a_job_that_failed_lets_all_go(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())
    plain(close_job)(JobEngine("job"), None, "the application raised")
    here.clock.at_s += 60
    said = pause("job", "proteus run", market_stays=True)
    assert said.startswith("job job failed (the application raised), $0.1450 spent, and leaves nothing running")
    assert not any(fact.alive for fact in here.facts(spec()))


def test_a_job_that_was_trained_stays_trained_and_waits_for_its_hours_to_end(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())
    plain(close_job)(JobEngine("job"), {})
    assert "job job is trained" in pause("job", "COMMAND", market_stays=True)
    assert here.store.jobs.job("job").state is JobState.FINISHED
    assert here.store.purchases.allocations("job", alive=True)


def test_pausing_what_was_not_begun_writes_nothing(here: TaskRuntime) -> None:
    assert pause("job", "COMMAND", market_stays=True) == "nothing was bought; to begin again: COMMAND"
    assert here.store.jobs.list_jobs() == []
    plain(record_job)(spec())
    assert "paused at clock 0 ($0.0000 spent)" in pause("job", "COMMAND", market_stays=True)


# -- the bill -------------------------------------------------------------------------------------------------------


def _bill(here: TaskRuntime) -> int:
    """Each instance by itself: hours that began, less the one in which it was evicted."""
    total = 0
    for fact in here.market.log():
        end_s = fact.ended_at_s if fact.ended_at_s is not None else here.market.now_s + 1
        for hour_s in range(fact.launched_at_s, end_s, 3600):
            if fact.end_cause is EndCause.EVICTED and end_s < hour_s + 3600:
                continue
            price = ON_DEMAND if fact.bid_micros is None else here.market.traces[fact.market].price_at(hour_s)
            assert price is not None
            total += price
    return total


def test_the_ledger_is_the_bill_when_an_allocation_ends_as_one(taking: TaskRuntime) -> None:
    taking.begin(spec())
    taking.tick(spec())
    for at_s in (1400, 1560, 3700):
        taking.clock.at_s = BEGIN_S + at_s
        taking.tick(spec())
    assert [fact.end_cause for fact in taking.market.log()].count(EndCause.EVICTED) >= 2
    assert taking.store.purchases.spent("job") == _bill(taking) == 2 * ON_DEMAND


def test_the_ledger_is_the_bill_when_one_machine_of_an_allocation_ends_early(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())
    lost = next(fact for fact in here.facts(spec()) if fact.bid_micros is not None)
    here.clock.at_s += 600
    here.market.add_fault(Fault(FaultKind.KILL, instance_id=lost.instance_id))
    here.clock.at_s += 120
    here.tick(spec())
    pause("job", "COMMAND", market_stays=False)
    assert here.store.purchases.spent("job") == _bill(here)


def test_the_ledger_is_the_bill_over_the_hours_that_the_rest_of_an_allocation_lives(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())
    lost = next(fact for fact in here.facts(spec()) if fact.bid_micros is not None)
    here.clock.at_s = BEGIN_S + 600
    here.market.add_fault(Fault(FaultKind.KILL, instance_id=lost.instance_id))
    here.market.add_fault(Fault(FaultKind.CAPACITY))  # it is not replaced
    spent = []
    for at_s in (720, 3540, 3660, 4500, 7260):
        here.clock.at_s = BEGIN_S + at_s
        here.tick(spec())
        spent.append(here.store.purchases.spent("job"))
        record = next(r for r in here.store.purchases.allocations("job") if lost.instance_id in r.instance_ids)
        assert record.instance_ends == {lost.instance_id: (BEGIN_S + 600, EndCause.EVICTED)}
        assert record.alive
    hour = ON_DEMAND + 20_000
    assert spent == [hour + 20_000, hour + 20_000, 2 * hour, 2 * hour, 3 * hour], "refunded when the hour is over"
    assert spent[-1] == _bill(here)
    pause("job", "COMMAND", market_stays=False)
    assert here.store.purchases.spent("job") == _bill(here)
    row = next(row for row in cost_rows(["job"]) if row.tier == "transient")
    assert (row.spent, row.charged, row.uses[Use.REFUNDED], row.machine_hours) == (60_000, 80_000, 20_000, 4)
    told = summary("job")["machine_hours"]
    assert told == pytest.approx({"on_demand": 7260 / 3600, "paid": 7260 / 3600, "free": 600 / 3600})


def test_a_machine_that_shuts_down_by_itself_ends_when_it_is_seen_if_the_market_gives_no_date(
    here: TaskRuntime,
) -> None:
    here.begin(spec())
    here.tick(spec())
    first, second = (fact for fact in here.facts(spec()) if fact.bid_micros is not None)
    down = replace(first, state=InstanceState.SHUTTING_DOWN, end_cause=EndCause.USER)
    others = [fact for fact in here.facts(spec()) if fact.bid_micros is None]
    here.clock.at_s += 600
    for seen in (down, replace(down, ended_at_s=BEGIN_S + 500)):
        groups = by_order([*others, seen, second])
        JobEngine("job").commit(
            lambda engine, groups=groups: reconcile(engine.holdings, groups, {}, int(here.clock.at_s)), groups
        )
        here.clock.at_s += 600
    record = next(r for r in here.store.purchases.allocations("job") if r.allocation_id == first.order_id)
    assert record.instance_ends == {first.instance_id: (BEGIN_S + 600, EndCause.USER)}


def test_every_machine_says_whose_it_is_for_which_job_and_order_and_until_when(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())
    for fact in here.facts(spec()):
        assert fact.tags[OWNER_TAG] == here.runtime.owner
        assert fact.tags["proteus:job"] == "job"
        assert fact.token == client_token(here.runtime.owner, fact.tags["proteus:order"])
        assert int(fact.tags["proteus:expires"]) > BEGIN_S + 86_400


def test_nothing_is_bought_or_waited_for_when_a_tick_has_found_the_work_done(here: TaskRuntime) -> None:
    here.begin(spec())
    here.runtime.blobs.write_set(JobPaths("job").model, {}, {"clocks": 3, "lost_micro_tasks": 0})
    plain(close_job)(JobEngine("job"), {"clocks": 3})
    plain(release_reliable_tier)(JobEngine("job"))
    assert plain(await_controller)("job") is None
    plain(secure_reliable_tier)(spec(), JobEngine("job"))
    assert not any(fact.alive for fact in here.facts(spec()))


def test_of_too_many_reliable_machines_the_newest_stays(here: TaskRuntime) -> None:
    here.begin(spec())
    (older,) = alive(here)
    here.clock.at_s += 60
    here.store.purchases.record_instance_ends("job-reliable-0", {older: (here.runtime.now_s(), EndCause.USER)})
    plain(secure_reliable_tier)(spec(), JobEngine("job"))
    assert surplus_machines(spec()) == []
    here.store.purchases.record_instance("job-reliable-0", older)
    assert len(alive(here)) == 2
    assert surplus_machines(spec()) == [older]


def alive(here: TaskRuntime) -> list[str]:
    return [fact.instance_id for fact in here.market.log() if fact.alive]
