"""What an application is: tables, a way to prepare its data, a kernel, and a measure of how good the model is.

A user writes a class with these methods and names it `module:Class`. One object serves a whole process: methods may be
called from several threads at once, also on the same data, so they keep no state of their own between calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from psengine.config import TableSpec
from psengine.tables.row_sets import RowSet
from psengine.tables.sharding import Arrays

#: What is known of the training set when the job starts; added to what the user gives as `app_params`.
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
    """What a micro-task gives back: an addition to each table it changes, shaped as it got it, and its loss for free."""

    updates: Arrays
    loss_sum: float
    examples: int


class App(Protocol):
    """An application. The constructor takes `app_params` as keywords and only assigns.

    One that needs only some rows of its tables has a further method, `rows` (see `ReadsRows`); one whose model is for use
    on new examples has `predict` (see `Predicts`).
    """

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the tables of the model."""
        ...

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> NDArray[np.generic]:
        """Return the values of a half-open row range at clock 0; `rng` depends on the seed and the range alone."""
        ...

    def prepare(self, arrays: Mapping[str, NDArray[np.generic]]) -> Any:
        """Turn the arrays of one input partition into what `run` wants; done once, when a node loads it."""
        ...

    def run(self, data: Any, params: Mapping[str, NDArray[np.generic]], clock: int) -> Work:
        """Do one micro-task: a clock of work on one partition. `params` (whole tables, or rows) must not be written to.

        The same arguments must give the same bits: a micro-task may be done again on another node, or
        ahead of time and for nothing.
        """
        ...

    def evaluate(
        self, params: Mapping[str, NDArray[np.generic]], heldout: Mapping[str, NDArray[np.generic]]
    ) -> dict[str, float]:
        """Return figures of merit on held-out data, by name."""
        ...


@runtime_checkable
class ReadsRows(Protocol):
    """An application whose micro-tasks want some rows of a table only."""

    def rows(self, data: Any, clock: int) -> Mapping[str, RowSet]:
        """Return the rows that `run(data, ..., clock)` wants, by table; a table that is left out is wanted whole.

        `run` gets those rows alone, in this order, and what it returns as the table's update has the same shape. Those of the
        next clock may be asked for while `run` works on the same data, so neither writes to them.
        """
        ...


@runtime_checkable
class Predicts(Protocol):
    """An application whose model says something of new examples.

    Attributes
    ----------
    predicts : str
        What the values are, in a word, as a column is headed. `class`: numbers of classes, told by the data's labels.
    """

    predicts: str

    def predict(
        self, params: Mapping[str, NDArray[np.generic]], arrays: Mapping[str, NDArray[np.generic]]
    ) -> NDArray[Any]:
        """Return a value for each example (or a row of them), from whole tables and from arrays as `prepare` gets them.

        What is to be learned of the examples (`y`) need not be among the arrays. ValueError where they do not fit.
        """
        ...


@runtime_checkable
class ChecksSizes(Protocol):
    """An application whose parameters may not fit the training set."""

    def check_sizes(self) -> None:
        """Raise ValueError, in one line, where the parameters do not fit the sizes of the training set."""
        ...
