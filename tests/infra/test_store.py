"""The state database: SQLite always, and PostgreSQL too where PROTEUS_TEST_POSTGRES_URL names an empty one."""

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from bidding.model import Allocation, EndCause, Market, Tier
from infra import schema
from infra.database import transaction
from infra.errors import InputError
from infra.records import (
    Entry,
    IllegalTransition,
    IntentConflict,
    IntentState,
    JobState,
    JournalConflict,
    LedgerKind,
    LedgerLine,
    Life,
    StoreError,
    UnknownRecord,
)
from infra.store import Store
from tests.support.patience import PATIENCE

POSTGRES = os.environ.get("PROTEUS_TEST_POSTGRES_URL")
SPEC = {"training": {"app": "mlr"}, "markets": ["c4.large/us-east-1a"]}
HELD = Allocation("a-1", Market("c4.large", "us-east-1a"), 2, 1000, Tier.TRANSIENT, 50_000)


@pytest.fixture(params=["sqlite", "postgresql"] if POSTGRES else ["sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/deep/er/state.db"
    assert POSTGRES is not None
    engine = create_engine(POSTGRES)
    schema.metadata.drop_all(engine)
    engine.dispose()
    return POSTGRES


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store.open(url) as opened:
        opened.create_job("job-1", SPEC, 10.5)
        yield opened


def entries(*names: str) -> list[Entry]:
    return [Entry("event", 1.0, 2.0, {"kind": name, "schema": 1}) for name in names]


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


def test_what_is_unknown_is_named(store: Store) -> None:
    calls = [
        lambda: store.job("job-x"),
        lambda: store.set_controller("job-x", None),
        lambda: store.move_job("job-x", JobState.RUNNING, 1.0),
        lambda: store.append("job-x", 0, entries("tick")),
        lambda: store.plan("job-x/1", "job-x", "acquire", None, {}, 1.0),
        lambda: store.record_allocation("job-x", "o", HELD, []),
        lambda: store.observe("job-x", 1.0, "loss", {}),
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
    assert store.journal_length("job-1") == 3


def test_a_job_of_twenty_hours_is_written_and_read_in_milliseconds(store: Store) -> None:
    record = {"kind": "tick_due", "schema": 1, "prices": {f"c4.{i}xlarge/us-east-1a": 30_000 + i for i in range(20)}}
    began = time.perf_counter()
    for tick in range(600):
        store.append("job-1", 2 * tick, [Entry("event", tick, tick, record), Entry("order", tick, tick, record)])
    append_s = (time.perf_counter() - began) / 600
    began = time.perf_counter()
    assert len(store.journal("job-1")) == 1200
    read_s = time.perf_counter() - began
    assert append_s < 0.02
    assert read_s < 0.2


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


# ---- allocations and the ledger


def test_an_allocation_is_recorded_and_ended_once(store: Store) -> None:
    record = store.record_allocation("job-1", "job-1/1", HELD, ["i-1", "i-2"])
    assert record == store.record_allocation("job-1", "job-1/1", HELD, ["i-1", "i-2"])
    assert (record.allocation, record.instance_ids, record.alive) == (HELD, ("i-1", "i-2"), True)
    assert store.allocations("job-1", alive=True) == [record]
    ended = store.end_allocation("a-1", 2000, EndCause.EVICTED)
    assert ended == store.end_allocation("a-1", 2000, EndCause.EVICTED)
    assert ended == replace(record, ended_at_s=2000, end_cause=EndCause.EVICTED)
    with pytest.raises(IllegalTransition):
        store.end_allocation("a-1", 2000, EndCause.USER)
    assert store.allocations("job-1", alive=False) == [ended]
    assert store.allocations("job-1", alive=True) == []


def test_the_end_of_an_instance_is_written_once(store: Store) -> None:
    taken, left = (1500, EndCause.EVICTED), (1600, EndCause.USER)
    record = store.record_allocation("job-1", "job-1/1", HELD, ["i-1", "i-2"])
    assert (record.instance_ends, record.lives) == ({}, [Life(2, None, None)])
    ended = store.record_instance_ends("a-1", {"i-1": taken, "i-9": left})
    assert ended == replace(record, instance_ends={"i-1": taken})
    assert store.record_instance_ends("a-1", {"i-1": left}) == ended
    assert store.record_allocation("job-1", "job-1/1", HELD, ["i-1", "i-2"]) == ended
    assert ended.machines == [Life(1, *taken), Life(1, None, None)]
    with pytest.raises(IllegalTransition, match="i-2 cannot end at 999, before its launch"):
        store.record_instance_ends("a-1", {"i-2": (999, EndCause.USER)})
    store.end_allocation("a-1", 2000, EndCause.USER)
    gone = store.record_instance_ends("a-1", {"i-2": left})
    assert gone.instance_ends == {"i-1": taken}, "it has ended with the allocation"
    assert gone.lives == [Life(1, *taken), Life(1, 2000, EndCause.USER)]
    with pytest.raises(UnknownRecord, match="allocation a-2"):
        store.record_instance_ends("a-2", {"i-1": taken})


def test_an_order_never_has_two_allocations(store: Store) -> None:
    record = store.record_allocation("job-1", "job-1/1", HELD, ["i-1"])
    for allocation, instance_ids in ((replace(HELD, allocation_id="a-2"), ["i-1"]), (HELD, ["i-9"])):
        with pytest.raises(IntentConflict):
            store.record_allocation("job-1", "job-1/1", allocation, instance_ids)
    assert store.allocations("job-1") == [record]
    with pytest.raises(IllegalTransition, match="before its launch"):
        store.end_allocation("a-1", 999, EndCause.USER)


def test_money_spent_is_the_sum_of_the_ledger(store: Store) -> None:
    store.record_allocation("job-1", "job-1/1", HELD, [])
    charge = LedgerLine("job-1", "a-1", 0, LedgerKind.CHARGE, 1000, 31_000, 62_000)
    refund = LedgerLine("job-1", "a-1", 0, LedgerKind.REFUND, 2000, 31_000, -62_000, "evicted")
    assert store.spent("job-1") == 0
    store.add_lines([charge])
    store.add_lines([replace(charge, amount_micros=1), refund])  # a line that is there stays as it is
    assert store.ledger("job-1") == [charge, refund]
    assert (charge.entry_id, refund.entry_id) == ("a-1/0/charge", "a-1/0/refund")
    assert store.spent("job-1") == 0
    large = LedgerLine("job-1", "a-1", 1, LedgerKind.CHARGE, 4600, 2**40, 2**41)
    store.add_lines([large])
    assert store.spent("job-1") == 2**41


def test_money_is_booked_on_what_there_is_and_with_the_right_sign(store: Store) -> None:
    line = LedgerLine("job-1", "a-1", 0, LedgerKind.CHARGE, 1000, 1, 1)
    with pytest.raises(StoreError, match=r"state database .*(FOREIGN KEY|foreign key)"):
        store.add_lines([line])
    store.record_allocation("job-1", "job-1/1", HELD, [])
    with pytest.raises(StoreError, match="signs_of_money"):
        store.add_lines([replace(line, amount_micros=-1)])
    assert store.ledger("job-1") == []


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


def test_observations_are_read_in_order_of_time(store: Store) -> None:
    store.observe("job-1", 3.0, "loss", {"clock": 2, "loss": float("nan"), "by": [float("inf"), (1.5,)]})
    store.observe("job-1", 2.5, "loss", {"clock": 1, "loss": 0.5})
    store.observe("job-1", 1.0, "footprint", {"vcpus": 8})
    assert [point.payload for point in store.observations("job-1", "loss")] == [
        {"clock": 1, "loss": 0.5},
        {"clock": 2, "loss": None, "by": [None, [1.5]]},
    ]
    assert len(store.observations("job-1")) == 3


# ---- transactions, threads, processes


def test_a_transaction_is_written_as_one_or_not_at_all(store: Store) -> None:
    def write_half() -> None:
        with store.transaction() as both:
            both.plan("job-1/1", "job-1", "acquire", "t-1", {}, 5.0)
            assert len(both.intents("job-1")) == 1
            both.append("job-1", 7, entries("tick"))

    with pytest.raises(JournalConflict):
        write_half()
    assert store.intents("job-1") == []
    with store.transaction() as both:
        both.plan("job-1/1", "job-1", "acquire", "t-1", {}, 5.0)
        both.append("job-1", 0, entries("tick"))
    assert (len(store.intents("job-1")), store.journal_length("job-1")) == (1, 1)


def test_readers_do_not_wait_for_a_writer(store: Store) -> None:
    with store.transaction() as writing:
        writing.append("job-1", 0, entries("tick"))
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(store.journal_length, "job-1").result(5) == 0
    assert store.journal_length("job-1") == 1


def test_many_threads_write_one_journal_without_a_gap(store: Store) -> None:
    def write(name: int) -> None:
        left = 10
        while left:
            try:
                store.append("job-1", store.journal_length("job-1"), entries(f"w{name}-{left}"))
                left -= 1
            except JournalConflict:
                continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    read = store.journal("job-1")
    assert [entry.seq for entry in read] == list(range(40))
    assert len({entry.record["kind"] for entry in read}) == 40


_ROUNDS = 30


def race(
    url: str, name: str, barrier: "threading.Barrier", won: "multiprocessing.queues.Queue[tuple[str, ...]]"
) -> None:
    barrier.wait(30 * PATIENCE)
    with Store.open(url) as store:  # the database is new, so its making is a race too
        store.create_job("job-1", SPEC, 1.0)
        claims, appends = [], []
        for turn in range(_ROUNDS):
            barrier.wait(30 * PATIENCE)
            if store.claim(f"tick/{turn}", name, 1.0, 100.0):
                claims.append(turn)
            barrier.wait(30 * PATIENCE)
            try:
                store.append("job-1", turn, entries(name))
                appends.append(turn)
            except JournalConflict:
                continue
    won.put((name, tuple(claims), tuple(appends)))


def test_of_two_processes_exactly_one_wins_each_claim_and_each_place_in_the_journal(url: str) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, won = context.Barrier(2), context.Queue()
    runners = [context.Process(target=race, args=(url, name, barrier, won), daemon=True) for name in ("a", "b")]
    try:
        for runner in runners:
            runner.start()
        results = {
            name: (claims, appends) for name, claims, appends in (won.get(timeout=40 * PATIENCE) for _ in runners)
        }
    finally:
        for runner in runners:
            runner.join(5)
            runner.kill()
    for turn in range(_ROUNDS):
        assert [turn in results[name][0] for name in ("a", "b")].count(True) == 1
        assert [turn in results[name][1] for name in ("a", "b")].count(True) == 1
    with Store.open(url) as store:
        winners = [entry.record["kind"] for entry in store.journal("job-1")]
    assert winners == ["a" if turn in results["a"][1] else "b" for turn in range(_ROUNDS)]


WRITER = """
import sys
from infra.records import Entry, IntentState
from infra.store import Store

store, pause = Store.open(sys.argv[1]), sys.argv[2] == "pause"
turn = store.journal_length("job-1") // 2
while True:
    with store.transaction() as both:
        both.append("job-1", 2 * turn, [Entry("event", 1.0, 1.0, {"turn": turn})] * 2)
        if pause:
            print("half", flush=True)
            sys.stdin.read()
        both.plan(f"job-1/{turn}", "job-1", "acquire", f"t-{turn}", {}, 1.0)
        both.settle(f"job-1/{turn}", IntentState.DONE, {}, 1.0)
    turn += 1
    print(turn, flush=True)
"""


@pytest.mark.parametrize("pause", ["pause", "run"])
def test_a_writer_killed_between_two_statements_leaves_nothing_half_written(store: Store, url: str, pause: str) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), url, pause], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert writer.stdout is not None
        for _ in range(1 if pause == "pause" else 25):
            assert writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
    finally:
        writer.kill()
        writer.communicate()
    turns = store.journal_length("job-1")
    assert turns == 2 * len(store.intents("job-1", [IntentState.DONE])) == 2 * len(store.intents("job-1"))
    assert turns == 0 if pause == "pause" else turns >= 50
    store.append("job-1", turns, entries("goes on"))


# ---- opening


def test_many_threads_open_a_new_database_at_once(url: str) -> None:
    gate = threading.Barrier(6)

    def enter(name: int) -> None:
        gate.wait(10 * PATIENCE)
        with Store.open(url) as store:
            store.create_job(f"job-{name}", {}, 1.0)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(enter, range(6)))
    with Store.open(url) as store:
        assert len(store.jobs()) == 6


def bad_urls(folder: Path) -> dict[str, str]:
    (folder / "text.db").write_text("this is no database, it only is long enough to be looked at" * 20)
    (folder / "file").write_text("")
    Store.open(f"sqlite:///{folder}/ro.db").close()
    with sqlite3.connect(folder / "strange.db") as strange:
        strange.execute("CREATE TABLE jobs (x)")
    strange.close()
    return {
        "nonsense": "not a database URL",
        "": "not a database URL",
        "mysql://user:word@host/db": "mysql is not supported",
        "postgresql+nosuch://host/db": "no driver",
        "sqlite://": "must outlive a process",
        "sqlite:///:memory:": "must outlive a process",
        f"sqlite:///{folder}": "is a directory",
        f"sqlite:///{folder}/file/state.db": "cannot make its folder",
        f"sqlite:///{folder}/text.db": "not a database",
        f"sqlite:///file:{folder}/ro.db?mode=ro&uri=true": "readonly",
        f"sqlite:///{folder}/strange.db": "another program's table 'jobs'",
    }


@pytest.mark.parametrize("number", range(11))
def test_a_bad_database_is_told_in_one_line(tmp_path: Path, number: int) -> None:
    url, reason = list(bad_urls(tmp_path).items())[number]
    with pytest.raises(InputError, match=reason) as caught:
        Store.open(url)
    assert "\n" not in str(caught.value)
    assert "word" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("version", "relation"), [(schema.SCHEMA_VERSION + 1, "newer"), (0, "older")])
def test_another_version_is_refused(store: Store, url: str, version: int, relation: str) -> None:
    with transaction(store._engine, writes=True) as connection:
        connection.execute(update(schema.schema_version).values(version=version))
    with pytest.raises(InputError, match=f"schema version {version}, {relation}"):
        Store.open(url)


def test_a_database_that_fails_later_is_told_in_one_line(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/state.db") as store:
        with sqlite3.connect(tmp_path / "state.db") as raw:
            raw.execute("DROP TABLE observations")
        raw.close()
        store.create_job("job-1", {}, 1.0)
        with pytest.raises(StoreError, match=r"state database sqlite:.*no such table: observations"):
            store.observations("job-1")


def test_the_schema_is_understood_by_postgresql() -> None:
    for table in schema.metadata.sorted_tables:
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=postgresql.dialect()))


def test_all_claims_are_given_up_at_once(store: Store) -> None:
    assert store.claim("tick/a", "one", 10.0, 100.0)
    assert store.claim("ingest", "two", 10.0, 100.0)
    store.release_all()
    assert store.claim("tick/a", "three", 11.0, 100.0)
    assert store.claim("ingest", "three", 11.0, 100.0)
