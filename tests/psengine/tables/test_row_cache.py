"""Which tasks rows that were read once serve."""

import numpy as np

from proteus_spot.psengine.tables.row_cache import RowCache
from proteus_spot.psengine.tables.row_sets import RowBlock


def block(*rows: int) -> RowBlock:
    return RowBlock(np.array(rows), np.array(rows, float)[:, None])


def test_rows_serve_a_task_whose_parent_clock_is_not_newer() -> None:
    cache, read = RowCache(), block(2, 5, 7)
    cache.put({"w": read}, 10, exact=False)
    wanted = np.array([2, 7])
    assert [cache.find("w", wanted, group, exact=False) for group in (9, 10, 11)] == [read, read, None]
    assert cache.find("w", np.array([2, 3]), 10, exact=False) is None
    assert cache.find("w", None, 10, exact=False) is None
    assert cache.find("v", wanted, 10, exact=False) is None
    assert cache.find("w", wanted, 10, exact=True) is None, "it is not of exactly one state"


def test_rows_of_exactly_one_state_serve_reads_of_that_state() -> None:
    cache, read = RowCache(), block(1)
    cache.put({"w": read}, 10, exact=True)
    assert [cache.find("w", np.array([1]), group, exact=True) for group in (9, 10, 11)] == [None, read, None]
    assert cache.find("w", np.array([1]), 9, exact=False) is None


def test_each_table_has_blocks_under_several_clocks_until_no_task_needs_them() -> None:
    cache = RowCache()
    first, second = block(1, 2), block(3)
    cache.put({"w": first}, 10, exact=False)
    cache.put({"w": second, "v": block(0)}, 12, exact=False)
    assert cache.find("w", np.array([1]), 10, exact=False) is first
    assert cache.find("w", np.array([3]), 11, exact=False) is second
    cache.drop_before(11)
    assert cache.find("w", np.array([1]), 10, exact=False) is None
    assert cache.find("w", np.array([3]), 11, exact=False) is second
    assert [cache.is_known(group, exact=False) for group in (12, 13)] == [True, False]
    cache.clear()
    assert cache.find("w", np.array([3]), 11, exact=False) is None
    assert not cache.is_known(11, exact=False)


def test_rows_that_were_read_late_take_no_newer_ones_away() -> None:
    cache, newer = RowCache(), block(1)
    cache.put({"w": newer}, 12, exact=False)
    cache.put({"w": block(1, 2)}, 10, exact=False)
    assert cache.find("w", np.array([1]), 12, exact=False) is newer
    later = block(1, 2, 3)
    cache.put({"w": later}, 13, exact=False)
    assert [found for _, found in cache._blocks["w"]] == [later], "it serves all that the other ones served"
