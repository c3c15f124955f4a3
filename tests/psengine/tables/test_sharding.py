"""Whole tables from their shards."""

import numpy as np
import pytest

from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.tables.sharding import Sharding

TABLES = (TableSpec("w", 7, 3), TableSpec("n", 2, 1, "int64"))


@pytest.mark.parametrize("n_shards", [1, 2, 3, 7, 10])
def test_what_is_cut_is_joined_again(n_shards: int) -> None:
    sharding = Sharding(TABLES, n_shards)
    whole = {"w": np.arange(21, dtype=np.float32).reshape(7, 3), "n": np.array([[3], [4]])}
    joined = sharding.join([sharding.cut(whole, shard) for shard in range(n_shards)])
    assert {name: (table.dtype, table.tolist()) for name, table in joined.items()} == {
        name: (table.dtype, table.tolist()) for name, table in whole.items()
    }


def test_a_single_shard_is_not_copied_and_stays_writeable_for_whoever_has_it() -> None:
    committed = {"w": np.zeros((7, 3), np.float32), "n": np.zeros((2, 1), np.int64)}
    joined = Sharding(TABLES, 1).join([committed])
    for name, table in joined.items():
        assert np.shares_memory(table, committed[name])
        table.flags.writeable = False
        assert committed[name].flags.writeable
