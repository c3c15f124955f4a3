"""Arrays of any rank and type, the data of nets: read, hold out a part, cut the rest into partitions.

| source | arrays | partitions |
|---|---|---|
| `.npz` | those of the file; the first axis is the examples | rows, by a seeded permutation; a fifth is held out |
| `.txt` | `text`, its bytes (uint8) | runs of the text; the last fifth is held out |
| a table or a built-in set | `x` and `y` of labelled examples | as of [labelled examples] |
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.infra.datasets import examples as data_examples
from proteus_spot.infra.datasets.data_files import DATA_ENDINGS, form_of, read_content
from proteus_spot.infra.datasets.examples import ExampleSet, deal
from proteus_spot.infra.datasets.formats.reading import PLAIN, Reading, check_plain
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import BlobError, npz_arrays
from proteus_spot.psengine.apps.csr import Csr

Arrays = Mapping[str, NDArray[Any]]

#: Names that partitions have beside the arrays.
_TAKEN = ("ids", "first")
_NUMBERS = "biufc"
_SPLIT_SEED = 0
_HELD_OUT_SHARE = 5


@dataclass(frozen=True, slots=True)
class ArraySet:
    """The training and the held-out part of arrays (an `infra.datasets.kinds.Prepared`)."""

    train: Arrays
    held: Arrays
    n_partitions: int
    #: Rows in the source that are trained on.
    ids: NDArray[np.int64]
    #: Whether the order of the examples means something, as in a text.
    in_order: bool
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Number of examples to train on."""
        return _length(self.train)

    @property
    def heldout_rows(self) -> int:
        """Number of held-out examples."""
        return _length(self.held)

    @property
    def sizes(self) -> dict[str, int]:
        """Columns of `x` where it is a table, class numbers of `y` where it holds some, examples, partitions."""
        x, y = self.train.get("x"), self.train.get("y")
        classes = 0 if y is None or y.dtype.kind not in "iu" or y.min() < 0 else int(y.max()) + 1
        inputs = 0 if x is None or x.ndim != 2 else x.shape[1]
        return {
            "n_inputs": inputs,
            "n_classes": classes,
            "n_examples": self.rows,
            "n_partitions": self.n_partitions,
        }

    @property
    def about(self) -> dict[str, Any]:
        """There are no labels but numbers."""
        return {}

    def parts(self, seed: int) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield the arrays of each partition, with `ids`, the rows of it, and `first`, the rows before it."""
        first = 0
        every = np.arange(self.rows)
        dealt = np.array_split(every, self.n_partitions) if self.in_order else deal(self.rows, self.n_partitions, seed)
        for rows in dealt:
            arrays = {name: array[rows] for name, array in self.train.items()}
            yield arrays | {"ids": self.ids[rows], "first": np.asarray(first, np.int64)}
            first += len(rows)

    def heldout(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the held-out part."""
        return dict(self.held)


def read(source: str, n_partitions: int, app: str | None = None, how: Reading = PLAIN) -> ArraySet | ExampleSet:
    """Return the checked arrays of a source, a fifth of them held out.

    Raises
    ------
    InputError
        One line with the file and what is wrong with it.
    """
    arrays = read_new(source)
    if arrays is None:
        found = data_examples.read(source, n_partitions, app, how)
        if isinstance(found.train.x, Csr):
            raise InputError(f"data {source}: holds sparse examples; a net takes dense ones: give an .npz or a CSV")
        return found
    check_plain(source, how, "arrays")
    in_order = form_of(source) == ".txt"
    rows = _length(arrays)
    held = max(1, rows // _HELD_OUT_SHARE)
    if rows - held < n_partitions:
        raise InputError(f"data {source}: has {rows} examples, too few for {n_partitions} workers; want more data")
    order = np.arange(rows) if in_order else np.random.default_rng(_SPLIT_SEED).permutation(rows)
    train, out = (np.sort(part) for part in (order[: rows - held], order[rows - held :]))
    kept, held_out = ({name: array[part] for name, array in arrays.items()} for part in (train, out))
    return ArraySet(kept, held_out, n_partitions, train, in_order)


def read_new(source: str) -> dict[str, NDArray[Any]] | None:
    """Return all arrays of a source; None if it is a table of labelled examples, or a built-in set.

    Raises
    ------
    InputError
        One line with the file and what is wrong with it.
    """
    form = form_of(source)
    return _text(source) if form == ".txt" else _npz(source) if form == ".npz" else None


def _npz(source: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file, each with as many examples as the others.

    Raises
    ------
    InputError
        One line that names the array.
    """
    try:
        arrays = npz_arrays(read_content(source, DATA_ENDINGS, ()), source)
    except BlobError as error:
        raise InputError(str(error)) from None
    if not arrays:
        raise InputError(f"{source}: holds no arrays; want one at least, whose first axis is the examples")
    for name, array in arrays.items():
        if name in _TAKEN:
            raise InputError(f"{source}: array {name!r} has a name that partitions need; call it otherwise")
        if array.dtype.kind not in _NUMBERS:
            raise InputError(f"{source}: array {name!r} is of {array.dtype}; want numbers")
        if not array.ndim or len(array) != _length(arrays):
            lengths = ", ".join(f"{each} {arrays[each].shape}" for each in arrays)
            raise InputError(f"{source}: the arrays differ in their first axis, the examples: {lengths}")
    return dict(arrays)


def _text(source: str) -> dict[str, NDArray[Any]]:
    content = read_content(source, DATA_ENDINGS, ())
    if not content:
        raise InputError(f"{source}: is empty; want a text")
    return {"text": np.frombuffer(content, np.uint8)}


def _length(arrays: Arrays) -> int:
    first = next(iter(arrays.values()))
    return len(first) if first.ndim else 0
