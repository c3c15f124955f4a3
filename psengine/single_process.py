"""An application in a bare loop: one process, no network, no servers; the reference for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from psengine.apps.base import App
from psengine.apps.registry import initial_arrays
from psengine.tables.row_sets import RowBlock, read_only
from psengine.tables.row_updates import added
from psengine.tables.sharding import Arrays, Sharding
from psengine.tables.tree_sum import Delta, Subtree, tree_sum
from psengine.worker.batch_io import as_delta, wants


def initial(app: App, seed: int, n_shards: int = 1) -> Arrays:
    """Return the tables at clock 0, as the servers of a job with this seed and number of shards have them."""
    sharding = Sharding(app.tables(), n_shards)
    shards = [
        initial_arrays(app, seed, shard, {table.name: sharding.rows(shard, table) for table in sharding.tables})
        for shard in range(n_shards)
    ]
    return sharding.join(shards)


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
        The tables at clock `done` (see `initial`); they are not modified.
    after : callable, optional
        Called after each clock with the clock, the tables, and the sum of the losses.
    done : int
        Number of clocks that `tables` are trained for already; `clocks` counts them.
    """
    for clock in range(done + 1, clocks + 1):
        updates: list[Delta] = []
        loss = 0.0
        for data in parts:
            wanted = wants(app, app.tables(), data, clock)
            params = {name: RowBlock(None, read_only(rows)).of(wanted.get(name)) for name, rows in tables.items()}
            work = app.run(data, params, clock)
            loss += work.loss_sum
            updates.append(as_delta(wanted, params, work.updates))
        tables = advance(tables, updates)
        if after is not None:
            after(clock, tables, loss)
    return tables


def advance(tables: Arrays, updates: Sequence[Delta]) -> Arrays:
    """Return the tables after a clock with these updates, one of each partition; `tables` are not modified."""
    total = tree_sum((0, len(updates)), partial(_leaf, updates)) or {}
    return {name: added(table, total[name]) if name in total else table for name, table in tables.items()}


def _leaf(updates: Sequence[Delta], part: Subtree) -> Delta | None:
    return updates[part[0]] if part[1] - part[0] == 1 else None
