"""The tasks of elastic batch gradient descent: on the examples of a partition, and the leader's on whole vectors.

Tables hold float64 vectors of the model's shape, see `tables`. All but `approximations` are replaced by what a group
adds up; in `approximations` a slot is written when it is 0, and is set back to 0 by what it holds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps.bgd.directions import is_curved, quasi_newton_direction
from proteus_spot.psengine.apps.bgd.driver import DirectionFigures
from proteus_spot.psengine.apps.bgd.partition import LinearPartition, LossAlongLine
from proteus_spot.psengine.config import Replace, TableSpec
from proteus_spot.psengine.tables.row_sets import RowSet

F64 = NDArray[np.float64]


class Vectors(Protocol):
    """What a task may do with the tables; the engine's `Parameters`."""

    def get(self, table: str, rows: RowSet | None = None) -> NDArray[Any]:
        """Return a table, or rows of it."""
        ...

    def kept_sum(self, table: str, partitions: Collection[int]) -> NDArray[Any] | None:
        """Return the sum of what exactly these partitions added to a table, if it is kept."""
        ...

    def add(self, table: str, delta: NDArray[Any], rows: RowSet | None = None) -> None:
        """Add to a table, or to rows of it."""
        ...


def tables(n_rows: int, n_cols: int, n_partitions: int, memory: int) -> tuple[TableSpec, ...]:
    """Return the tables of a descent.

    ``weights``: the model. ``previous``: the model of the round before, and ``stored`` the gradient there of those
    that had contributed. ``gradient0``, ``gradient1``: what a group has added up (see `driver`). ``direction``, and
    ``total``: the gradient of the whole objective where it begins. ``moved0``, ``changed0``, …: the pairs of L-BFGS.
    ``approximations``: a slot of `n_rows` rows for each entry of the queue.
    """
    names = ["weights", "previous", "stored", "direction"]
    if memory:
        names += ["total", *(f"{name}{number}" for name in ("moved", "changed") for number in range(memory))]
    vectors = [TableSpec(name, n_rows, n_cols, "float64", rule=Replace()) for name in names]
    sums = [TableSpec(f"gradient{i}", n_rows, n_cols, "float64", rule=Replace(keeps_sums=True)) for i in range(2)]
    return (*vectors, *sums, TableSpec("approximations", n_rows * n_partitions, n_cols, "float64"))


@dataclass
class _Line:
    """The loss along a direction, with the arrays that it belongs to."""

    weights: F64
    direction: F64
    loss: LossAlongLine


class DescentExecutor:
    """It answers the requests of `ElasticDescentDriver`.

    Parameters
    ----------
    partition : LinearPartition
    penalty : float64, shape (n_rows, 1)
        Weight of the squared model, by row.
    has_memory : bool
        Whether there are tables of L-BFGS.
    """

    def __init__(self, partition: LinearPartition, penalty: F64, has_memory: bool) -> None:
        self._partition, self._penalty, self._has_memory = partition, penalty, has_memory
        # Both are compared with what a task reads: the same arguments give the same bits, whatever ran before.
        self._margins: tuple[F64, F64] | None = None
        self._line: _Line | None = None

    def run(self, args: Any, params: Vectors, rng: np.random.Generator) -> tuple[Any, float, int]:
        """Run one task; return its result for the driver, the summed loss of its examples, and their number.

        The result of ``gradient`` and ``previous`` is the scaled loss, that of ``trial`` the scaled loss and its slope.
        """
        del rng
        phase, details = args
        if phase in ("gradient", "previous"):
            return self._add_gradient("weights" if phase == "gradient" else "previous", details, params)
        if phase == "trial":
            return self._along(params).at(details), 0.0, 0
        result: Any = None
        if phase == "direction":
            result = self._direction(params, *details)
        elif phase == "step":
            self._step(params, *details)
        elif phase == "kept":
            result = self._use_kept_sum(params, *details)
        else:
            self._approximate(params, *details)
        return result, 0.0, 0

    # -- of every member ------------------------------------------------------------------------------------------

    def _add_gradient(self, model: str, table: int, params: Vectors) -> tuple[Any, float, int]:
        weights = params.get(model)
        loss, gradient = self._partition.gradient(weights, self._margins_at(weights))
        params.add(f"gradient{table}", gradient)
        return loss, loss / self._partition.scale, len(self._partition.y)

    def _margins_at(self, weights: F64) -> F64:
        if self._margins is None or not np.array_equal(self._margins[0], weights):
            self._margins = weights.copy(), self._partition.margins(weights)
        return self._margins[1]

    def _along(self, params: Vectors) -> LossAlongLine:
        weights, direction = params.get("weights"), params.get("direction")
        line = self._line
        if line is None or not (np.array_equal(line.weights, weights) and np.array_equal(line.direction, direction)):
            loss = self._partition.line(self._margins_at(weights), direction)
            line = self._line = _Line(weights.copy(), direction.copy(), loss)
        return line.loss

    # -- of the leader ---------------------------------------------------------------------------------------------

    def _direction(
        self,
        params: Vectors,
        table: int,
        slots: tuple[int, ...],
        steepest: bool,
        kept: tuple[int, ...],
        pair: int | None,
    ) -> DirectionFigures:
        weights = params.get("weights")
        known = self._penalty * weights
        constant = 0.5 * float(np.vdot(weights, known))
        for slot in slots:
            approximation = params.get("approximations", self._rows_of(slot))
            known += approximation
            constant += float(np.vdot(approximation, weights))
        total = params.get(f"gradient{table}") + known
        direction, has_pair = -total, False
        if not steepest:
            pairs = [(params.get(f"moved{number}"), params.get(f"changed{number}")) for number in kept]
            if pair is not None:
                moved, change = weights - params.get("previous"), total - params.get("total")
                has_pair = is_curved(moved, change)
                if has_pair:
                    pairs.append((moved, change))
                    params.add(f"moved{pair}", moved)
                    params.add(f"changed{pair}", change)
            direction = quasi_newton_direction(total, pairs)
        if self._has_memory:
            params.add("total", total)
        params.add("direction", direction)
        linear, square = float(np.vdot(known, direction)), 0.5 * float(np.sum(self._penalty * direction * direction))
        return DirectionFigures(float(np.vdot(total, direction)), (constant, linear, square), has_pair)

    def _step(self, params: Vectors, table: int, step: float, freed: tuple[int, ...]) -> None:
        weights = params.get("weights")
        params.add("weights", weights + step * params.get("direction"))
        params.add("previous", weights)
        params.add("stored", params.get(f"gradient{table}"))
        for slot in freed:
            params.add("approximations", -params.get("approximations", self._rows_of(slot)), self._rows_of(slot))

    def _use_kept_sum(self, params: Vectors, slot: int, table: int, lost: tuple[int, ...]) -> bool:
        """Store the sum of the lost partitions at the last step, if the servers keep it; return whether they do."""
        total = params.kept_sum(f"gradient{table}", lost)
        if total is not None:
            params.add("approximations", total, self._rows_of(slot))
            params.add("stored", params.get("stored") - total)
        return total is not None

    def _approximate(self, params: Vectors, slot: int, table: int, is_empty: bool) -> None:
        """Store what the survivors' sum lacks of the stored gradient; `is_empty`: no partition has survived."""
        stored = params.get("stored")
        survivors = np.zeros_like(stored) if is_empty else params.get(f"gradient{table}")
        params.add("approximations", stored - survivors, self._rows_of(slot))
        params.add("stored", survivors)

    def _rows_of(self, slot: int) -> slice:
        n_rows = len(self._penalty)
        return slice(slot * n_rows, (slot + 1) * n_rows)
