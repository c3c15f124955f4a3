"""Compiled products of a CSR matrix with float64 weights: one thread, no GIL, one order of summation.

They are compiled when this module is imported, unless numba's cache has them; `kernel_cache.load` imports it while a
partition is prepared.
"""

from typing import Any

import numpy as np
from numba import float32, float64, int32, int64, njit, types, void
from numpy.typing import NDArray

from proteus_spot.psengine.apps.csr import Csr
from proteus_spot.psengine.apps.csr_kernels import add_transposed_times_into, times_into

F64 = NDArray[np.float64]


def _read(dtype: Any, ndim: int) -> Any:
    return types.Array(dtype, ndim, "C", readonly=True)  # accepts writeable arrays as well


_SIGNATURE = void(_read(float32, 1), _read(int32, 1), _read(int64, 1), _read(float64, 2), float64[:, ::1])


def times(x: Csr, weights: F64) -> F64:
    """Return `x @ weights`, shape (rows of `x`, columns of `weights`)."""
    out = np.zeros((x.shape[0], weights.shape[1]))
    product = _times_column if weights.shape[1] == 1 else times_into
    product(x.data, x.indices, x.indptr, np.ascontiguousarray(weights), out)
    return out


def add_transposed_times(out: F64, x: Csr, right: F64) -> None:
    """Add `x.T @ right` to `out`, which is contiguous and has a row for each column of `x`."""
    add = _add_transposed_times_column if right.shape[1] == 1 else add_transposed_times_into
    add(x.data, x.indices, x.indptr, np.ascontiguousarray(right), out)


@njit([_SIGNATURE], cache=True, nogil=True)
def _times_column(data: Any, indices: Any, indptr: Any, weights: Any, out: Any) -> None:
    for row in range(len(indptr) - 1):
        total = 0.0
        for entry in range(indptr[row], indptr[row + 1]):
            total += data[entry] * weights[np.uint32(indices[entry]), 0]
        out[row, 0] = total


@njit([_SIGNATURE], cache=True, nogil=True)
def _add_transposed_times_column(data: Any, indices: Any, indptr: Any, right: Any, out: Any) -> None:
    for row in range(len(indptr) - 1):
        scale = right[row, 0]
        if scale == 0.0:  # beyond the margin of a hinge
            continue
        for entry in range(indptr[row], indptr[row + 1]):
            out[np.uint32(indices[entry]), 0] += data[entry] * scale
