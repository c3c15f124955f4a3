"""Tables as CSV, for programs and spreadsheets."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray


def csv_bytes(columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> bytes:
    """Return a CSV with a line of the columns' names; a text is in quotes where it has to be."""
    table = pa.table(dict(columns))
    sink = io.BytesIO()
    sink.write((",".join(table.column_names) + "\n").encode())
    pa_csv.write_csv(table, sink, pa_csv.WriteOptions(include_header=False, quoting_style="needed"))
    return sink.getvalue()
