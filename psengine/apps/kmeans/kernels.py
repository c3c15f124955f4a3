"""Compiled update of cluster sums and counts: one thread, no GIL, one order of summation.

It is compiled when this module is imported, unless numba's cache has it; that is while a partition is prepared
(`kernel_cache.load`), never during a clock.
"""

from typing import Any

from numba import float64, int32, int64, njit, types, void


def _read(dtype: Any, ndim: int) -> Any:
    return types.Array(dtype, ndim, "C", readonly=True)  # accepts writeable arrays as well


_SIGNATURE = void(_read(float64, 2), _read(int32, 1), _read(int32, 1), float64[:, ::1], int64[:, ::1])


@njit([_SIGNATURE], cache=True, nogil=True)
def move(x: Any, old: Any, new: Any, sums: Any, counts: Any) -> None:
    """Move the examples that change their cluster from the old one's sum and count to the new one's.

    Parameters
    ----------
    x : float64 of shape (n, d)
    old, new : int32 of shape (n,)
        Clusters from 1; 0 is none.
    sums, counts : float64 of shape (k, d), int64 of shape (k, m)
        Updated in place; of `counts` the first column.
    """
    for row in range(len(x)):
        left, joined = old[row] - 1, new[row] - 1
        if left == joined:
            continue
        if left >= 0:
            counts[left, 0] -= 1
            for column in range(x.shape[1]):
                sums[left, column] -= x[row, column]
        if joined >= 0:
            counts[joined, 0] += 1
            for column in range(x.shape[1]):
                sums[joined, column] += x[row, column]
