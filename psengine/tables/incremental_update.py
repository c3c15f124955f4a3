"""A table with the updates of a clock, written piece by piece as they arrive.

If no two partitions update the same row, as with blocks of items or of words, each update is added to the table at
once, and little is left to do when the last one has arrived. The bits are those of the sum (`tree_sum`), in which such
updates are concatenated and not added.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.tables.row_updates import RowDelta, add_rows

Array = NDArray[np.generic]


def apart(updates: Collection[Array | RowDelta], n_rows: int) -> bool:
    """Return whether each update is of some of `n_rows` rows, and no two of them have a row in common."""
    touched = np.zeros(n_rows, bool)
    return all(_touch(touched, update) for update in updates)


def _touch(touched: NDArray[np.bool_], update: Array | RowDelta) -> bool:
    """Note the rows of an update; return False if it is of all rows, or one of them was noted before."""
    if not isinstance(update, RowDelta) or touched[update.rows].any():
        return False
    touched[update.rows] = True
    return True


class Growing:
    """The table `before` with updates of some rows, no two of which have a row in common.

    `before` is not modified.

    Parameters
    ----------
    out : ndarray, optional
        Memory for the result, like `before`.
    """

    def __init__(self, before: Array, out: Array | None = None) -> None:
        self._before = before
        self._after = np.empty_like(before) if out is None else out
        self._touched = np.zeros(len(before), bool)
        #: Whether rows that were not touched are written already.
        self._filled = False
        self._fits = True

    def add(self, update: Array | RowDelta) -> None:
        """Add an update; if it shares a row with another one, there is no result (see `whole`)."""
        fits = self._fits and _touch(self._touched, update)
        self._fits = False  # also where it cannot be added, for then what it touches is not written
        if not fits:
            return
        assert isinstance(update, RowDelta)
        rows = update.rows
        if isinstance(rows, slice):
            dtype = self._before.dtype
            np.add(self._before[rows], update.values, out=self._after[rows], dtype=dtype, casting="same_kind")
        else:
            self._touched[rows] = False
            self._fill()
            self._touched[rows] = True
            add_rows(self._after, update)
        self._fits = True

    def whole(self) -> Array | None:
        """Return the table, to which nothing more is added; None if two updates share a row or one is of all rows."""
        if not self._fits:
            return None
        if not self._touched.any():
            return self._before
        self._fill()
        return self._after

    def _fill(self) -> None:
        """Write the rows that were not touched, run by run."""
        if self._filled:
            return
        self._filled = True
        edges = np.flatnonzero(np.diff(self._touched, prepend=True, append=True))
        for low, high in zip(edges[::2], edges[1::2], strict=True):
            self._after[low:high] = self._before[low:high]
