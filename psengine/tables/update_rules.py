"""What becomes of a table with the summed updates of a clock, by its rule.

A rule is applied once to the sum of all updates, when a clock is committed in which some task has updated the
table; rows that the sum lacks have a gradient of 0. The memory of a rule (velocity, moments, count) is further tables
of as many rows, which are cut, moved, replicated and checkpointed with it, and which no task reads.

All arithmetic is by single elements and in the type of the table, so that the bits do not depend on the shards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeGuard

import numpy as np

from proteus_spot.psengine.config import Adam, Add, Momentum, Nesterov, Replace, Sgd, TableSpec, UpdateRule
from proteus_spot.psengine.tables.row_sets import Array
from proteus_spot.psengine.tables.row_updates import RowDelta, added
from proteus_spot.psengine.tables.sharding import Arrays
from proteus_spot.psengine.tables.tree_sum import Delta

#: {rule: names of its memory}; `count` is the number of applications, as one column.
_MEMORY: Mapping[type, tuple[str, ...]] = MappingProxyType(
    {
        Add: (),
        Sgd: (),
        Replace: (),
        Momentum: ("velocity",),
        Nesterov: ("velocity",),
        Adam: ("mean", "square", "count"),
    }
)

#: Bytes of a table that are worked on at a time.
_CACHED_BYTES = 1 << 17


def memory_tables(table: TableSpec) -> tuple[TableSpec, ...]:
    """Return the tables in which the rule of `table` keeps its memory, as ``weights:velocity``."""
    return tuple(
        TableSpec(
            f"{table.name}:{part}", table.n_rows, *((1, "int64") if part == "count" else (table.n_cols, table.dtype))
        )
        for part in (() if _is_scaled_sum(table.rule) else _MEMORY[type(table.rule)])
    )


def _is_scaled_sum(rule: UpdateRule) -> TypeGuard[Nesterov]:
    """Return whether a rule is that of Nesterov without momentum, which needs no velocity."""
    return isinstance(rule, Nesterov) and rule.momentum == 0


def init_optimizer_state(tables: Sequence[TableSpec], arrays: Mapping[str, Array]) -> Arrays:
    """Return `arrays`, rows of `tables`, with the memory of their rules; memory that is not among them is 0."""
    found: Arrays = dict(arrays)
    for table in tables:
        for memory in memory_tables(table):
            if memory.name not in found:
                found[memory.name] = np.zeros((len(arrays[table.name]), memory.n_cols), memory.dtype)
    return found


def drop_optimizer_state(tables: Sequence[TableSpec], arrays: Mapping[str, Array]) -> Arrays:
    """Return the arrays of `tables` alone."""
    names = {table.name for table in tables}
    return {name: array for name, array in arrays.items() if name in names}


@dataclass(frozen=True)
class Notes:
    """What the updates of a clock say of a sum: see `Nesterov`.

    Attributes
    ----------
    n_partitions : int
    rows : ndarray of shape (n, 2)
        Of each row of the table, the partitions that are missing, and whether the sum is added as it is.
    """

    n_partitions: int
    rows: Array


def notes_of(table: TableSpec) -> str:
    """Return the name of the table of the notes of a table; empty: it has none."""
    return table.rule.notes if isinstance(table.rule, Nesterov) else ""


def advance_tables(
    tables: Sequence[TableSpec], arrays: Mapping[str, Array], total: Delta, n_partitions: int = 0
) -> Arrays:
    """Return tables and memory after a clock with the summed updates `total`; `arrays` are not modified.

    `total` names each table that a task has updated, even with no rows.
    """
    after: Arrays = dict(arrays)
    for table in tables:
        if table.name in total:
            notes = total.get(notes_of(table))
            assert not isinstance(notes, RowDelta)
            rows = None if notes is None else Notes(n_partitions, notes)
            after |= apply_rule(table, arrays, total[table.name], notes=rows)
    return after


def apply_rule(
    table: TableSpec,
    arrays: Mapping[str, Array],
    total: Array | RowDelta,
    out: Array | None = None,
    notes: Notes | None = None,
) -> Arrays:
    """Return a table, and the memory of its rule, after the summed updates `total`.

    Parameters
    ----------
    arrays : mapping
        The table's rows, and the memory of its rule; they are not modified.
    out : ndarray, optional
        Like the rows; where the new ones are written.
    notes : Notes, optional
        What is said of the sum.
    """
    before, rule, name = arrays[table.name], table.rule, table.name
    if notes is not None and len(notes.rows):
        if notes.rows[0, 1] > 0:
            kept = {each.name: arrays[each.name] for each in memory_tables(table)}
            return {name: added(before, total, out), **kept}
        total = _of_all(_as_gradient(total, before), notes)
    if isinstance(rule, Add):
        return {name: added(before, total, out)}
    if _is_scaled_sum(rule):
        return {name: added(before, total if rule.lr == 1 else _scaled(total, rule.lr, before), out)}
    if isinstance(rule, Sgd):
        return {name: added(before, _scaled(total, -rule.step, before), out)}
    gradient = _as_gradient(total, before)
    after = np.empty_like(before) if out is None else out
    if isinstance(rule, Replace):
        np.add(gradient, before.dtype.type(0), out=after)  # without -0, as after every addition
        return {name: after}
    if isinstance(rule, Momentum | Nesterov):
        velocity = np.empty_like(before)
        for rows in _chunks(before):
            memory_and_sum = arrays[f"{name}:velocity"][rows], gradient[rows]
            if isinstance(rule, Momentum):
                _move_with_momentum(rule, before[rows], *memory_and_sum, after[rows], velocity[rows])
            else:
                _move_with_nesterov(rule, before[rows], *memory_and_sum, after[rows], velocity[rows])
        return {name: after, f"{name}:velocity": velocity}
    mean, square, count = np.empty_like(before), np.empty_like(before), arrays[f"{name}:count"] + 1
    for rows in _chunks(before):
        memory = arrays[f"{name}:mean"][rows], arrays[f"{name}:square"][rows]
        into = after[rows], mean[rows], square[rows]
        _move_with_adam(rule, int(count[0, 0]), before[rows], memory, gradient[rows], into)
    return {name: after, f"{name}:mean": mean, f"{name}:square": square, f"{name}:count": count}


def _of_all(total: Array, notes: Notes) -> Array:
    """Return a sum as if the partitions that are missing had added the mean of the others."""
    missing, every = float(notes.rows[0, 0]), notes.n_partitions
    if not 0 < missing < every:
        return total
    scaled: Array = np.multiply(total, total.dtype.type(every / (every - missing)))
    return scaled


def _move_with_momentum(
    rule: Momentum, before: Array, velocity: Array, gradient: Array, after: Array, new_velocity: Array
) -> None:
    kind = before.dtype.type
    np.multiply(velocity, kind(rule.momentum), out=new_velocity)
    np.add(new_velocity, gradient, out=new_velocity)
    np.subtract(before, np.multiply(new_velocity, kind(rule.step)), out=after)


def _move_with_nesterov(
    rule: Nesterov, before: Array, velocity: Array, change: Array, after: Array, new_velocity: Array
) -> None:
    kind = before.dtype.type
    np.multiply(velocity, kind(rule.momentum), out=new_velocity)
    np.subtract(new_velocity, change, out=new_velocity)
    step = np.multiply(new_velocity, kind(rule.momentum))
    np.subtract(step, change, out=step)
    np.multiply(step, kind(rule.lr), out=step)
    np.subtract(before, step, out=after)


def _move_with_adam(
    rule: Adam,
    times: int,
    before: Array,
    memory: tuple[Array, Array],
    gradient: Array,
    into: tuple[Array, Array, Array],
) -> None:
    """Write the table, the mean and the mean square after the application of number `times`."""
    kind = before.dtype.type
    after, mean, square = into
    np.multiply(memory[0], kind(rule.beta1), out=mean)
    np.add(mean, np.multiply(gradient, kind(1.0 - rule.beta1)), out=mean)
    np.multiply(memory[1], kind(rule.beta2), out=square)
    np.add(square, np.multiply(np.square(gradient), kind(1.0 - rule.beta2)), out=square)
    root = np.multiply(square, kind(1.0 / (1.0 - rule.beta2**times)))
    np.sqrt(root, out=root)
    np.add(root, kind(rule.epsilon), out=root)
    np.divide(mean, root, out=root)
    np.multiply(root, kind(rule.step / (1.0 - rule.beta1**times)), out=root)
    np.subtract(before, root, out=after)


def _scaled(total: Array | RowDelta, factor: float, before: Array) -> Array | RowDelta:
    kind = before.dtype
    if isinstance(total, RowDelta):
        return RowDelta(total.rows, np.multiply(total.values.astype(kind, copy=False), kind.type(factor)))
    product: Array = np.multiply(total.astype(kind, copy=False), kind.type(factor))
    return product


def _as_gradient(total: Array | RowDelta, before: Array) -> Array:
    """Return the sum for all rows of the table, in its type."""
    if not isinstance(total, RowDelta):
        return total.astype(before.dtype, copy=False)
    gradient = np.zeros_like(before)
    gradient[total.rows] = total.values
    return gradient


def _chunks(array: Array) -> Iterator[slice]:
    """Return runs of rows that fit into the cache."""
    step = max(1, _CACHED_BYTES // max(1, array[:1].nbytes))
    return (slice(low, low + step) for low in range(0, len(array), step))
