"""Predictions of a trained model for the rows of a data file, and their accuracy."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.infra.applications.prediction_inputs import NewData, read_new
from proteus_spot.infra.applications.trained_models import ModelAbout, load_model
from proteus_spot.infra.errors import InputError, ProteusError
from proteus_spot.psengine.apps.base import Predicts
from proteus_spot.psengine.apps.returned import predictions_of
from proteus_spot.psengine.tables.allowed_values import WrongValue
from proteus_spot.studies.prediction.csv_tables import csv_bytes

_CLASS = "class"
#: Maximum number of the model's labels that an error lists.
_FEW = 10


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions for the rows of a source.

    Attributes
    ----------
    model, source : URL of the model, and the data that was read.
    app : the application.
    name : what the values are; heads their column.
    rows : int64 of shape (n,), rows in the source, counted from 0.
    values : shape (n,) or (n, m): labels of classes, or the application's own values.
    likeliest : shape (n,), which of m values is the largest, where they are shares of something; else None.
    accuracy : share of the rows whose label is the predicted one; None where they have none, or values are no labels.
    rmse : root of the mean squared error, where the rows have ratings or a numeric target; else None.
    notes : a line for each way in which the source was read that its author may not expect.
    """

    model: str
    source: str
    app: str
    name: str
    rows: NDArray[np.int64]
    values: NDArray[Any]
    likeliest: NDArray[np.int64] | None = None
    accuracy: float | None = None
    rmse: float | None = None
    notes: tuple[str, ...] = ()

    def as_csv(self) -> bytes:
        """Return a CSV of the row in the source, counted from 0, and the values, after the number of the largest."""
        columns = {"row": self.rows}
        if self.likeliest is not None:
            columns[self.name] = self.likeliest
        if self.values.ndim == 1:
            columns[self.name] = self.values
        else:
            columns |= {f"{self.name}_{index}": column for index, column in enumerate(self.values.T)}
        return csv_bytes(
            {name: column.tolist() if column.dtype == object else column for name, column in columns.items()}
        )

    def summary(self) -> str:
        """Return the number of rows and the accuracy of their predictions, for a terminal."""
        rightly = "" if self.accuracy is None else f", {self.accuracy:.4f} of them as their labels say"
        off = "" if self.rmse is None else f", rmse {self.rmse:.4f} from their {self.name}s"
        return f"{len(self.values)} rows{rightly}{off}"

    def figures(self) -> dict[str, Any]:
        """Return the other figures, JSON-able."""
        source = {"model": self.model, "app": self.app, "data": self.source, "rows": len(self.values)}
        return {**source, "predicts": self.name, "accuracy": self.accuracy, "rmse": self.rmse}


def predict(
    model: str, source: str, app: str = "", code: str = "", labels: bool = True, label: str = ""
) -> Predictions:
    """Return the predictions of a model for the rows of a data file.

    Parameters
    ----------
    model, app, code : as of `infra.applications.trained_models.load_model`.
    source : a built-in set, or path or fsspec URL of a data file.
    labels : whether the labels of the source are compared with the predictions.
    label : name of the column of the labels, where it is another than the training data's.

    Raises
    ------
    InputError
        One line: a model or data that cannot be read or do not fit each other, an application that predicts nothing, a
        label that is none of the model's classes.
    """
    with tempfile.TemporaryDirectory(prefix="proteus-code-") as directory:
        made, tables, about = load_model(model, app, code, Path(directory))
        if not isinstance(made, Predicts):
            missing = "attribute predicts" if hasattr(made, "predict") else "method predict"
            raise InputError(f"{about.url}: app {about.app} predicts nothing; it has no {missing}")
        found = read_new(source, about, labels, label)
        classes = made.predicts == _CLASS and bool(about.labels)
        if classes:
            _check_labels(about, source, found)
        values = _ask(made, tables, found, about, source)
    origin = (about.url, source, about.app, made.predicts, found.rows)
    kind = about.kind
    if classes:
        values = np.array(about.labels, object)[values]
        accuracy = None if found.known is None else float((values == found.known).mean())
        return Predictions(*origin, values, accuracy=accuracy, notes=found.notes)
    if made.predicts == _CLASS and found.known is not None and found.known.shape == values.shape:
        return Predictions(*origin, values, accuracy=float((values == found.known).mean()), notes=found.notes)
    if found.known is not None and values.ndim == 1 and (kind == "ratings" or _is_numeric(about, found, values)):
        rmse = float(np.sqrt(np.mean((np.float64(values) - np.float64(found.known)) ** 2)))
        return Predictions(*origin, values, rmse=rmse, notes=found.notes)
    likeliest = values.argmax(axis=1) if kind == "documents" else None
    return Predictions(*origin, values, likeliest=likeliest, notes=found.notes)


def _is_numeric(about: ModelAbout, found: NewData, values: NDArray[Any]) -> bool:
    """Return whether model and data have a target of numbers; whole ones in the data are read as labels."""
    if about.labels or found.known is None or values.dtype.kind != "f":  # integers number clusters or classes
        return False
    return found.known.dtype.kind == "f" or all(isinstance(label, int | float) for label in found.known.tolist())


def _check_labels(about: ModelAbout, source: str, found: NewData) -> None:
    """Refuse a label that the model cannot predict: the accuracy would be that of other data."""
    if found.known is None:
        return
    labels = set(about.labels)
    row, label = next(((row, label) for row, label in enumerate(found.known.tolist()) if label not in labels), (-1, ""))
    if row < 0:
        return
    examples = ", ".join(map(repr, about.labels[:_FEW])) + (", …" if len(about.labels) > _FEW else "")
    raise InputError(
        f"{source}: {found.place(row)}: label {label!r} is none of the model's {len(labels)} classes ({examples}); "
        "fix it, or have labels passed over by --no-labels"
    )


def _ask(
    made: Predicts, tables: Mapping[str, NDArray[Any]], found: NewData, about: ModelAbout, source: str
) -> NDArray[Any]:
    """Return the application's predictions, checked to be a value for each row."""
    try:
        values = made.predict(tables, found.arrays)
    except ValueError as error:
        raise InputError(f"{source}: does not fit the model {about.url}: {str(error).splitlines()[0]}") from None
    except Exception as error:  # a user's application may raise anything
        raise ProteusError(f"app {about.app}: its predict failed: {type(error).__name__}: {error}") from error
    try:
        return predictions_of(made.predict, values, len(found))
    except WrongValue as error:
        raise ProteusError(f"app {about.app}: {error}") from None
