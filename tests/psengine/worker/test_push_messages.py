"""Updates as they are pushed: what is told before it comes."""

import numpy as np
import pytest

from psengine.config import Momentum, TableSpec
from psengine.tables.row_updates import RowDelta
from psengine.tables.sharding import Sharding
from psengine.worker.push_messages import cut_update, split_long_runs, sum_up
from tests.psengine.whole_engine.test_row_training import CLOCKS, Cluster, check
from tests.psengine.whole_engine.test_row_training import story as training
from tests.psengine.worker.test_speculative_batch import go_on


def test_long_runs_alone_are_told_and_all_else_is_sent() -> None:
    long = np.zeros((1 << 18, 1), np.float32)
    run, named = RowDelta(slice(3, 3 + len(long)), long), RowDelta(np.arange(0, 2 * len(long), 2), long)
    short, whole = RowDelta(slice(0, 2), long[:2]), long
    updates = {0: [{"a": run, "b": short, "c": whole}, {"b": named}], 1: [{"a": short}, {}]}
    rest, runs = split_long_runs(updates)
    assert runs == {0: [{"a": (3, 3 + len(long))}, {}], 1: [{}, {}]}
    assert rest == {0: [{"b": short, "c": whole}, {"b": named}], 1: [{"a": short}, {}]}


@pytest.mark.parametrize("most", [-1, 1 << 16])
def test_nothing_is_told_where_there_is_much_else(announced: None, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr("psengine.worker.push_messages._LONG_BYTES", 30)  # some of the runs of the application
    monkeypatch.setattr("psengine.worker.parameter_client._SHORT_BYTES", most)

    async def body(cluster: Cluster) -> None:
        await go_on(cluster, CLOCKS)
        assert bool(cluster.wires.foretold) == (most > 0)
        check(cluster)

    training(Cluster(), body)


def test_a_table_with_a_rule_is_named_to_every_shard_even_without_rows() -> None:
    tables = (TableSpec("ruled", 6, 2, rule=Momentum(0.1)), TableSpec("plain", 6, 2))
    sharding = Sharding(tables, 2)
    rows = {name: RowDelta(slice(4, 6), np.ones((2, 2), np.float32)) for name in ("ruled", "plain")}
    none = {name: RowDelta(slice(0, 0), np.ones((0, 2), np.float32)) for name in ("ruled", "plain")}
    parts = {0: rows, 1: none, 2: none}
    sums = {block: total for block, total in sum_up(parts, 4, tables)}
    assert sums.keys() == {(0, 2), (2, 3)}
    for total, filled in ((sums[0, 2], 2), (sums[2, 3], 0)):
        here, there = (cut_update(sharding, total, shard) for shard in (0, 1))
        assert len(here["ruled"].values) == 0
        assert len(there["ruled"].values) == filled
        assert "plain" not in here
        assert ("plain" in there) is bool(filled)
