"""Initial centres of k-means by greedy k-means++ on a sample.

Source: Arthur and Vassilvitskii, "k-means++: the advantages of careful seeding" (SODA 2007), section 2.2; its section 5
for drawing several candidates a step and keeping the best.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


def spread_out(x: F64, k: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return `k` rows of `x` that lie far apart.

    Parameters
    ----------
    x : float64 of shape (n, d), with n at least k
    k : int
        Number of rows, at least 1.

    Returns
    -------
    int64 of shape (k,)
        Indices of the rows. Each is drawn with probability proportional to its squared distance to the nearest row
        before it; of 2 + log k such draws the one with the least remaining distance is taken. If all rows are covered
        (there are duplicates), any row is drawn.
    """
    squares = np.einsum("ij,ij->i", x, x)
    chosen = np.empty(k, np.int64)
    chosen[0] = rng.integers(len(x))
    left = _distances(x, squares, chosen[:1])[0]
    trials = 2 + int(math.log(k))
    for step in range(1, k):
        odds = np.cumsum(left)
        if odds[-1] > 0.0:
            drawn = np.searchsorted(odds, rng.random(trials) * odds[-1], side="right").clip(max=len(x) - 1)
        else:
            drawn = rng.integers(len(x), size=trials)
        after = np.minimum(left, _distances(x, squares, drawn))
        best = int(after.sum(axis=1).argmin())
        chosen[step], left = drawn[best], after[best]
    return chosen


def _distances(x: F64, squares: F64, rows: NDArray[np.int64]) -> F64:
    """Return the squared distances from `rows` to all rows, shape (rows, n); exactly 0 from a row to itself."""
    distances: F64 = squares[rows, None] - 2.0 * (x[rows] @ x.T) + squares
    np.maximum(distances, 0.0, out=distances)
    distances[np.arange(len(rows)), rows] = 0.0
    return distances
