"""What an application is: tables, a way to prepare its data, a kernel, and a measure of how good the model is.

A user writes a class with these methods and names it `module:Class`. One object serves a whole process: methods may be
called from several threads at once, also on the same data, so they keep no state of their own between calls.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from psengine.config import JobError, TableSpec
from psengine.tables.sharding import Arrays

#: Rows of a table: a run of them (start and stop given, no step), or distinct ones in rising order (int64).
RowSet = slice | NDArray[np.int64]

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
)
BUILT_IN = MappingProxyType(
    {
        "mlr": "psengine.apps.mlr:MultinomialLogisticRegression",
        "kmeans": "psengine.apps.kmeans:KMeans",
        "lda": "psengine.apps.lda:LatentDirichletAllocation",
        "mf": "psengine.apps.mf:MatrixFactorization",
    }
)
#: Application -> the kind of data that it learns from (`infra.datasets.kinds`); one that is not here: labelled examples.
WANTS = MappingProxyType({"mf": "ratings", "lda": "documents"})


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


def rows_of(app: App, data: Any, clock: int) -> Mapping[str, RowSet]:
    """Return which rows a micro-task wants of the tables that it does not want whole."""
    return app.rows(data, clock) if isinstance(app, ReadsRows) else {}


def resolve(name: str, params: Mapping[str, Any]) -> App:
    """Return the application of a built-in name or of `module:Class`.

    Of the sizes (`SIZES`) it is handed those that its constructor takes.

    Raises
    ------
    JobError
        When there is no such application, or it does not take these parameters.
    """
    module, _, attribute = BUILT_IN.get(name, name).partition(":")
    if not attribute:
        raise JobError(f"app {name!r} is not known: use one of {', '.join(BUILT_IN)}, or module:Class")
    try:
        made = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        # A user's module may raise whatever it likes.
        raise JobError(f"app {name!r} cannot be imported on this node: {_said(error)}") from error
    try:
        app: App = made(**_taken(made, params))
    except Exception as error:
        raise JobError(f"app {name!r} does not take these app_params: {_said(error)}") from error
    return app


def _taken(made: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return `params` without the sizes that `made` does not ask for."""
    asked = inspect.signature(made).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in asked.values()):
        return dict(params)
    return {name: value for name, value in params.items() if name in asked or name not in SIZES}


def _said(error: Exception) -> str:
    plain = isinstance(error, ImportError | AttributeError | TypeError | ValueError)
    return str(error) if plain else f"{type(error).__name__}: {error}"


def initial_arrays(app: App, seed: int, shard: int, rows: Mapping[str, tuple[int, int]]) -> Arrays:
    """Return the values of a shard at clock 0, the same whichever node makes them; there is no -0 (see `rows`)."""
    return {
        table.name: _without_minus_zero(
            np.ascontiguousarray(
                app.initial(table, rows[table.name], np.random.default_rng([seed, index, shard])), dtype=table.dtype
            )
        )
        for index, table in enumerate(app.tables())
    }


def _without_minus_zero(array: NDArray[Any]) -> NDArray[np.generic]:
    return array + array.dtype.type(0) if array.dtype.kind == "f" else array
