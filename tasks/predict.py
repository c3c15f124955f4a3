"""What a trained model says of new examples."""

import io
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from infra.data_files import form_of, read_data
from infra.errors import InputError, ProteusError
from infra.examples import Examples, examples
from infra.models import ModelAbout, load_model
from psengine.apps.base import Predicts
from psengine.apps.sparse import Csr

#: Forms that leave zeros out, so that a file may seem to have fewer columns than it has.
_SPARSE_FORMS = (".svm", ".svmlight", ".libsvm", ".txt")
_CLASS = "class"


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions for the rows of a source.

    Attributes
    ----------
    model, source : where the model lies, and what was read.
    app : the application.
    name : what the values are; heads their column.
    values : shape (rows,) or (rows, m): labels of classes, or what the application says.
    accuracy : share of the rows whose label is the predicted one; None where values are no labels of this data.
    """

    model: str
    source: str
    app: str
    name: str
    values: NDArray[Any]
    accuracy: float | None

    def as_csv(self) -> bytes:
        """Return a CSV of the row in the source, counted from 0, and the values."""
        columns = [self.values] if self.values.ndim == 1 else list(self.values.T)
        names = [self.name] if self.values.ndim == 1 else [f"{self.name}_{index}" for index in range(len(columns))]
        texts = [column.tolist() if column.dtype == object else column for column in columns]
        table = pa.table([pa.array(np.arange(len(self.values))), *map(pa.array, texts)], names=["row", *names])
        sink = io.BytesIO()
        sink.write((",".join(table.column_names) + "\n").encode())
        pa_csv.write_csv(table, sink, pa_csv.WriteOptions(include_header=False, quoting_style="needed"))
        return sink.getvalue()

    def figures(self) -> dict[str, Any]:
        """Return what there is to say besides, JSON-able."""
        told = {"model": self.model, "app": self.app, "data": self.source, "rows": len(self.values)}
        return {**told, "predicts": self.name, "accuracy": self.accuracy}


def predict(model: str, source: str, app: str = "", code: str = "") -> Predictions:
    """Return what a model says of the rows of a data file.

    Parameters
    ----------
    model, app, code : as of `infra.models.load_model`.
    source : a built-in set, or path or fsspec URL of a data file.

    Raises
    ------
    InputError
        One line: a model or data that cannot be read or do not fit each other, an application that predicts nothing.
    """
    with tempfile.TemporaryDirectory(prefix="proteus-code-") as place:
        made, tables, about = load_model(model, app, code, Path(place))
        if not isinstance(made, Predicts):
            raise InputError(f"{about.url}: app {about.app} predicts nothing; it has no method predict")
        found = _fitting(about, source, examples(source, read_data(source, about.first_index)))
        values = _ask(made, tables, found, about, source)
    if made.predicts != _CLASS or not about.labels:
        return Predictions(about.url, source, about.app, made.predicts, values, None)
    names = np.array(about.labels, object)[values]
    own = np.array(found.labels, object)[found.y] if found.labels else None
    return Predictions(
        about.url, source, about.app, _CLASS, names, None if own is None else float((names == own).mean())
    )


def _ask(
    made: Predicts, tables: Mapping[str, NDArray[Any]], found: Examples, about: ModelAbout, source: str
) -> NDArray[Any]:
    """Return what the application says, once it is a value for each row."""
    try:
        values = np.asarray(made.predict(tables, found.arrays()))
    except ValueError as error:
        raise InputError(f"{source}: does not fit the model {about.url}: {str(error).splitlines()[0]}") from None
    except Exception as error:  # a user's own application may raise whatever it likes
        raise ProteusError(f"app {about.app}: its predict failed: {type(error).__name__}: {error}") from error
    if values.ndim not in (1, 2) or len(values) != len(found):
        raise ProteusError(
            f"app {about.app}: predicts values of shape {values.shape} for {len(found)} rows; want one a row"
        )
    return values


def _fitting(about: ModelAbout, source: str, found: Examples) -> Examples:
    """Return the examples with as many columns as the model was trained on; one line where they have others."""
    wanted, width = about.app_params.get("n_inputs"), found.x.shape[1]
    if not isinstance(wanted, int) or width == wanted:
        return found
    if width > wanted or form_of(source) not in _SPARSE_FORMS:
        raise InputError(
            f"{source}: has {width} features, and the model {about.url} was trained on {wanted}; give data of that kind"
        )
    x = found.x
    if isinstance(x, Csr):
        wider: NDArray[np.float32] | Csr = Csr(x.data, x.indices, x.indptr, wanted)
    else:
        wider = np.pad(x, ((0, 0), (0, wanted - width)))
    return Examples(wider, found.y, found.ids, found.labels)
