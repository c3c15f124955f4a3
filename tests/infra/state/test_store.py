"""The state database: jobs, the journal, intents, claims, observations."""

import time
from itertools import pairwise

import pytest
from sqlalchemy import event

from proteus_spot.bidding.market.model import EndCause
from proteus_spot.infra.state.records import (
    Entry,
    IllegalTransition,
    IntentConflict,
    IntentState,
    JobKind,
    JobState,
    JournalConflict,
    ObservationKind,
    StoreError,
    UnknownRecord,
)
from proteus_spot.infra.state.store import Store
from tests.support.journal_entries import HELD, SPEC, entries
from tests.support.timeouts import PATIENCE

# ---- jobs


def test_a_job_is_created_once_and_read_by_every_process(store: Store, url: str) -> None:
    job = store.jobs.create_job("job-1", SPEC, 99.0)
    assert (job.state, job.created_at_s, job.spec) == (JobState.STARTING, 10.5, SPEC)
    with Store.open(url) as other:
        assert other.jobs.job("job-1") == job
    with pytest.raises(StoreError, match="another spec"):
        store.jobs.create_job("job-1", {}, 99.0)


def test_a_sweep_and_a_job_never_share_an_id(store: Store) -> None:
    assert store.jobs.job("job-1").kind is JobKind.JOB
    sweep = store.jobs.create_job("sweep-1", SPEC, 99.0, JobKind.SWEEP)
    assert sweep.kind is JobKind.SWEEP
    assert store.jobs.job("sweep-1") == sweep
    with pytest.raises(StoreError, match="sweep job-1: is the id of a job"):
        store.jobs.create_job("job-1", SPEC, 99.0, JobKind.SWEEP)
    with pytest.raises(StoreError, match="job sweep-1: is the id of a sweep"):
        store.jobs.create_job("sweep-1", SPEC, 99.0)


def test_a_job_goes_through_its_life_and_its_end_is_sacred(store: Store) -> None:
    store.jobs.set_controller("job-1", "tcp://10.0.0.1:8786")
    for state in (JobState.RUNNING, JobState.WAITING, JobState.RUNNING, JobState.RUNNING, JobState.STARTING):
        assert store.jobs.move_job("job-1", state, 11.0).state is state
    done = store.jobs.move_job("job-1", JobState.FINISHED, 12.0, result={"accuracy": 0.97})
    assert (done.ended_at_s, done.result, done.controller_address) == (12.0, {"accuracy": 0.97}, "tcp://10.0.0.1:8786")
    assert store.jobs.move_job("job-1", JobState.FINISHED, 13.0, result={"accuracy": 0.1}) == done
    for state in JobState:
        if state is not JobState.FINISHED:
            with pytest.raises(IllegalTransition, match="job-1: is finished"):
                store.jobs.move_job("job-1", state, 14.0, failure="too late")
    assert store.jobs.job("job-1") == done


def test_a_stop_is_not_taken_back(store: Store) -> None:
    store.jobs.move_job("job-1", JobState.STOPPING, 11.0)
    with pytest.raises(IllegalTransition):
        store.jobs.move_job("job-1", JobState.RUNNING, 12.0)
    assert store.jobs.move_job("job-1", JobState.FAILED, 12.0, failure="why").failure == "why"


def test_jobs_are_listed_by_age_and_state(store: Store) -> None:
    store.jobs.create_job("job-0", {}, 11.0)
    store.jobs.move_job("job-0", JobState.FAILED, 12.0)
    assert [job.job_id for job in store.jobs.list_jobs()] == ["job-1", "job-0"]
    assert [job.job_id for job in store.jobs.list_jobs([JobState.FAILED, JobState.STOPPED])] == ["job-0"]
    assert store.jobs.find_job("job-0") == store.jobs.job("job-0")
    assert store.jobs.find_job("job-x") is None


def test_what_is_unknown_is_named(store: Store) -> None:
    calls = [
        lambda: store.jobs.job("job-x"),
        lambda: store.jobs.set_controller("job-x", None),
        lambda: store.jobs.move_job("job-x", JobState.RUNNING, 1.0),
        lambda: store.journals.append("job-x", 0, entries("tick")),
        lambda: store.purchases.plan("job-x/1", "job-x", "acquire", None, {}, 1.0),
        lambda: store.purchases.record_allocation("job-x", "o", HELD, []),
        lambda: store.jobs.observe("job-x", 1.0, ObservationKind.PROGRESS, {}),
    ]
    for call in calls:
        with pytest.raises(UnknownRecord, match="job job-x: is not in the state database"):
            call()
    with pytest.raises(UnknownRecord, match="order o"):
        store.purchases.settle("o", IntentState.DONE, {}, 1.0)
    with pytest.raises(UnknownRecord, match="allocation a"):
        store.purchases.end_allocation("a", 1, EndCause.USER)


# ---- journal


def test_the_journal_keeps_order_and_refuses_a_stale_writer(store: Store) -> None:
    assert store.journals.append("job-1", 0, entries("opened", "tick")) == 2
    assert store.journals.append("job-1", 2, []) == 2
    for stale in (0, 1, 3):
        with pytest.raises(JournalConflict, match=f"2 entries where {stale} were read"):
            store.journals.append("job-1", stale, entries("lost"))
    store.journals.append("job-1", 2, [Entry("order", 3.25, 4.0, {"nested": [1, {"a": None}]})])
    read = store.journals.entries("job-1")
    assert [(entry.seq, entry.direction, entry.at_s) for entry in read] == [
        (0, "event", 1.0),
        (1, "event", 1.0),
        (2, "order", 3.25),
    ]
    assert read[2].record == {"nested": [1, {"a": None}]}
    assert store.journals.entries("job-1", from_seq=2) == read[2:]
    assert len(store.journals.entries("job-1")) == 3


def test_the_records_of_some_kinds_are_read_alone(store: Store) -> None:
    store.journals.append("job-1", 0, entries("tick", "Lapse", "tick", "NoticeSeen", "tick", "Lapse"))
    assert [entry.seq for entry in store.journals.entries("job-1", kinds=("Lapse", "NoticeSeen"))] == [1, 3, 5]
    assert [entry.seq for entry in store.journals.entries("job-1", from_seq=2, kinds=("Lapse",))] == [5]
    assert store.journals.entries("job-1", kinds=("JobClosed",)) == []


def test_the_journal_of_a_job_of_twenty_hours_is_read_whole_and_in_order(store: Store) -> None:
    record = {"kind": "tick_due", "schema": 1, "prices": {f"c4.{i}xlarge/us-east-1a": 30_000 + i for i in range(20)}}
    for tick in range(600):
        store.journals.append(
            "job-1", 2 * tick, [Entry("event", tick, tick, record), Entry("order", tick, tick, record)]
        )
    assert [entry.at_s for entry in store.journals.entries("job-1")] == [tick for tick in range(600) for _ in range(2)]


# ---- intents


def test_an_intent_is_planned_once_and_settled_once(store: Store) -> None:
    params = {"market": "c4.large/us-east-1a", "counts": (1, 2)}
    planned = store.purchases.plan("job-1/1", "job-1", "acquire", "t-1", params, 5.0)
    assert store.purchases.plan("job-1/1", "job-1", "acquire", "t-1", params, 6.0) == planned
    assert store.purchases.intents("job-1", [IntentState.PLANNED]) == [planned]
    done = store.purchases.settle("job-1/1", IntentState.DONE, {"allocation_id": "a-1"}, 7.0)
    assert store.purchases.settle("job-1/1", IntentState.DONE, {"allocation_id": "a-2"}, 8.0) == done
    assert store.purchases.plan("job-1/1", "job-1", "acquire", "t-1", params, 9.0) == done
    for state in (IntentState.REFUSED, IntentState.ABANDONED, IntentState.PLANNED):
        with pytest.raises(IllegalTransition):
            store.purchases.settle("job-1/1", state, {}, 9.0)
    assert store.purchases.intents("job-1") == [done]


@pytest.mark.parametrize(
    ("order_id", "kind", "token", "params"),
    [
        ("job-1/1", "renew", "t-1", {}),
        ("job-1/1", "acquire", "t-2", {}),
        ("job-1/1", "acquire", "t-1", {"count": 2}),
        ("job-1/2", "acquire", "t-1", {}),  # another order under a token that bought something
    ],
)
def test_an_order_never_stands_for_two_purchases(
    store: Store, order_id: str, kind: str, token: str, params: dict[str, int]
) -> None:
    first = store.purchases.plan("job-1/1", "job-1", "acquire", "t-1", {}, 5.0)
    with pytest.raises(IntentConflict):
        store.purchases.plan(order_id, "job-1", kind, token, params, 6.0)
    assert store.purchases.intents("job-1") == [first]


def test_many_intents_may_be_without_token(store: Store) -> None:
    for index in range(3):
        store.purchases.plan(f"job-1/{index}", "job-1", "renew", None, {}, 5.0)
    assert len(store.purchases.intents("job-1")) == 3


# ---- claims and observations


def test_a_claim_has_one_holder_until_it_expires(store: Store) -> None:
    assert store.claims.claim("tick/job-1", "run-a", 3600.0)
    assert not store.claims.claim("tick/job-1", "run-b", 3600.0)
    assert store.claims.claim("tick/other", "run-b", 3600.0)
    assert store.claims.claim("tick/job-1", "run-a", 7200.0)  # its own, prolonged
    assert store.claims.claim("tick/job-1", "run-a", 0.0)  # its own, cut
    assert store.claims.claim("tick/job-1", "run-b", 3600.0)  # expired at that moment
    assert not store.claims.release("tick/job-1", "run-a")
    assert not store.claims.claim("tick/job-1", "run-a", 1.0)
    assert store.claims.release("tick/job-1", "run-b")
    assert store.claims.claim("tick/job-1", "run-a", 1.0)


def test_a_claim_expires_by_real_seconds(store: Store) -> None:
    began = time.monotonic()
    assert store.claims.claim("tick/job-1", "run-a", 0.5)
    while not store.claims.claim("tick/job-1", "run-b", 0.5):
        assert time.monotonic() - began < 30 * PATIENCE
    assert time.monotonic() - began > 0.4, "one millisecond is the precision of SQLite's clock"


def test_all_claims_are_given_up_at_once(store: Store) -> None:
    assert store.claims.claim("tick/a", "one", 3600.0)
    assert store.claims.claim("ingest", "two", 3600.0)
    store.claims.release_all()
    assert store.claims.claim("tick/a", "three", 3600.0)
    assert store.claims.claim("ingest", "three", 3600.0)


def test_observations_are_read_in_order_of_time(store: Store) -> None:
    store.jobs.observe(
        "job-1", 3.0, ObservationKind.PROGRESS, {"clock": 2, "loss": float("nan"), "by": [float("inf"), (1.5,)]}
    )
    store.jobs.observe("job-1", 2.5, ObservationKind.PROGRESS, {"clock": 1, "loss": 0.5})
    store.jobs.observe("job-1", 1.0, ObservationKind.NODES, {"i-1": "ready"})
    assert [point.payload for point in store.jobs.observations("job-1", ObservationKind.PROGRESS)] == [
        {"clock": 1, "loss": 0.5},
        {"clock": 2, "loss": None, "by": [None, [1.5]]},
    ]
    assert [point.kind for point in store.jobs.observations("job-1")] == [
        ObservationKind.NODES,
        ObservationKind.PROGRESS,
        ObservationKind.PROGRESS,
    ]


def test_the_newest_observation_of_a_kind_is_found_by_the_index(store: Store) -> None:
    for number in range(20):
        store.jobs.observe("job-1", 100.0 + number, ObservationKind.PROGRESS, {"clock": number})
    store.jobs.observe("job-1", 101.0, ObservationKind.NODES, {"i-1": "ready"})
    store.journals.append(
        "job-1", 0, [Entry("event", 1.0, 105.0, {"kind": "tick"}), Entry("event", 2.0, 106.0, {"kind": "tick"})]
    )
    statements: list[tuple[str, object]] = []
    event.listen(
        store.database.engine,
        "before_cursor_execute",
        lambda _c, _x, text, values, *_: statements.append((text, values)),
    )
    newest = store.jobs.last_observation("job-1", ObservationKind.PROGRESS)
    assert newest is not None
    assert newest.payload == {"clock": 19}
    assert store.jobs.last_observation("job-1", ObservationKind.SHARDS) is None
    assert store.jobs.last_seen_s("job-1") == 119.0
    assert store.jobs.last_seen_s("job-2") is None
    if store.database.engine.dialect.name == "sqlite":  # PostgreSQL reads so small a table whole
        with store.database.read() as connection:
            for text, values in [one for one in statements if one[0].startswith("SELECT")]:
                plan = [row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values)]
                assert all("USING" in step and step.startswith("SEARCH") for step in plan), plan


def test_progress_is_thinned_with_age_and_facts_are_not(store: Store) -> None:
    """A day and two hours, an observation every 20 s: all of the last hour, then one a minute, then one per ten."""
    until_s, every_s = 26 * 3600, 20
    with store.transaction() as both:
        for at_s in range(0, until_s, every_s):
            both.jobs.observe("job-1", float(at_s), ObservationKind.PROGRESS, {"clock": at_s})
            if at_s % 3600 == 0:
                both.jobs.observe("job-1", float(at_s), ObservationKind.NODES, {"i-1": str(at_s)})
    kept_s = [int(point.at_s) for point in store.jobs.observations("job-1", ObservationKind.PROGRESS)]
    assert kept_s[-1] == until_s - every_s
    assert [at_s for at_s in kept_s if at_s >= until_s - 3600] == list(range(until_s - 3600, until_s, every_s))
    gaps = {at_s: after_s - at_s for at_s, after_s in pairwise(kept_s)}
    young = {gap for at_s, gap in gaps.items() if 3 * 3600 <= at_s < until_s - 3600 - 1200}
    old = {gap for at_s, gap in gaps.items() if at_s < 3600}
    assert (young, old) == ({60}, {600})
    assert len(kept_s) < 180 + 24 * 60 + 6 * 26
    assert len(store.jobs.observations("job-1", ObservationKind.NODES)) == 26
    store.jobs.create_job("job-2", SPEC, 0.0)
    store.jobs.observe("job-2", 1.0, ObservationKind.PROGRESS, {})
    store.jobs.observe("job-2", 9e9, ObservationKind.PROGRESS, {})
    assert len(store.jobs.observations("job-1", ObservationKind.PROGRESS)) == len(kept_s), "another job's are its own"
