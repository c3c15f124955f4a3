"""Memory of a node by what it is used for: the arrays of tables, of residents, and of the input.

Arrays are counted where their memory is owned, once, however many hold them. What is no array is not counted. Memory
that a process has freed and keeps (`infra/nodes/malloc.py`) is in no figure: it serves the next arrays.

| kind | is |
|---|---|
| tables | shards that the node serves, with updates that are not committed yet, and replicas of shards |
| states | residents and their states, and replicas of states |
| input | partitions, as the application has prepared them |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

#: Maximum number of items of a collection that are looked at: arrays come in small collections.
_MOST_ITEMS = 10_000
#: Maximum number of objects that are looked at in one count.
_MOST_OBJECTS = 100_000
#: Modules of which no object holds arrays of a job.
_FOREIGN = ("asyncio", "builtins", "concurrent", "functools", "logging", "threading", "weakref")


class ArrayBytes:
    """Counts arrays; one that was counted before is not counted again.

    Attributes
    ----------
    total : int
        Bytes of all arrays counted.
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self.total = 0

    def count(self, *values: Any, known: ArrayBytes | None = None) -> ArrayBytes:
        """Count the arrays in `values`: in collections, and in attributes of objects; return itself.

        Parameters
        ----------
        known : ArrayBytes, optional
            What it has counted is not counted here.
        """
        seen, others, waiting = self._seen, frozenset[int]() if known is None else known._seen, list(values)
        left = _MOST_OBJECTS
        while waiting and left:
            value = waiting.pop()
            if value is None or isinstance(value, str | bytes | int | float | np.generic | np.dtype):
                continue
            while isinstance(value, np.ndarray) and isinstance(value.base, np.ndarray):
                value = value.base
            if id(value) in seen or id(value) in others:
                continue
            seen.add(id(value))
            left -= 1
            if isinstance(value, np.ndarray):
                self.total += value.nbytes
            else:
                waiting.extend(_items(value))
        return self


class NodeMemory:
    """Measures one process.

    Parameters
    ----------
    tables, states : objects that hold the arrays of these kinds.
    data : mapping
        {partition: the data that the application prepared}, which never changes; it is looked at once.
    residents : callable
        Returns the residents by partition. What they hold of their partition's data is input.
    """

    def __init__(
        self, tables: Sequence[Any], states: Any, data: Mapping[int, Any], residents: Callable[[], Mapping[int, Any]]
    ) -> None:
        self._tables, self._states, self._data, self._residents = tables, states, data, residents
        #: {partition: its data, and what was counted in it}.
        self._inputs: dict[int, tuple[Any, ArrayBytes]] = {}

    def by_kind(self) -> dict[str, int]:
        """Return the bytes of the arrays of each kind."""
        self._inputs = {
            partition: before
            if (before := self._inputs.get(partition)) is not None and before[0] is data
            else (data, ArrayBytes().count(data))
            for partition, data in self._data.items()
        }
        counted = ArrayBytes().count(self._states)
        for partition, resident in self._residents().items():
            known = self._inputs.get(partition)
            counted.count(resident, known=None if known is None else known[1])
        return {
            "tables": ArrayBytes().count(*self._tables).total,
            "states": counted.total,
            "input": sum(input_bytes.total for _, input_bytes in self._inputs.values()),
        }


def total_bytes(memory_by_clock: Iterable[Sequence[int]]) -> list[int]:
    """Return the bytes of all kinds together, of each entry of a job's `memory_by_clock`."""
    return [sum(entry[1:4]) for entry in memory_by_clock]


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return list(value.values())[:_MOST_ITEMS]
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)[:_MOST_ITEMS]
    if isinstance(value, type) or type(value).__module__.partition(".")[0] in _FOREIGN:
        return ()
    slots = [getattr(value, name, None) for name in getattr(type(value), "__slots__", ()) if name != "__weakref__"]
    return [*getattr(value, "__dict__", {}).values(), *slots]
