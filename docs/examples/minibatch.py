"""Logistic regression by minibatches: a partition with state, which reads the weights that it needs.

`proteus train minibatch:Minibatches --code docs/examples/minibatch.py --data points.csv --clocks 500`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot import Parameters, TableSpec

Arrays = Mapping[str, NDArray[Any]]


class Minibatches:
    """The application. `n_inputs` and `n_examples` are sizes of the training set."""

    def __init__(self, n_inputs: int, n_examples: int, batch: int = 32, step: float = 0.5) -> None:
        self.n_inputs, self.n_examples, self.batch, self.step = n_inputs, n_examples, batch, step

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the one table."""
        return (TableSpec("weights", self.n_inputs, 1),)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> NDArray[Any]:
        """Return zeros."""
        return np.zeros((rows[1] - rows[0], 1), np.float32)

    def prepare(self, arrays: Arrays) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the inputs, and 1 or -1 for each example."""
        return np.asarray(arrays["x"], np.float32), np.where(arrays["y"] > 0, 1, -1).astype(np.float32)

    def executor(self, data: tuple[NDArray[Any], NDArray[Any]], partition: int, n_partitions: int) -> Reader:
        """Return the executor of a partition."""
        return Reader(*data, min(self.batch, len(data[0])), self.step / n_partitions)

    def evaluate(self, params: Arrays, heldout: Arrays) -> dict[str, float]:
        """Return the share of examples that are on the right side."""
        x, y = self.prepare(heldout)
        return {"accuracy": float(np.mean(np.sign(x @ params["weights"][:, 0]) == y))}


class Reader:
    """Reads its examples in random order, one batch a task. Its state is the order, and how far it is."""

    def __init__(self, x: NDArray[Any], y: NDArray[Any], batch: int, step: float) -> None:
        self.x, self.y, self.batch, self.step = x, y, batch, step
        self.order, self.at = np.arange(len(x)), len(x)

    def run(self, args: Any, params: Parameters, rng: np.random.Generator) -> tuple[None, float, int]:
        """Take a step on the next batch; only weights of inputs that it has are read and changed."""
        if self.at + self.batch > len(self.order):
            self.order, self.at = rng.permutation(len(self.x)), 0
        chosen = self.order[self.at : self.at + self.batch]
        self.at += self.batch
        x, y = self.x[chosen], self.y[chosen]
        inputs = np.flatnonzero(x.any(axis=0))
        weights = params.get("weights", inputs)
        margin = y * (x[:, inputs] @ weights[:, 0])
        change = x[:, inputs].T @ (y / (1 + np.exp(margin))) / np.float32(len(y))
        params.add("weights", np.float32(self.step) * change[:, None], inputs)
        return None, float(np.log1p(np.exp(-margin)).sum()), len(y)

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return the state; `order` is replaced as a whole, never written to."""
        return {"order": self.order, "at": np.array(self.at)}

    def restore(self, state: Arrays) -> None:
        """Take over a state."""
        self.order, self.at = state["order"], int(state["at"])
