"""Protocols of applications: tables, data preparation, kernel, evaluation, prediction.

A user writes a class with these methods and names it `module:Class`. One object serves a whole process: methods may be
called from several threads concurrently, also on the same data, so they keep no state between calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from psengine.config import TableSpec
from psengine.drivers.interface import Driver
from psengine.tables.row_sets import RowSet
from psengine.tables.sharding import Arrays

#: Sizes of the training set, known when the job starts; they are added to the user's `app_params`.
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
)


@dataclass(frozen=True)
class Work:
    """Result of a micro-task: an addition to each table it changes, in the shape of its parameters, and its loss."""

    updates: Arrays
    loss_sum: float
    examples: int


class App(Protocol):
    """An application. The constructor takes `app_params` as keywords and only assigns.

    An application that needs only some rows of its tables also has `rows` (see `ReadsRows`); one whose model can be
    applied to new examples has `predict` (see `Predicts`).
    """

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the tables of the model."""
        ...

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> NDArray[np.generic]:
        """Return the values of a half-open row range at clock 0; `rng` depends on the seed and the range alone."""
        ...

    def prepare(self, arrays: Mapping[str, NDArray[np.generic]]) -> Any:
        """Turn the arrays of one input partition into the `data` of `run`; called once, when a node loads it."""
        ...

    def run(self, data: Any, params: Mapping[str, NDArray[np.generic]], clock: int) -> Work:
        """Run one micro-task: a clock of work on one partition. Do not modify `params` (full tables, or rows).

        The same arguments must give the same bits: a micro-task may be repeated on another node, or run speculatively.
        """
        ...

    def evaluate(
        self, params: Mapping[str, NDArray[np.generic]], heldout: Mapping[str, NDArray[np.generic]]
    ) -> dict[str, float]:
        """Return figures of merit on held-out data, by name."""
        ...


@runtime_checkable
class ReadsRows(Protocol):
    """An application whose micro-tasks need only some rows of a table."""

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
