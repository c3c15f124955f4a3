"""Narrowing for transfer: an array of integers travels in the narrowest type that holds its values, or most of them.

Topic counts, their updates, the topic of each token, row numbers: they take four or eight bytes each in memory, where
one or two are enough. A few large values, such as the counts of frequent words, travel beside the others, and of an
array that is mostly 0 only the other values. Within one machine, finding the form, narrowing and widening take about as
long as transferring the saved bytes would; over any other network they take less.

An array of float32 whose values were all rounded to bfloat16 (`rounded`) travels as the upper halves of its values.

Pure, except for a cache of the bytes of arrays sent.

Source: none; Litz (2017), 5 sends what has changed only, in its own type.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.tables.row_sets import RowSet
from proteus_spot.psengine.tables.row_updates import RowDelta

Array = NDArray[Any]

#: Minimum bytes of an array that is scanned.
LEAST = 4096
#: Number of sampled values from which the type that holds most of them is estimated.
_FEW = 1024
#: Bytes of a value that travels beside the others, with its position: two to four mostly; and their maximum share.
_BESIDE, _MOST_BESIDE = 3, 1 / 3
#: Bytes of the narrower types of each kind.
_SIZES = (1, 2, 4)
#: {id: (the array, its bytes on the wire)} of live arrays that were transferred.
_WIRE_BYTES: dict[int, tuple[weakref.ref[Array], int]] = {}  # impure-ok: saves scans, changes no result


@dataclass(frozen=True, eq=False)
class Narrowed:
    """An array as it travels.

    Attributes
    ----------
    shape : tuple of int
    values : ndarray or None
        The array in a narrower type, of floats the upper halves; None: it is mostly 0.
    gaps, large : ndarray of shape (n,)
        The values that do not fit into that type, in the array's own, or that are not 0, and the distance of each from
        the one before, in C order.
    """

    shape: tuple[int, ...]
    values: Array | None
    gaps: Array
    large: Array

    @property
    def nbytes(self) -> int:
        """Bytes on the wire; the two lists are narrowed in turn."""
        return (0 if self.values is None else self.values.nbytes) + wire_bytes(self.gaps) + wire_bytes(self.large)

    def widened(self, dtype: str) -> Array:
        """Return the array in its own type."""
        if np.dtype(dtype).kind == "f":
            assert self.values is not None
            return (self.values.astype(np.uint32) << np.uint32(16)).view(dtype)
        wide = np.zeros(self.shape, dtype) if self.values is None else self.values.astype(dtype)
        if len(self.gaps):
            wide.reshape(-1)[np.cumsum(self.gaps, dtype=np.int64) - 1] = self.large
        return wide


def may_narrow(array: Array) -> bool:
    """Return whether the values of an array must be scanned to find its form on the wire."""
    if array.nbytes < LEAST or not array.dtype.isnative or not array.flags.c_contiguous:
        return False
    return array.dtype.kind in "iu" or (array.dtype == np.float32 and not _lower_halves(array, _FEW).any())


def rounded(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return finite values rounded to the nearest that bfloat16 has, to the even one of two."""
    bits = array.view(np.uint32)
    nearest = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    return (nearest & np.uint32(0xFFFF0000)).view(np.float32)


def _lower_halves(array: Array, most: int) -> Array:
    """Return the lower 16 bits of about `most` of the values."""
    bits = array.reshape(-1).view(np.uint32)
    found: Array = bits[:: max(1, len(bits) // most)] & np.uint32(0xFFFF)
    return found


def narrowed(array: Array) -> Narrowed | None:
    """Return the form in which an array travels; None if it travels as it is."""
    if not may_narrow(array):
        return None
    numbers = array.reshape(-1)
    if array.dtype.kind == "f":
        if _lower_halves(array, array.size).any():
            return None
        nothing = np.empty(0, np.int64)
        upper = (numbers.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        return Narrowed(array.shape, upper.reshape(array.shape), nothing, nothing)
    size, most = _mostly(numbers[:: max(1, len(numbers) // _FEW)])
    if size == array.itemsize:
        return None
    at = np.flatnonzero(_beyond(numbers, most))
    gaps, beyond = np.diff(at, prepend=-1), numbers[at]
    form = Narrowed(array.shape, None if most is None else array.astype(most), gaps, beyond)
    if most is not None and not len(at):
        return form
    # The sample may mislead: one type that holds all may be smaller.
    every = _narrowest(array.dtype, int(numbers.min()), int(numbers.max()))
    if 2 * len(at) <= len(numbers) and form.nbytes < array.size * every.itemsize:
        return form
    return None if every == array.dtype else Narrowed(array.shape, array.astype(every), gaps[:0], beyond[:0])


def _mostly(sample: Array) -> tuple[int, np.dtype[Any] | None]:
    """Return the type, and its bytes, in which an array with this sample takes least; 0 and None: it is mostly 0."""
    cheapest: tuple[int, np.dtype[Any] | None] = (sample.itemsize, sample.dtype)
    least = float(sample.itemsize)
    for size, kind in ((0, None), *((kind.itemsize, kind) for kind in _narrower(sample.dtype))):
        share = np.count_nonzero(_beyond(sample, kind)) / len(sample)
        if share <= _MOST_BESIDE and size + _BESIDE * share < least:
            cheapest, least = (size, kind), size + _BESIDE * share
    return cheapest


def _beyond(numbers: Array, kind: np.dtype[Any] | None) -> NDArray[np.bool_]:
    """Return which numbers a type does not hold; None: which are not 0."""
    if kind is None:
        return np.not_equal(numbers, 0)
    limits = np.iinfo(kind)
    return np.asarray((numbers < limits.min) | (numbers > limits.max))


def _narrowest(dtype: np.dtype[Any], low: int, high: int) -> np.dtype[Any]:
    for narrow in _narrower(dtype):
        limits = np.iinfo(narrow)
        if limits.min <= low and high <= limits.max:
            return narrow
    return dtype


def _narrower(dtype: np.dtype[Any]) -> list[np.dtype[Any]]:
    return [np.dtype(f"{dtype.kind}{size}") for size in _SIZES if size < dtype.itemsize]


def remember_wire_bytes(array: Array, n_bytes: int) -> None:
    """Note as how many bytes an array was sent or received, during its life: `wire_bytes` need not scan it again."""
    if may_narrow(array):
        key = id(array)
        _WIRE_BYTES[key] = weakref.ref(array, lambda _: _WIRE_BYTES.pop(key, None)), n_bytes


def wire_bytes(content: Array | RowDelta | RowSet | None) -> int:
    """Return the bytes that an array, an update or a set of rows takes on the wire; 0 for a run, which is negligible.

    For an array that was transferred, it is the actual size (see `remember_wire_bytes`).
    """
    return sum(map(_bytes_of, arrays_of(content)))


def _bytes_of(array: Array) -> int:
    reference, n_bytes = _WIRE_BYTES.get(id(array), (None, 0))
    if reference is not None and reference() is array:
        return n_bytes
    form = narrowed(array)
    return array.nbytes if form is None else form.nbytes


def arrays_of(content: Array | RowDelta | RowSet | None) -> tuple[Array, ...]:
    """Return the arrays that are transferred: of an update its values and, unless they are a run, its rows."""
    if content is None or isinstance(content, slice):
        return ()
    return (content.values, *arrays_of(content.rows)) if isinstance(content, RowDelta) else (content,)
