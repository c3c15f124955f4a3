"""The cut of tables into shards: contiguous row ranges, fixed for the life of the job.

When nodes join or leave, shards are reassigned, never cut again. Source: Proteus (EuroSys 2017), 3.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.config import TableSpec

Arrays = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Sharding:
    """The cut of `tables` into `n_shards` shards; every shard has a (possibly empty) range of every table's rows."""

    tables: tuple[TableSpec, ...]
    n_shards: int

    def rows(self, shard: int, table: TableSpec) -> tuple[int, int]:
        """Return the half-open row range of `table` in `shard`; lengths differ by at most one."""
        return shard * table.n_rows // self.n_shards, (shard + 1) * table.n_rows // self.n_shards

    def nbytes(self, shard: int) -> int:
        """Return the size of the rows of all tables in `shard`, in bytes."""
        ranges = ((table, *self.rows(shard, table)) for table in self.tables)
        return sum((high - low) * table.n_cols * np.dtype(table.dtype).itemsize for table, low, high in ranges)

    def all_bytes(self, shards: Iterable[int]) -> int:
        """Return the size of the rows of all tables in several shards, in bytes."""
        return sum(self.nbytes(shard) for shard in shards)

    def cut(self, arrays: Mapping[str, NDArray[np.generic]], shard: int) -> Arrays:
        """Return views of the rows of `arrays` (whole tables) that lie in `shard`."""
        views: Arrays = {}
        for table in self.tables:
            low, high = self.rows(shard, table)
            if table.name in arrays:
                views[table.name] = arrays[table.name][low:high]
        return views

    def join(self, shards: Sequence[Mapping[str, NDArray[np.generic]]]) -> Arrays:
        """Return whole tables from the arrays of all shards, in shard order; for a single shard they are views."""
        if len(shards) == 1:
            return {table.name: shards[0][table.name][:] for table in self.tables}
        return {table.name: np.concatenate([shard[table.name] for shard in shards]) for table in self.tables}
