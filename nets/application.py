"""A net as an application of the engine: a task is the local steps of one worker in one clock."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.nets.driver import WarmSsp
from proteus_spot.nets.layout import ArrayLayout, Flat
from proteus_spot.nets.local_steps import Errand, LocalSteps, Trained
from proteus_spot.nets.processes import TaskProcesses
from proteus_spot.nets.settings import MOST_WARM, NetSettings
from proteus_spot.nets.trainer import Arrays, Trainer
from proteus_spot.psengine.apps.base import Executor, Parameters
from proteus_spot.psengine.config import JobError, TableSpec
from proteus_spot.psengine.telemetry.formatting import format_bytes

logger = logging.getLogger(__name__)

#: Arrays of a partition that say which examples it has; they are no examples.
_ABOUT_ROWS = ("ids", "first")
#: Libraries have one random generator, and one number of threads, a process.
_ONE_AT_A_TIME = threading.RLock()
#: Stands for the partition of the step with which a process is warmed.
_NO_WORKER = -1
#: Copies of the model that a machine reads and pushes in a warm step: parameters, and gradients in both directions.
_WARM_COPIES = 3
#: Most steps by which a clock is measured.
_MEASURED = 10


class NetApplication:
    """The engine's view of a net, of which each group is a clock.

    Parameters
    ----------
    net : NetSettings
    """

    def __init__(self, net: NetSettings) -> None:
        self.net = net
        #: Heads the column of what is predicted.
        self.predicts = "class" if net.n_classes else "value"
        self.keeps_best = net.keep == "best"
        self._children: TaskProcesses | None = None

    @cached_property
    def _steps(self) -> LocalSteps:
        return LocalSteps(self.net)

    @contextmanager
    def trainer(self) -> Iterator[Trainer]:
        """Have the trainer of this process to oneself."""
        with _ONE_AT_A_TIME:
            yield self._steps.trainer

    def enter_node(self, tasks: int, data: Arrays) -> None:
        """Start the processes of a node that runs `tasks` tasks at a time, and have each take a step with `data`."""
        if self._children is None and self.net.in_processes:
            self._children = TaskProcesses(self.net, max(1, tasks // self.net.threads))
            self._children.warm(Errand(_NO_WORKER, self._first(), {}, {}, 0, 1, 0, 1), data)

    def leave_node(self) -> None:
        """End the processes."""
        if self._children is not None:
            self._children.end()

    def take(self, errand: Errand, data: Arrays) -> Trained:
        """Return what comes of a task, in a process of the node if it has some."""
        if self._children is None:
            with _ONE_AT_A_TIME:
                return self._steps.take(errand, data)
        with self._children.borrowed(errand.partition) as child:
            return child.take(errand, data)

    @cached_property
    def layout(self) -> ArrayLayout:
        """The arrays of the net."""
        with self.trainer() as trainer:
            return trainer.layout

    def _first(self) -> Flat:
        """Return the first model; it is as large as a server's, and not kept."""
        with self.trainer() as trainer:
            return trainer.layout.flat(trainer.first())

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the tables of the net."""
        layout, net = self.layout, self.net
        gradients = layout.gradients if net.calendar.warm_steps else ()
        notes = layout.notes if net.has_notes else ()
        return *layout.tables(net.outer_rule, bool(notes)), *gradients, *notes

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> NDArray[np.generic]:
        """Return rows of the first model, which the job's seed decides."""
        del rng  # it differs from shard to shard
        if table.name not in self.layout.sizes:  # gradients and notes
            return np.zeros((rows[1] - rows[0], table.n_cols), table.dtype)
        with self.trainer() as trainer:
            return trainer.layout.rows_of(table, trainer.first(), *rows)

    def prepare(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Return the examples of a partition."""
        return {name: array for name, array in arrays.items() if name not in _ABOUT_ROWS}

    def executor(self, data: Arrays, partition: int, n_partitions: int) -> Executor:
        """Return the worker of a partition."""
        if n_partitions != self.net.workers:
            raise JobError(
                f"the job has {n_partitions} partitions, and {type(self.net).__name__} {self.net.workers} workers: "
                "the base class has to be named in the file of the class"
            )
        keeps = self.net.moments == "keep" or self.net.calendar.warm_steps
        kind = _WorkerWithMoments if keeps else _Worker
        return kind(self, data, partition)

    def passes_after(self, group: int) -> float | None:
        """Return the passes over the data; None where examples are no rows of them."""
        net = self.net
        if not net.n_examples or not net.examples_are_rows:
            return None
        return net.calendar.steps(group).stop * net.examples_of_step / net.n_examples if group else 0.0

    def evaluate(self, params: Arrays, heldout: Arrays) -> dict[str, float]:
        """Return the figures of the net on held-out data."""
        with self.trainer() as trainer:
            return trainer.evaluate(params, self.prepare(heldout))

    def predict(self, params: Arrays, arrays: Arrays) -> NDArray[Any]:
        """Return a value for each example."""
        with self.trainer() as trainer:
            return trainer.predict(params, self.prepare(arrays))

    def describe(self, data: Arrays, now_s: Callable[[], float]) -> tuple[str, ...]:
        """Return what a clock takes and moves, measured by some local steps."""
        net = self.net
        steps = min(net.local_steps, _MEASURED)
        warm = net.calendar.warm_steps
        first = self._first()
        errand = Errand(0, first, {}, {}, 0, warm + 1, warm, steps)
        self.take(errand, data)
        began_s = now_s()
        self.take(errand, data)
        clock_s = (now_s() - began_s) / steps * net.local_steps
        n_bytes = sum(rows.nbytes for rows in first.values())
        moved = format_bytes(n_bytes)
        alone_s = clock_s * net.workers
        took = f"{clock_s:.2g} s with a core for each, {alone_s:.2g} s on one core"
        return (
            f"a clock is {net.local_steps} local steps of {net.workers} workers: {took}",
            f"a machine reads {moved} a clock, and pushes as much",
            *_about_warm(net, n_bytes),
            "a machine that is lost without notice costs the steps of the clock that it was in",
        )

    def model_files(self, params: Arrays) -> Mapping[str, bytes]:
        """Return the files of the model, in the form of the net's library."""
        with self.trainer() as trainer:
            return trainer.files(params)

    def tables_of_files(self, files: Mapping[str, bytes]) -> Flat:
        """Return the tables that `model_files` made these files of."""
        with self.trainer() as trainer:
            return trainer.of_files(files)


class WarmNetApplication(NetApplication):
    """The engine's view of a net with warm steps, each of which is a group."""

    def driver(self, clocks: int | None = None) -> WarmSsp:
        """Return the driver of a job of so many clocks; None: something else ends it."""
        return WarmSsp(self.net.calendar, clocks, self.passes_after)


def _about_warm(net: NetSettings, model_bytes: int) -> list[str]:
    if net.warm_steps == 0 or net.local_steps == 1:
        return []
    fifth = f"a fifth of the job's steps, at most {MOST_WARM}, is"
    which = fifth if net.warm_steps is None else f"the first {net.warm_steps} steps are"
    each = format_bytes(_WARM_COPIES * model_bytes)
    return [f"{which} synchronous: a machine reads and pushes {each} in each; warm_steps = 0 spares that"]


class _Worker:
    """A logical worker without state: the moments of its inner optimiser end with the clock, and no step is warm."""

    def __init__(self, app: NetApplication, data: Arrays, partition: int) -> None:
        self._app, self._net, self._data, self._partition = app, app.net, data, partition
        self._moments: Arrays = {}

    def reads(self, args: Any, group: int) -> dict[str, None]:
        """Return all tables that a worker begins with: the whole model, and gradients that were pushed for it."""
        gradients = self._gradients(group)
        notes = [table.name for table in self._app.layout.notes] if gradients and self._net.nan == "skip" else []
        return dict.fromkeys([*self._app.layout.sizes, *gradients, *notes])

    def _gradients(self, group: int) -> tuple[str, ...]:
        begins = self._net.calendar.begins_with_gradients(group)
        return tuple(table.name for table in self._app.layout.gradients) if begins else ()

    def run(self, args: Any, params: Parameters, rng: np.random.Generator) -> tuple[Any, float, int]:
        """Take the local steps of a group; add the worker's share of the mean change."""
        before = {name: params.get(name) for name in self._app.layout.sizes}
        calendar, seed, group = self._net.calendar, int(rng.integers(1 << 62)), params.group
        steps, warm, clock = calendar.steps(group), calendar.is_warm(group), calendar.clocks(group - 1) + 1
        gradients = self._mean_gradients(params)
        errand = Errand(self._partition, before, self._moments, gradients, seed, clock, steps.start, len(steps), warm)
        trained = self._app.take(errand, self._data)
        self._moments = trained.moments
        for name, share in trained.shares.items():
            params.add(name, share)
        is_plain = warm and self._partition == 0
        if is_plain or trained.skipped:
            for table in self._app.layout.notes:
                params.add(table.name, np.full((table.n_rows, 2), (bool(trained.skipped), is_plain), np.float32))
        if trained.skipped:
            logger.warning("%s", trained.skipped)
            return None, 0.0, 0
        examples = len(steps) * self._net.batch_size * self._net.accumulate
        return None, sum(trained.losses) / len(steps) * examples, examples

    def _mean_gradients(self, params: Parameters) -> Flat:
        """Return the mean gradients that the group before has pushed; empty: none."""
        found: Flat = {}
        workers = self._net.workers
        for table, notes in zip(self._gradients(params.group), self._app.layout.notes, strict=False):
            missing = float(params.get(notes.name)[0, 0]) if self._net.nan == "skip" else 0.0
            rows = params.get(table)
            if missing < workers:  # else the table has the gradients of an earlier group
                factor = rows.dtype.type(workers / (workers - missing))
                found[table] = np.multiply(rows, factor) if missing else rows
        return found


class _WorkerWithMoments(_Worker):
    """A logical worker whose state is the moments of its inner optimiser."""

    def snapshot(self) -> Arrays:
        """Return the moments; they are new arrays after each task."""
        return self._moments

    def restore(self, state: Arrays) -> None:
        """Go on with the moments of a snapshot."""
        self._moments = state
