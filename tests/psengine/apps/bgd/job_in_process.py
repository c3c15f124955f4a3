"""A job with a driver of its own, in one process: what the controller, the nodes and the servers do with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from proteus_spot.psengine.config import Add, TableSpec
from proteus_spot.psengine.drivers.interface import Done, Task
from proteus_spot.psengine.rpc.pickled_text import from_text, to_text


class Tables:
    """The tables of a job in one process: a group's updates are added up, and count once it is committed."""

    def __init__(self, specs: Sequence[TableSpec]) -> None:
        self.specs = {table.name: table for table in specs}
        self.values = {name: np.zeros((spec.n_rows, spec.n_cols)) for name, spec in self.specs.items()}
        self.sums: dict[str, np.ndarray] = {}
        #: {table: {executor: what it added}} of the group under way, and of the last group that had the table.
        self.parts: dict[str, dict[int, np.ndarray]] = {}
        self.kept: dict[str, dict[int, np.ndarray]] = {}
        self.executor = 0
        #: Executors of a node: those whose numbers have the same quotient by this one.
        self.per_node = 2

    def get(self, table: str, rows: Any = None) -> np.ndarray:
        return self.values[table][slice(None) if rows is None else rows].copy()

    def add(self, table: str, delta: np.ndarray, rows: Any = None) -> None:
        total = self.sums.setdefault(table, np.zeros_like(self.values[table]))
        total[slice(None) if rows is None else rows] += delta
        if rows is None:
            self.parts.setdefault(table, {})[self.executor] = delta.copy()

    def kept_sum(self, table: str, executors: Collection[int]) -> np.ndarray | None:
        """The sums of nodes, as the servers have them."""
        nodes: dict[int, list[int]] = {}
        for executor in self.kept.get(table, {}):
            nodes.setdefault(executor // self.per_node, []).append(executor)
        whole = [executor for node in nodes.values() if set(node) <= set(executors) for executor in node]
        if set(whole) != set(executors):
            return None
        return sum((self.kept[table][executor] for executor in whole), np.zeros_like(self.values[table]))

    def commit(self) -> None:
        for name, total in self.sums.items():
            adds = isinstance(self.specs[name].rule, Add)
            self.values[name] = self.values[name] + total if adds else total
        self.kept |= self.parts
        self.sums, self.parts = {}, {}


class JobInProcess:
    """What the engine does with a driver: one task at a time, in a random order."""

    def __init__(
        self,
        driver: Callable[[], Any],
        specs: Sequence[TableSpec],
        executors: Sequence[Any],
        seed: int = 0,
    ) -> None:
        self.make, self.rng = driver, np.random.default_rng(seed)
        self.tables, self.executors = Tables(specs), executors
        self.absent: set[int] = set()
        self.queue: list[Task] = []
        self.sealed = self.committed = 0
        self.end: tuple[int, str] | None = None
        self.models: list[np.ndarray] = []
        self.steps: list[int] = []
        self.driver = driver()
        self.driver.start(self, len(executors), 0)

    def dispatch(self, task: Task) -> None:
        assert task.group == self.sealed + 1
        assert task.executor not in self.absent
        assert task.executor not in [other.executor for other in self.queue]
        self.queue.append(task)

    def seal(self, group: int, members: Collection[int] | None = None) -> None:
        assert members is None
        assert group == self.sealed + 1
        self.sealed = group

    def evaluate(self, group: int) -> None:
        raise AssertionError("it evaluates nothing")

    def finish(self, group: int, reason: str = "") -> None:
        self.end = group, reason

    def run_one(self) -> bool:
        if self.end is not None or not self.queue:
            return False
        task = self.queue.pop(int(self.rng.integers(len(self.queue))))
        if task.args[0] == "step":
            self.steps.append(task.group)
        self.tables.executor = task.executor
        result, loss, examples = self.executors[task.executor].run(task.args, self.tables, self.rng)
        self.driver.completed(self, Done(task, from_text(to_text(result)), examples, loss))
        self._commit()
        return True

    def _commit(self) -> None:
        while self.sealed > self.committed and not self.queue and self.end is None:
            self.tables.commit()
            self.committed += 1
            if self.committed in self.steps:
                self.models.append(self.tables.get("weights"))
            state = from_text(to_text(self.driver.snapshot()))
            self.driver = self.make()
            self.driver.restore(state)
            self.driver.committed(self, self.committed)

    def lose(self, executors: Collection[int]) -> None:
        if lost := sorted(set(executors) - self.absent):
            if self.driver.vanished(self, lost):
                self.absent |= set(lost)
                self.queue = [task for task in self.queue if task.executor not in self.absent]
            self._commit()

    def bring_back(self, executors: Collection[int]) -> None:
        if back := sorted(set(executors) & self.absent):
            self.absent -= set(back)
            self.driver.returned(self, back)
            self._commit()

    @property
    def state(self) -> Any:
        return self.driver.snapshot()
