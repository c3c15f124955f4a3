"""Directions of descent: the negative gradient, and L-BFGS."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


class DescentRule(Protocol):
    """A rule that gives a direction of descent."""

    def direction(self, model: F64, gradient: F64, objective: Hashable) -> F64:
        """Return the direction at a model.

        Parameters
        ----------
        gradient : of the objective, in the shape of `model`.
        objective : identity of the objective: which partitions take part, by gradient and by approximation.
        """
        ...

    def reset(self) -> None:
        """Forget earlier gradients."""
        ...

    def is_scaled(self) -> bool:
        """Return whether the last direction is a whole step: 1 is then the first trial of a line search."""
        ...


class SteepestDescent:
    """The negative gradient."""

    def direction(self, model: F64, gradient: F64, objective: Hashable) -> F64:
        """Return the negative gradient."""
        del model, objective
        return -gradient

    def reset(self) -> None:
        """Do nothing: there is no memory."""

    def is_scaled(self) -> bool:
        """Return False."""
        return False


class Lbfgs:
    """Limited-memory BFGS.

    A pair is formed of two consecutive rounds with the same objective: a loss or a return of partitions changes it, and
    the difference of gradients then says nothing of its curvature. Earlier pairs stay.

    Source: Liu and Nocedal (1989); Nocedal and Wright, Numerical Optimization (2006), algorithm 7.4.
    """

    def __init__(self, memory: int = 10) -> None:
        self._pairs: deque[tuple[F64, F64]] = deque(maxlen=memory)
        self._last: tuple[F64, F64, Hashable] | None = None

    def direction(self, model: F64, gradient: F64, objective: Hashable) -> F64:
        """Return minus the approximate inverse Hessian times the gradient."""
        if self._last is not None and self._last[2] == objective:
            moved, change = model - self._last[0], gradient - self._last[1]
            if is_curved(moved, change):
                self._pairs.append((moved, change))
        self._last = (model, gradient, objective)
        return quasi_newton_direction(gradient, self._pairs)

    def reset(self) -> None:
        """Forget all pairs."""
        self._pairs.clear()
        self._last = None

    def is_scaled(self) -> bool:
        """Return whether there is a pair."""
        return bool(self._pairs)


def is_curved(moved: F64, change: F64) -> bool:
    """Return whether a pair says anything of a positive curvature."""
    return bool(np.vdot(moved, change) > 1e-12 * np.linalg.norm(moved) * np.linalg.norm(change))


def quasi_newton_direction(gradient: F64, pairs: Collection[tuple[F64, F64]]) -> F64:
    """Return minus the approximate inverse Hessian times a gradient.

    Parameters
    ----------
    pairs : differences of models and of gradients, from the oldest
    """
    direction = -gradient
    shares = []
    for moved, change in reversed(list(pairs)):
        share = np.vdot(moved, direction) / np.vdot(moved, change)
        shares.append(share)
        direction -= share * change
    if pairs:
        moved, change = list(pairs)[-1]
        direction *= np.vdot(moved, change) / np.vdot(change, change)
    for (moved, change), share in zip(pairs, reversed(shares), strict=True):
        direction += (share - np.vdot(change, direction) / np.vdot(moved, change)) * moved
    return direction
