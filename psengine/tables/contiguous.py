"""Shards of a table that lie side by side in memory: they are read together as one array, without a copy.

A server writes the rows of its shards next to each other when a new clock is committed. It then sends one array per
table, and the reader receives the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.tables.sharding import Arrays
from proteus_spot.psengine.tables.sparse_rows import SparseRows, Tables

Array = NDArray[np.generic]


def room(rows: Sequence[Array | SparseRows]) -> list[Array]:
    """Return memory for arrays like `rows`, side by side, in their order; what is in it is not set."""
    lengths = [len(piece) for piece in rows]
    return cut_rows(np.empty((sum(lengths), *rows[0].shape[1:]), rows[0].dtype), lengths)


def whole(pieces: Sequence[Array]) -> Array | None:
    """Return the pieces as one array, a view, if they lie side by side in the memory of one; else None."""
    pieces = [piece for piece in pieces if len(piece)] or pieces[:1]  # the address of an empty one means nothing
    base = pieces[0].base
    if not isinstance(base, np.ndarray) or not base.flags.c_contiguous or base.ndim != pieces[0].ndim:
        return None
    alike = (base.dtype, base.shape[1:])
    for piece in pieces:
        if piece.base is not base or (piece.dtype, piece.shape[1:]) != alike or not piece.flags.c_contiguous:
            return None
    if any(_address(before) + before.nbytes != _address(after) for before, after in pairwise(pieces)):
        return None
    row_bytes = base[:1].nbytes
    low = (_address(pieces[0]) - _address(base)) // row_bytes if row_bytes else 0
    return base[low : low + sum(len(piece) for piece in pieces)]


def joined(pieces: Sequence[Array]) -> Array:
    """Return the pieces as one array, copied together where they do not lie side by side."""
    if len(pieces) == 1:
        return pieces[0]
    together = whole(pieces)
    return np.concatenate(pieces) if together is None else together


def full_tables(shards: Mapping[int, Tables]) -> dict[int, Arrays]:
    """Return tables by shard as full arrays; those that are sparse in some shard lie side by side in memory."""
    found: dict[int, Arrays] = {shard: {} for shard in shards}
    for name in next(iter(shards.values()), {}):
        tables = {shard: shards[shard][name] for shard in sorted(shards)}
        arrays = [table for table in tables.values() if not isinstance(table, SparseRows)]
        if len(arrays) < len(tables):
            arrays = room(list(tables.values()))
            for array, table in zip(arrays, tables.values(), strict=True):
                if isinstance(table, SparseRows):
                    table.write_to(array)
                else:
                    array[...] = table
        for shard, array in zip(tables, arrays, strict=True):
            found[shard][name] = array
    return found


def cut_rows(table: Array, lengths: Sequence[int]) -> list[Array]:
    """Return the rows of `table` in runs of these lengths, one after the other; views."""
    ends = list(accumulate(lengths))
    return [table[low:high] for low, high in zip([0, *ends], ends, strict=False)]


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
