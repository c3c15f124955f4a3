"""New data for a trained model: read like its training data, with the same numbers for classes, users and items."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.infra.applications.trained_models import ModelAbout
from proteus_spot.infra.datasets import documents as data_documents
from proteus_spot.infra.datasets import ratings as data_ratings
from proteus_spot.infra.datasets.arrays import read_new as read_new_arrays
from proteus_spot.infra.datasets.data_files import read_data
from proteus_spot.infra.datasets.examples import fill_in, learns_labels
from proteus_spot.infra.datasets.formats.example_table import ExampleTable, examples, unlabelled
from proteus_spot.infra.datasets.formats.reading import Reading
from proteus_spot.infra.errors import InputError
from proteus_spot.psengine.apps.csr import Csr


@dataclass(frozen=True, slots=True)
class NewData:
    """Data for a prediction.

    Attributes
    ----------
    arrays : the arrays of a partition, as the application's `predict` expects them.
    rows : int64 of shape (n,), rows in the source, counted from 0.
    known : shape (n,), the true value of each as given in the source: its label, or its rating (float32); None if the
        source has none.
    place : callable
        Names the place of the nth of them, in the words of the form.
    notes : how the source was read, where that may not be what its author expects; a line each.
    """

    arrays: Mapping[str, NDArray[Any]]
    rows: NDArray[np.int64]
    known: NDArray[Any] | None
    place: Callable[[int], str]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)


def read_new(source: str, about: ModelAbout, labels: bool = True, label: str = "") -> NewData:
    """Return the data of a source for a model, of the kind that it was trained on.

    Parameters
    ----------
    source : a built-in set, or path or fsspec URL of a data file.
    labels : whether the source's examples have labels.
    label : name of the column of the labels; empty: as the training data called it, or by convention.

    Raises
    ------
    InputError
        One line: the source cannot be read, has other columns than the model, or contains users, items or words that
        the model does not know.
    """
    kind = about.kind
    if kind not in ("examples", "arrays") and not labels:
        raise InputError(f"--no-labels: {about.url} is a model of app {about.app}, whose data have none; leave it out")
    if kind not in ("examples", "arrays") and label:
        raise InputError(
            f"--label {label}: {about.url} is a model of app {about.app}, whose data have none; leave it out"
        )
    return _READERS[kind](source, about, labels, label)


def _examples(source: str, about: ModelAbout, labels: bool, label: str) -> NewData:
    n_inputs = about.app_params.get("n_inputs")
    texts = any(isinstance(each, str) for each in about.labels)
    how = Reading(label, inputs=about.inputs, known_label=about.label_name, text_labels=texts)
    table = read_data(
        source, about.first_index, n_inputs if isinstance(n_inputs, int) else None, learns_labels(about.app), how
    )
    if not about.inputs and table.columns:
        note = "the model does not know the names of its inputs: columns are taken by their places"
        table = replace(table, notes=(*table.notes, note))
    if not labels:
        table = unlabelled(table.x, table.place, table.notes, table.columns)
    _check_width(about, source, table)
    notes = table.notes
    if about.fill and not isinstance(table.x, Csr) and (filled := fill_in(table.x, about.fill)):
        notes += (f"{filled} empty cells hold the mean of their columns in the training data",)
    found = examples(source, table, fix="fill them, or leave the rows out")
    known = None
    if table.labelled:
        known = np.array(found.labels, object)[found.y] if found.labels else found.y
    return NewData(found.arrays(), found.ids, known, table.place, notes)


def _check_width(about: ModelAbout, source: str, table: ExampleTable) -> None:
    wanted, width = about.app_params.get("n_inputs"), table.x.shape[1]
    if isinstance(wanted, int) and width != wanted:
        taken = f" (of its {width + 1} columns one is taken for the label)" if table.labelled and table.describe else ""
        raise InputError(
            f"{source}: has {width} features, and the model {about.url} was trained on {wanted}; "
            f"give data of that kind, with or without a label{taken}"
        )


def _arrays(source: str, about: ModelAbout, labels: bool, label: str) -> NewData:
    arrays = read_new_arrays(source)
    if arrays is None:
        return _examples(source, about, labels, label)
    rows = np.arange(len(next(iter(arrays.values()))), dtype=np.int64)
    known = arrays.pop("y", None)
    return NewData(arrays, rows, known if labels and known is not None and known.ndim == 1 else None, _row)


def _row(row: int) -> str:
    return f"row {row}"


def _pairs(source: str, about: ModelAbout, labels: bool, label: str) -> NewData:
    del labels, label
    if not about.names:
        raise InputError(f"{about.url}: does not hold the names of users and items; train it again")
    found = data_ratings.read_new(source, about.names["user_names"], about.names["item_names"])
    arrays = {"users": found.users, "items": found.items}
    return NewData(arrays, np.arange(len(found.users)), found.values, found.place, found.notes)


def _documents(source: str, about: ModelAbout, labels: bool, label: str) -> NewData:
    del labels, label
    found = data_documents.read_new(source, int(about.app_params["n_words"]))
    return NewData(found.arrays(), found.ids, None, lambda row: f"document {found.ids[row]}")


_READERS: Mapping[str, Callable[[str, ModelAbout, bool, str], NewData]] = MappingProxyType(
    {"arrays": _arrays, "examples": _examples, "ratings": _pairs, "documents": _documents}
)
