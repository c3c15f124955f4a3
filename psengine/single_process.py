"""An application in a bare loop: one process, no network, no servers; the reference for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from psengine.apps.base import App
from psengine.apps.registry import initial_arrays
from psengine.config import TableSpec
from psengine.tables.row_sets import RowBlock, read_only
from psengine.tables.sharding import Arrays, Sharding
from psengine.tables.tree_sum import Delta, Subtree, tree_sum
from psengine.tables.update_rules import advance_tables, begin_memory
from psengine.worker.batch_io import as_delta, wants


def initial(app: App, seed: int, n_shards: int = 1) -> Arrays:
    """Return the tables at clock 0, as the servers of a job with this seed and number of shards have them.

    The memory of update rules is among them (see `psengine.tables.update_rules`).
    """
    sharding = Sharding(app.tables(), n_shards)
    shards = [
        initial_arrays(app, seed, shard, {table.name: sharding.rows(shard, table) for table in sharding.tables})
        for shard in range(n_shards)
    ]
    return begin_memory(sharding.tables, sharding.join(shards))


def train_alone(
    app: App,
    parts: Sequence[Any],
    tables: Arrays,
    clocks: int,
    after: Callable[[int, Arrays, float], None] | None = None,
    done: int = 0,
) -> Arrays:
    """Return the tables after `clocks` bulk-synchronous clocks; a job under staleness 0 ends in the same bits.

    Parameters
    ----------
    parts : sequence
        Result of `app.prepare` for each partition.
    tables : dict
        The tables at clock `done`, with the memory of their rules (see `initial`); they are not modified.
    after : callable, optional
        Called after each clock with the clock, the tables, and the sum of the losses.
    done : int
        Number of clocks that `tables` are trained for already; `clocks` counts them.
    """
    specs = app.tables()
    for clock in range(done + 1, clocks + 1):
        updates: list[Delta] = []
        loss = 0.0
        for data in parts:
            wanted = wants(app, specs, data, clock)
            params = {
                spec.name: RowBlock(None, read_only(tables[spec.name])).of(wanted.get(spec.name)) for spec in specs
            }
            work = app.run(data, params, clock)
            loss += work.loss_sum
            updates.append(as_delta(wanted, params, work.updates))
        tables = advance(specs, tables, updates)
        if after is not None:
            after(clock, tables, loss)
    return tables


def advance(specs: Sequence[TableSpec], tables: Arrays, updates: Sequence[Delta]) -> Arrays:
    """Return the tables after a clock with these updates, one of each partition; `tables` are not modified."""
    named = {name: delta for update in updates for name, delta in update.items()}
    total = tree_sum((0, len(updates)), partial(_leaf, updates)) or {}
    return advance_tables(specs, tables, {**named, **total})


def _leaf(updates: Sequence[Delta], part: Subtree) -> Delta | None:
    return updates[part[0]] if part[1] - part[0] == 1 else None
