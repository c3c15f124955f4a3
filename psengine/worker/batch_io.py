"""What the micro-tasks of a batch read and add: some rows, whole tables, what the node keeps of its own.

`wants` comes first, then the client reads `union_of` all of them in one go, then each micro-task is given its share,
and what it returns is put as an update of those rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from psengine.apps.base import App
from psengine.apps.registry import rows_of
from psengine.config import TableSpec
from psengine.tables.row_sets import Array, RowBlock, RowSet, checked, read_only, row_bytes, union
from psengine.tables.row_updates import RowDelta, added
from psengine.tables.tree_sum import Delta
from psengine.worker.executor_cache import Left


def wants(app: App, tables: Sequence[TableSpec], data: Any, clock: int) -> dict[str, RowSet]:
    """Return the rows that a micro-task wants of the tables that it does not want whole.

    Raises
    ------
    ValueError
        When they are not rows of these tables.
    """
    asked = rows_of(app, data, clock)
    if not asked:
        return {}
    specs = {table.name: table for table in tables}
    for name in asked:
        if name not in specs:
            raise ValueError(f"rows of table {name!r} are wanted: the tables are {', '.join(specs)}")
    return {name: checked(rows, specs[name]) for name, rows in asked.items()}


def own_of(tables: Sequence[TableSpec], wanted: Mapping[str, RowSet]) -> dict[str, RowSet]:
    """Return what is wanted of the tables whose rows belong to one partition each."""
    return {table.name: wanted[table.name] for table in tables if table.own and table.name in wanted}


def union_of(
    tables: Sequence[TableSpec], wanted: Sequence[Mapping[str, RowSet]], here: Sequence[Collection[str]]
) -> dict[str, RowSet | None]:
    """Return what is to be read for a batch, by table: rows, or None for all; a table that nobody needs is left out.

    Parameters
    ----------
    wanted, here : sequences of mappings, and of sets of names
        For each micro-task: the rows it wants, and the tables of which they are on the node already.
    """
    out: dict[str, RowSet | None] = {}
    for table in tables:
        asking = [of for of, kept in zip(wanted, here, strict=True) if table.name not in kept]
        if any(table.name not in of for of in asking):
            out[table.name] = None
        elif asking:
            out[table.name] = union((of[table.name] for of in asking), row_bytes(table))
    return out


def given(
    wanted: Mapping[str, RowSet], here: Mapping[str, Array], read: Mapping[str, RowBlock], tables: Sequence[TableSpec]
) -> dict[str, Array]:
    """Return the tables as one micro-task gets them, in their order."""
    return {
        table.name: here[table.name] if table.name in here else read[table.name].of(wanted.get(table.name))
        for table in tables
    }


def as_delta(wanted: Mapping[str, RowSet], params: Mapping[str, Array], updates: Mapping[str, Array]) -> Delta:
    """Return what a micro-task adds: to the rows that it wanted, or to whole tables.

    Raises
    ------
    ValueError
        When an update is of no table, or has not the shape of the rows that the micro-task got, or a type that does not
        go into theirs.
    TypeError
        When it is no array.
    """
    for name, update in updates.items():
        if name not in params:
            raise ValueError(f"an update of table {name!r} came: the tables are {', '.join(params)}")
        if np.shape(update) != params[name].shape:
            raise ValueError(f"the update of table {name!r} is {np.shape(update)}: want {params[name].shape}")
        if not isinstance(update, np.ndarray):
            raise TypeError(f"the update of table {name!r} is a {type(update).__name__}: want a NumPy array")
        if not np.can_cast(update.dtype, params[name].dtype, "same_kind"):
            raise ValueError(f"the update of table {name!r} is of {update.dtype}: the table is of {params[name].dtype}")
    return {name: RowDelta(wanted[name], of) if name in wanted else of for name, of in updates.items()}


def left_behind(own: Mapping[str, RowSet], params: Mapping[str, Array], updates: Mapping[str, Array]) -> Left:
    """Return the rows of its own as a micro-task leaves them."""
    left: dict[str, tuple[RowSet, Array]] = {}
    for name, rows in own.items():
        after = params[name]
        if name in updates:
            after = read_only(added(after, updates[name]))  # as the servers add it
        left[name] = rows, after
    return left
