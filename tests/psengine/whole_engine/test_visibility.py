"""What a task sees: each kind of read is checked by the tasks themselves, under movement and loss.

Every task adds 1 to the row of its partition, so what it reads shows which tasks it sees. The driver passes on what
must be seen: of a task that reads "group" exactly the groups before its own, of one that reads "rows" these groups in
some rows, of one that reads "parent" at least the tasks that the driver knew to be completed. A task that sees anything
else raises, and the job fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.config import JobConfig, TableSpec
from proteus_spot.psengine.drivers.interface import Dispatcher, Done, Driver, Read, Task
from proteus_spot.psengine.protocol.read_version import Before
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.server.shard_store import ShardStore
from proteus_spot.psengine.tables.row_cache import RowCache
from proteus_spot.psengine.worker.parameter_client import ParameterClient
from tests.psengine.whole_engine.test_driver_jobs import LIMIT_S, NODES
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import run_job
from tests.support.simulated_storm import storm

GROUPS, PARTITIONS = 24, 6


class Witnesses:
    """The application; `rows`: its tasks read rows that others write; `full`: all partitions are in each group."""

    def __init__(self, rows: bool = False, full: bool = False) -> None:
        self.rows, self.full = rows, full

    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec("tasks", PARTITIONS, 1, "int32"),)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        return np.zeros((rows[1] - rows[0], 1), np.int32)

    def prepare(self, arrays: Mapping[str, Any]) -> None:
        return None

    def executor(self, data: None, partition: int, n_partitions: int) -> Witness:
        return Witness(partition)

    def driver(self) -> Ahead:
        return AheadByRows(self.full) if self.rows else Ahead()

    def evaluate(self, params: Mapping[str, Any], heldout: Mapping[str, Any]) -> dict[str, float]:
        return {"tasks": float(params["tasks"].sum())}


class Witness:
    def __init__(self, partition: int) -> None:
        self.partition = partition

    def run(
        self, args: tuple[Read, list[int] | None, list[int]], params: Any, rng: np.random.Generator
    ) -> tuple[None, float, int]:
        read, rows, due = args
        seen = params.get("tasks", None if rows is None else np.array(rows))[:, 0].tolist()
        if any(np.less(seen, due)) if read == "parent" else (seen != due):
            raise AssertionError(f"read {read!r} of rows {rows} saw {seen}, must see {due}")
        params.add("tasks", np.ones((1, 1), np.int32), np.array([self.partition]))
        return None, 0.0, 1


class Ahead(Driver):
    """It is three groups ahead; each is of some partitions, and every third reads "group"."""

    def __init__(self) -> None:
        self.completions, self.dispatched, self.last = [0] * PARTITIONS, [0] * PARTITIONS, 0

    def start(self, to: Dispatcher, partitions: int, seed: int) -> None:
        for _ in range(3):
            self._dispatch(to)

    def completed(self, to: Dispatcher, done: Done) -> None:
        self.completions[done.task.partition] += 1

    def committed(self, to: Dispatcher, group: int) -> None:
        self._dispatch(to)

    def snapshot(self) -> Any:
        return list(self.completions), list(self.dispatched), self.last

    def restore(self, state: Any) -> None:
        completions, dispatched, self.last = state
        self.completions, self.dispatched = list(completions), list(dispatched)

    def _dispatch(self, to: Dispatcher) -> None:
        self.last += 1
        read: Read = "parent" if self.last % 3 else "group"
        due = list(self.completions if read == "parent" else self.dispatched)
        for partition in np.flatnonzero(np.random.default_rng(self.last).random(PARTITIONS) < 0.5).tolist() or [0]:
            to.dispatch(Task(partition, self.last, (read, None, due), read))
            self.dispatched[partition] += 1
        to.seal(self.last)


class AheadByRows(Ahead):
    """Likewise, but most tasks read a few rows, whoever wrote them; every fourth group reads "group"."""

    def __init__(self, full: bool) -> None:
        super().__init__()
        self.full = full

    def _dispatch(self, to: Dispatcher) -> None:
        self.last += 1
        due, rng = list(self.dispatched), np.random.default_rng(self.last)
        for partition in np.flatnonzero(rng.random(PARTITIONS) < (1.0 if self.full else 0.5)).tolist() or [0]:
            rows = np.flatnonzero(rng.random(PARTITIONS) < 0.4).tolist() or [partition]
            if self.last % 4:
                args = ("rows", rows, [due[row] for row in rows])
                to.dispatch(Task(partition, self.last, args, "rows", after=tuple(rows)))
            else:
                to.dispatch(Task(partition, self.last, ("group", None, due), "group"))
            self.dispatched[partition] += 1
        to.seal(self.last)


def trained(seed: int, rows: bool = False, full: bool = False) -> WiredCluster:
    cluster = WiredCluster(seed, Trouble(lost=0.02, doubled=0.05, usual_s=0.05))
    job = JobConfig(
        "witnesses",
        "tests.psengine.whole_engine.test_visibility:Witnesses",
        {"rows": rows, "full": full},
        n_partitions=PARTITIONS,
        n_shards=2,
        clocks=GROUPS,
        stage_2_above=0.5,
        checkpoint_s=2.0,
    )
    run_job(cluster, job, NODES, lambda cluster: storm(cluster, 4), LIMIT_S)
    return cluster


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.storm) for seed in range(4, 100))])
@pytest.mark.parametrize(("rows", "full"), [(False, False), (True, False), (True, True)])
def test_each_task_sees_what_it_must(seed: int, rows: bool, full: bool) -> None:
    cluster = trained(seed, rows, full)
    assert cluster.shell.controller.job.state == "finished", cluster.shell.controller.job.reason
    assert cluster.store.model is not None
    share = 1.0 if full else 0.5
    groups = [np.flatnonzero(np.random.default_rng(group).random(PARTITIONS) < share) for group in range(1, GROUPS + 1)]
    members = [group.tolist() or [0] for group in groups]
    assert cluster.store.model["tasks"][:, 0].tolist() == [
        sum(e in group for group in members) for e in range(PARTITIONS)
    ]


def sees_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a read of exactly one group that is one of whatever is there."""
    read = ParameterClient.read_rows

    async def read_rows(self: Any, sharding: Any, wanted: Any, parent: int, committed: int, exact: bool) -> Any:
        return await read(self, sharding, wanted, parent, committed, False)

    monkeypatch.setattr(ParameterClient, "read_rows", read_rows)


def sees_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a cache that is never too old."""
    find = RowCache.find
    monkeypatch.setattr(RowCache, "drop_before", lambda self, parent: None)
    monkeypatch.setattr(
        RowCache,
        "find",
        lambda self, table, rows, parent, exact: find(self, table, rows, parent if exact else 0, exact),
    )


def waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a server that holds no read until the rows are written."""
    not_readable = ShardServer._not_readable

    def whatever_is_missing(self: Any, epochs: Any, version: Any) -> Any:
        return not_readable(self, epochs, replace(version, after=()) if isinstance(version, Before) else version)

    monkeypatch.setattr(ShardServer, "_not_readable", whatever_is_missing)


def sees_later_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a server that answers with whatever was written to the rows."""
    read = ShardStore.before

    def before(self: Any, clock: int, wanted: Any) -> Any:
        return read(self, clock + 1, wanted)

    monkeypatch.setattr(ShardStore, "before", before)


@pytest.mark.parametrize(
    ("planted", "kind"),
    [(sees_too_much, "group"), (sees_too_little, "parent"), (waits_for_nobody, "rows"), (sees_later_groups, "rows")],
)
def test_a_violation_is_seen(
    planted: Callable[[pytest.MonkeyPatch], None], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(monkeypatch)
    reasons = [trained(seed, kind == "rows").shell.controller.job.reason for seed in range(3)]
    assert any(f"AssertionError: read '{kind}' of rows" in reason for reason in reasons), reasons
