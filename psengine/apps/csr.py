"""Sparse inputs as compressed rows (CSR)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

#: Names of the arrays that replace `x` in a sparse partition.
CSR_ARRAYS = ("x_data", "x_indices", "x_indptr", "x_cols")


@dataclass(frozen=True)
class Csr:
    """A matrix of compressed sparse rows.

    Attributes
    ----------
    data, indices : float32 and int32, shape (stored values,)
        Value and column of each stored entry, row after row, columns in ascending order.
    indptr : int64, shape (rows + 1,)
        Row i holds the entries from `indptr[i]` up to `indptr[i + 1]`; it need not begin at 0.
    n_cols : int
        Number of columns of the matrix, including those without an entry.
    """

    data: F32
    indices: NDArray[np.int32]
    indptr: NDArray[np.int64]
    n_cols: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.indptr) - 1, self.n_cols

    def __getitem__(self, rows: slice) -> Csr:
        """Return a run of rows that shares the entries."""
        low, high, _ = rows.indices(self.shape[0])
        return Csr(self.data, self.indices, self.indptr[low : high + 1], self.n_cols)

    def take(self, rows: NDArray[np.int64]) -> Csr:
        """Return these rows, in this order."""
        lengths = np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        entries = np.arange(indptr[-1]) + np.repeat(self.indptr[rows] - indptr[:-1], lengths)
        return Csr(self.data[entries], self.indices[entries], indptr, self.n_cols)

    def of(self, columns: NDArray[np.int64]) -> Csr:
        """Return the matrix reduced to `columns`, in ascending order, which must include all columns with entries."""
        positions = np.searchsorted(columns, self.indices).astype(np.int32)
        return Csr(self.data, positions, self.indptr, len(columns))

    def dense(self) -> F32:
        """Return the matrix as a dense array."""
        x = np.zeros(self.shape, np.float32)
        held = slice(self.indptr[0], self.indptr[-1])
        x[np.repeat(np.arange(self.shape[0]), np.diff(self.indptr)), self.indices[held]] = self.data[held]
        return x

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of a partition; `from_arrays` inverts it."""
        values = (self.data, self.indices, self.indptr, np.asarray(self.n_cols, np.int64))
        return dict(zip(CSR_ARRAYS, values, strict=True))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Csr:
        """Return the matrix of a partition's arrays; raise ValueError if invalid, since kernels do not check."""
        if missing := [name for name in CSR_ARRAYS if name not in arrays]:
            raise ValueError(f"the partition has no array {missing[0]!r}, only {sorted(arrays)}")
        data, indices, indptr = (np.ascontiguousarray(arrays[name]) for name in CSR_ARRAYS[:3])
        n_cols = int(arrays["x_cols"])
        if indptr.ndim != 1 or not len(indptr) or indptr[0] != 0 or (np.diff(indptr) < 0).any():
            raise ValueError("x_indptr: wanted row bounds from 0 upwards")
        if data.shape != (indptr[-1],) or indices.shape != data.shape:
            raise ValueError(f"x_data {data.shape} and x_indices {indices.shape}: wanted ({indptr[-1]},) each")
        if len(indices) and (indices.min() < 0 or indices.max() >= n_cols):
            raise ValueError(f"x_indices from {indices.min()} to {indices.max()}: wanted 0 to {n_cols - 1}")
        entries = (data.astype(np.float32, copy=False), indices.astype(np.int32, copy=False))
        return cls(*entries, indptr.astype(np.int64, copy=False), n_cols)


def inputs(arrays: Mapping[str, NDArray[Any]]) -> F32 | Csr:
    """Return the inputs of a partition, dense or sparse as stored; raise ValueError if there are none."""
    if "x" in arrays:
        return np.ascontiguousarray(arrays["x"], np.float32)
    if "x_data" in arrays:
        return Csr.from_arrays(arrays)
    raise ValueError(f"the partition has no array 'x', only {sorted(arrays)}")
