"""Labelled examples in memory: check them, number their labels, hold out a part."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.infra.datasets.formats.reading import Empty
from proteus_spot.infra.errors import InputError
from proteus_spot.psengine.apps.csr import Csr

_HELD_OUT_SHARE = 5
#: The split is the same for every job, so that accuracies can be compared.
_SPLIT_SEED = 0
#: Number of columns that an error lists, and what to do about cells without a value in data to train on.
_FEW = 6
EMPTY_FIX = "--empty drop leaves their rows out, --empty mean fills in the mean of the column"
#: Up to this bound every whole number is exact as a float64.
_MOST_WHOLE = 2**53


@dataclass(frozen=True, slots=True)
class ExampleTable:
    """The content of a file before the checks.

    Attributes
    ----------
    x : float32 of shape (rows, features), or compressed rows
    y : numbers of shape (rows,); if `texts` are given, each row's index among them
    place : callable
        Returns the location of a row, counted from 0, in the terms of the form.
    texts : tuple of str
        The labels, sorted, if they are texts.
    first_index : 0 or 1, or None
        Index of the file's first feature; None if the form defines it.
    labelled : bool
        Whether there are labels; `y` is all zeros where there are none.
    notes : tuple of str
        How the file was read, where that may not be what its author expects; a line each.
    columns : tuple of str
        Names of the features; empty where they have none.
    label_name : str or None
        Name of the column of the labels.
    describe : callable or None
        Returns a feature, counted from 0, in the terms of the form.

    In dense `x`, NaN is a cell without a value; in `y`, NaN or (of texts) -1 is a row without a label.
    """

    x: NDArray[np.float32] | Csr
    y: NDArray[Any]
    place: Callable[[int], str]
    texts: tuple[str, ...] = ()
    first_index: int | None = None
    labelled: bool = True
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    label_name: str | None = None
    describe: Callable[[int], str] | None = None

    def column(self, at: int) -> str:
        """Return a feature, counted from 0, as an error names it."""
        return f"column {at + 1}" if self.describe is None else self.describe(at)


def unlabelled(
    x: NDArray[np.float32] | Csr,
    place: Callable[[int], str],
    notes: tuple[str, ...] = (),
    columns: tuple[str, ...] = (),
    describe: Callable[[int], str] | None = None,
) -> ExampleTable:
    """Return inputs of which no labels are known, or wanted."""
    y = np.zeros(x.shape[0], np.int64)
    return ExampleTable(x, y, place, labelled=False, notes=notes, columns=columns, describe=describe)


@dataclass(frozen=True, slots=True)
class Examples:
    """Inputs and their targets.

    Attributes
    ----------
    x : float32 of shape (rows, features), or compressed rows
    y : int32 classes 0 to k - 1, or float32 values if `labels` is empty
    ids : int64, the row in the source, counted from 0
    labels : tuple of int or str
        The source's label of each class.
    labelled : bool
        Whether there are labels; `y` is all zeros where there are none.
    """

    x: NDArray[np.float32] | Csr
    y: NDArray[Any]
    ids: NDArray[np.int64]
    labels: tuple[int | str, ...]
    labelled: bool = True

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: NDArray[np.int64]) -> "Examples":
        """Return these rows, in this order."""
        x = self.x.take(rows) if isinstance(self.x, Csr) else self.x[rows]
        return Examples(x, self.y[rows], self.ids[rows], self.labels, self.labelled)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of a partition: `x`, or the four of compressed rows; `y` where there are labels; `ids`."""
        inputs = self.x.arrays() if isinstance(self.x, Csr) else {"x": self.x}
        return {**inputs, **({"y": self.y} if self.labelled else {}), "ids": self.ids}


def examples(source: str, table: ExampleTable, empty: Empty = "refuse", fix: str = EMPTY_FIX) -> Examples:
    """Return the rows of `table` with their labels numbered in sorted order.

    Labels that are whole numbers or texts are classes; other numbers are kept as values.

    Parameters
    ----------
    empty : what becomes of rows with cells without a value: refused, left out, or (``mean``) kept with NaN in them.
    fix : what to do about such cells, for the error.

    Raises
    ------
    InputError
        One line with the file and the row: no rows, a cell without a value, or a number that is not finite.
    """
    if not len(table.y):
        raise InputError(f"{source}: holds no examples; give at least two, each with a label")
    rows = np.arange(len(table.y), dtype=np.int64)
    x, y = table.x, table.y
    if empty == "drop":
        rows = np.flatnonzero(~(_without_value(x).any(axis=1) | _unlabelled(table)))
        if not len(rows):
            raise InputError(
                f"{source}: every row has an empty cell; fill them, or leave out the columns that have most"
            )
        x, y = (x.take(rows) if isinstance(x, Csr) else x[rows]), y[rows]
    elif empty == "refuse" and not isinstance(x, Csr):
        _check_filled(source, table, fix)
    if (fault := _not_finite(x)) is not None:
        row, column, value = fault
        raise InputError(
            f"{source}: {table.place(int(rows[row]))}: a value is {value}; write finite numbers that fit a float32 "
            f"(in {table.column(column)})"
        )
    if not table.labelled:
        return Examples(x, y, rows, (), labelled=False)
    if table.texts:
        if (y < 0).any():
            raise InputError(f"{source}: {table.place(int((y < 0).argmax()))}: the label is empty; write one")
        return Examples(x, y.astype(np.int32), rows, table.texts)
    with np.errstate(over="ignore"):
        fine = np.isfinite(y.astype(np.float32))
    if not fine.all():
        row = int(fine.argmin())
        raise InputError(f"{source}: {table.place(int(rows[row]))}: the label is {y[row]}; write a finite number")
    if y.dtype.kind == "f" and ((y != np.rint(y)) | (np.abs(y) > _MOST_WHOLE)).any():
        return Examples(x, y.astype(np.float32), rows, ())
    labels, classes = np.unique(y, return_inverse=True)
    return Examples(x, classes.astype(np.int32), rows, tuple(int(label) for label in labels))


def _without_value(x: NDArray[np.float32] | Csr) -> NDArray[np.bool_]:
    return np.zeros((x.shape[0], 1), bool) if isinstance(x, Csr) else np.isnan(x)


def _unlabelled(table: ExampleTable) -> NDArray[np.bool_]:
    if not table.labelled:
        return np.zeros(len(table.y), bool)
    return table.y < 0 if table.texts else np.isnan(table.y.astype(np.float64))


def _check_filled(source: str, table: ExampleTable, fix: str) -> None:
    """Refuse cells without a value, and count them."""
    if not (gaps := _without_value(table.x)).any():
        return
    columns = np.flatnonzero(gaps.any(axis=0))
    row = int(gaps.any(axis=1).argmax())
    at = int(gaps[row].argmax())
    cells = int(gaps.sum())
    count = (
        "1 cell has none"
        if cells == 1
        else f"{cells} cells in {len(columns)} column{'s' * (len(columns) > 1)} have none"
    )
    which = ", ".join(table.column(int(column)) for column in columns[:_FEW]) + (", …" if len(columns) > _FEW else "")
    of = f" ({which})" if len(columns) > 1 else ""
    raise InputError(f"{source}: {table.place(row)}: {table.column(at)} has no value; {count}{of}: {fix}")


def hold_out(source: str, table: ExampleTable, whole: Examples, by_class: bool = True) -> tuple[Examples, Examples]:
    """Return the examples to train on and those held out: a fifth of each class, or of all where there are no classes.

    The choice depends on the labels alone; each side has at least one example of each class.

    Parameters
    ----------
    by_class : whether each class has to be on either side. Without it, a fifth of all is held out where a class has a
        single row.

    Raises
    ------
    InputError
        Naming a label that occurs once, or a source of one row.
    """
    classes = whole.y if whole.labels else np.zeros(len(whole), np.int32)
    counts = np.bincount(classes)
    if not by_class and counts.min() < 2:
        classes = np.zeros(len(whole), np.int32)
        counts = np.bincount(classes)
    if counts.min() < 2:
        rare = int(counts.argmin())
        row = int(whole.ids[(classes == rare).argmax()])
        label = whole.labels[rare] if by_class and whole.labels else None
        what = (
            "the only row"
            if label is None
            else f"the only row with label {label[:40] if isinstance(label, str) else label!r}"
        )
        raise InputError(
            f"{source}: {table.place(row)}: {what}; a class needs two at least, one to train on and one to hold out "
            "(whole numbers are classes: scale them where they are measurements)"
        )
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(classes))
    order = order[np.argsort(classes[order], kind="stable")]  # class after class, each in a random order
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    held = np.zeros(len(order), bool)
    held[order[rank < np.repeat(_fifths(counts), counts)]] = True
    return whole.take(np.flatnonzero(~held)), whole.take(np.flatnonzero(held))


def _fifths(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of held-out examples per class: a fifth of all, rounded up where the remainders are largest."""
    fifths = np.maximum(counts // _HELD_OUT_SHARE, 1)
    remainders = np.where(counts < _HELD_OUT_SHARE, 0, counts % _HELD_OUT_SHARE)
    missing = max(0, -(-int(counts.sum()) // _HELD_OUT_SHARE) - int(fifths.sum()))
    fifths[np.argsort(-remainders, kind="stable")[:missing]] += 1
    return fifths


def _not_finite(x: NDArray[np.float32] | Csr) -> tuple[int, int, float] | None:
    """Return row, column and value of the first entry that is not finite; NaN in dense ones is not a value."""
    values = x.data if isinstance(x, Csr) else x.ravel()
    fault = ~np.isfinite(values) if isinstance(x, Csr) else np.isinf(values)
    if not fault.any():
        return None
    entry = int(fault.argmax())
    if isinstance(x, Csr):
        row = int(np.searchsorted(x.indptr, entry, side="right")) - 1
        return row, int(x.indices[entry]), float(values[entry])
    return entry // x.shape[1], entry % x.shape[1], float(values[entry])
