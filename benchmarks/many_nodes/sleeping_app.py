"""The application of the benchmarks of many nodes: one table of float32, and a kernel that waits instead of computing.

It stands for a kernel that keeps its node's own processors busy: sixty-four nodes that share two cores could not compute
at once, but they can wait at once. All else is real: every micro-task reads the whole table and adds to all of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psengine.apps.base import Work
from psengine.config import TableSpec
from psengine.tables.sharding import Arrays

TABLE = "weights"
#: Bytes of a row, and what the table's size is rounded to.
ROW = 1024
_KERNEL = "kernel"


@dataclass(frozen=True)
class Kernel:
    """A micro-task that ran to its end: of which clock, from when to when (of the machine's monotonic clock)."""

    clock: int
    began_s: float
    ended_s: float


def told(log: str) -> list[Kernel]:
    """Return the micro-tasks that a node's log tells of, in the order in which they ended."""
    lines = (line.split() for line in log.splitlines())
    return [Kernel(int(of[1]), float(of[2]), float(of[3])) for of in lines if len(of) == 4 and of[0] == _KERNEL]


class Waiting:
    """A table of `table_bytes`, and micro-tasks that take `seconds`, with nothing held that another thread wants.

    Every micro-task adds 1 to every value: the table says how many micro-tasks it has taken. With `tells`, it says when
    it ran on standard output, which is the node's log (`told`).
    """

    def __init__(self, table_bytes: int, seconds: float, tells: bool = False, **_: Any) -> None:
        self.table_bytes, self.seconds, self.tells = table_bytes, seconds, tells

    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec(TABLE, max(1, self.table_bytes // ROW), ROW // 4),)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> NDArray[np.generic]:
        del rng
        return np.zeros((rows[1] - rows[0], table.n_cols), np.float32)

    def prepare(self, arrays: Mapping[str, NDArray[np.generic]]) -> int:
        return len(arrays["x"])

    def run(self, data: int, params: Mapping[str, NDArray[np.generic]], clock: int) -> Work:
        began = time.monotonic()
        time.sleep(self.seconds)  # noqa: TID251 # the stand-in for a computation; it lets go of the GIL
        if self.tells:
            print(f"{_KERNEL} {clock} {began:.4f} {time.monotonic():.4f}", flush=True)
        return Work({TABLE: np.ones(params[TABLE].shape, np.float32)}, 0.0, data)

    def evaluate(self, params: Arrays, heldout: Arrays) -> dict[str, float]:
        """Return the least and the greatest value: both are the number of micro-tasks, if each counted once."""
        del heldout
        return {"least": float(params[TABLE].min()), "greatest": float(params[TABLE].max())}
