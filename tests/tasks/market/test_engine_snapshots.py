"""A job's engine is loaded from its newest snapshot, and from the whole journal where that cannot be used."""

import logging
from typing import Any

import pytest

import proteus_spot.tasks.market.engine_journal
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import TickDue
from proteus_spot.bidding.engine.journal import replay
from proteus_spot.infra.state.journal_tables import JournalTables
from proteus_spot.infra.state.records import EngineSnapshot, JournalEntry
from proteus_spot.tasks.market.engine_journal import SNAPSHOT_ENTRIES, JobEngine, program_digest
from tests.support.task_runtime import BEGIN_S, MARKET, TaskRuntime, spec


@pytest.fixture
def ticked(here: TaskRuntime) -> TaskRuntime:
    """A job whose journal is some entries longer than its snapshot covers."""
    here.begin(spec())
    for number in range(0, SNAPSHOT_ENTRIES + 20, 10):
        tick(number)
    here.clock.at_s = BEGIN_S + 7200.0
    here.tick(spec())
    return here


def tick(number: int) -> None:
    """Enter ten ticks that buy nothing."""
    ticks = [TickDue(BEGIN_S + 2 * at, {MARKET: 20_000}, buy=False) for at in range(number, number + 10)]
    JobEngine("job").commit(lambda engine: ticks)


def state(engine: BidEngine) -> dict[str, Any]:
    return vars(engine.holdings)


def whole(here: TaskRuntime) -> dict[str, Any]:
    return state(replay(entry.record for entry in here.store.journals.entries("job")))


def read_since(patch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of how many entries each reading of the journal returns from now on."""
    counts: list[int] = []
    read = JournalTables.entries

    def entries(journals: JournalTables, *args: Any, **options: Any) -> list[JournalEntry]:
        found = read(journals, *args, **options)
        counts.append(len(found))
        return found

    patch.setattr(JournalTables, "entries", entries)
    return counts


def saved(here: TaskRuntime) -> EngineSnapshot:
    snapshot = here.store.journals.snapshot("job")
    assert snapshot is not None
    return snapshot


def test_the_journal_is_read_from_the_snapshot_on(ticked: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    length, snapshot = len(ticked.store.journals.entries("job")), saved(ticked)
    assert (snapshot.program, snapshot.opened_seq) == (program_digest(), 0)
    assert SNAPSHOT_ENTRIES <= snapshot.seq < length
    counts = read_since(monkeypatch)
    assert state(JobEngine("job").refresh()) == whole(ticked)
    assert counts[0] == length - snapshot.seq


def test_a_snapshot_is_written_every_so_many_entries(ticked: TaskRuntime) -> None:
    covered = {saved(ticked).seq}
    for number in range(1000, 1000 + 2 * SNAPSHOT_ENTRIES, 10):
        tick(number)
        covered.add(saved(ticked).seq)
    assert len(covered) == 3
    assert state(JobEngine("job").refresh()) == whole(ticked)


@pytest.mark.parametrize(
    ("column", "value", "logged"),
    [
        ("program", "an older one", ""),
        ("engine", {"_answered": 3}, "snapshot: holds ['_answered']"),
        ("opened_seq", 1, "snapshot: entry 1 opens no job"),
        ("opened_seq", 10**6, "is not in the state database"),
    ],
)
def test_a_snapshot_that_cannot_be_used_is_passed_over_and_replaced(
    ticked: TaskRuntime,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    column: str,
    value: object,
    logged: str,
) -> None:
    fields = {name: getattr(saved(ticked), name) for name in EngineSnapshot.__slots__}
    ticked.store.journals.save_snapshot(EngineSnapshot(**(fields | {column: value})))
    length = len(ticked.store.journals.entries("job"))
    with monkeypatch.context() as patch:
        counts = read_since(patch)
        job_engine = JobEngine("job")
        assert state(job_engine.refresh()) == whole(ticked)
        assert counts[0] == length
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [logged in line for line in warnings] == ([True] if logged else [])
    job_engine.commit(lambda engine: [TickDue(BEGIN_S + 7300, {MARKET: 20_000}, buy=False)])
    assert (saved(ticked).program, saved(ticked).opened_seq) == (program_digest(), 0)
    assert saved(ticked).seq == len(ticked.store.journals.entries("job"))


def test_a_damaged_value_in_a_snapshot_is_seen(ticked: TaskRuntime, caplog: pytest.LogCaptureFixture) -> None:
    snapshot = saved(ticked)
    damaged = dict(snapshot.engine) | {"answered": {"$": "NoSuchClass"}}
    fields = {name: getattr(snapshot, name) for name in EngineSnapshot.__slots__}
    ticked.store.journals.save_snapshot(EngineSnapshot(**(fields | {"engine": damaged})))
    assert state(JobEngine("job").refresh()) == whole(ticked)
    assert "NoSuchClass" in caplog.text


def test_a_commit_that_fails_writes_no_snapshot(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    here.begin(spec())
    monkeypatch.setattr(proteus_spot.tasks.market.engine_journal, "SNAPSHOT_ENTRIES", 1)
    save = JournalTables.save_snapshot

    def failing(journals: JournalTables, snapshot: EngineSnapshot) -> None:
        save(journals, snapshot)
        raise ZeroDivisionError

    before, length = here.store.journals.snapshot("job"), len(here.store.journals.entries("job"))
    with monkeypatch.context() as patch:
        patch.setattr(JournalTables, "save_snapshot", failing)
        with pytest.raises(ZeroDivisionError):
            tick(0)
    assert (here.store.journals.snapshot("job"), len(here.store.journals.entries("job"))) == (before, length)
    tick(0)
    assert saved(here).seq == length + 10


def test_a_state_that_cannot_be_written_stops_no_tick(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here.begin(spec())
    monkeypatch.setattr(proteus_spot.tasks.market.engine_journal, "SNAPSHOT_ENTRIES", 1)
    job_engine = JobEngine("job")
    job_engine.refresh().holdings._strange = object()  # type: ignore[attr-defined]
    job_engine.commit(lambda engine: [TickDue(BEGIN_S + 1, {MARKET: 20_000}, buy=False)])
    assert here.store.journals.entries("job")[-1].record["kind"] == "TickDue"
    assert here.store.journals.snapshot("job") is None
    assert "no snapshot of its engine: snapshot: a object cannot be written" in caplog.text
