"""Arrays are counted once, where their memory is owned, wherever they are held."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from proteus_spot.psengine.server.shard_store import ShardStore
from proteus_spot.psengine.tables.row_updates import RowDelta
from proteus_spot.psengine.telemetry.memory_use import ArrayBytes


@dataclass(frozen=True, slots=True)
class Slotted:
    rows: Any
    name: str = "x"


def test_arrays_are_counted_once_in_whatever_holds_them() -> None:
    owner = np.zeros(1000, np.int64)
    loop: list[Any] = [owner[10:20], {"a": owner, "b": (owner[::2], Slotted(np.zeros(100, np.int8)))}]
    loop.append(loop)
    held = SimpleNamespace(first=loop, made=partial(len, np.zeros(10**6)), kind=np.ndarray, text="x" * 99)
    assert ArrayBytes().count(held).total == 8000 + 100
    assert ArrayBytes().count(held, owner).total == 8000 + 100


def test_what_was_counted_as_input_is_no_state() -> None:
    data = SimpleNamespace(words=np.zeros(500, np.int32))
    known = ArrayBytes().count(data)
    partition = SimpleNamespace(data=data, words=data.words, own=np.zeros(30, np.int16))
    assert ArrayBytes().count(partition, known=known).total == 60
    assert ArrayBytes().count(partition).total == 2060


def test_a_shard_counts_what_is_committed_and_what_waits() -> None:
    store = ShardStore(0, 1, {"w": np.zeros((100, 10), np.float32)}, 2)
    assert ArrayBytes().count({0: store}).total == 4000
    store.push(1, 0, [1], {"w": RowDelta(slice(0, 10), np.ones((10, 10), np.float32))})
    assert ArrayBytes().count({0: store}).total == 4400
    store.push(1, 1, [1], {})
    store.fold(1)
    assert ArrayBytes().count({0: store}).total == 4000
