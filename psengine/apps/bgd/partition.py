"""The share of one partition: its loss and gradient at a model, and its loss along a line from there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps import kernel_cache
from proteus_spot.psengine.apps.bgd.losses import LinearLoss
from proteus_spot.psengine.apps.csr import Csr

F64 = NDArray[np.float64]

#: Rows of dense inputs that are widened to float64 at one time.
_BLOCK = 1024
_KERNELS = "proteus_spot.psengine.apps.bgd.kernels"


@dataclass(frozen=True)
class LinearPartition:
    """Examples of one partition.

    Attributes
    ----------
    x : float32 of shape (n, n_inputs), dense or CSR
    y : shape (n,)
        Labels from 0, or numbers.
    loss : LinearLoss
    scale : float
        Factor of its losses and gradients: 1 / the number of examples of all partitions.
    """

    x: NDArray[np.float32] | Csr
    y: NDArray[np.generic]
    loss: LinearLoss
    scale: float

    def margins(self, weights: F64) -> F64:
        """Return the margins (n, n_outputs) of weights (n_inputs + 1, n_outputs), whose last row is a constant's."""
        margins = margins_of(self.x, weights[:-1])
        margins += weights[-1]
        return margins

    def gradient(self, weights: F64, margins: F64 | None = None) -> tuple[float, F64]:
        """Return the scaled loss at `weights`, and its gradient of their shape; `margins` are computed if not given."""
        loss, slopes = self.loss.terms(self.margins(weights) if margins is None else margins, self.y)
        slopes *= self.scale
        gradient = np.zeros_like(weights)
        if isinstance(self.x, Csr):
            kernel_cache.load(_KERNELS)
            from proteus_spot.psengine.apps.bgd.kernels import add_transposed_times

            add_transposed_times(gradient[:-1], self.x, slopes)
        else:
            for low in range(0, len(self.y), _BLOCK):
                rows = slice(low, low + _BLOCK)
                gradient[:-1] += self.x[rows].T.astype(np.float64) @ slopes[rows]
        gradient[-1] = slopes.sum(axis=0)
        return self.scale * loss, gradient

    def line(self, margins: F64, direction: F64) -> LossAlongLine:
        """Return the loss as a function of the step along `direction`, from the weights that have these margins."""
        return LossAlongLine(self, margins, self.margins(direction))


@dataclass(frozen=True)
class LossAlongLine:
    """The loss of a partition along a line; a step costs no product with its inputs."""

    partition: LinearPartition
    margins: F64
    direction_margins: F64

    def at(self, step: float) -> tuple[float, float]:
        """Return the scaled loss at a step, and its derivative by the step."""
        partition = self.partition
        loss, slopes = partition.loss.terms(self.margins + step * self.direction_margins, partition.y)
        return partition.scale * loss, partition.scale * float(np.vdot(slopes, self.direction_margins))


def margins_of(x: NDArray[np.float32] | Csr, weights: F64) -> F64:
    """Return `x @ weights` in float64, shape (n, columns of `weights`)."""
    if isinstance(x, Csr):
        kernel_cache.load(_KERNELS)
        from proteus_spot.psengine.apps.bgd.kernels import times

        return times(x, weights)
    product = np.empty((len(x), weights.shape[1]))
    for low in range(0, len(x), _BLOCK):
        product[low : low + _BLOCK] = x[low : low + _BLOCK].astype(np.float64) @ weights
    return product
