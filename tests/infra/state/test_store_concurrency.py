"""The state database under several writers: transactions, threads, processes, and one that is killed."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from proteus_spot.infra.state.records import IntentState, JournalConflict
from proteus_spot.infra.state.store import Store
from tests.support.journal_entries import SPEC, entries
from tests.support.timeouts import PATIENCE


def test_a_transaction_is_written_as_one_or_not_at_all(store: Store) -> None:
    def write_half() -> None:
        with store.transaction() as both:
            both.purchases.plan("job-1/1", "job-1", "acquire", "t-1", {}, 5.0)
            assert len(both.purchases.intents("job-1")) == 1
            both.journals.append("job-1", 7, entries("tick"))

    with pytest.raises(JournalConflict):
        write_half()
    assert store.purchases.intents("job-1") == []
    with store.transaction() as both:
        both.purchases.plan("job-1/1", "job-1", "acquire", "t-1", {}, 5.0)
        both.journals.append("job-1", 0, entries("tick"))
    assert (len(store.purchases.intents("job-1")), len(store.journals.entries("job-1"))) == (1, 1)


def test_readers_do_not_wait_for_a_writer(store: Store) -> None:
    with store.transaction() as writing:
        writing.journals.append("job-1", 0, entries("tick"))
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(store.journals.entries, "job-1").result(5 * PATIENCE) == []
    assert len(store.journals.entries("job-1")) == 1


def test_many_threads_write_one_journal_without_a_gap(store: Store) -> None:
    def write(name: int) -> None:
        left = 10
        while left:
            try:
                store.journals.append("job-1", len(store.journals.entries("job-1")), entries(f"w{name}-{left}"))
                left -= 1
            except JournalConflict:
                continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    read = store.journals.entries("job-1")
    assert [entry.seq for entry in read] == list(range(40))
    assert len({entry.record["kind"] for entry in read}) == 40


_ROUNDS = 30


def race(
    url: str, name: str, barrier: "threading.Barrier", won: "multiprocessing.queues.Queue[tuple[str, ...]]"
) -> None:
    barrier.wait(30 * PATIENCE)
    with Store.open(url) as store:  # the database is new, so its making is a race too
        store.jobs.create_job("job-1", SPEC, 1.0)
        claims, appends = [], []
        for turn in range(_ROUNDS):
            barrier.wait(30 * PATIENCE)
            if store.claims.claim(f"tick/{turn}", name, 3600.0):
                claims.append(turn)
            barrier.wait(30 * PATIENCE)
            try:
                store.journals.append("job-1", turn, entries(name))
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
            runner.join(5 * PATIENCE)
            runner.kill()
    for turn in range(_ROUNDS):
        assert [turn in results[name][0] for name in ("a", "b")].count(True) == 1
        assert [turn in results[name][1] for name in ("a", "b")].count(True) == 1
    with Store.open(url) as store:
        winners = [entry.record["kind"] for entry in store.journals.entries("job-1")]
    assert winners == ["a" if turn in results["a"][1] else "b" for turn in range(_ROUNDS)]


WRITER = """
import sys
from proteus_spot.infra.state.records import Entry, IntentState
from proteus_spot.infra.state.store import Store

store, pause = Store.open(sys.argv[1]), sys.argv[2] == "pause"
turn = len(store.journals.entries("job-1")) // 2
while True:
    with store.transaction() as both:
        both.journals.append("job-1", 2 * turn, [Entry("event", 1.0, 1.0, {"turn": turn})] * 2)
        if pause:
            print("half", flush=True)
            sys.stdin.read()
        both.purchases.plan(f"job-1/{turn}", "job-1", "acquire", f"t-{turn}", {}, 1.0)
        both.purchases.settle(f"job-1/{turn}", IntentState.DONE, {}, 1.0)
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
    turns = len(store.journals.entries("job-1"))
    assert (
        turns
        == 2 * len(store.purchases.intents("job-1", [IntentState.DONE]))
        == 2 * len(store.purchases.intents("job-1"))
    )
    assert turns == 0 if pause == "pause" else turns >= 50
    store.journals.append("job-1", turns, entries("goes on"))
