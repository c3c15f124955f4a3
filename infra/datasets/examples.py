"""Labelled examples as a kind of data: read, check, hold out a part, partition the rest."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.infra.datasets.data_files import read_data
from proteus_spot.infra.datasets.formats.example_table import Examples, ExampleTable, examples, hold_out
from proteus_spot.infra.datasets.formats.reading import PLAIN, Reading
from proteus_spot.infra.errors import InputError
from proteus_spot.psengine.apps.csr import Csr
from proteus_spot.psengine.apps.registry import WITHOUT_LABELS

#: Minimum number of classes that an application needs; applications not listed accept any data.
_LEAST_CLASSES: Mapping[str, int] = MappingProxyType({"mlr": 2})

#: Columns whose means and standard deviations still travel with a job.
_MOST_SCALED = 16_384
#: Rows of which the moments are taken at once.
_BLOCK = 4096
#: The power method: its start, its steps, and how far it may be below the eigenvalue.
_CURVATURE_SEED, _POWERS, _MARGIN = 0, 30, 1.05


@dataclass(frozen=True, slots=True)
class ExampleSet:
    """The training and the held-out part of a source of examples (an `infra.datasets.kinds.Prepared`)."""

    train: Examples
    held: Examples
    n_partitions: int
    first_index: int | None = None
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    label_name: str | None = None
    fill: tuple[float, ...] = ()

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
        """What a model of the data needs to know of new ones, by the names of `infra.applications.trained_models`."""
        return {
            "labels": list(self.train.labels),
            "first_index": self.first_index,
            "inputs": list(self.columns),
            "label_name": self.label_name,
            "fill": list(self.fill),
        }

    def scales(self, standardize: bool | None = True) -> dict[str, Any]:
        """Return `input_mean` and `input_sd` of each column over the examples to train on, shape (columns,) each.

        Of dense inputs there is also `input_curvature` (see `curvature`).

        They depend on the source alone, whatever the number of parts. A column that never changes has a standard
        deviation of 1.

        Parameters
        ----------
        standardize : None: there are none of sparse inputs and of very many, and `standardize` beside the others.

        Raises
        ------
        InputError
            If there are so many columns that the nodes could not be sent these numbers with each order.
        """
        columns = self.train.x.shape[1]
        if standardize is None and (isinstance(self.train.x, Csr) or columns > _MOST_SCALED):
            return {}
        if columns > _MOST_SCALED:
            raise InputError(
                f"--param standardize: the data have {columns:,} columns, and at most {_MOST_SCALED:,} are "
                f"standardized; "
                "scale them in the file, and leave it out"
            )
        mean, variance = column_moments(self.train.x)
        scales: dict[str, Any] = {
            "input_mean": mean.tolist(),
            "input_sd": np.where(variance > 0, np.sqrt(variance), 1.0).tolist(),
        }
        if not isinstance(self.train.x, Csr):
            scales["input_curvature"] = curvature(self.train.x, mean, np.asarray(scales["input_sd"]))
        return scales if standardize else {**scales, "standardize": True}

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


def read(source: str, n_partitions: int, app: str | None = None, how: Reading = PLAIN) -> ExampleSet:
    """Return the checked examples of a source, a part of them held out.

    Where `how` fills in means, they are those of the columns over the examples to train on.

    Raises
    ------
    InputError
        For a file that cannot be read or used, data that `app` cannot learn from, or more partitions than rows.
    """
    labels = learns_labels(app)
    table = read_data(source, labels=labels, how=how)
    whole = examples(source, table, how.empty)
    check_classes(source, len(whole.labels), app)
    train, held = hold_out(source, table, whole, labels)
    if n_partitions > len(train):
        raise InputError(
            f"data {source}: has {len(train)} rows to train on, too few for {n_partitions} parts; "
            f"give --partitions {len(train)} or fewer (partitions of a job)"
        )
    fill: tuple[float, ...] = ()
    notes = table.notes
    if how.empty == "mean" and not isinstance(train.x, Csr) and not isinstance(held.x, Csr):
        fill = _means(source, table, train.x)
        filled = sum(fill_in(x, fill) for x in (train.x, held.x))
        notes += (f"{filled} empty cells hold the mean of their columns over the rows to train on",) if filled else ()
    if dropped := len(table.y) - len(whole):
        notes += (f"{dropped} of {len(table.y)} rows have an empty cell and are left out",)
    return ExampleSet(train, held, n_partitions, table.first_index, notes, table.columns, table.label_name, fill)


def _means(source: str, table: ExampleTable, x: NDArray[np.float32]) -> tuple[float, ...]:
    """Return the mean of each column over its cells with a value."""
    gaps = np.isnan(x)
    counts = len(x) - gaps.sum(axis=0)
    if not counts.all():
        column = table.column(int(counts.argmin()))
        raise InputError(f"data {source}: {column} has no value in the rows to train on; leave it out of the file")
    sums: NDArray[np.float64] = np.where(gaps, np.float32(0), x).sum(axis=0, dtype=np.float64)
    return tuple((sums / counts).tolist())


def fill_in(x: NDArray[np.float32], means: Sequence[float] | NDArray[np.float64]) -> int:
    """Put the mean of its column into each cell without a value; return how many there were."""
    rows, columns = np.nonzero(np.isnan(x))
    x[rows, columns] = np.asarray(means, np.float64)[columns]
    return len(rows)


def learns_labels(app: str | None) -> bool:
    """Return whether an application may want labels; for others only a column that is named a label is not an input."""
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


def curvature(x: NDArray[np.float32], mean: NDArray[np.float64], sd: NDArray[np.float64]) -> float:
    """Return a bound of the largest eigenvalue of the covariance of standardized inputs, at least 1.

    It is that of rows at equal distances, by the power method, with a margin; two digits of it, so that it does not
    depend on the order in which a machine adds.
    """
    rows = x[:: -(-len(x) // _BLOCK)]
    scaled = (rows - mean) / sd
    vector: NDArray[np.float64] = np.random.default_rng(_CURVATURE_SEED).standard_normal((x.shape[1],))
    largest = 1.0
    for _ in range(_POWERS):
        vector /= max(float(np.linalg.norm(vector)), 1e-300)
        vector = scaled.T @ (scaled @ vector) / len(rows)
        largest = max(largest, float(np.linalg.norm(vector)))
    bound = largest * _MARGIN
    digits = 10.0 ** (math.floor(math.log10(bound)) - 1)
    return round(math.ceil(bound / digits) * digits, 6)


def check_classes(source: str, classes: int, app: str | None) -> None:
    """Raise `InputError` if an application needs more classes than a source has."""
    least = _LEAST_CLASSES.get(app or "", 0)
    if classes < least:
        what = "all rows have one label" if classes else "the labels are numbers with fractions, which are no classes"
        fix = "; bgd learns numbers" if not classes else ""
        raise InputError(f"data {source}: {what}; {app} wants at least {least} classes{fix}")


def deal(n_rows: int, n_partitions: int, seed: int) -> list[NDArray[np.int64]]:
    """Return the rows of each partition: a seeded permutation cut into runs whose lengths differ by at most one."""
    return np.array_split(np.random.default_rng(seed).permutation(n_rows), n_partitions)
