"""A job's engine: one writer wins a race for the journal, the other decides again; nothing is half written."""

import threading

import pytest

import proteus_spot.tasks.market.engine_journal
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import AllocationGone, AllocationRefused, JobClosed, MachineGone, TickDue
from proteus_spot.bidding.market.model import HOUR_S, EndCause
from proteus_spot.infra.state.claims import ClaimTable
from proteus_spot.infra.state.records import IntentState
from proteus_spot.tasks.market.decisions import decide
from proteus_spot.tasks.market.engine_journal import JobEngine, unless_seen
from proteus_spot.tasks.market.job_opening import close_job
from proteus_spot.tasks.market.purchases.sending import Result, abandon_orders, buy
from proteus_spot.tasks.market.tick import claim_tick
from tests.support.task_runtime import BEGIN_S, MARKET, TaskRuntime, plain, spec
from tests.support.timeouts import PATIENCE


def test_of_two_at_once_both_are_entered_and_one_purchase_is_ordered(here: TaskRuntime) -> None:
    here.begin(spec())
    barrier = threading.Barrier(2)
    asked: list[int] = []
    orders: list[object] = []

    def tick(engine: BidEngine) -> list[TickDue]:
        asked.append(len(engine.holdings.positions))
        if len(asked) <= 2:
            barrier.wait(10 * PATIENCE)  # both have read the same journal
        return [TickDue(BEGIN_S + 60, {MARKET: 20_000})]

    threads = [threading.Thread(target=lambda: orders.extend(JobEngine("job").commit(tick))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20 * PATIENCE)
    assert len(asked) == 3, "the loser decided again"
    assert len({order.order_id for order in orders}) == 1  # type: ignore[attr-defined]
    planned = [i for i in here.store.purchases.intents("job", [IntentState.PLANNED]) if i.kind == "acquire"]
    assert len(planned) == 1
    assert [entry.seq for entry in here.store.journals.entries("job")] == list(
        range(len(here.store.journals.entries("job")))
    )


def test_a_failure_leaves_nothing_half_written(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    here.begin(spec())
    before = len(here.store.journals.entries("job"))
    monkeypatch.setattr("proteus_spot.tasks.market.engine_journal._decide", _fail)
    job_engine = JobEngine("job")
    with pytest.raises(ZeroDivisionError):
        job_engine.commit(lambda engine: [TickDue(BEGIN_S + 60, {MARKET: 20_000})])
    assert len(here.store.journals.entries("job")) == before
    assert job_engine.cached().holdings.open_orders == {}, "what was not written down did not happen"


def test_an_engine_that_lost_a_race_is_loaded_anew_once_and_goes_on(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    job_engine, beaten = JobEngine("job"), []
    job_engine.refresh()
    replays: list[int] = []
    replayed = proteus_spot.tasks.market.engine_journal.replay
    monkeypatch.setattr(
        proteus_spot.tasks.market.engine_journal,
        "replay",
        lambda records: replays.append(len(records)) or replayed(records),
    )

    def plan(engine: BidEngine) -> list[TickDue]:
        if not beaten:  # between the reading and the writing somebody else writes
            beaten.append(JobEngine("job").commit(lambda _: [TickDue(BEGIN_S + 30, {MARKET: 20_000})]))
            replays.clear()
        return [TickDue(BEGIN_S + 60, {MARKET: 20_000})]

    orders = job_engine.commit(plan)
    assert orders == beaten[0], "the other's purchase is ordered again, not a second one"
    assert replays == [len(here.store.journals.entries("job")) - 2]
    assert job_engine.commit(plan) == orders
    assert len(replays) == 1, "once loaded anew it goes on from the end"
    assert job_engine.cached().holdings.open_orders == JobEngine("job").refresh().holdings.open_orders


def _fail(*_: object) -> None:
    raise ZeroDivisionError


def test_once_enters_an_event_once(here: TaskRuntime) -> None:
    here.begin(spec())
    for at_s in (BEGIN_S + 1, BEGIN_S + 2):
        JobEngine("job").commit(unless_seen(JobClosed, JobClosed(at_s)))
    assert [e.at_s for e in here.store.journals.entries("job") if e.record["kind"] == "JobClosed"] == [BEGIN_S + 1]


def test_a_claim_is_held_by_one_and_given_back(here: TaskRuntime) -> None:
    with claim_tick("job") as mine:
        assert mine
        with claim_tick("job") as second:
            assert not second
        with claim_tick("other") as another:
            assert another
    with claim_tick("job") as again:
        assert again


def test_two_workers_whose_clocks_differ_do_not_both_hold_a_claim(here: TaskRuntime) -> None:
    with claim_tick("job") as mine:
        assert mine
        here.clock.at_s += 86_400  # as of a machine whose clock is a day ahead
        with claim_tick("job") as theirs:
            assert not theirs


def test_a_claim_of_the_dead_ends_by_itself_in_under_two_ticks(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    claim = ClaimTable.claim

    def noted(claims: ClaimTable, name: str, holder: str, ttl_s: float) -> bool:
        asked.append(ttl_s)
        return claim(claims, name, holder, ttl_s)

    monkeypatch.setattr(ClaimTable, "claim", noted)
    monkeypatch.setattr(here.clock, "scale", 60.0)
    with claim_tick("job") as mine:
        assert mine
    (ttl_s,) = asked
    assert here.runtime.settings.tick_s < ttl_s * here.clock.scale < 2 * here.runtime.settings.tick_s
    assert here.store.claims.claim("tick/job", "dead", 0.0)
    with claim_tick("job") as mine:
        assert mine


def test_who_is_patient_gets_the_claim_when_it_is_given_back(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.store.claims.claim("tick/job", "other", 180.0)
    waited: list[float] = []

    def wait_until(at_s: float, wake: object = None) -> bool:
        waited.append(at_s)
        here.clock.at_s = at_s
        if len(waited) == 3:
            here.store.claims.release("tick/job", "other")
        return False

    monkeypatch.setattr(here.clock, "wait_until", wait_until)
    with claim_tick("job", patience_s=60) as mine:
        assert mine
    assert len(waited) == 3


def test_an_order_that_was_not_carried_out_before_the_job_closed_is_abandoned(here: TaskRuntime) -> None:
    here.begin(spec())
    prices = {MARKET: 20_000}
    (order,) = plain(decide)(JobEngine("job"), here.facts(spec()), prices, {})
    plain(close_job)(JobEngine("job"), {})
    plain(decide)(JobEngine("job"), here.facts(spec()), prices, {})
    abandon_orders(JobEngine("job"))
    states = {intent.order_id: intent.state for intent in here.store.purchases.intents("job")}
    assert states[order.order_id] is IntentState.ABANDONED
    assert plain(buy)(spec(), JobEngine("job"), order).line == "answered meanwhile"
    assert len(here.facts(spec())) == 1, "only the reliable machine was bought"


def test_an_order_that_was_answered_is_not_carried_out_while_the_next_one_is_open(here: TaskRuntime) -> None:
    here.begin(spec())
    prices = {MARKET: 20_000}
    (first,) = plain(decide)(JobEngine("job"), here.facts(spec()), prices, {})
    JobEngine("job").commit(
        lambda _: [AllocationRefused(here.runtime.now_s(), first.order_id, "Capacity", "none left")]
    )
    here.clock.at_s += HOUR_S
    (second,) = plain(decide)(JobEngine("job"), here.facts(spec()), prices, {})
    assert second.order_id != first.order_id
    outcome = plain(buy)(spec(), JobEngine("job"), first)
    assert (outcome.result, outcome.line) == (Result.GRANTED, "answered meanwhile")
    assert JobEngine("job").refresh().holdings.open_orders == {second.order_id: second}


def test_the_end_of_an_allocation_settles_the_orders_to_end_it_and_no_others(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())
    for name in ("job-buy-0", "job-buy-1"):
        params = {"allocation_id": name, "hour": 1, "before_s": here.clock.at_s}
        here.store.purchases.plan(f"{name}-lapse-1", "job", "lapse", None, params, here.clock.at_s)
    JobEngine("job").commit(lambda engine: [AllocationGone(int(here.clock.at_s), "job-buy-0", EndCause.USER)])
    states = {name: here.store.purchases.intent(f"{name}-lapse-1").state for name in ("job-buy-0", "job-buy-1")}
    assert states == {"job-buy-0": IntentState.DONE, "job-buy-1": IntentState.PLANNED}


def spot_ids(here: TaskRuntime) -> list[str]:
    return [fact.instance_id for fact in here.facts(spec()) if fact.bid_micros is not None]


def test_an_order_to_end_some_of_several_machines_is_done_when_none_of_them_lives(here: TaskRuntime) -> None:
    job = spec(allocation_vcpus=8, max_vcpus=8)
    here.begin(job)
    here.tick(job)
    first, second, *others = spot_ids(here)
    assert len(others) == 2
    params = {"allocation_id": "job-buy-0", "hour": 1, "before_s": here.clock.at_s, "instance_ids": [first, second]}
    here.store.purchases.plan("lapse", "job", "lapse", None, params, here.clock.at_s)
    states = []
    for name in (others[0], first, second):
        gone = MachineGone(int(here.clock.at_s), "job-buy-0", name, EndCause.USER)
        JobEngine("job").commit(lambda _, gone=gone: [gone])
        states.append(here.store.purchases.intent("lapse").state)
    assert states == [IntentState.PLANNED, IntentState.PLANNED, IntentState.DONE]
