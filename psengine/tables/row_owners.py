"""Which partitions have each row of an own table: a row that two of them have is an error."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.tables.row_sets import RowSet, count, indices, span


class SharedRowError(ValueError):
    """Two partitions have one row of a table that is declared partition-local."""


def refuse_shared(name: str, rows: Mapping[int, RowSet]) -> None:
    """Check the rows that each partition has of a table.

    Raises
    ------
    SharedRowError
        If two partitions have one row; the line names rows and partitions.
    """
    filled = sorted((part for part in rows if count(rows[part])), key=lambda part: span(rows[part]))
    if all(span(rows[a])[1] <= span(rows[b])[0] for a, b in pairwise(filled)):
        return
    parts = np.repeat(filled, [count(rows[part]) for part in filled])
    numbers = np.concatenate([indices(rows[part]) for part in filled])
    order = np.argsort(numbers, kind="stable")
    numbers, parts = numbers[order], parts[order]
    twice = np.flatnonzero(numbers[1:] == numbers[:-1])
    if len(twice):
        one, other = sorted((int(parts[twice[0]]), int(parts[twice[0] + 1])))
        shared = np.intersect1d(indices(rows[one]), indices(rows[other]), assume_unique=True)
        raise SharedRowError(_shared_line(name, shared, one, other))


def _shared_line(name: str, rows: NDArray[np.int64], one: int, other: int) -> str:
    low, high = int(rows[0]), int(rows[-1])
    which = f"row {low} belongs" if low == high else f"{len(rows)} rows from {low} to {high} belong"
    return (
        f"table {name!r}: {which} to partition {one} and to partition {other}; with own=True each row belongs to one "
        "partition: give each other rows, or leave out own"
    )
