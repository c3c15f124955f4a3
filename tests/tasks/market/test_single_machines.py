"""Machines one by one: some are taken, some are missing in an answer, some are found late; none is forgotten."""

from dataclasses import replace
from typing import Any

import pytest

from proteus_spot.bidding.engine.allocations import AllocationState, MachineState
from proteus_spot.bidding.market.model import EndCause, InstanceFact
from proteus_spot.bidding.market.spot_market import LaunchRefused, MarketUnreachable
from proteus_spot.infra.errors import TickStopped
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.state.records import IntentState
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_job
from proteus_spot.tasks.market.listed_machines import terminate
from proteus_spot.tasks.market.purchases.reliable_purchases import release_reliable_tier, secure_reliable_tier
from proteus_spot.tasks.market.reaping import enter, orphans
from proteus_spot.tasks.reports.job_summary import snapshot, summary
from tests.support.purchases import empty
from tests.support.task_runtime import BEGIN_S, MARKET, ON_DEMAND, OTHER, TaskRuntime, plain, spec

TICK_S = 120
PRICE = 20_000


def _spot(here: TaskRuntime) -> list[InstanceFact]:
    return [fact for fact in here.facts(spec()) if fact.bid_micros is not None and fact.alive]


def _run(here: TaskRuntime, until_s: int, *, job: str = "job") -> None:
    """Tick every two minutes until `until_s` after the job's begin; the limit on vCPUs holds at every tick."""
    for at_s in range(int(here.clock.at_s) + TICK_S, BEGIN_S + until_s + 1, TICK_S):
        here.clock.at_s = at_s
        here.tick(spec(job))
        assert 2 * len(_spot(here)) <= spec().transient.max_vcpus


def _bill(here: TaskRuntime) -> int:
    """Return the market's bill: of each machine the hours that began, less the one in which it was evicted."""
    total = 0
    for fact in here.market.log():
        end_s = fact.ended_at_s if fact.ended_at_s is not None else here.market.now_s + 1
        for hour_s in range(fact.launched_at_s, end_s, 3600):
            if fact.end_cause is not EndCause.EVICTED or hour_s + 3600 <= end_s:
                total += ON_DEMAND if fact.bid_micros is None else PRICE
    return total


def _in_the_book(here: TaskRuntime) -> set[str]:
    return {name for record in here.store.purchases.allocations("job", alive=True) for name in record.living_ids}


def _alive(here: TaskRuntime) -> set[str]:
    return {fact.instance_id for fact in here.facts(spec()) if fact.alive}


def _end_all(here: TaskRuntime) -> None:
    """Close the job and tick until the hour of every machine is over; nothing lives, and the ledger is the bill."""
    plain(close_job)(JobEngine("job"), {})
    plain(release_reliable_tier)(JobEngine("job"))
    _run(here, int(here.clock.at_s) - BEGIN_S + 2 * 3600)
    assert _alive(here) == _in_the_book(here) == set()
    assert plain(orphans)() == {}
    assert here.store.purchases.spent("job") == _bill(here)


def _mark(here: TaskRuntime, patch: pytest.MonkeyPatch, marks: dict[str, int]) -> None:
    """Have the market mark machines, by id, for the second at which it will take them."""
    describe = here.market.describe

    def marked(*names: Any, **more: Any) -> list[InstanceFact]:
        facts = describe(*names, **more)
        return [
            replace(fact, notice_at_s=marks[fact.instance_id]) if fact.alive and fact.instance_id in marks else fact
            for fact in facts
        ]

    patch.setattr(here.market, "describe", marked)


# -- one of several is taken -----------------------------------------------------------------------------------------


def test_a_machine_that_is_taken_from_an_allocation_is_replaced_and_the_rest_is_held_renewed_and_ended(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    here.tick(spec())
    taken, left = (fact.instance_id for fact in _spot(here))
    _mark(here, monkeypatch, {taken: BEGIN_S + 720})
    _run(here, 600)
    position = JobEngine("job").refresh().holdings.positions["job-buy-0"]
    assert (position.standing, position.machines[taken].state) == (AllocationState.HELD, MachineState.NOTICED)
    assert len(_spot(here)) == 2, "the noticed machine counts until it is gone"
    here.clock.at_s = BEGIN_S + 720
    here.market.add_fault(Fault(FaultKind.KILL, instance_id=taken))
    _run(here, 4 * 3600)
    assert len(_spot(here)) == 2
    assert _alive(here) == _in_the_book(here)
    assert left in _alive(here)
    renewed = [
        e.record
        for e in here.store.journals.entries("job", kinds=("Renew",))
        if e.record["allocation_id"] == "job-buy-0"
    ]
    assert len(renewed) >= 3
    _end_all(here)


def test_a_machine_that_is_lost_without_a_notice_is_replaced(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())
    lost = _spot(here)[1].instance_id
    here.clock.at_s += 600
    here.market.add_fault(Fault(FaultKind.KILL, instance_id=lost))
    _run(here, 720)
    _run(here, 840)
    assert len(_spot(here)) == 2
    assert [r.living_count for r in here.store.purchases.allocations("job")] == [1, 1, 1]
    _end_all(here)


def test_a_noticed_machine_that_the_market_leaves_is_held_again_and_ends_with_its_hour(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    here.tick(spec())
    _mark(here, monkeypatch, {fact.instance_id: BEGIN_S + 300 for fact in _spot(here)})
    _run(here, 240)
    assert JobEngine("job").refresh().holdings.positions["job-buy-0"].standing is AllocationState.NOTICED
    _run(here, 900)
    assert JobEngine("job").refresh().holdings.positions["job-buy-0"].standing is AllocationState.HELD
    assert len(_spot(here)) == 2
    _end_all(here)


def test_a_notice_of_one_machine_leaves_the_other_in_the_footprint_and_the_report_says_so(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())
    first, second = (fact.instance_id for fact in _spot(here))
    here.clock.at_s += 60
    here.tick(spec(), {first: BEGIN_S + 180})
    engine = JobEngine("job").refresh()
    assert [a.count for a in engine.holdings.footprint if a.bid_micros is not None] == [1]
    now = snapshot("job")
    assert now is not None
    assert [(h.tier, h.count, h.state) for h in now.holdings] == [
        ("transient", 1, "held"),
        ("transient", 1, "noticed"),
        ("reliable", 1, "held"),
    ]
    here.tick(spec(), {second: BEGIN_S + 190})
    assert JobEngine("job").refresh().holdings.positions["job-buy-0"].standing is AllocationState.NOTICED
    assert summary("job")["notices"] == 2


def test_a_notice_that_machine_and_market_report_is_entered_once_and_that_of_the_last_machine_is_the_allocations(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    here.tick(spec())
    one, other = (fact.instance_id for fact in _spot(here))
    takes_at_s = BEGIN_S + TICK_S
    _mark(here, monkeypatch, {one: takes_at_s})
    here.clock.at_s += 30
    here.tick(spec(), {one: takes_at_s, other: takes_at_s})
    entries = here.store.journals.entries("job", kinds=("MachineNoticed", "NoticeSeen"))
    assert [(e.record["kind"], e.record.get("instance_id")) for e in entries] == [
        ("MachineNoticed", one),
        ("NoticeSeen", None),
    ]
    assert JobEngine("job").refresh().holdings.positions["job-buy-0"].standing is AllocationState.NOTICED


def test_a_lost_machine_of_several_reliable_ones_is_replaced(here: TaskRuntime) -> None:
    three = spec().model_copy(update={"reliable": spec().reliable.model_copy(update={"count": 3})})
    here.begin(three)
    lost = next(fact for fact in here.facts(three) if fact.order_id == "job-reliable-1")
    here.market.terminate([lost.instance_id])
    here.clock.at_s += 60
    here.tick(three)
    plain(secure_reliable_tier)(three, JobEngine("job"))
    plain(secure_reliable_tier)(three, JobEngine("job"))
    alive = [(fact.order_id, fact.bid_micros) for fact in here.facts(three) if fact.alive and fact.bid_micros is None]
    assert sorted(token for token, _ in alive) == ["job-reliable-0", "job-reliable-1", "job-reliable-1-again-1"]


# -- all vanish at once ----------------------------------------------------------------------------------------------


def test_an_answer_without_any_of_our_machines_stops_the_tick_and_nothing_is_bought_or_booked(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    here.tick(spec())
    _run(here, 3720)
    before, spent = here.store.purchases.allocations("job"), here.store.purchases.spent("job")
    with monkeypatch.context() as patch:
        patch.setattr(here.market, "describe", empty)
        here.clock.at_s += TICK_S
        with pytest.raises(TickStopped, match="job job: the market lists none of its 3 living machines") as caught:
            here.tick(spec())
        assert "\n" not in str(caught.value)
        plain(release_reliable_tier)(JobEngine("job"))  # on such an answer nothing is concluded either
    assert (here.store.purchases.allocations("job"), here.store.purchases.spent("job")) == (before, spent)
    plain(secure_reliable_tier)(spec(), JobEngine("job"))
    _run(here, 3 * 3600)
    assert len(_alive(here)) == 3
    assert _alive(here) == _in_the_book(here)
    _end_all(here)


def test_machines_that_were_given_up_and_are_listed_again_are_held_and_the_ledger_is_the_bill(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    here.tick(spec())
    _run(here, 1800)
    with monkeypatch.context() as patch:
        patch.setattr(here.market, "describe", empty)
        patch.setattr(here.market, "launch", _no_capacity)
        for at_s in range(1920, 1920 + 3600, TICK_S):
            here.clock.at_s = BEGIN_S + at_s
            with pytest.raises(TickStopped):
                here.tick(spec())
        here.clock.at_s = BEGIN_S + 1920 + 3600
        here.tick(spec())
        assert _in_the_book(here) == set(), "an hour of such answers is believed"
    assert len(_alive(here)) == 3
    _run(here, 6000)
    assert _alive(here) == _in_the_book(here)
    assert JobEngine("job").refresh().holdings.positions["job-buy-0"].standing is AllocationState.HELD
    _run(here, 4 * 3600)
    _end_all(here)


def _no_capacity(request: object) -> list[InstanceFact]:
    raise LaunchRefused("InsufficientInstanceCapacity", "none left")


# -- machines that are found late ------------------------------------------------------------------------------------


def test_machines_found_beyond_the_limit_stop_no_tick_and_are_booked_and_ended(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = spec(markets=[str(MARKET), str(OTHER)])
    here.begin(job)
    launch, describe, launched = here.market.launch, here.market.describe, []

    def lossy(request: object) -> list[InstanceFact]:
        launched.append(request)
        if len(launched) > 1:
            raise MarketUnreachable("RequestLimitExceeded", "slow down")
        launch(request)  # type: ignore[arg-type]
        raise LaunchRefused("InsufficientInstanceCapacity", "the answer of a request that was carried out all the same")

    def lagging(*names: Any, **more: Any) -> list[InstanceFact]:
        return [fact for fact in describe(*names, **more) if fact.bid_micros is None]

    with monkeypatch.context() as patch:
        patch.setattr(here.market, "launch", lossy)
        patch.setattr(here.market, "describe", lagging)
        here.tick(job)
        here.clock.at_s += 2
        here.tick(job)
    (second,) = JobEngine("job").refresh().holdings.open_orders.values()
    for _ in range(6 * 30):
        here.clock.at_s += TICK_S
        here.tick(job)
        assert _alive(here) == _in_the_book(here)
    assert 2 * len(_spot(here)) <= job.transient.max_vcpus
    assert plain(orphans)() == {}
    assert JobEngine("job").refresh().holdings.open_orders == {second.order_id: second}, (
        "it does not fit in beside the machines that were found"
    )
    _end_all(here)


def test_what_the_reaper_ends_is_in_the_ledger_of_its_job(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())
    _end_all(here)
    back = here.market.log()[0]
    tags = {**back.tags, "proteus:order": "job-buy-9"}
    request = replace(here.market.request_of(_last_spot(here)), token="job-buy-9", tags=tags)
    (late, _) = here.market.launch(request)
    here.clock.at_s += 2 * here.runtime.settings.tick_s
    (ids,) = plain(orphans)().values()
    assert late.instance_id in ids
    plain(enter)("job")
    assert late.instance_id in _in_the_book(here)
    assert plain(orphans)() == {}, "somebody will end it"
    plain(terminate)(ids)
    here.tick(spec())
    assert _alive(here) == _in_the_book(here) == set()
    assert here.store.purchases.spent("job") == _bill(here)


def _last_spot(here: TaskRuntime) -> str:
    return [fact.instance_id for fact in here.market.log() if fact.bid_micros is not None][-1]


def test_a_machine_beside_its_living_sisters_is_an_orphan_unless_it_is_in_the_book(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())
    lost = _spot(here)[0].instance_id
    here.store.purchases.record_instance_ends("job-buy-0", {lost: (BEGIN_S + 60, EndCause.USER)})
    here.clock.at_s += 2 * here.runtime.settings.tick_s
    assert plain(orphans)() == {"job": [lost]}, "although its job is open and its allocation held"


def test_a_machine_of_an_unanswered_purchase_is_no_orphan_while_ticks_will_answer_it(here: TaskRuntime) -> None:
    here.begin(spec())
    params = {"market": str(MARKET), "count": 1, "bid_micros": None}
    here.store.purchases.plan("job-reliable-7", "job", "acquire", "job-reliable-7", params, here.clock.at_s)
    request = here.market.request_of(here.market.log()[0].instance_id)
    request = replace(request, token="t", tags={**request.tags, "proteus:order": "job-reliable-7"})
    (stray,) = here.market.launch(request)
    here.clock.at_s += 2 * here.runtime.settings.tick_s
    assert plain(orphans)() == {}
    here.store.purchases.settle("job-reliable-7", IntentState.REFUSED, {}, here.clock.at_s)
    assert plain(orphans)() == {"job": [stray.instance_id]}
