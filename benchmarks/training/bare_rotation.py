"""A bare loop over an application whose driver rotates blocks: its executors on threads, no servers, no messages.

The groups, the arguments and the random numbers are those of the engine, so that the model has the engine's bits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.infra.nodes.malloc import retain_freed_memory
from proteus_spot.psengine.apps.base import Application, Executor, MakesDriver
from proteus_spot.psengine.apps.residents import shared_tables
from proteus_spot.psengine.drivers.interface import Done, Task
from proteus_spot.psengine.single_process import initial
from proteus_spot.psengine.tables.row_sets import RowSet


@dataclass(frozen=True)
class RotatedGroup:
    """The job after a group: seconds up to now, loss of the group, tables on the servers, executors."""

    group: int
    seconds: float
    loss: float
    tables: dict[str, NDArray[Any]]
    executors: Sequence[Any]


def bare_rotation(app: Application, parts: Sequence[Any], threads: int) -> Iterator[RotatedGroup]:
    """Yield the job after each group.

    Parameters
    ----------
    app : an application with a driver whose tasks of a group change other rows each, but for the first group.
    parts : result of `app.prepare` for each partition.
    """
    assert isinstance(app, MakesDriver)
    retain_freed_memory()  # as nodes do
    executors = [app.executor(data, part, len(parts)) for part, data in enumerate(parts)]
    first = initial(app, 0)
    tables: dict[str, Any] = {table.name: first[table.name].copy() for table in shared_tables(app)}
    driver, sent, took_s = app.driver(), _Sent(), 0.0
    driver.start(sent, len(parts), 0)
    lock = Lock()

    def work(task: Task) -> Done:
        params = _Tables(task.group, tables, lock)
        rng = np.random.default_rng([0, task.group, task.partition])
        executor: Executor = executors[task.partition]
        result, loss, examples = executor.run(task.args, params, rng)
        return Done(task, result, examples, loss)

    with ThreadPoolExecutor(threads) as pool:
        for group in count(1):
            began_s = perf_counter()
            dones = list(pool.map(work, sent.tasks.pop(group)))
            for done in dones:
                driver.completed(sent, done)
            driver.committed(sent, group)
            took_s += perf_counter() - began_s
            yield RotatedGroup(group, took_s, sum(done.loss for done in dones), tables, executors)


@dataclass
class _Sent:
    """Dispatcher that keeps the tasks of each group."""

    tasks: dict[int, list[Task]] = field(default_factory=dict)

    def dispatch(self, task: Task) -> None:
        self.tasks.setdefault(task.group, []).append(task)

    def seal(self, group: int, members: Collection[int] | None = None) -> None:
        """Each group has all executors."""

    def evaluate(self, group: int) -> None:
        """Nothing is evaluated here."""

    def finish(self, group: int, reason: str = "") -> None:
        """The caller ends the loop."""


class _Tables:
    """The tables of a task, read and changed in place."""

    def __init__(self, group: int, tables: dict[str, NDArray[Any]], lock: Lock) -> None:
        self.group, self.read_group, self._tables, self._lock = group, group - 1, tables, lock

    def get(self, table: str, rows: RowSet | None = None) -> NDArray[Any]:
        whole = self._tables[table]
        return whole if rows is None else whole[rows]

    def kept_sum(self, table: str, executors: Collection[int]) -> None:
        """Return None: nothing is kept here."""

    def add(self, table: str, delta: NDArray[Any], rows: RowSet | None = None) -> None:
        whole = self._tables[table]
        if self.group == 1 or rows is None:  # rows of others are among these
            with self._lock:
                whole[slice(None) if rows is None else rows] += delta
        else:
            whole[rows] += delta
