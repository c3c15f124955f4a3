"""Labelled examples as a kind of data: read, check, hold out a part, partition the rest."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infra.datasets.files import read_data
from infra.datasets.formats.example_table import Examples, examples, hold_out
from infra.errors import InputError
from psengine.apps.csr import Csr
from psengine.apps.registry import WITHOUT_LABELS

#: Minimum number of classes that an application needs; applications not listed accept any data.
_LEAST_CLASSES: Mapping[str, int] = MappingProxyType({"mlr": 2})

#: Columns whose means and standard deviations still travel with a job.
_MOST_SCALED = 16_384
#: Rows of which the moments are taken at once.
_BLOCK = 4096


@dataclass(frozen=True, slots=True)
class ExampleSet:
    """The training and the held-out part of a source of examples (an `infra.datasets.kinds.Prepared`)."""

    train: Examples
    held: Examples
    n_partitions: int
    first_index: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Number of examples to train on."""
        return len(self.train)

    @property
    def heldout_rows(self) -> int:
        """Number of held-out examples."""
        return len(self.held)

    @property
    def sizes(self) -> dict[str, int]:
        """Columns, classes (0 where there are no labels, or these are no classes), examples to train on, partitions."""
        return {
            "n_inputs": self.train.x.shape[1],
            "n_classes": len(self.train.labels),
            "n_examples": len(self.train),
            "n_partitions": self.n_partitions,
        }

    @property
    def about(self) -> dict[str, Any]:
        """The source's label of each class, and the index of its first feature (None: defined by its form)."""
        return {"labels": list(self.train.labels), "first_index": self.first_index}

    def scales(self) -> dict[str, list[float]]:
        """Return `input_mean` and `input_sd` of each column over the examples to train on, shape (columns,) each.

        They depend on the source alone, whatever the number of parts. A column that never changes has a standard
        deviation
        of 1.

        Raises
        ------
        InputError
            If there are so many columns that the nodes could not be sent these numbers with each order.
        """
        columns = self.train.x.shape[1]
        if columns > _MOST_SCALED:
            raise InputError(
                f"--param standardize: the data have {columns:,} columns, and at most {_MOST_SCALED:,} are "
                f"standardized; "
                "scale them in the file, and leave it out"
            )
        mean, variance = column_moments(self.train.x)
        return {"input_mean": mean.tolist(), "input_sd": np.where(variance > 0, np.sqrt(variance), 1.0).tolist()}

    def parts(self, seed: int) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield the arrays of each partition.

        There is no `y` where the source has no labels.
        `ids` (int64) are the rows in the source; `first` (int64, without shape) is the number of rows in the partitions
        before, so that each row to train on has a number. In place of `x`, sparse inputs have `x_data`, `x_indices`,
        `x_indptr` and `x_cols` (`psengine.apps.csr.Csr`).
        """
        first = 0
        for rows in deal(len(self.train), self.n_partitions, seed):
            yield self.train.take(rows).arrays() | {"first": np.asarray(first, np.int64)}
            first += len(rows)

    def heldout(self) -> dict[str, NDArray[Any]]:
        """Return the same arrays of the held-out part, a fifth of each class."""
        return self.held.arrays()


def read(source: str, n_partitions: int, app: str | None = None) -> ExampleSet:
    """Return the checked examples of a source, a part of them held out.

    Raises
    ------
    InputError
        For a file that cannot be read or used, data that `app` cannot learn from, or more partitions than rows.
    """
    labels = learns_labels(app)
    table = read_data(source, labels=labels)
    whole = examples(source, table)
    check_classes(source, len(whole.labels), app)
    train, held = hold_out(source, table, whole, labels)
    if n_partitions > len(train):
        raise InputError(
            f"data {source}: has {len(train)} rows to train on, too few for {n_partitions} parts; want one a part"
        )
    return ExampleSet(train, held, n_partitions, table.first_index, table.notes)


def learns_labels(app: str | None) -> bool:
    """Return whether an application may want labels; for others only a column that is named a label is no input."""
    return app not in WITHOUT_LABELS


def column_moments(x: NDArray[np.float32] | Csr) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and variance of each column, shape (columns,) each, in two passes of float64."""
    rows, columns = x.shape
    if isinstance(x, Csr):
        values, indices = x.data.astype(np.float64), x.indices
        mean = np.bincount(indices, values, columns) / rows
        squares = np.bincount(indices, (values - mean[indices]) ** 2, columns)
        zeros = rows - np.bincount(indices, minlength=columns)
        return mean, (squares + zeros * mean**2) / rows
    total, squared = np.zeros(columns), np.zeros(columns)
    for low in range(0, rows, _BLOCK):
        total += x[low : low + _BLOCK].sum(axis=0, dtype=np.float64)
    mean = total / rows
    for low in range(0, rows, _BLOCK):
        squared += ((x[low : low + _BLOCK] - mean) ** 2).sum(axis=0)
    return mean, squared / rows


def check_classes(source: str, classes: int, app: str | None) -> None:
    """Raise `InputError` if an application needs more classes than a source has."""
    least = _LEAST_CLASSES.get(app or "", 0)
    if classes < least:
        what = "all rows have one label" if classes else "the labels are numbers with fractions, which are no classes"
        raise InputError(f"data {source}: {what}; {app} wants at least {least} classes")


def deal(n_rows: int, n_partitions: int, seed: int) -> list[NDArray[np.int64]]:
    """Return the rows of each partition: a seeded permutation cut into runs whose lengths differ by at most one."""
    return np.array_split(np.random.default_rng(seed).permutation(n_rows), n_partitions)
