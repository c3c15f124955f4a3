"""Rows of own tables that two partitions have."""

from __future__ import annotations

import numpy as np
import pytest

from proteus_spot.psengine.tables.row_owners import SharedRowError, refuse_shared


def test_rows_of_one_partition_each_pass_in_any_order_and_form() -> None:
    refuse_shared("own", {2: slice(0, 3), 0: slice(5, 9), 1: np.array([3, 4]), 3: slice(7, 7)})
    refuse_shared("own", {0: np.array([0, 2, 4]), 1: np.array([1, 3, 5])})


def test_rows_of_two_partitions_are_named_with_them() -> None:
    with pytest.raises(SharedRowError, match="'own': row 3 belongs to partition 1 and to partition 2; with own"):
        refuse_shared("own", {2: slice(0, 4), 0: slice(5, 9), 1: np.array([3, 4])})
    with pytest.raises(SharedRowError, match="2 rows from 4 to 9 belong to partition 0 and to partition 3"):
        refuse_shared("own", {0: np.array([0, 4, 9]), 3: np.array([4, 5, 9]), 1: slice(10, 12)})
