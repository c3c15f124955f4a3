"""Named arrays of a net as flat tables of rows, which are cut into shards like any other table.

| kind | holds | a worker pushes | the table becomes |
|---|---|---|---|
| parameters | what is trained | its change, divided by the number of workers | by the outer rule |
| buffers | other numbers with a fraction, as the means of batch norm | likewise | the mean over the workers |
| counts | other whole numbers, as the batches that batch norm has seen | worker 0 its change | that of worker 0 |
| gradients | those of a warm step | its own, divided by the number of workers | their mean |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.config import Add, Nesterov, Replace, TableSpec

Kind = Literal["parameters", "buffers", "counts"]
Flat = dict[str, NDArray[Any]]

#: Numbers in a row of a table.
COLUMNS = 256
PARAMETERS, _GRADIENTS, _NOTES = "parameters", "gradients", "notes"


def gradients_of(table: str) -> str:
    """Return the name of the table of the gradients of a table of parameters."""
    return _GRADIENTS + table.removeprefix(PARAMETERS)


def notes_of(table: str) -> str:
    """Return the name of the table of the notes of a table of parameters: see `Nesterov`."""
    return _NOTES + table.removeprefix(PARAMETERS)


@dataclass(frozen=True)
class NamedArray:
    """A named array of a net: its kind, its shape, and the type that its table has."""

    name: str
    kind: Kind
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def size(self) -> int:
        """Number of its numbers."""
        return prod(self.shape)

    @property
    def table(self) -> str:
        """Name of the table that holds it."""
        usual = "int64" if self.kind == "counts" else "float32"
        return self.kind if self.dtype == usual else f"{self.kind}.{self.dtype}"


class ArrayLayout:
    """Where each array of a net lies in its table.

    Parameters
    ----------
    entries : sequence of NamedArray
        In the order of the model.
    """

    def __init__(self, entries: Sequence[NamedArray]) -> None:
        self.entries = tuple(entries)

    @cached_property
    def places(self) -> Mapping[str, Mapping[str, slice]]:
        """Return where each array lies: {table: {name: part of the flat table}}."""
        places: dict[str, dict[str, slice]] = {}
        ends: dict[str, int] = {}
        for entry in self.entries:
            start = ends.get(entry.table, 0)
            ends[entry.table] = start + entry.size
            places.setdefault(entry.table, {})[entry.name] = slice(start, start + entry.size)
        return places

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Return the number of numbers of each table, without the rest of its last row."""
        sizes: dict[str, int] = {}
        for entry in self.entries:
            sizes[entry.table] = sizes.get(entry.table, 0) + entry.size
        return sizes

    def tables(self, outer: Nesterov, has_notes: bool = False) -> tuple[TableSpec, ...]:
        """Return the tables of the model; those of parameters have the outer rule."""
        kinds = {entry.table: entry for entry in self.entries}
        found = []
        for name, size in self.sizes.items():
            rule: Nesterov | Add = Add()
            if kinds[name].kind == PARAMETERS:
                rule = replace(outer, notes=notes_of(name)) if has_notes else outer
            found.append(TableSpec(name, max(1, -(-size // COLUMNS)), COLUMNS, kinds[name].dtype, rule=rule))
        return tuple(found)

    @cached_property
    def gradients(self) -> tuple[TableSpec, ...]:
        """Return the tables of the gradients."""
        return tuple(replace(table, name=gradients_of(table.name), rule=Replace()) for table in self._parameters())

    @cached_property
    def notes(self) -> tuple[TableSpec, ...]:
        """Return the tables of the notes."""
        return tuple(TableSpec(notes_of(table.name), table.n_rows, 2, rule=Replace()) for table in self._parameters())

    def _parameters(self) -> list[TableSpec]:
        return [table for table in self.tables(Nesterov(1, 0)) if table.name.startswith(PARAMETERS)]

    def flat(self, arrays: Mapping[str, NDArray[Any]]) -> Flat:
        """Return named arrays as tables of rows."""
        return {table.name: self.rows_of(table, arrays, 0, table.n_rows) for table in self.tables(Nesterov(1, 0))}

    def rows_of(self, table: TableSpec, arrays: Mapping[str, NDArray[Any]], low: int, high: int) -> NDArray[Any]:
        """Return the rows [low, high) of the table of named arrays."""
        rows = np.zeros((high - low, table.n_cols), table.dtype)
        flat, first, end = rows.reshape(-1), low * table.n_cols, high * table.n_cols
        for name, place in self.places[table.name].items():
            start, stop = max(place.start, first), min(place.stop, end)
            if start < stop:
                array = np.asarray(arrays[name]).reshape(-1)
                flat[start - first : stop - first] = array[start - place.start : stop - place.start]
        return rows

    def named(self, tables: Mapping[str, NDArray[Any]]) -> Iterator[tuple[NamedArray, NDArray[Any]]]:
        """Yield each array in the tables, as a view of its shape."""
        for entry in self.entries:
            rows = tables[entry.table].reshape(-1)
            yield entry, rows[self.places[entry.table][entry.name]].reshape(entry.shape)
