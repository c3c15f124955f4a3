"""Labelled examples in memory: check them, number their labels, hold out a part."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infra.errors import InputError
from psengine.apps.csr import Csr

_HELD_OUT_SHARE = 5
#: The split is the same for every job, so that accuracies can be compared.
_SPLIT_SEED = 0
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
    """

    x: NDArray[np.float32] | Csr
    y: NDArray[Any]
    place: Callable[[int], str]
    texts: tuple[str, ...] = ()
    first_index: int | None = None
    labelled: bool = True
    notes: tuple[str, ...] = ()


def unlabelled(x: NDArray[np.float32] | Csr, place: Callable[[int], str], notes: tuple[str, ...] = ()) -> ExampleTable:
    """Return inputs of which no labels are known, or wanted."""
    return ExampleTable(x, np.zeros(x.shape[0], np.int64), place, labelled=False, notes=notes)


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


def examples(source: str, table: ExampleTable) -> Examples:
    """Return the rows of `table` with their labels numbered in sorted order.

    Labels that are whole numbers or texts are classes; other numbers are kept as values.

    Raises
    ------
    InputError
        One line with the file and the row: no rows, or a number that is not finite.
    """
    if not len(table.y):
        raise InputError(f"{source}: holds no examples; give at least two, each with a label")
    if (fault := _not_finite(table.x)) is not None:
        row, value = fault
        raise InputError(f"{source}: {table.place(row)}: a value is {value}; write finite numbers that fit a float32")
    ids = np.arange(len(table.y), dtype=np.int64)
    if not table.labelled:
        return Examples(table.x, table.y, ids, (), labelled=False)
    if table.texts:
        return Examples(table.x, table.y.astype(np.int32), ids, table.texts)
    with np.errstate(over="ignore"):
        fine = np.isfinite(table.y.astype(np.float32))
    if not fine.all():
        row = int(fine.argmin())
        raise InputError(f"{source}: {table.place(row)}: the label is {table.y[row]}; write a finite number")
    if table.y.dtype.kind == "f" and ((table.y != np.rint(table.y)) | (np.abs(table.y) > _MOST_WHOLE)).any():
        return Examples(table.x, table.y.astype(np.float32), ids, ())
    labels, classes = np.unique(table.y, return_inverse=True)
    return Examples(table.x, classes.astype(np.int32), ids, tuple(int(label) for label in labels))


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
        row = int((classes == rare).argmax())
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


def _not_finite(x: NDArray[np.float32] | Csr) -> tuple[int, float] | None:
    """Return row and value of the first entry that is not finite."""
    values = x.data if isinstance(x, Csr) else x.ravel()
    fine = np.isfinite(values)
    if fine.all():
        return None
    entry = int(fine.argmin())
    row = np.searchsorted(x.indptr, entry, side="right") - 1 if isinstance(x, Csr) else entry // x.shape[1]
    return int(row), float(values[entry])
