"""Model-parallel matrix factorisation: a driver rotates blocks of items, users are the state of partitions.

The schedule is that of `app` without stale reads: in a group each partition visits its ratings of one block of items,
no two the same. A task waits for the task that had its block before, and not for the others.

Source: Gemulla et al. (KDD 2011), stratified descent; Litz (2017), section 2.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps.base import Parameters
from proteus_spot.psengine.apps.mf.app import F32, MatrixFactorization, Strip
from proteus_spot.psengine.apps.residents import rows_name
from proteus_spot.psengine.drivers.rotation import Rotation
from proteus_spot.psengine.tables.row_sets import RowSet
from proteus_spot.psengine.tables.sharding import Arrays


class ModelParallelFactorization(MatrixFactorization):
    """Factors of users and items, learned from ratings; the parameters are those of `MatrixFactorization`."""

    def driver(self) -> Rotation:
        """Return a driver."""
        return Rotation()

    def executor(self, data: Strip, partition: int, n_partitions: int) -> StripExecutor:
        """Return the executor of a partition."""
        del partition, n_partitions
        return StripExecutor(self, data)


class StripExecutor:
    """Visits the ratings of a partition, a block of items in each task; its state is the rows of its users."""

    def __init__(self, model: MatrixFactorization, data: Strip) -> None:
        self._model, self._data = model, data
        #: (users, rank + 1); None: to be drawn in the first task.
        self._users: F32 | None = None

    def reads(self, args: int, group: int) -> Mapping[str, RowSet | None]:
        """Return the rows of a block of items."""
        del group
        return {"items": self._data.items_of(args)}

    def run(self, args: int, params: Parameters, rng: np.random.Generator) -> tuple[None, float, int]:
        """Visit each rating of a block once; the loss is the squared error, in points²."""
        rows = self._data.items_of(args)
        before = np.asarray(params.get("items", rows))
        users, items = self._users_before(rng), np.array(before, np.float32, order="C")
        n_pass = (params.group - 1) // self._model.n_partitions
        loss, n_ratings = self._model.visit(self._data, args, n_pass, users, items)
        items -= before
        params.add("items", items, rows)
        self._users = users
        return None, loss, n_ratings

    def snapshot(self) -> Arrays:
        """Return the rows of the users, and which they are; nothing before the first task."""
        if self._users is None:
            return {}
        rows: NDArray[Any] = np.array([self._data.users])
        return {"users": self._users, rows_name("users"): rows}

    def restore(self, state: Arrays) -> None:
        """Take over rows of users."""
        self._users = np.asarray(state["users"], np.float32) if state else None

    def _users_before(self, rng: np.random.Generator) -> F32:
        if self._users is None:
            return self._model.initial(self._model.tables()[0], self._data.users, rng)
        return self._users.copy()
