"""Rows that a task on this node has written, for the task that reads them next."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.protocol.events import BatchDone, BatchFailed
from proteus_spot.psengine.server.shard_store import ShardStore
from proteus_spot.psengine.tables.row_sets import RowBlock, RowSet
from proteus_spot.psengine.tables.row_updates import RowDelta
from proteus_spot.psengine.tables.tree_sum import Delta
from proteus_spot.psengine.worker.routing import SupersededError
from proteus_spot.psengine.worker.task_parameters import WrittenRows, pushed
from tests.support.agents import Counting, Wires, dispatch, story

RNG = np.random.default_rng(3)
TABLE = RNG.random((8, 3)).astype(np.float32)
NAMED = slice(2, 6)


def written(update: Delta, named: RowSet = NAMED, read: RowSet | None = NAMED) -> WrittenRows:
    block = RowBlock(read, TABLE if read is None else TABLE[read])
    return WrittenRows({"t": named}, {"t": block}, update, asyncio.Future(loop=asyncio.new_event_loop()))


@pytest.mark.parametrize("named", [NAMED, np.array([1, 4, 5])])
@pytest.mark.parametrize("read", [None, NAMED])
def test_they_have_the_bits_of_the_server(named: RowSet, read: RowSet | None) -> None:
    if read is not None and not isinstance(named, slice):
        read = np.array([0, 1, 4, 5])
    update = {"t": RowDelta(named, RNG.random(TABLE[named].shape))}  # of float64
    store = ShardStore(0, 1, {"t": TABLE}, 1)
    store.push(1, 0, (1,), update)
    rows = written(update, named, read)
    assert rows.holds({"t": named})
    after = rows.after(["t"])["t"]
    assert after.of(named).tobytes() == store.before(2, {"t": named})["t"].tobytes()
    assert not after.values.flags.writeable


def test_what_is_not_known_here_is_read() -> None:
    inside = {"t": RowDelta(NAMED, TABLE[NAMED])}
    assert written(inside).holds({"t": slice(3, 5)})
    assert written({}).holds({"t": NAMED})
    assert not written({}).holds({}), "nothing is named before the task runs"
    assert not written(inside).holds({"t": slice(3, 7)}), "row 6 was not read"
    assert not written(inside).holds({"t": None})
    assert not written(inside).holds({"u": NAMED})
    assert not written({"t": RowDelta(slice(1, 6), TABLE[1:6])}).holds({"t": NAMED})
    assert not written({"t": TABLE}).holds({"t": NAMED})
    assert not written(inside, read=slice(0, 2)).holds({"t": NAMED}), "the task has read others since"


@pytest.mark.parametrize("taken", [True, False])
def test_what_is_added_to_them_later_waits_for_their_update(taken: bool) -> None:
    async def run() -> bool:
        rows = WrittenRows({}, {}, {}, asyncio.get_running_loop().create_future())
        waits = asyncio.ensure_future(pushed([rows]))
        given_up = asyncio.ensure_future(pushed([rows]))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        assert not waits.done()
        rows.pushed.set_result(taken)
        await asyncio.wait([waits])
        return waits.exception() is None

    assert asyncio.run(run()) == taken


def test_an_update_that_was_given_up_ends_those_that_need_it() -> None:
    async def run() -> None:
        rows = WrittenRows({}, {}, {}, asyncio.get_running_loop().create_future())
        rows.pushed.set_result(False)
        await pushed([rows])

    with pytest.raises(SupersededError, match="was given up"):
        asyncio.run(run())


class Turning(Counting):
    """Its tasks read and write all rows."""

    def rows(self, data: float, group: int) -> dict[str, slice]:
        return {"w": slice(0, 4)}


def test_a_reader_whose_writer_is_given_up_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads after the reader does not name the writer: its update must be there first."""

    async def body(wires: Wires, here: Any, there: Any) -> None:
        sent: list[int] = []

        async def refused(group: int, *args: Any, **message: Any) -> Any:
            sent.append(group)
            if group == 1:
                raise SupersededError("it has moved on")
            return await push(group, *args, **message)

        push = there.server.push
        monkeypatch.setattr(there.server, "push", refused)
        first = dispatch(1, 1, [(0, 1), (1, 1)], read="rows")
        second = dispatch(2, 2, [(0, 1), (1, 1)], read="rows", committed=0)
        tasks = (
            replace(task, follows=(1, 1), written_by=(1, 1 - task.partition), after=((1, 0), (1, 1)))
            for task in second.tasks
        )
        here.instruct(first)
        here.instruct(replace(second, tasks=tuple(tasks)))
        failed = [await wires.report(BatchDone | BatchFailed) for _ in range(2)]
        assert [report.group for report in failed] == [1, 2]
        assert "that has written the rows before was given up" in failed[1].error
        assert sent == [1]

    story(body, app=f"{__name__}:Turning")
