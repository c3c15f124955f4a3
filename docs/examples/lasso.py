"""Lasso by coordinate descent with priorities: a driver that chooses what to compute, and partitions with state.

The loss is |y - X w|^2 / 2n + alpha |w|, without an intercept. Every partition has some of the rows of X, and as its
state the residuals of these rows. In each round (a commit group) the partitions sum up what a few coordinates need, and
the driver moves them.

- Coordinates that changed most by their last update come first.
- No two coordinates of a round are correlated by more than `correlation`: each would undo what the other does.
- A coordinate that does not change any more is looked at after 2, 4, 8, … rounds.

Source: Litz (2017), sections 2.3 and 2.4; STRADS (Kim et al., 2016).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot import Dispatcher, Done, Driver, TableSpec, Task

Floats = NDArray[np.float64]


class Lasso:
    """The application.

    Parameters
    ----------
    n_inputs, n_examples : int
        Sizes of the training set.
    alpha : float
        Weight of the penalty.
    at_once : int
        Most coordinates of a round.
    correlation : float
        Two coordinates of a round are correlated by at most this.
    tolerance : float
        A coordinate that moves by at most this does not change.
    standardize, input_mean, input_sd
        Whether each input is brought to mean 0 and standard deviation 1, and what they are in the training set.
    """

    def __init__(
        self,
        n_inputs: int,
        n_examples: int,
        alpha: float = 0.1,
        at_once: int = 8,
        correlation: float = 0.2,
        tolerance: float = 1e-7,
        standardize: bool = False,
        input_mean: Sequence[float] = (),
        input_sd: Sequence[float] = (),
    ) -> None:
        self.n_inputs, self.n_examples, self.alpha = n_inputs, n_examples, alpha
        self.at_once, self.correlation, self.tolerance = at_once, correlation, tolerance
        self.mean, self.sd = (np.array(input_mean), np.array(input_sd)) if standardize else (np.zeros(1), np.ones(1))

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the one table: the weights."""
        return (TableSpec("weights", self.n_inputs, 1, "float64"),)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> Floats:
        """Return zeros."""
        return np.zeros((rows[1] - rows[0], 1))

    def prepare(self, arrays: Mapping[str, NDArray[Any]]) -> tuple[Floats, Floats]:
        """Return the rows of a partition by column, and their targets."""
        return np.asfortranarray(self.scaled(arrays["x"])), arrays["y"].astype(np.float64)

    def scaled(self, x: NDArray[Any]) -> Floats:
        """Return inputs as the model takes them."""
        return (x - self.mean) / np.where(self.sd > 0, self.sd, 1.0)

    def executor(self, data: tuple[Floats, Floats], partition: int, n_partitions: int) -> Rows:
        """Return the executor of a partition."""
        return Rows(*data, stores_weights=partition == 0)

    def driver(self) -> Priorities:
        """Return the driver."""
        return Priorities(self)

    def evaluate(self, params: Mapping[str, NDArray[Any]], heldout: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """Return the mean squared error, and the number of weights that are not zero."""
        weights = params["weights"][:, 0]
        error = self.scaled(heldout["x"]) @ weights - heldout["y"]
        return {"squared_error": float(np.mean(error**2)), "weights": float(np.count_nonzero(weights))}


class Rows:
    """Some rows of the data; the state is their residuals. The first partition stores the weights for all."""

    def __init__(self, x: Floats, y: Floats, stores_weights: bool) -> None:
        self.x, self.residuals, self.stores_weights = x, y, stores_weights

    def run(self, args: Mapping[str, Any], params: Any, rng: np.random.Generator) -> tuple[Any, float, int]:
        """Apply the changes of the round before; return the sums of these rows for this round and the next one."""
        changed, changes = args["changed"], args["changes"]
        if len(changed):
            self.residuals = self.residuals - self.x[:, changed] @ changes
            if self.stores_weights:
                params.add("weights", changes[:, None], changed)
        next_x = self.x[:, args["next"]]
        sums = self.x[:, args["now"]].T @ self.residuals, next_x.T @ next_x
        return sums, float(self.residuals @ self.residuals) / 2, len(self.residuals)

    def snapshot(self) -> dict[str, Floats]:
        """Return the residuals; `run` makes new ones."""
        return {"residuals": self.residuals}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take residuals over."""
        self.residuals = state["residuals"]


class Priorities(Driver):
    """The driver. `looked_at` counts how often each coordinate was computed."""

    def __init__(self, lasso: Lasso) -> None:
        self._lasso = lasso
        n = lasso.n_inputs
        self.weights, self._squares = np.zeros(n), np.zeros(n)  # of a column: the sum of squares
        self._last_change = np.full(n, np.inf)
        self._wait, self._due = np.ones(n, np.int64), np.zeros(n, np.int64)  # in rounds
        self._unchanged = np.zeros(n, bool)  # at the present weights
        self.looked_at = np.zeros(n, np.int64)
        self._now = self._next = np.zeros(0, np.int64)
        self._sums: dict[int, tuple[Floats, Floats]] = {}
        self._partitions = 0

    def start(self, to: Dispatcher, partitions: int, seed: int) -> None:
        """Begin with the sums of squares of the first candidates; no coordinate is computed yet."""
        self._partitions = partitions
        self._next = self._candidates(1)
        self._dispatch(to, 1, self._now, np.zeros(0))

    def completed(self, to: Dispatcher, done: Done) -> None:
        """Keep what a partition has summed up."""
        self._sums[done.task.partition] = done.result

    def committed(self, to: Dispatcher, group: int) -> None:
        """Move the coordinates of this round, and dispatch the next one."""
        of_executors = [self._sums[partition] for partition in range(self._partitions)]  # in one order: the same bits
        products, gram = (sum(part) for part in zip(*of_executors, strict=True))
        self._sums = {}
        changed, changes = self._move(group, products)
        if self._unchanged.all():
            to.finish(group, f"no coordinate changes by more than {self._lasso.tolerance:g}")
            return
        self._squares[self._next] = np.diag(gram)
        self._now = self._independent(gram)
        self._next = self._candidates(group + 1)
        self._dispatch(to, group + 1, changed, changes)

    def snapshot(self) -> Any:
        """Return all that changes."""
        return {name: np.copy(value) for name, value in vars(self).items() if isinstance(value, np.ndarray)} | {
            "_partitions": self._partitions,
            "_sums": dict(self._sums),
        }

    def restore(self, state: Any) -> None:
        """Take a snapshot over; it stays as it is."""
        vars(self).update(
            {name: np.copy(value) if isinstance(value, np.ndarray) else value for name, value in state.items()}
        )

    def _dispatch(self, to: Dispatcher, group: int, changed: NDArray[np.int64], changes: Floats) -> None:
        args = {"changed": changed, "changes": changes, "now": self._now, "next": self._next}
        for partition in range(self._partitions):
            to.dispatch(Task(partition, group, args))
        to.seal(group)

    def _move(self, group: int, products: Floats) -> tuple[NDArray[np.int64], Floats]:
        """Move the coordinates of this round by the products of columns and residuals; return those that change."""
        now, lasso = self._now, self._lasso
        squares, before = self._squares[now], self.weights[now]
        aim = (products + squares * before) / lasso.n_examples
        after = np.sign(aim) * np.maximum(np.abs(aim) - lasso.alpha, 0) / np.maximum(squares / lasso.n_examples, 1e-300)
        changes = np.where(squares > 0, after - before, 0.0)
        self.looked_at[now] += 1
        self._last_change[now] = np.abs(changes)
        moves = np.abs(changes) > lasso.tolerance
        self._wait[now] = np.where(moves, 1, 2 * self._wait[now])
        self._due[now] = group + self._wait[now]
        if moves.any():
            self._unchanged[:] = False
        self._unchanged[now[~moves]] = True
        changed = np.sort(now[moves])
        self.weights[now[moves]] = after[moves]
        return changed, changes[moves][np.argsort(now[moves])]

    def _candidates(self, group: int) -> NDArray[np.int64]:
        """Return the coordinates to choose the round after `group` from: those that are due, by their last change."""
        waits = self._due > group + 1
        if np.all(waits | self._unchanged):
            waits = self._unchanged.copy()  # nothing changes any more: look at all that are left, to know it is the end
        waits[self._now] = True  # what comes of them is not known yet
        order = np.lexsort((-self._last_change, waits))
        return order[~waits[order]][: 3 * self._lasso.at_once]

    def _independent(self, gram: Floats) -> NDArray[np.int64]:
        """Return those of the candidates that are computed now: the first of each that are correlated."""
        norms = np.sqrt(np.maximum(np.diag(gram), 1e-300))
        correlated = np.abs(gram / np.outer(norms, norms)) > self._lasso.correlation
        chosen: list[int] = []
        for index in range(len(self._next)):
            if len(chosen) < self._lasso.at_once and not correlated[index, chosen].any():
                chosen.append(index)
        return self._next[chosen]
