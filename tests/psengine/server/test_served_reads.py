"""An update that comes too late for a read ahead of the commit, and what is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.protocol.answers import LateUpdate, Pushed, Rows
from proteus_spot.psengine.protocol.moved_state import ShardState
from proteus_spot.psengine.protocol.read_version import Before
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.tables.row_sets import RowSet
from proteus_spot.psengine.tables.row_updates import RowDelta
from proteus_spot.psengine.tables.sharding import Sharding
from tests.support.servers import at_once

PARTITIONS, SHARD = 4, 1
EPOCHS = {SHARD: 1}


def server() -> ShardServer:
    """Return a server of the rows 8 to 15 of a table."""
    found = ShardServer()
    found.sharding = Sharding((TableSpec("t", 16, 1, "float64"),), 2)
    at_once(found.open({SHARD: ShardState({"t": np.zeros((8, 1))}, 0, 0)}, PARTITIONS, 1))
    return found


def read(of: ShardServer, rows: RowSet, named: RowSet | None = None, group: int = 3) -> None:
    """Read rows, counted within the shard, by the task of partition 1."""
    version = Before(group, (), 0, (1,), {} if named is None else {SHARD: {"t": named}})
    assert isinstance(at_once(of.read(EPOCHS, version, {SHARD: {"t": rows}})), Rows)


def push(of: ShardServer, rows: Any, group: int = 2, partition: int = 0, attempt: int = 1, dense: bool = False) -> Any:
    delta: Any = RowDelta(np.array(rows), np.ones((len(rows), 1)))
    if dense:
        delta = np.zeros((8, 1))
        delta[rows] = 1.0
    return at_once(of.push(group, EPOCHS, [(partition, (attempt,))], {SHARD: [{"t": delta}]}))


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(
    ("rows", "named", "written", "late"),
    [
        (slice(2, 5), None, [4, 6], "row 12"),
        (slice(2, 5), None, [1, 5], ""),
        (np.array([0, 2, 4]), None, [1, 3], ""),
        (np.array([0, 2, 4]), None, [2, 3, 4], "2 rows from 10 to 12"),
        (slice(0, 5), np.array([0, 4]), [1, 2], ""),  # the rows between are read because a run is smaller to send
        (slice(0, 5), np.array([0, 4]), [1, 4], "row 12"),
        (None, None, [7], "row 15"),
    ],
)
def test_an_update_of_rows_that_were_read_is_late(
    rows: Any, named: RowSet | None, written: list[int], late: str, dense: bool
) -> None:
    of = server()
    read(of, rows, named)
    answer = push(of, written, dense=dense)
    if not late:
        assert answer == Pushed()
        return
    assert answer == LateUpdate(
        f"the task of partition 1 in group 3 has read {late} of table 't' before the task of partition 0 in group 2 "
        "has changed them: the driver has to name that partition in `after`"
    )
    assert push(of, [7], partition=2) == answer, "each node learns of it: the one that was late may be lost"


def test_what_was_there_and_comes_again_is_not_late_and_neither_is_what_belongs_to_a_later_group() -> None:
    of = server()
    push(of, [3])
    read(of, slice(0, 8))
    assert push(of, [3], attempt=2) == Pushed(), "the task was repeated: the same bits"
    assert push(of, [3], partition=2, group=3) == Pushed()
    assert push(of, [3], partition=2, group=4) == Pushed()
    of.stores[SHARD].fold(2)
    assert of.stores[SHARD].reads.pending() == (), "group 2 is committed"


def test_a_shard_that_moves_takes_its_reads_along() -> None:
    of, other = server(), server()
    read(of, slice(0, 8))
    handed = at_once(of.hand_over(EPOCHS, "other", "there", 2))
    other.expect([SHARD], 2)
    at_once(other.take(PARTITIONS, handed.states, 2))  # type: ignore[union-attr]
    assert len(other.stores[SHARD].reads.pending()) == 1


@pytest.mark.parametrize(("committed", "late"), [(1, True), (2, False)])
def test_a_read_counts_until_the_group_before_it_is_committed(committed: int, late: bool) -> None:
    here = server()
    read(here, slice(0, 2), group=3)
    at_once(here.fold(committed, 1))
    answer = push(here, [1], group=2, partition=1)
    assert isinstance(answer, LateUpdate) is late
