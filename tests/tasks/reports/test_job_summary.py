"""What is told of a job is what the journal, the ledger and the result hold."""

import pytest

from proteus_spot.infra.state.records import JobState, ObservationKind
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_job
from proteus_spot.tasks.market.purchases.reliable_purchases import release_reliable_tier
from proteus_spot.tasks.reports.job_summary import hour_end_decisions, snapshot, summary
from tests.support.task_runtime import BEGIN_S, ON_DEMAND, TaskRuntime, plain, spec

RESULT = {"accuracy": 0.97, "clocks": 3, "repeated_micro_tasks": 1, "lost_micro_tasks": 0}


def test_an_unknown_job_has_no_snapshot(here: TaskRuntime) -> None:
    assert snapshot("job") is None


def test_a_snapshot_tells_how_the_job_stands(here: TaskRuntime) -> None:
    here.begin(spec())
    here.clock.at_s += 60
    here.tick(spec())
    here.store.jobs.move_job("job", JobState.RUNNING, here.clock.at_s)
    here.store.jobs.observe(
        "job", here.clock.at_s, ObservationKind.PROGRESS, {"clock": 7, "loss": 0.5, "ready": 2, "stage": 1}
    )
    shot = snapshot("job")
    assert shot is not None
    assert (shot.state, shot.clock, shot.loss, shot.nodes_ready, shot.market_s) == ("running", 7, 0.5, 2, 60)
    assert (shot.acquisitions, shot.evictions, shot.hour_end_decisions) == (1, 0, 0)
    assert [(h.market, h.count, h.tier, h.state) for h in shot.holdings] == [
        ("c4.large/us-east-1a", 1, "reliable", "held"),
        ("c4.large/us-east-1a", 2, "transient", "held"),
    ]
    assert shot.holdings[0].bid == "on demand"
    assert (shot.spent_micros, shot.refunded_micros) == (ON_DEMAND + 2 * 20_000, 0)
    assert shot.last_decision.startswith("Acquire: 2 x c4.large/us-east-1a")


def test_a_summary_of_a_job_that_was_evicted(taking: TaskRuntime) -> None:
    taking.begin(spec())
    taking.clock.at_s += 60
    taking.tick(spec())
    taking.clock.at_s = BEGIN_S + 1400  # marked: it will be taken at 1500
    allocation = taking.store.purchases.allocations("job")[-1].allocation_id
    taking.tick(spec(), {allocation: BEGIN_S + 1500})
    shot = snapshot("job")
    assert shot is not None
    assert [h.state for h in shot.holdings] == ["held", "noticed"]
    taking.clock.at_s = BEGIN_S + 1560
    taking.tick(spec())
    plain(close_job)(JobEngine("job"), RESULT)
    plain(release_reliable_tier)(JobEngine("job"))
    taking.tick(spec())
    told = summary("job")
    assert told["state"] == "finished"
    assert told["ledger_usd"] == 0.105
    assert told["refunded_usd"] == 0.04
    assert (told["acquisitions"], told["evictions"], told["notices"]) == (1, 1, 1)
    assert {key: told[key] for key in RESULT} == RESULT
    assert told["market_seconds"] == 1560
    assert told["machine_hours"] == pytest.approx({"on_demand": 1560 / 3600, "paid": 0.0, "free": 2 * 1440 / 3600})
    on_demand = (1560 + 2 * 1440) / 3600 * 0.105
    assert told["on_demand_usd"] == pytest.approx(on_demand)
    assert told["cost_vs_on_demand"] == pytest.approx(0.105 / on_demand)


def test_a_job_that_bought_nothing_has_no_ratio(here: TaskRuntime) -> None:
    from proteus_spot.tasks.job_records import record_job

    plain(record_job)(spec())
    told = summary("job")
    assert told["cost_vs_on_demand"] is None
    assert told["accuracy"] is None
    assert told["ledger_usd"] == 0


def test_an_hour_is_decided_once_however_often_the_order_is_repeated(here: TaskRuntime) -> None:
    here.begin(spec())
    here.clock.at_s += 60
    here.tick(spec())
    plain(close_job)(JobEngine("job"), RESULT)
    from proteus_spot.tasks.market.decisions import decide

    for after_s in (3500, 3550):  # the order to let go dies with its tick, twice
        here.clock.at_s = BEGIN_S + after_s
        assert plain(decide)(JobEngine("job"), here.facts(spec()), {}, {})
    kinds = [entry.record["kind"] for entry in here.store.journals.entries("job")]
    assert kinds.count("Lapse") == 2
    assert hour_end_decisions(here.store.journals.entries("job")) == 1
