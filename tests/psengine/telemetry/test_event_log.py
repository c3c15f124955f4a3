"""Descriptions in the event log of a job: what concerns which node, what is counted, and how pages are written."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.protocol.events import (
    BatchDone,
    DrainRequested,
    Event,
    JobStarted,
    NodeJoined,
    NodeReady,
    NodesLost,
    NotBackedUp,
    NoticeReceived,
    ShardsOpened,
    ShardsTaken,
    TaskStats,
    TimerFired,
)
from proteus_spot.psengine.protocol.instructions import (
    BackUp,
    Dispatch,
    Instruction,
    ShardOwner,
    TakeShards,
    TaskKey,
    UpdateShardMap,
)
from proteus_spot.psengine.shell import event_log_writer
from proteus_spot.psengine.shell.event_log_writer import EventLogWriter
from proteus_spot.psengine.telemetry import descriptions
from proteus_spot.psengine.telemetry.descriptions import Describer
from proteus_spot.psengine.telemetry.event_log import EVERYBODY, MOST, Described, EventLog, touching
from proteus_spot.psengine.telemetry.formatting import format_bytes, format_ranges
from tests.support.controller import done

NAMES = {"tcp://a": "a", "tcp://b": "b", "tcp://k": "k"}
CONFIG = JobConfig("job", n_partitions=2, n_shards=2, clocks=3)
Entry = dict[str, Any]


class Told:
    """Has things described, and returns the records of what each call has added to the log."""

    def __init__(self) -> None:
        self.log, self.at = EventLog(), 0.0
        self._describer = Describer(self.log, lambda: self.at)
        for address, name in NAMES.items():
            self.hear(NodeJoined(name, address, "transient", 1, 0.0), 0.0, 0)

    def hear(self, event: Event, at: float, clock: int) -> list[Entry]:
        return self._of(at, lambda: self._describer.describe(event, [], clock))

    def order(self, order: Instruction, at: float, clock: int) -> list[Entry]:
        return self._of(at, lambda: self._describer.describe(TimerFired(0.0), [order], clock))

    def say(self, text: str, at: float, clock: int) -> list[Entry]:
        return self._of(at, lambda: self._describer.describe(TimerFired(0.0), [], clock, [text]))

    def flush(self) -> list[Entry]:
        return self._of(self.at, self._describer.flush)

    def _of(self, at: float, call: Callable[[], None]) -> list[Entry]:
        self.at, before = at, self.log.n_events
        call()
        return [event.record() for _, event in self.log.since(before, Described)]


def given(clock: int, node: str = "a") -> Dispatch:
    return Dispatch(node, f"tcp://{node}", clock, clock, (TaskKey(0, 1), TaskKey(1, 1)), 0, clock - 1, 1, 1)


def did(clock: int, node: str = "a") -> BatchDone:
    stats = tuple(TaskStats(p, 1, 1.0, 1, 0.0) for p in (0, 1))
    return BatchDone(node, f"tcp://{node}", clock, stats, 0.0)


def copied(number: int, backup: str = "tcp://k") -> BackUp:
    return BackUp("a", "tcp://a", number, number - 1, number, (0, 1), (1, 1), (backup, backup))


def texts(entries: Sequence[Any]) -> list[str]:
    return [entry["text"] for entry in entries]


def test_a_move_touches_both_nodes_and_the_shards() -> None:
    order = TakeShards("b", "tcp://b", CONFIG, "tcp://a", (1,), (4,), 5)
    (entry,) = Told().order(order, 12.3456, 7)
    assert entry == {
        "at": 12.346,
        "clock": 7,
        "nodes": ["b", "a"],
        "shards": [1],
        "text": "b is to take shards 1 over from a, epoch 5",
    }
    assert touching([entry], "a", None) == touching([entry], "b", None) == touching([entry], None, 1) == [entry]
    assert touching([entry], "k", None) == touching([entry], None, 0) == []


def test_what_befalls_the_server_of_a_shard_is_told_of_the_shard() -> None:
    told = Told()
    entries = told.hear(ShardsOpened("a", "tcp://a", (0, 1), 1, 0.0), 0.0, 0)
    entries += told.hear(ShardsTaken("b", "tcp://b", (1,), 2, 0.0), 1.0, 1)
    entries += told.hear(NoticeReceived("b", 5.0, 0.0), 2.0, 2)
    entries += told.hear(NotBackedUp("a", "tcp://a", 3, "broken", 0.0), 3.0, 3)
    entries += told.hear(DrainRequested(("a", "k"), 4.0, 0.0), 4.0, 4)
    entries += told.hear(NodesLost({"tcp://b": "killed"}, 0.0), 5.0, 5)
    notice, copies, drain, loss = [
        "b has its notice: it is taken in 5 s",
        "a could not have its shards copied, round 3: broken",
        "a, k to be let go, within 4 s",
        "b is gone: killed",
    ]
    assert texts(touching(entries, None, 0))[1:] == [copies, drain]
    assert texts(touching(entries, None, 1))[2:] == [notice, loss]


def test_tasks_are_counted_until_something_else_is_told_of_the_node() -> None:
    told = Told()
    for clock in (3, 4, 5):
        assert told.order(given(clock), 0.0, clock) == []
        assert told.order(given(clock, "b"), 0.0, clock) == []
        if clock < 5:
            assert told.hear(did(clock), 0.0, clock) == []
    assert texts(told.hear(NodesLost({"tcp://a": "killed"}, 0.0), 1.0, 4)) == [
        "a was given 6 task(s) and did 4, of clocks 3-5",
        "a is gone: killed",
    ]
    assert texts(told.flush()) == ["b was given 6 task(s) and did 0, of clocks 3-5"]
    assert told.flush() == []


def test_rounds_of_copies_are_counted_as_long_as_they_are_the_same() -> None:
    told = Told()
    assert [told.order(copied(number), 0.0, number) for number in (1, 2, 3)] == [[], [], []]
    (entry,) = told.order(copied(4, "tcp://b"), 0.0, 4)
    assert (entry["nodes"], entry["shards"]) == (["a", "k"], [0, 1])
    assert entry["text"] == "a copied shards 0-1 to k: 3 round(s), of clocks 1-3"
    assert texts(told.hear(NodesLost({"tcp://b": "killed"}, 0.0), 1.0, 4)) == [
        "a copied shards 0-1 to b: 1 round(s), of clock 4",
        "b is gone: killed",
    ], "what is told of a backup comes after what was kept there"


def test_what_touches_everybody_is_part_of_every_story() -> None:
    told = Told()
    told.order(given(1), 0.0, 0)
    entries = told.say("all go back to clock 3", 1.0, 5)
    assert texts(entries) == ["a was given 2 task(s) and did 0, of clock 1", "all go back to clock 3"]
    assert entries[1]["nodes"] == [EVERYBODY]
    assert texts(touching(entries, "k", None)) == texts(touching(entries, None, 1)) == ["all go back to clock 3"]


def test_ticks_are_not_logged() -> None:
    assert Told().hear(TimerFired(0.0), 0.0, 0) == []


def test_every_event_and_order_of_a_job_can_be_told() -> None:
    told, controller, entries = Told(), Controller(), list[Entry]()
    events: list[Any] = [
        NodeJoined("r", "tcp://r", "reliable", 1, 0.0),
        JobStarted(CONFIG, 0.0),
        NodeReady("r", "tcp://r", 1, (0, 1), 0.0),
        ShardsOpened("r", "tcp://r", (0, 1), 1, 0.0),
    ]
    while events:
        event = events.pop(0)
        orders = controller.handle(event)
        entries += told.hear(event, 0.0, 0)
        for order in orders:
            entries += told.order(order, 0.0, 0)
            if isinstance(order, Dispatch):
                events.append(done(order, 1.0))
    assert texts(entries) == [
        "r (reliable, 1 thread(s)) joined",
        "r is to load partitions 0-1",
        "r is ready: it has loaded partitions 0-1",
        "r is to serve shards 0-1 as they begin, epoch 1",
        "r serves shards 0-1, epoch 1",
        "r receives map 1",
        "r was given 6 task(s) and did 6, of clocks 1-3",
        "the model of clock 3 is to be gathered",
    ]


# -- the tasks -------------------------------------------------------------------------------------------------------


class Shelf:
    """Keeps pages; fails so many times first."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.pages: dict[int, list[Entry]] = {}

    def keep(self, number: int, entries: Sequence[Mapping[str, Any]]) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("away")
        self.pages[number] = [dict(entry) for entry in entries]


def maps(told: Describer, versions: range) -> None:
    for version in versions:
        orders = [UpdateShardMap("a", "tcp://a", version, (ShardOwner(0, "a", "tcp://a", 1),), 1)]
        told.describe(TimerFired(0.0), orders, 0)


def writer(shelf: Shelf) -> tuple[Describer, EventLogWriter]:
    log = EventLog()
    return Describer(log, lambda: 1.5), EventLogWriter(shelf.keep, log)


def test_pages_are_written_when_there_is_something_new_and_a_full_one_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log_writer, "PAGE", 3)
    monkeypatch.setattr(descriptions, "PAGE", 5)
    shelf = Shelf()
    told, tasks = writer(shelf)

    async def run() -> None:
        maps(told, range(1, 3))
        await tasks.write()
        assert texts(shelf.pages[0]) == ["a receives map 1", "a receives map 2"]
        shelf.pages.clear()
        await tasks.write()
        assert shelf.pages == {}, "nothing new"
        told.describe(TimerFired(0.0), [given(1, "b")], 0)
        maps(told, range(3, 6))
        await tasks.write()

    asyncio.run(run())
    assert [texts(page) for page in shelf.pages.values()] == [
        ["a receives map 1", "a receives map 2", "a receives map 3"],
        ["a receives map 4", "a receives map 5", "b was given 2 task(s) and did 0, of clock 1"],
    ]


def test_a_store_that_is_away_is_written_to_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log_writer, "PAGE", 2)
    shelf = Shelf(failures=2)
    told, tasks = writer(shelf)

    async def run() -> None:
        maps(told, range(1, 4))
        await tasks.write()
        assert shelf.pages == {}
        await tasks.write()
        await tasks.write()
        assert {number: len(page) for number, page in shelf.pages.items()} == {0: 2, 1: 1}
        shelf.failures = 1
        maps(told, range(4, 2 * MOST))
        await tasks.write()
        await tasks.write()

    asyncio.run(run())
    assert texts(shelf.pages[0]) == ["a receives map 1", "a receives map 2"]
    assert texts(shelf.pages[max(shelf.pages)])[-1] == f"a receives map {2 * MOST - 1}", "the newest are there"
    assert sum(map(len, shelf.pages.values())) <= MOST + 3, "and what waits for the store is bounded"


@pytest.mark.parametrize(("numbers", "told"), [((), "none"), ((3,), "3"), ((2, 0, 1, 7, 1), "0-2, 7")])
def test_runs(numbers: tuple[int, ...], told: str) -> None:
    assert format_ranges(numbers) == told


@pytest.mark.parametrize(
    ("n_bytes", "told"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_254_000, "1.25 MB"), (999_600, "1 MB")]
)
def test_sizes(n_bytes: int, told: str) -> None:
    assert format_bytes(n_bytes) == told
