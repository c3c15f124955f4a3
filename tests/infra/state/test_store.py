"""The state database: jobs, the journal, intents, claims, observations."""

import pytest

from bidding.market.model import EndCause
from infra.state.records import (
    Entry,
    IllegalTransition,
    IntentConflict,
    IntentState,
    JobState,
    JournalConflict,
    ObservationKind,
    StoreError,
    UnknownRecord,
)
from infra.state.store import Store
from tests.support.journal_entries import HELD, SPEC, entries

# ---- jobs


def test_a_job_is_created_once_and_read_by_every_process(store: Store, url: str) -> None:
    job = store.create_job("job-1", SPEC, 99.0)
    assert (job.state, job.created_at_s, job.spec) == (JobState.STARTING, 10.5, SPEC)
    with Store.open(url) as other:
        assert other.job("job-1") == job
    with pytest.raises(StoreError, match="another spec"):
        store.create_job("job-1", {}, 99.0)


def test_a_job_goes_through_its_life_and_its_end_is_sacred(store: Store) -> None:
    store.set_controller("job-1", "tcp://10.0.0.1:8786")
    for state in (JobState.RUNNING, JobState.WAITING, JobState.RUNNING, JobState.RUNNING, JobState.STARTING):
        assert store.move_job("job-1", state, 11.0).state is state
    done = store.move_job("job-1", JobState.FINISHED, 12.0, result={"accuracy": 0.97})
    assert (done.ended_at_s, done.result, done.controller_address) == (12.0, {"accuracy": 0.97}, "tcp://10.0.0.1:8786")
    assert store.move_job("job-1", JobState.FINISHED, 13.0, result={"accuracy": 0.1}) == done
    for state in JobState:
        if state is not JobState.FINISHED:
            with pytest.raises(IllegalTransition, match="job-1: is finished"):
                store.move_job("job-1", state, 14.0, failure="too late")
    assert store.job("job-1") == done


def test_a_stop_is_not_taken_back(store: Store) -> None:
    store.move_job("job-1", JobState.STOPPING, 11.0)
    with pytest.raises(IllegalTransition):
        store.move_job("job-1", JobState.RUNNING, 12.0)
    assert store.move_job("job-1", JobState.FAILED, 12.0, failure="why").failure == "why"


def test_jobs_are_listed_by_age_and_state(store: Store) -> None:
    store.create_job("job-0", {}, 11.0)
    store.move_job("job-0", JobState.FAILED, 12.0)
    assert [job.job_id for job in store.jobs()] == ["job-1", "job-0"]
    assert [job.job_id for job in store.jobs([JobState.FAILED, JobState.STOPPED])] == ["job-0"]
    assert store.find_job("job-0") == store.job("job-0")
    assert store.find_job("job-x") is None


def test_what_is_unknown_is_named(store: Store) -> None:
    calls = [
        lambda: store.job("job-x"),
        lambda: store.set_controller("job-x", None),
        lambda: store.move_job("job-x", JobState.RUNNING, 1.0),
        lambda: store.append("job-x", 0, entries("tick")),
        lambda: store.plan("job-x/1", "job-x", "acquire", None, {}, 1.0),
        lambda: store.record_allocation("job-x", "o", HELD, []),
        lambda: store.observe("job-x", 1.0, ObservationKind.PROGRESS, {}),
    ]
    for call in calls:
        with pytest.raises(UnknownRecord, match="job job-x: is not in the state database"):
            call()
    with pytest.raises(UnknownRecord, match="order o"):
        store.settle("o", IntentState.DONE, {}, 1.0)
    with pytest.raises(UnknownRecord, match="allocation a"):
        store.end_allocation("a", 1, EndCause.USER)


# ---- journal


def test_the_journal_keeps_order_and_refuses_a_stale_writer(store: Store) -> None:
    assert store.append("job-1", 0, entries("opened", "tick")) == 2
    assert store.append("job-1", 2, []) == 2
    for stale in (0, 1, 3):
        with pytest.raises(JournalConflict, match=f"2 entries where {stale} were read"):
            store.append("job-1", stale, entries("lost"))
    store.append("job-1", 2, [Entry("order", 3.25, 4.0, {"nested": [1, {"a": None}]})])
    read = store.journal("job-1")
    assert [(entry.seq, entry.direction, entry.at_s) for entry in read] == [
        (0, "event", 1.0),
        (1, "event", 1.0),
        (2, "order", 3.25),
    ]
    assert read[2].record == {"nested": [1, {"a": None}]}
    assert store.journal("job-1", from_seq=2) == read[2:]
    assert len(store.journal("job-1")) == 3


def test_the_records_of_some_kinds_are_read_alone(store: Store) -> None:
    store.append("job-1", 0, entries("tick", "Lapse", "tick", "NoticeSeen", "tick", "Lapse"))
    assert [entry.seq for entry in store.journal("job-1", kinds=("Lapse", "NoticeSeen"))] == [1, 3, 5]
    assert [entry.seq for entry in store.journal("job-1", from_seq=2, kinds=("Lapse",))] == [5]
    assert store.journal("job-1", kinds=("JobClosed",)) == []


def test_the_journal_of_a_job_of_twenty_hours_is_read_whole_and_in_order(store: Store) -> None:
    record = {"kind": "tick_due", "schema": 1, "prices": {f"c4.{i}xlarge/us-east-1a": 30_000 + i for i in range(20)}}
    for tick in range(600):
        store.append("job-1", 2 * tick, [Entry("event", tick, tick, record), Entry("order", tick, tick, record)])
    assert [entry.at_s for entry in store.journal("job-1")] == [tick for tick in range(600) for _ in range(2)]


# ---- intents


def test_an_intent_is_planned_once_and_settled_once(store: Store) -> None:
    params = {"market": "c4.large/us-east-1a", "counts": (1, 2)}
    planned = store.plan("job-1/1", "job-1", "acquire", "t-1", params, 5.0)
    assert store.plan("job-1/1", "job-1", "acquire", "t-1", params, 6.0) == planned
    assert store.intents("job-1", [IntentState.PLANNED]) == [planned]
    done = store.settle("job-1/1", IntentState.DONE, {"allocation_id": "a-1"}, 7.0)
    assert store.settle("job-1/1", IntentState.DONE, {"allocation_id": "a-2"}, 8.0) == done
    assert store.plan("job-1/1", "job-1", "acquire", "t-1", params, 9.0) == done
    for state in (IntentState.REFUSED, IntentState.ABANDONED, IntentState.PLANNED):
        with pytest.raises(IllegalTransition):
            store.settle("job-1/1", state, {}, 9.0)
    assert store.intents("job-1") == [done]


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
    first = store.plan("job-1/1", "job-1", "acquire", "t-1", {}, 5.0)
    with pytest.raises(IntentConflict):
        store.plan(order_id, "job-1", kind, token, params, 6.0)
    assert store.intents("job-1") == [first]


def test_many_intents_may_be_without_token(store: Store) -> None:
    for index in range(3):
        store.plan(f"job-1/{index}", "job-1", "renew", None, {}, 5.0)
    assert len(store.intents("job-1")) == 3


# ---- claims and observations


def test_a_claim_has_one_holder_until_it_expires(store: Store) -> None:
    assert store.claim("tick/job-1", "run-a", 100.0, 200.0)
    assert not store.claim("tick/job-1", "run-b", 299.9, 200.0)
    assert store.claim("tick/other", "run-b", 100.0, 200.0)
    assert store.claim("tick/job-1", "run-a", 290.0, 200.0)  # its own, prolonged
    assert not store.claim("tick/job-1", "run-b", 489.0, 200.0)
    assert store.claim("tick/job-1", "run-b", 490.0, 200.0)  # expired at that moment
    assert not store.release("tick/job-1", "run-a")
    assert not store.claim("tick/job-1", "run-a", 491.0, 1.0)
    assert store.release("tick/job-1", "run-b")
    assert store.claim("tick/job-1", "run-a", 491.0, 1.0)


def test_all_claims_are_given_up_at_once(store: Store) -> None:
    assert store.claim("tick/a", "one", 10.0, 100.0)
    assert store.claim("ingest", "two", 10.0, 100.0)
    store.release_all()
    assert store.claim("tick/a", "three", 11.0, 100.0)
    assert store.claim("ingest", "three", 11.0, 100.0)


def test_observations_are_read_in_order_of_time(store: Store) -> None:
    store.observe(
        "job-1", 3.0, ObservationKind.PROGRESS, {"clock": 2, "loss": float("nan"), "by": [float("inf"), (1.5,)]}
    )
    store.observe("job-1", 2.5, ObservationKind.PROGRESS, {"clock": 1, "loss": 0.5})
    store.observe("job-1", 1.0, ObservationKind.NODES, {"i-1": "ready"})
    assert [point.payload for point in store.observations("job-1", ObservationKind.PROGRESS)] == [
        {"clock": 1, "loss": 0.5},
        {"clock": 2, "loss": None, "by": [None, [1.5]]},
    ]
    assert [point.kind for point in store.observations("job-1")] == [
        ObservationKind.NODES,
        ObservationKind.PROGRESS,
        ObservationKind.PROGRESS,
    ]
