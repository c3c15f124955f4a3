"""The application `bgd`: linear models by elastic batch gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps.bgd.driver import ElasticDescentDriver
from proteus_spot.psengine.apps.bgd.losses import LOSSES, LinearLoss, linear_loss
from proteus_spot.psengine.apps.bgd.partition import LinearPartition, margins_of
from proteus_spot.psengine.apps.bgd.roster import Approximation, Missing
from proteus_spot.psengine.apps.bgd.steps import FixedStep, SearchedStep, StepRule
from proteus_spot.psengine.apps.bgd.tasks import DescentExecutor, tables
from proteus_spot.psengine.apps.csr import Csr, inputs
from proteus_spot.psengine.apps.parameter_checks import check_from, check_whole
from proteus_spot.psengine.config import TableSpec

F64 = NDArray[np.float64]

_SOLVERS = ("lbfgs", "gradient")
_MISSING = ("approximate", "ignore", "stall")
_APPROXIMATIONS = ("kept", "redone")


class ElasticDescent:
    """Logistic, softmax, squared-hinge or least-squares regression with L2, by batch gradient descent or L-BFGS.

    A clock is one accepted step. Partitions whose nodes vanish are approximated by their gradient of the round before
    until they have a node again (`psengine.apps.bgd.driver`).

    Parameters
    ----------
    n_inputs, n_classes, n_examples, n_partitions : int
        Of the training set; `n_classes` 0: the target is a number.
    loss : str, optional
        ``logistic``, ``hinge`` or ``squared``. Default: ``logistic`` for classes, ``squared`` for a number.
    l2 : float
        Weight of the penalty l2 / 2 * |W|^2, the constant row left out, beside the mean loss of the examples.
    solver : str
        ``lbfgs`` or ``gradient``.
    memory : int
        Pairs of L-BFGS.
    step : float
        0: line search under the Armijo-Wolfe conditions. Else the step of round r is step / (1 + decay * r).
    decay : float
    missing : str
        What stands for vanished partitions: ``approximate``, ``ignore`` or ``stall``.
    approximation : str
        Where their gradient is taken from: ``kept``, the sums that nodes sent in the round before, if the servers still
        have those of exactly these partitions; ``redone``, a second sum of the others there. They agree to rounding.

    Raises
    ------
    ValueError
        If a parameter is out of range, or the target does not fit the loss.
    """

    def __init__(
        self,
        n_inputs: int,
        n_examples: int,
        n_partitions: int,
        n_classes: int = 0,
        *,
        loss: str = "",
        l2: float = 1e-4,
        solver: str = "lbfgs",
        memory: int = 10,
        step: float = 0.0,
        decay: float = 0.0,
        missing: str = "approximate",
        approximation: str = "kept",
    ) -> None:
        check_from(0, l2=l2, step=step, decay=decay)
        check_whole(1, memory=memory)
        if solver not in _SOLVERS:
            raise ValueError(f"solver is {solver!r}; want one of {', '.join(_SOLVERS)}")
        if missing not in _MISSING:
            raise ValueError(f"missing is {missing!r}; want one of {', '.join(_MISSING)}")
        if approximation not in _APPROXIMATIONS:
            raise ValueError(f"approximation is {approximation!r}; want one of {', '.join(_APPROXIMATIONS)}")
        if loss and loss not in LOSSES:
            raise ValueError(f"loss is {loss!r}; want one of {', '.join(LOSSES)}")
        if decay and not step:
            raise ValueError(f"decay is {decay:g}, and the step is searched for; give step, or leave decay out")
        if step and solver == "lbfgs":
            raise ValueError(f"step is {step:g}, and L-BFGS searches for its steps; give solver=gradient with it")
        self.n_inputs, self.n_examples, self.n_partitions = n_inputs, n_examples, n_partitions
        self.n_classes, self.l2 = n_classes, l2
        self.loss_name = loss or ("logistic" if n_classes else "squared")
        self.memory = memory if solver == "lbfgs" else 0
        self.step: StepRule = FixedStep(step, decay) if step else SearchedStep()
        self.missing: Missing = missing  # type: ignore[assignment]
        self.approximation: Approximation = approximation  # type: ignore[assignment]

    @property
    def predicts(self) -> str:
        """What is predicted, as a column header."""
        return "class" if self.n_classes else "value"

    def check_sizes(self) -> None:
        """Raise ValueError if the target of the training set does not fit the loss."""
        if self.loss_name == "squared" and self.n_classes:
            raise ValueError(
                "loss=squared wants a target of numbers; the labels are classes, as whole numbers and texts are: "
                "leave loss out, or write the numbers with fractions"
            )
        if self.loss_name != "squared":
            linear_loss(self.loss_name, self.n_classes)

    def _loss(self) -> LinearLoss:
        self.check_sizes()
        return linear_loss(self.loss_name, self.n_classes)

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the tables; `weights` is the model, (n_inputs + 1, outputs), its last row a constant's."""
        return tables(self.n_inputs + 1, self._loss().n_outputs, self.n_partitions, self.memory)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> F64:
        """Return zeros: the problem is convex."""
        del rng
        return np.zeros((rows[1] - rows[0], table.n_cols))

    def driver(self, clocks: int | None = None) -> ElasticDescentDriver:
        """Return the driver of a job of `clocks` accepted steps; None: until it has converged."""
        return ElasticDescentDriver(self.step, self.memory, self.missing, clocks, self.approximation)

    def prepare(self, arrays: Mapping[str, NDArray[np.generic]]) -> LinearPartition:
        """Return the examples of a partition; raise ValueError that names what does not fit."""
        x = self._inputs(arrays)
        if "y" not in arrays:
            raise ValueError(f"the partition has no array 'y', only {sorted(arrays)}")
        y = np.ascontiguousarray(arrays["y"])
        if y.shape != x.shape[:1]:
            raise ValueError(f"x {x.shape} and y {y.shape}: wanted a target for each row")
        if self.n_classes and len(y) and not 0 <= y.min() <= y.max() < self.n_classes:
            raise ValueError(f"labels from {y.min()} to {y.max()}: wanted 0 to {self.n_classes - 1}")
        loss = self._loss()
        margins_of(x[:0], np.zeros((self.n_inputs, 1)))  # compiled here, and not in a task
        return LinearPartition(x, y, loss, 1.0 / self.n_examples)

    def _inputs(self, arrays: Mapping[str, NDArray[np.generic]]) -> NDArray[np.float32] | Csr:
        x = inputs(arrays)
        if len(x.shape) != 2 or x.shape[1] != self.n_inputs:
            raise ValueError(f"x {x.shape}: wanted (n, {self.n_inputs})")
        return x

    def executor(self, data: LinearPartition, partition: int, n_partitions: int) -> DescentExecutor:
        """Return the executor of a partition."""
        del partition, n_partitions
        penalty = np.full((self.n_inputs + 1, 1), self.l2)
        penalty[-1] = 0.0
        return DescentExecutor(data, penalty, self.memory > 0)

    def evaluate(
        self, params: Mapping[str, NDArray[np.generic]], heldout: Mapping[str, NDArray[np.generic]]
    ) -> dict[str, float]:
        """Return the mean `loss` on held-out data, and `accuracy` of classes or `rmse` of numbers.

        Of two classes there is `auprc`, too: the area under the precision-recall curve of class 1.
        """
        partition = self.prepare(heldout)
        margins = partition.margins(np.asarray(params["weights"], np.float64))
        loss = partition.loss.terms(margins, partition.y)[0] / max(len(partition.y), 1)
        if self.n_classes:
            ranked = {"auprc": average_precision(margins[:, 0], partition.y == 1)} if self.n_classes == 2 else {}
            return {"accuracy": float((_classes(margins) == partition.y).mean()), "loss": loss, **ranked}
        return {"rmse": float(np.sqrt(2.0 * loss)), "loss": loss}

    def predict(
        self, params: Mapping[str, NDArray[np.generic]], arrays: Mapping[str, NDArray[np.generic]]
    ) -> NDArray[Any]:
        """Return the class of each example, from 0, or its value; shape (n,)."""
        weights = np.asarray(params["weights"], np.float64)
        margins = margins_of(self._inputs(arrays), weights[:-1]) + weights[-1]
        return _classes(margins) if self.n_classes else margins[:, 0]


def average_precision(scores: F64, is_positive: NDArray[np.bool_]) -> float:
    """Return the area under the precision-recall curve, by steps; NaN without a positive example.

    Parameters
    ----------
    scores : shape (n,), higher for examples that are more likely positive
    is_positive : bool, shape (n,)
    """
    order = np.argsort(-scores, kind="stable")
    last_of_ties = np.append(np.diff(scores[order]) != 0.0, True)
    found = np.cumsum(is_positive[order])[last_of_ties]
    if not len(scores) or not found[-1]:
        return float("nan")
    precision = found / (np.flatnonzero(last_of_ties) + 1)
    return float(np.sum(np.diff(found, prepend=0) * precision) / found[-1])


def _classes(margins: F64) -> NDArray[np.int64]:
    if margins.shape[1] == 1:
        return (margins[:, 0] > 0.0).astype(np.int64)
    classes: NDArray[np.int64] = margins.argmax(axis=1)
    return classes
