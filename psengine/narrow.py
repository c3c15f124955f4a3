"""Whole numbers on the way: an array travels in the narrowest type that holds all of its numbers. Pure.

Counts of topics, what is added to them, the topic of each token, the numbers of rows: four or eight bytes each in
memory, where one or two say the same. Within one machine, to look for the least and the greatest number, to narrow and
to widen takes about as long as the bytes that are spared would; through any other network it takes less.

Source: none; Litz (2017), 5 sends what has changed only, in its own type.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from psengine.apps.base import RowSet
from psengine.rows import RowDelta

Array = NDArray[Any]

#: Bytes; smaller arrays are not looked at.
LEAST = 4096
#: Of the types of each kind, in bytes.
_SIZES = (1, 2, 4)


def may_narrow(array: Array) -> bool:
    """Return whether the numbers of an array have to be looked at to say as which type it travels."""
    kind, large = array.dtype.kind, array.nbytes >= LEAST
    return kind in "iu" and large and array.dtype.isnative and array.flags.c_contiguous


def type_on_the_way(array: Array) -> np.dtype[Any]:
    """Return the type as which an array travels: its own, or a narrower one of its kind that holds all of its numbers."""
    if not may_narrow(array):
        return array.dtype
    low, high = int(array.min()), int(array.max())
    for narrow in (np.dtype(f"{array.dtype.kind}{size}") for size in _SIZES):
        limits = np.iinfo(narrow)
        if narrow.itemsize < array.itemsize and limits.min <= low and high <= limits.max:
            return narrow
    return array.dtype


def bytes_on_the_way(of: Array | RowDelta | RowSet | None) -> int:
    """Return what an array, an update or the names of rows take on the way, in bytes; nothing worth counting for a run."""
    return sum(array.size * type_on_the_way(array).itemsize for array in arrays_of(of))


def arrays_of(of: Array | RowDelta | RowSet | None) -> tuple[Array, ...]:
    """Return the arrays of what travels: of an update its values and, unless they are a run, its rows."""
    if of is None or isinstance(of, slice):
        return ()
    return (of.values, *arrays_of(of.rows)) if isinstance(of, RowDelta) else (of,)
