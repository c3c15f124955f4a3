"""A generated set like the splice sites of the paper: rare positives among strings of A, C, G and T.

All strings have AG in the middle, as candidates of a splice site do. A positive one has letters around it that follow
the preferences of its position, and of its neighbour; some negatives follow them in part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps.csr import Csr

POSITIONS = 141
LETTERS = 4
LONGEST = 4

_MIDDLE = 60
#: Positions, from the middle, whose letters say something.
_MOTIF = range(-25, 20)


def n_features(longest: int) -> int:
    """Return the number of n-grams of n = 1 to `longest`, at each position where one begins."""
    return sum((POSITIONS - n + 1) * LETTERS**n for n in range(1, longest + 1))


N_FEATURES = n_features(LONGEST)
assert N_FEATURES == 47_028  # the paper's dimensionality


@dataclass(frozen=True)
class SpliceSet:
    """Examples and their labels, for training and for the test."""

    x: Csr
    y: NDArray[np.int64]
    test_x: Csr
    test_y: NDArray[np.int64]


def splice_set(n: int, n_test: int, positives: float, seed: int, longest: int = LONGEST) -> SpliceSet:
    """Return `n` and `n_test` examples of n-grams up to `longest`, of which a share `positives` are positive."""
    rng = np.random.default_rng([seed, 141])
    background = rng.dirichlet(np.full(LETTERS, 8.0), size=LETTERS)  # of a letter, after each letter
    motif = rng.dirichlet(np.full(LETTERS, 0.9), size=(len(_MOTIF), LETTERS))
    letters, y = _letters(rng, n + n_test, positives, background, motif)
    x = n_grams(letters, longest)
    return SpliceSet(x[:n], y[:n], x.take(np.arange(n, n + n_test)), y[n:])


def _letters(
    rng: np.random.Generator, n: int, positives: float, background: NDArray[np.float64], motif: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    y = (rng.random(n) < positives).astype(np.int64)
    # How far each follows the motif: positives by half to fully, a tenth of the negatives by less.
    follows = np.where(y == 1, rng.uniform(0.45, 0.9, n), np.where(rng.random(n) < 0.1, rng.uniform(0.0, 0.5, n), 0.0))
    letters = np.empty((n, POSITIONS), np.int64)
    letters[:, 0] = rng.integers(LETTERS, size=n)
    for position in range(1, POSITIONS):
        before = letters[:, position - 1]
        chances = background[before]
        if position - _MIDDLE in _MOTIF:
            site = motif[position - _MIDDLE - _MOTIF.start][before]
            chances = np.where((rng.random(n) < follows)[:, None], site, chances)
        letters[:, position] = (rng.random(n)[:, None] > np.cumsum(chances, axis=1)[:, :-1]).sum(axis=1)
    letters[:, _MIDDLE : _MIDDLE + 2] = (0, 2)  # AG
    return letters, y


def n_grams(letters: NDArray[np.int64], longest: int = LONGEST) -> Csr:
    """Return the presence of each n-gram at each position: of n = 1 to 4, shape (n, 47028), 558 entries a row.

    Parameters
    ----------
    letters : int64 of shape (n, 141)
        Letters as numbers from 0 to 3.
    """
    columns, first = [], 0
    for n in range(1, longest + 1):
        begins = POSITIONS - n + 1
        codes = sum(letters[:, i : i + begins] * LETTERS ** (n - 1 - i) for i in range(n))
        columns.append(first + np.arange(begins) * LETTERS**n + codes)
        first += begins * LETTERS**n
    indices = np.concatenate(columns, axis=1).astype(np.int32)
    indptr = np.arange(len(letters) + 1, dtype=np.int64) * indices.shape[1]
    return Csr(np.ones(indices.size, np.float32), indices.ravel(), indptr, first)
