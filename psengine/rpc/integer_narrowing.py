"""Narrowing of integers for transfer: an array travels in the narrowest type that holds all of its values.

Topic counts, their updates, the topic of each token, row numbers: they take four or eight bytes each in memory, where
one or two are enough. Within one machine, finding the minimum and the maximum, narrowing and widening take about as
long as transferring the saved bytes would; over any other network they take less.

Pure, except for a cache of the types of arrays sent.

Source: none; Litz (2017), 5 sends what has changed only, in its own type.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psengine.tables.row_sets import RowSet
from psengine.tables.row_updates import RowDelta

Array = NDArray[Any]

#: Minimum bytes of an array that is scanned.
LEAST = 4096
#: Number of leading values that mostly suffice to see that no narrower type fits, or that a value is negative.
_FEW = 1024
#: Bytes of the narrower types of each kind.
_SIZES = (1, 2, 4)
#: {id: (the array, its wire type)} of live arrays that were scanned.
_WIRE_DTYPES: dict[int, tuple[weakref.ref[Array], np.dtype[Any]]] = {}  # impure-ok: saves scans, changes no result


def may_narrow(array: Array) -> bool:
    """Return whether the values of an array must be scanned to find its wire type."""
    kind, large = array.dtype.kind, array.nbytes >= LEAST
    return kind in "iu" and large and array.dtype.isnative and array.flags.c_contiguous


def wire_dtype(array: Array) -> np.dtype[Any]:
    """Return the type in which an array travels: its own, or the narrowest of its kind that holds all of its values."""
    if not may_narrow(array):
        return array.dtype
    numbers = array.reshape(-1)
    low, high = int(numbers[:_FEW].min()), int(numbers[:_FEW].max())
    if _narrowest(array.dtype, low, high) == array.dtype:
        return array.dtype  # no need to scan the others
    return _narrowest(array.dtype, *_limits(numbers, below_0=low < 0))


def _limits(numbers: Array, below_0: bool) -> tuple[int, int]:
    """Return two numbers with the same narrowest type as all `numbers`; in one pass if none is negative."""
    if numbers.dtype.kind == "i" and not below_0:
        high = int(numbers.view(f"u{numbers.itemsize}").max())
        if high <= np.iinfo(numbers.dtype).max:
            return 0, high
    return int(numbers.min()), int(numbers.max())


def _narrowest(dtype: np.dtype[Any], low: int, high: int) -> np.dtype[Any]:
    for narrow in (np.dtype(f"{dtype.kind}{size}") for size in _SIZES):
        limits = np.iinfo(narrow)
        if narrow.itemsize < dtype.itemsize and limits.min <= low and high <= limits.max:
            return narrow
    return dtype


def remember_wire_dtype(array: Array, dtype: np.dtype[Any]) -> None:
    """Note the type in which an array was sent or received, during its life: `wire_bytes` need not scan it again."""
    if may_narrow(array):
        key = id(array)
        _WIRE_DTYPES[key] = weakref.ref(array, lambda _: _WIRE_DTYPES.pop(key, None)), dtype


def wire_bytes(content: Array | RowDelta | RowSet | None) -> int:
    """Return the bytes that an array, an update or a set of rows takes on the wire; 0 for a run, which is negligible.

    For an array that was transferred, it is the actual size (see `remember_wire_dtype`).
    """
    return sum(array.size * _type_of(array).itemsize for array in arrays_of(content))


def _type_of(array: Array) -> np.dtype[Any]:
    reference, dtype = _WIRE_DTYPES.get(id(array), (None, array.dtype))
    return dtype if reference is not None and reference() is array else wire_dtype(array)


def arrays_of(content: Array | RowDelta | RowSet | None) -> tuple[Array, ...]:
    """Return the arrays that are transferred: of an update its values and, unless they are a run, its rows."""
    if content is None or isinstance(content, slice):
        return ()
    return (content.values, *arrays_of(content.rows)) if isinstance(content, RowDelta) else (content,)
