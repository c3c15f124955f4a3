"""Compiled products of a CSR matrix with a dense one: one thread, no GIL, one order of summation.

They are compiled when this module is imported, unless numba's cache has them. An application with sparse inputs imports
it while it prepares a partition (`kernel_cache.load`): nothing is compiled during a clock, nor for dense inputs.
"""

from typing import Any

import numpy as np
from numba import float32, float64, int32, int64, njit, types, void
from numpy.typing import NDArray

from proteus_spot.psengine.apps.csr import Csr

F32 = NDArray[np.float32]


def _read(dtype: Any, ndim: int) -> Any:
    return types.Array(dtype, ndim, "C", readonly=True)  # accepts writeable arrays as well


#: Of a dense matrix and a result in single and in double precision.
_SIGNATURES = tuple(
    void(_read(float32, 1), _read(int32, 1), _read(int64, 1), _read(dense, 2), dense[:, ::1])
    for dense in (float32, float64)
)


def times(x: Csr, matrix: NDArray[Any]) -> F32:
    """Return `x @ matrix`, shape (rows of `x`, columns of `matrix`), float32."""
    out = np.zeros((x.shape[0], matrix.shape[1]), np.float32)
    times_into(x.data, x.indices, x.indptr, np.ascontiguousarray(matrix, np.float32), out)
    return out


def add_transposed_times(out: F32, x: Csr, right: F32) -> None:
    """Add `x.T @ right` to `out`, which is contiguous and has a row for each column of `x`."""
    add_transposed_times_into(x.data, x.indices, x.indptr, np.ascontiguousarray(right, np.float32), out)


@njit([*_SIGNATURES], cache=True, nogil=True)
def times_into(data: Any, indices: Any, indptr: Any, matrix: Any, out: Any) -> None:
    """Add `x @ matrix` to `out`; `x` by its arrays."""
    for row in range(len(indptr) - 1):
        for entry in range(indptr[row], indptr[row + 1]):
            value, column = data[entry], indices[entry]
            for k in range(matrix.shape[1]):
                out[row, k] += value * matrix[column, k]


@njit([*_SIGNATURES], cache=True, nogil=True)
def add_transposed_times_into(data: Any, indices: Any, indptr: Any, right: Any, out: Any) -> None:
    """Add `x.T @ right` to `out`; `x` by its arrays."""
    for row in range(len(indptr) - 1):
        for entry in range(indptr[row], indptr[row + 1]):
            value, column = data[entry], indices[entry]
            for k in range(right.shape[1]):
                out[column, k] += value * right[row, k]
