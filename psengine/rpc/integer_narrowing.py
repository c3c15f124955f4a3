"""Whole numbers on the way: an array travels in the narrowest type that holds all of its numbers. Pure, but for notes.

Counts of topics, what is added to them, the topic of each token, the numbers of rows: four or eight bytes each in
memory, where one or two say the same. Within one machine, to look for the least and the greatest number, to narrow and
to widen takes about as long as the bytes that are spared would; through any other network it takes less.

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

#: Bytes; smaller arrays are not looked at.
LEAST = 4096
#: So many numbers say, mostly, that an array has no narrower type, or that one is below 0.
_FEW = 1024
#: Of the types of each kind, in bytes.
_SIZES = (1, 2, 4)
#: {id: (the array, as which type it has travelled)} of arrays that are there and had to be looked at
_TRAVELLED: dict[int, tuple[weakref.ref[Array], np.dtype[Any]]] = {}  # impure-ok: spares looks, changes no result


def may_narrow(array: Array) -> bool:
    """Return whether the numbers of an array have to be looked at to say as which type it travels."""
    kind, large = array.dtype.kind, array.nbytes >= LEAST
    return kind in "iu" and large and array.dtype.isnative and array.flags.c_contiguous


def wire_dtype(array: Array) -> np.dtype[Any]:
    """Return the type as which an array travels: its own, or a narrower one of its kind that holds all of its numbers."""
    if not may_narrow(array):
        return array.dtype
    numbers = array.reshape(-1)
    low, high = int(numbers[:_FEW].min()), int(numbers[:_FEW].max())
    if _narrowest(array.dtype, low, high) == array.dtype:
        return array.dtype  # no need to look at the others
    return _narrowest(array.dtype, *_limits(numbers, below_0=low < 0))


def _limits(numbers: Array, below_0: bool) -> tuple[int, int]:
    """Return numbers of which the narrowest type is that of all of them; in one pass where none is below 0."""
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


def remember_wire_dtype(array: Array, travelled_as: np.dtype[Any]) -> None:
    """Note as which type an array was sent, or came, for as long as it is there: who counts need not look at it again."""
    if may_narrow(array):
        key = id(array)
        _TRAVELLED[key] = weakref.ref(array, lambda _: _TRAVELLED.pop(key, None)), travelled_as


def wire_bytes(of: Array | RowDelta | RowSet | None) -> int:
    """Return what an array, an update or the names of rows take on the way, in bytes; nothing worth counting for a run.

    Of an array that has travelled it is what it took (see `remember_wire_dtype`).
    """
    return sum(array.size * _type_of(array).itemsize for array in arrays_of(of))


def _type_of(array: Array) -> np.dtype[Any]:
    there, travelled_as = _TRAVELLED.get(id(array), (None, array.dtype))
    return travelled_as if there is not None and there() is array else wire_dtype(array)


def arrays_of(of: Array | RowDelta | RowSet | None) -> tuple[Array, ...]:
    """Return the arrays of what travels: of an update its values and, unless they are a run, its rows."""
    if of is None or isinstance(of, slice):
        return ()
    return (of.values, *arrays_of(of.rows)) if isinstance(of, RowDelta) else (of,)
