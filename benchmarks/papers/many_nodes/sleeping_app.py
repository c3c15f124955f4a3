"""An application with one float32 table and a kernel that sleeps instead of computing.

It represents a kernel that keeps its node's processors busy: sixty-four nodes on two cores cannot compute concurrently,
but they can sleep concurrently. All else is real: every micro-task reads the full table and updates all of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.tables.sharding import Arrays

TABLE = "weights"
#: Bytes of a row; the table's size is rounded to a multiple.
ROW = 1024
_KERNEL = "kernel"


@dataclass(frozen=True)
class Kernel:
    """A completed micro-task: its clock, start and end (of the machine's monotonic clock, in seconds)."""

    clock: int
    began_s: float
    ended_s: float


def parse_kernels(log: str) -> list[Kernel]:
    """Return the micro-tasks in a node's log, in the order in which they ended."""
    lines = (line.split() for line in log.splitlines())
    return [Kernel(int(w[1]), float(w[2]), float(w[3])) for w in lines if len(w) == 4 and w[0] == _KERNEL]


class Waiting:
    """A table of `table_bytes`, and micro-tasks that take `seconds` and block no other thread.

    Every micro-task adds 1 to every value, so the table counts micro-tasks. With `tells`, each prints its start and end
    to standard output, which is the node's log (`parse_kernels`).
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
        time.sleep(self.seconds)  # noqa: TID251 # it replaces a computation, and releases the GIL
        if self.tells:
            print(f"{_KERNEL} {clock} {began:.4f} {time.monotonic():.4f}", flush=True)
        return Work({TABLE: np.ones(params[TABLE].shape, np.float32)}, 0.0, data)

    def evaluate(self, params: Arrays, heldout: Arrays) -> dict[str, float]:
        """Return the least and the greatest value: both are the number of micro-tasks, if each counted once."""
        del heldout
        return {"least": float(params[TABLE].min()), "greatest": float(params[TABLE].max())}
