"""Limited-memory BFGS.

A pair is formed of two consecutive rounds with the same objective: a loss or a return of partitions changes it, and the
difference of gradients then says nothing of its curvature. Earlier pairs stay.

Source: Liu and Nocedal (1989); Nocedal and Wright, Numerical Optimization (2006), algorithm 7.4.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


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
