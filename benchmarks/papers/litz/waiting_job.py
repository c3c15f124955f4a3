"""A stand-in for a measured job: kernels that wait, on tables, executor states and input as large as its own.

A kernel on one of many nodes that share a machine's processors could not compute; it waits as long as the real kernel
took on one node. All else is real: rows are read and pushed, states stay with their executors and move with them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.benchmarks.papers.litz.corpus import drawn_set
from proteus_spot.benchmarks.training.generated_examples import generated_examples
from proteus_spot.benchmarks.training.through_engine import NODES, through_engine
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import HELD_OUT, JobPaths, part_name
from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.apps.residents import shared_tables
from proteus_spot.psengine.config import JobConfig, TableSpec
from proteus_spot.psengine.tables.row_sets import RowSet, row_bytes
from proteus_spot.psengine.tables.sharding import Arrays

#: Number of 4-byte values in a row of the table, and of the states.
_COLUMNS = 64
_ROW_BYTES = 4 * _COLUMNS
#: Type of a token's topic, the state of `lda`.
_TOPIC = "int16"
#: Executors of each node when all have joined.
EXECUTORS = 2


class WaitingApplication:
    """A table of `table_bytes`, states of `state_bytes` in all, and micro-tasks that take `seconds`.

    Every micro-task adds 1 to all that it reads: to its state, and to the table, or with `rotates` to a block of it,
    another one each clock. So the model counts the micro-tasks.
    """

    def __init__(self, table_bytes: int, state_bytes: int, seconds: float, executors: int, rotates: bool) -> None:
        self.executors, self.seconds, self.rotates = executors, seconds, rotates
        self.rows_each = max(1, table_bytes // _ROW_BYTES // executors)
        self.state_rows = max(1, state_bytes // _ROW_BYTES // executors) if state_bytes else 0

    def tables(self) -> tuple[TableSpec, ...]:
        table = TableSpec("table", self.rows_each * self.executors, _COLUMNS)
        state = TableSpec("state", self.state_rows * self.executors, _COLUMNS, own=True)
        return (table, state) if self.state_rows else (table,)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> NDArray[np.generic]:
        del rng
        return np.zeros((rows[1] - rows[0], table.n_cols), np.float32)

    def prepare(self, arrays: Mapping[str, NDArray[np.generic]]) -> tuple[int, NDArray[np.generic]]:
        return int(np.asarray(arrays["partition"]).item()), arrays["input"]

    def rows(self, data: tuple[int, Any], clock: int) -> Mapping[str, RowSet]:
        executor = data[0]
        found: dict[str, RowSet] = {}
        if self.state_rows:
            found["state"] = slice(executor * self.state_rows, (executor + 1) * self.state_rows)
        if self.rotates:
            block = (executor + clock) % self.executors
            found["table"] = slice(block * self.rows_each, (block + 1) * self.rows_each)
        return found

    def run(self, data: tuple[int, Any], params: Mapping[str, NDArray[np.generic]], clock: int) -> Work:
        time.sleep(self.seconds)  # noqa: TID251 # it replaces a computation, and releases the GIL
        return Work({name: np.ones_like(rows) for name, rows in params.items()}, 0.0, 1)

    def evaluate(self, params: Arrays, heldout: Arrays) -> dict[str, float]:
        """Return the least and the greatest value of each table."""
        del heldout
        ends = {f"{name}.least": float(rows.min()) for name, rows in params.items()}
        return ends | {f"{name}.greatest": float(rows.max()) for name, rows in params.items()}


@dataclass(frozen=True)
class MeasuredJob:
    """Sizes in bytes of a job, and the seconds of its kernels in one pass on one node."""

    app: str
    table_bytes: int
    state_bytes: int
    input_bytes: int
    pass_s: float


@dataclass(frozen=True)
class StandIn:
    """A job of `clocks` clocks, each of which waits the kernels' time of `passes_a_clock` passes of a measured job."""

    measured: MeasuredJob
    n_nodes: int
    clocks: int
    passes_a_clock: float

    @property
    def executors(self) -> int:
        """Number of executors."""
        return EXECUTORS * self.n_nodes

    @property
    def clock_s(self) -> float:
        """Seconds of all kernels of a clock."""
        return self.passes_a_clock * self.measured.pass_s

    def config(self, job: str, blobs: Blobs, n_reliable: int) -> JobConfig:
        """Return the job's config, and write its input."""
        paths, measured = JobPaths(job), self.measured
        each = max(1, measured.input_bytes // self.executors // 4)
        values = np.zeros(each, np.float32)
        for partition in range(self.executors):
            blobs.write_npz(
                f"{paths.data}/{part_name(partition)}", {"partition": np.array([partition]), "input": values}
            )
        blobs.write_npz(f"{paths.data}/{HELD_OUT}", {"input": values[:1]})
        return JobConfig(
            job_id=job,
            app="proteus_spot.benchmarks.papers.litz.waiting_job:WaitingApplication",
            app_params={
                "table_bytes": measured.table_bytes,
                "state_bytes": measured.state_bytes,
                "seconds": self.clock_s / self.executors,
                "executors": self.executors,
                "rotates": measured.state_bytes > 0,
            },
            data_url=blobs.url_of(paths.data),
            n_partitions=self.executors,
            n_shards=self.n_nodes,
            clocks=self.clocks,
            n_reliable=n_reliable,
            stage=1,
        )

    def check(self, metrics: Mapping[str, float]) -> None:
        """Raise if the model does not hold each micro-task once."""
        a_row = self.clocks if self.measured.state_bytes else self.clocks * self.executors
        wanted = {"table": a_row, **({"state": self.clocks} if self.measured.state_bytes else {})}
        expected = {f"{name}.{end}": float(count) for name, count in wanted.items() for end in ("least", "greatest")}
        if dict(metrics) != expected:
            raise RuntimeError(f"{expected} micro-tasks were done, and the model holds {dict(metrics)}")


def measured_mlr(scratch: Path, n_examples: int = 60_000, clocks: int = 6) -> MeasuredJob:
    """Measure `mlr` on the nodes of `through_engine`, with real kernels."""
    x, y = generated_examples(n_examples, 784, 10, seed=3)
    rows = np.array_split(np.arange(n_examples), 2 * len(NODES))
    parts: list[Mapping[str, np.ndarray]] = [{"x": x[mine], "y": y[mine]} for mine in rows]
    params = {"n_inputs": 784, "n_classes": 10, "n_examples": n_examples, "step": 0.1}
    result, _ = through_engine(scratch, "mlr", params, parts, parts[0], clocks)
    return _measured("mlr", params, 0, result, clocks)


def measured_lda(scratch: Path, n_documents: int = 40_000, passes: int = 3) -> MeasuredJob:
    """Measure `lda` on the nodes of `through_engine`, with real kernels."""
    n_parts = 2 * len(NODES)
    sets = drawn_set(n_documents, 4000, 50, 160.0, n_parts)
    params = {**sets.sizes, "k": 100, "parallel": "model"}
    clocks = passes * n_parts + 1
    result, _ = through_engine(scratch, "lda", params, sets.parts(0), sets.heldout(), clocks, scale_in=False)
    state_bytes = sets.sizes["n_tokens"] * np.dtype(_TOPIC).itemsize
    return _measured("lda", params, state_bytes, result, passes)


def _measured(
    app: str, params: Mapping[str, Any], state_bytes: int, result: Mapping[str, Any], passes: int
) -> MeasuredJob:
    """Return the sizes of tables and states of one clock: nodes hold several versions of them."""
    tables = sum(spec.n_rows * row_bytes(spec) for spec in shared_tables(resolve(app, params)))
    inputs = result["memory_by_clock"][-1][3]
    return MeasuredJob(app, tables, state_bytes, inputs, result["kernel_seconds"] / passes)
