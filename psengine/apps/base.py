"""What an application is: tables, a way to prepare its data, a kernel, and a measure of how good the model is.

A user writes a class with these methods and names it `module:Class`. One object serves a whole process: methods may be
called from several threads at once, so they keep no state of their own between calls.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from psengine.model import JobError, TableSpec
from psengine.sharding import Arrays

#: What is known of the training set when the job starts; added to what the user gives as `app_params`.
SIZES = ("n_inputs", "n_classes", "n_examples")
BUILT_IN = MappingProxyType({"mlr": "psengine.apps.mlr:MultinomialLogisticRegression"})


@dataclass(frozen=True)
class Work:
    """What a micro-task gives back: an addition to each table it changes (whole tables), and its loss for free."""

    updates: Arrays
    loss_sum: float
    examples: int


class App(Protocol):
    """An application. The constructor takes `app_params` as keywords and only assigns."""

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
        """Do one micro-task: a clock of work on one partition. `params` (whole tables) must not be written to.

        The same arguments must give the same bits: a micro-task may be done again on another node.
        """
        ...

    def evaluate(
        self, params: Mapping[str, NDArray[np.generic]], heldout: Mapping[str, NDArray[np.generic]]
    ) -> dict[str, float]:
        """Return figures of merit on held-out data, by name."""
        ...


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
    """Return the values of a shard at clock 0, the same whichever node makes them."""
    return {
        table.name: np.ascontiguousarray(
            app.initial(table, rows[table.name], np.random.default_rng([seed, index, shard])), dtype=table.dtype
        )
        for index, table in enumerate(app.tables())
    }
