"""A table as it becomes with the updates of a clock, written piece by piece as they come. Pure.

Partitions that have other rows each, as those of blocks of items or of words, add nothing to one another: what each adds
can be added to the table at once, and when the last one has come there is little left to do. The bits are those of the
sum (`sums`), in which such pieces are put side by side and nothing is added up.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from psengine.rows import RowDelta, count, span

Array = NDArray[np.generic]


def apart(updates: Collection[Array | RowDelta]) -> bool:
    """Return whether updates are of runs of rows, no two of which have a row in common."""
    runs = [of.rows for of in updates if isinstance(of, RowDelta) and isinstance(of.rows, slice)]
    if len(runs) < len(updates):
        return False
    spans = sorted(span(rows) for rows in runs if count(rows))
    return all(before[1] <= after[0] for before, after in pairwise(spans))


class Growing:
    """What becomes of the table `before` by runs of rows, no two of which have a row in common; `before` stays as it is.

    Parameters
    ----------
    out : ndarray, optional
        Like `before`; where it is written.
    """

    def __init__(self, before: Array, out: Array | None = None) -> None:
        self._before, self._after = before, out
        self._fits = True
        #: of what was added, in rising order
        self._runs: list[tuple[int, int]] = []

    def add(self, update: Array | RowDelta) -> bool:
        """Add an update; return whether it fits: a run of rows, none of which has been added to. If not, all is in vain."""
        if not (self._fits and isinstance(update, RowDelta) and isinstance(update.rows, slice)):
            self._fits, self._after = False, None
            return False
        if count(update.rows) == 0:
            return True
        low, high = span(update.rows)
        at = bisect(self._runs, (low, high))
        if (at and self._runs[at - 1][1] > low) or (at < len(self._runs) and self._runs[at][0] < high):
            self._fits, self._after = False, None
            return False
        self._runs.insert(at, (low, high))
        if self._after is None:
            self._after = np.empty_like(self._before)
        there = slice(low, high)
        np.add(
            self._before[there], update.values, out=self._after[there], dtype=self._before.dtype, casting="same_kind"
        )
        return True

    def whole(self) -> Array | None:
        """Return the table, to which nothing is added any more; None if an update did not fit."""
        if not self._fits:
            return None
        if not self._runs:
            return self._before
        assert self._after is not None
        ends = [0, *(high for _, high in self._runs)]
        begins = [*(low for low, _ in self._runs), len(self._before)]
        for low, high in zip(ends, begins, strict=True):
            self._after[low:high] = self._before[low:high]
        return self._after
