"""Examples in CSV or TSV files, read by Arrow: one per line, numbers, and one column with the label."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from proteus_spot.infra.datasets.formats.csv_labels import NO_VALUE, LabelFault, labels_of
from proteus_spot.infra.datasets.formats.csv_layout import LABEL_NAMES, CsvLayout, find_layout
from proteus_spot.infra.datasets.formats.example_table import ExampleTable, unlabelled
from proteus_spot.infra.datasets.formats.reading import PLAIN, Reading
from proteus_spot.infra.datasets.formats.separators import TableText, table_text
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.text_lines import (
    BYTE_ORDER_MARK,
    OPEN_QUOTE,
    is_number,
    line_from,
    line_number,
    open_quote,
    shown,
)

_TEXT = pa.dictionary(pa.int32(), pa.string())
#: Bytes per column in a block of Arrow's reader, so that a block has enough rows, and the bounds of a block's bytes.
_COLUMN_BLOCK, _LEAST_BLOCK, _LARGE_BLOCK = 1 << 13, 1 << 20, 1 << 26
#: Arrow counts the bytes of a block in 32 bits.
_MOST_BLOCK = 2**31 - 2
#: Number of columns that an error lists.
_FEW = 6
#: Rows from which on a column that counts them is worth a note.
_LEAST_COUNTED = 10


def read_csv(
    source: str,
    data: bytes,
    delimiter: str,
    n_inputs: int | None = None,
    labels: bool = True,
    how: Reading = PLAIN,
) -> ExampleTable:
    """Return the rows of a file with the content `data`; `source` is its name in errors.

    A first row with the name of a label column, or without a number, is a header. A first column that the header has no
    name for is an index of rows and left out. The label is in the column that `how` names, else in the one named
    `label`, `target`, `class`, `species` or `y`, else in the last. Cells of inputs without a value become NaN
    (`infra.datasets.formats.example_table.examples` says what becomes of them).

    Parameters
    ----------
    delimiter : what separates cells by the ending of the name; another one is taken where the first line lacks it.
    n_inputs : of a model that is to be asked about the rows. So many columns, no more, are inputs without a label,
        unless a header names one or the last has a text. None: there is a label.
    labels : whether the application may want labels. Without it, all columns are inputs but one that the header names
        (`y` is no such name) or a last one that has texts.

    Raises
    ------
    InputError
        One line with the file and the line in it, counted from 1.
    """
    text = table_text(source, data.removeprefix(BYTE_ORDER_MARK), delimiter)
    layout = find_layout(source, text, n_inputs, labels, how)

    def place(row: int) -> str:
        return f"line {line_number(text.data, layout.start, row)}"

    def describe(at: int) -> str:
        return layout.column(layout.inputs[at])

    table = _table(source, text, layout)
    if (line := open_quote(text.data, layout.start, table.num_rows, text.delimiter)) is not None:
        raise InputError(f"{source}: line {line}: {OPEN_QUOTE}")
    x = _inputs(table.select([str(column) for column in layout.inputs]))
    notes: tuple[str, ...] = (
        (f"read as columns with {text.separators} between them",) if text.delimiter != delimiter else ()
    )
    if n_inputs is None:
        notes += (*_notes(layout, labels), *_index_notes(layout), *_counting_notes(layout, x))
    else:
        notes += (*_index_notes(layout), *layout.notes)
    if layout.label is None:
        return unlabelled(x, place, notes, layout.input_names, describe)
    try:
        y, texts = labels_of(table.column(str(layout.label)), text.decimal_comma, how)
    except LabelFault as fault:
        raise InputError(f"{source}: {place(fault.row)}: {fault.why}") from None
    return ExampleTable(
        x, y, place, texts, notes=notes, columns=layout.input_names, label_name=layout.label_name, describe=describe
    )


def _notes(layout: CsvLayout, labels: bool) -> tuple[str, ...]:
    n_inputs = len(layout.inputs)
    columns = f"{n_inputs} column{'s are inputs' if n_inputs > 1 else ' is the input'}"
    if layout.label is None:
        return (f"all {columns}; no column is named {', '.join(LABEL_NAMES[:-1])} or {LABEL_NAMES[-1]}",)
    what = f"{layout.column(layout.label)} is the label"
    return (what + (f", the other {columns}" if labels else f" and passed over, the other {columns}"),)


def _index_notes(layout: CsvLayout) -> tuple[str, ...]:
    return ("column 1 has no name: taken for an index of rows and left out",) if layout.index else ()


def _counting_notes(layout: CsvLayout, x: NDArray[np.float32]) -> tuple[str, ...]:
    """Return a note on each input that counts the rows: a model learns the order of the file from it."""
    if len(x) < _LEAST_COUNTED:
        return ()
    likely = np.flatnonzero((x[1] - x[0] == 1) & (x[-1] - x[0] == len(x) - 1))
    counting = [at for at in likely if np.array_equal(np.diff(x[:, at]), np.ones(len(x) - 1))]
    return tuple(
        f"{layout.column(layout.inputs[at])} counts the rows, and is an input; leave it out of the file if it is none"
        for at in counting
    )


def _inputs(table: pa.Table) -> NDArray[np.float32]:
    x = np.empty((table.num_rows, table.num_columns), np.float32)
    low = 0
    for batch in table.to_batches():
        x[low : low + batch.num_rows] = batch.to_tensor(null_to_nan=True, row_major=True).to_numpy()
        low += batch.num_rows
    return x


def _table(source: str, text: TableText, layout: CsvLayout) -> pa.Table:
    try:
        return _parse(text, layout, serial=False)
    except pa.ArrowInvalid:
        pass
    try:
        return _parse(text, layout, serial=True, no_value=NO_VALUE)  # only this one counts rows and accepts any line
    except pa.ArrowInvalid as error:
        raise InputError(f"{source}: {_fault(text, layout, str(error))}") from None


def _parse(text: TableText, layout: CsvLayout, *, serial: bool, no_value: tuple[str, ...] = ()) -> pa.Table:
    names = [str(index) for index in range(layout.width)]
    wanted = [names[column] for column in layout.inputs]
    kinds = dict.fromkeys(wanted, pa.float32())
    if layout.label is not None:
        wanted.append(names[layout.label])
        kinds[wanted[-1]] = _TEXT if layout.text else pa.string()
    block = min(_LARGE_BLOCK, max(_LEAST_BLOCK, _COLUMN_BLOCK * layout.width))
    if serial:
        block = min(_MOST_BLOCK, len(text.data) + 1)
    return pa_csv.read_csv(
        pa.BufferReader(pa.py_buffer(text.data).slice(layout.start)),
        read_options=pa_csv.ReadOptions(use_threads=not serial, column_names=names, block_size=block),
        parse_options=pa_csv.ParseOptions(delimiter=text.delimiter),
        convert_options=pa_csv.ConvertOptions(
            column_types=kinds,
            include_columns=wanted,
            null_values=no_value,
            strings_can_be_null=False,
            decimal_point="," if text.decimal_comma else ".",
        ),
    )


def _fault(text: TableText, layout: CsvLayout, message: str) -> str:
    """Return what the CSV reader says, in one line of ours."""
    message = " ".join(message.split())
    row = re.search(r"Row #(\d+)", message)
    line = line_number(text.data, layout.start, int(row[1]) - 1) if row else None
    opened = open_quote(text.data, layout.start, None, text.delimiter)
    if opened is not None and (line is None or opened <= line):
        return f"line {opened}: {OPEN_QUOTE}"  # what comes after it is misread
    place = f"line {line}: " if line else ""
    if width := re.search(r"Expected (\d+) columns, got (\d+)", message):
        return f"{place}has {width[2]} columns and the first row {width[1]}; fix the row"
    if "UTF8" in message:
        return f"{place}the label is not UTF-8 text; fix it"
    if value := re.search(r"CSV column #(\d+).*invalid value '(.*)'", message):
        column = int(value[1])  # counted from 0
        return (
            f"{place}{layout.column(column)} is {shown(value[2])}; write a number{_other_texts(text, layout, column)}"
        )
    return f"{place}{message[:200]}; fix the file"


def _other_texts(text: TableText, layout: CsvLayout, column: int) -> str:
    """Return how many inputs are texts in the first row, and which, if an input is one of several."""
    line = line_from(text.data, layout.start)
    row = [] if line is None else text.cells(text.data[slice(*line)])
    texts = [at for at in layout.inputs if at < len(row) and row[at] not in NO_VALUE and not is_number(row[at])]
    if column not in texts:
        return ""
    advice = ", as a column of 0 and 1 for each value, or leave the column out"
    if len(texts) == 1:
        return advice
    some = ", ".join(map(layout.column, texts[:_FEW])) + (", …" if len(texts) > _FEW else "")
    return f"{advice} ({len(texts)} inputs are texts: {some})"
