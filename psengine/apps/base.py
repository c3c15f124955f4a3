"""Protocols of applications: tables, data preparation, kernel, evaluation, prediction.

A user writes a class and names it `module:Class`. The easy way is `App`: one object serves a whole process, and its
methods may be called from several threads concurrently, also on the same data, so they keep no state between calls. The
general way is `Application`: it creates an `Executor` for each partition, which has state and reads and adds to the
tables while it runs. Every `App` is run as an `Application` (see `residents`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.drivers.interface import Driver
from proteus_spot.psengine.tables.row_sets import RowSet
from proteus_spot.psengine.tables.sharding import Arrays

#: Sizes of the training set, and of a net's job, known when the job starts; they are added to the user's `app_params`.
SIZES = (
    "n_inputs",
    "n_classes",
    "n_examples",
    "n_users",
    "n_items",
    "n_partitions",
    "rating_mean",
    "rating_sd",
    "n_words",
    "n_tokens",
    "n_documents",
    "input_mean",
    "input_sd",
    "input_curvature",
    "job_seed",
    "job_clocks",
    "job_passes",
)


@dataclass(frozen=True)
class Work:
    """Result of a task: an addition to each table it changes, in the shape of its parameters, and its loss."""

    updates: Arrays
    loss_sum: float
    examples: int


class Model(Protocol):
    """What the easy and the general application have in common. The constructor takes `app_params` as keywords.

    Attributes that may be left out. ``memory_falls`` (False): memory may fall during the training, so that jobs scale
    in unless a setting says otherwise. ``clocks_per_pass`` (None): number of clocks in which every partition has looked
    at all of its data, for an application without a driver of its own; in its place the method ``passes_after(clock)``,
    the number of passes or None. ``keeps_best`` (False): the saved model is the one of the lowest figure ``loss`` among
    those that were evaluated.
    """

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the tables of the model."""
        ...

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> NDArray[np.generic]:
        """Return the values of a half-open row range at clock 0; `rng` depends on the seed and the range alone."""
        ...

    def evaluate(
        self, params: Mapping[str, NDArray[np.generic]], heldout: Mapping[str, NDArray[np.generic]]
    ) -> dict[str, float]:
        """Return figures of merit on held-out data, by name."""
        ...


class App(Model, Protocol):
    """An application, the easy way. The constructor takes `app_params` as keywords and only assigns.

    An application that needs only some rows of its tables also has `rows` (see `ReadsRows`); one whose model can be
    applied to new examples has `predict` (see `Predicts`).
    """

    def prepare(self, arrays: Mapping[str, NDArray[np.generic]]) -> Any:
        """Turn the arrays of one input partition into the `data` of `run`; called once, when a node loads it.

        If it has a parameter `partition` or `n_partitions`, it is passed the partition's number, counted from 0, or
        their count.
        """
        ...

    def run(self, data: Any, params: Mapping[str, NDArray[np.generic]], clock: int) -> Work:
        """Run one task: a clock of work on one partition. Do not modify `params` (full tables, or rows).

        The same arguments must give the same bits: a task may be repeated on another node, or run speculatively.
        If it has a parameter `partition`, `n_partitions`, `rng` or `staleness`, that is passed, too: `rng` is a
        generator that is seeded by the job, the clock and the partition, `staleness` the number of clocks before this
        one whose updates may be missing in `params`.
        """
        ...


class Parameters(Protocol):
    """An executor's access to the tables, while it runs.

    Attributes
    ----------
    group : int
        Number of the task's commit group, from 1; under the default driver it is the clock.
    read_group : int
        The last group whose updates are all in what the task reads; `group` - 1 where nothing is stale.
    """

    group: int
    read_group: int

    def get(self, table: str, rows: RowSet | None = None) -> NDArray[np.generic]:
        """Return rows of a table, or all of it, without what this task has added; do not modify the result.

        Rows that `Executor.reads` did not name are read from the servers now; the task waits for them.

        Raises
        ------
        ValueError
            If there is no such table, or it has no such rows.
        """
        ...

    def kept_sum(self, table: str, partitions: Collection[int]) -> NDArray[np.generic] | None:
        """Return the sum of what exactly these partitions added in the last group that updated a table.

        The table's rule is `Replace(keeps_sums=True)`. None: the servers have no such sum. They have it of
        partitions that ran together on a node, and of several nodes, until a shard moves or the job rolls back.
        """
        ...

    def add(self, table: str, delta: NDArray[np.generic], rows: RowSet | None = None) -> None:
        """Add `delta` to rows of a table, or to all of it; others see it once the task is complete.

        `delta` is not copied: do not write to it afterwards.

        Raises
        ------
        ValueError, TypeError
            If `delta` has another shape than the rows, or a type that does not fit.
        """
        ...


class Executor(Protocol):
    """The worker of one partition. It has state, and moves with it; at most one of its tasks runs at a time.

    An executor without state needs `run` only. One with state also has `snapshot` and `restore` (see `HasState`), one
    that knows beforehand what it reads has `reads` (see `ReadsAhead`).
    """

    def run(self, args: Any, params: Parameters, rng: np.random.Generator) -> tuple[Any, float, int]:
        """Run one task; return its result for the driver (small), the sum of the examples' losses, and their number.

        The same state and arguments must give the same bits: a task may be repeated, also on another node. `rng` is
        seeded by the job, the task's group and the partition.
        """
        ...


@runtime_checkable
class HasState(Protocol):
    """An executor with state."""

    def snapshot(self) -> Arrays:
        """Return the state. The executor never writes to the returned arrays again: they may be sent meanwhile."""
        ...

    def restore(self, state: Arrays) -> None:
        """Take over a state that an executor of this partition has returned; do not modify its arrays."""
        ...


@runtime_checkable
class ReadsAhead(Protocol):
    """An executor that knows what its tasks read."""

    def reads(self, args: Any, group: int) -> Mapping[str, RowSet | None]:
        """Return the rows that a task reads, by table, None for all of a table: they are fetched together before it.

        It may be called while another task runs, so it neither modifies the executor nor uses what `run` modifies.
        """
        ...


@runtime_checkable
class Application(Model, Protocol):
    """An application, the general way."""

    def prepare(self, arrays: Mapping[str, NDArray[np.generic]]) -> Any:
        """As `App.prepare`."""
        ...

    def executor(self, data: Any, partition: int, n_partitions: int) -> Executor:
        """Return the executor of a partition in its first state, from the result of `prepare`."""
        ...


@runtime_checkable
class ReadsRows(Protocol):
    """An application whose tasks need only some rows of a table."""

    def rows(self, data: Any, clock: int) -> Mapping[str, RowSet]:
        """Return the rows that `run(data, ..., clock)` needs, by table; of a missing table all rows are needed.

        `run` gets only those rows, in this order, and its update of the table has the same shape. `rows` may be called
        for the next clock while `run` works on the same data, so neither modifies `data`.
        """
        ...


@runtime_checkable
class MakesDriver(Protocol):
    """An application with a driver of its own; without one, a job runs under SSP with its staleness."""

    def driver(self) -> Driver:
        """Return a new driver; it runs in the controller (see `psengine.drivers.interface`).

        If it has a parameter `clocks`, the job's number of clocks (None: no limit) is passed.
        """
        ...


@runtime_checkable
class Predicts(Protocol):
    """An application whose model can be applied to new examples.

    Attributes
    ----------
    predicts : str
        One word for the predicted values, as a column header. `class`: class numbers, named by the data's labels.
    """

    predicts: str

    def predict(
        self, params: Mapping[str, NDArray[np.generic]], arrays: Mapping[str, NDArray[np.generic]]
    ) -> NDArray[Any]:
        """Return a value (or a row of values) for each example, from full tables and from arrays as for `prepare`.

        The target (`y`) need not be among the arrays. Raises ValueError if they do not fit.
        """
        ...


@runtime_checkable
class ChecksSizes(Protocol):
    """An application whose parameters must fit the sizes of the training set."""

    def check_sizes(self) -> None:
        """Raise ValueError, in one line, if the parameters do not fit the sizes of the training set."""
        ...


@runtime_checkable
class StandsFor(Protocol):
    """What a user's class may be in place of an application: it makes one, as a net does."""

    def engine_application(self) -> Any:
        """Return the application."""
        ...


@runtime_checkable
class DescribesClocks(Protocol):
    """An application that can say what a clock of it takes and moves."""

    def describe(self, data: Any, now_s: Callable[[], float]) -> tuple[str, ...]:
        """Return lines for its user, from a task that is measured on the `data` of one partition."""
        ...


class NodeBroken(Exception):
    """An application raises it where this node cannot run its tasks any more: the node fails, not the job."""


@runtime_checkable
class EntersNodes(Protocol):
    """An application that has processes of its own on each node."""

    def enter_node(self, tasks: int, data: Any) -> None:
        """Make ready for as many tasks at a time as the node runs, with the `data` of one partition.

        The node says that it is ready when this has returned. It may be called several times.
        """
        ...

    def leave_node(self) -> None:
        """End what `enter_node` has started."""
        ...


@runtime_checkable
class SavesFiles(Protocol):
    """An application whose model is saved in files of its own form, in place of its tables."""

    def model_files(self, params: Mapping[str, NDArray[np.generic]]) -> Mapping[str, bytes]:
        """Return the files, by name."""
        ...

    def tables_of_files(self, files: Mapping[str, bytes]) -> Arrays:
        """Return the tables of which `model_files` made these files."""
        ...
