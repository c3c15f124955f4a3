"""Examples in CSV or TSV files, read by Arrow: one per line, numbers, and one column with the label."""

import csv
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from infra.datasets.formats.example_table import ExampleTable, unlabelled
from infra.errors import InputError
from infra.text_lines import (
    BYTE_ORDER_MARK,
    INDEX_NAMES,
    OPEN_QUOTE,
    breaks,
    cells,
    is_number,
    line_from,
    line_number,
    open_quote,
    shown,
)

#: A column of such a name holds the label.
LABEL_NAMES = ("label", "target", "class", "species")
#: And one of this name, for an application that learns labels: beside `x` it is a coordinate for any other.
_LABEL_ALSO = "y"
_TEXT = pa.dictionary(pa.int32(), pa.string())
#: Bytes per column in a block of Arrow's reader, so that a block has enough rows, and the bounds of a block's bytes.
_COLUMN_BLOCK, _LEAST_BLOCK, _LARGE_BLOCK = 1 << 13, 1 << 20, 1 << 26
#: A column takes some kilobytes, however short it is: a file may have so many, and one for so many bytes more.
_MOST_COLUMNS, _BYTES_PER_COLUMN = 50_000, 300
#: Arrow counts the bytes of a block in 32 bits.
_MOST_BLOCK = 2**31 - 2


@dataclass(frozen=True)
class _Layout:
    """Where the rows begin (byte), how many columns there are, which is the label (None: none), and its kind.

    `names` are those of the columns, empty without a header; `index`: the first column has no name and is left out.
    """

    start: int
    width: int
    label: int | None
    text: bool
    names: tuple[str, ...] = ()
    index: bool = False

    @property
    def n_inputs(self) -> int:
        """Columns that are neither the index nor the label."""
        return self.width - self.index - (self.label is not None)


def read_csv(
    source: str, data: bytes, delimiter: str, n_inputs: int | None = None, labels: bool = True
) -> ExampleTable:
    """Return the rows of a file with the content `data`; `source` is its name in errors.

    A first row with the name of a label column, or without a number, is a header. A first column that the header has no
    name for is an index of rows and left out. The label is in the column named `label`, `target`, `class`, `species` or
    `y` if there is exactly one such, else in the last.

    Parameters
    ----------
    n_inputs : of a model that is to be asked about the rows. So many columns, no more, are inputs without a label,
        unless
        a header names one or the last has a text. None: there is a label.
    labels : whether the application may want labels. Without it, all columns are inputs but one that the header names
        (`y` is no such name) or a last one that has texts.

    Raises
    ------
    InputError
        One line with the file and the line in it, counted from 1.
    """
    data = data.removeprefix(BYTE_ORDER_MARK)
    layout = _layout(source, data, delimiter, n_inputs, labels)
    notes = _notes(layout, labels) if n_inputs is None else _index_notes(layout)

    def place(row: int) -> str:
        return f"line {line_number(data, layout.start, row)}"

    try:
        table = _parse(data, layout, delimiter, serial=False)
    except pa.ArrowInvalid:
        try:
            table = _parse(data, layout, delimiter, serial=True)  # only this one counts rows and accepts any line
        except pa.ArrowInvalid as error:
            raise InputError(f"{source}: {_fault(data, layout, delimiter, str(error))}") from None
    if (line := open_quote(data, layout.start, table.num_rows, delimiter)) is not None:
        raise InputError(f"{source}: line {line}: {OPEN_QUOTE}")
    if layout.label is None:
        return unlabelled(_inputs(table), place, notes)
    label = table.column(str(layout.label))
    x = _inputs(table.drop_columns(str(layout.label)))
    if not layout.text:
        return ExampleTable(x, label.to_numpy(), place, notes=notes)
    texts, codes = _coded(label)
    numbers = [code for code, text in enumerate(texts) if is_number(text) or not text]
    if (fault := np.isin(codes, numbers)).any():
        row = int(fault.argmax())
        raise InputError(
            f"{source}: {place(row)}: label {texts[codes[row]][:40]!r} beside {texts[codes[0]][:40]!r}; write "
            f"all labels as "
            "numbers, or all as texts"
        )
    return ExampleTable(x, codes, place, tuple(texts), notes=notes)


def _notes(layout: _Layout, labels: bool) -> tuple[str, ...]:
    columns = f"{layout.n_inputs} column{'s are inputs' if layout.n_inputs > 1 else ' is the input'}"
    if layout.label is None:
        what = f"all {columns}; no column is named {', '.join(LABEL_NAMES[:-1])} or {LABEL_NAMES[-1]}"
    else:
        name = layout.names[layout.label] if layout.names else ""
        what = f"column {layout.label + 1}{f' ({shown(name)})' if name else ''} is the label"
        what += f", the other {columns}" if labels else f" and passed over, the other {columns}"
    return (what, *_index_notes(layout))


def _index_notes(layout: _Layout) -> tuple[str, ...]:
    return ("column 1 has no name: taken for an index of rows and left out",) if layout.index else ()


def _inputs(table: pa.Table) -> NDArray[np.float32]:
    x = np.empty((table.num_rows, table.num_columns), np.float32)
    low = 0
    for batch in table.to_batches():
        x[low : low + batch.num_rows] = batch.to_tensor(row_major=True).to_numpy()
        low += batch.num_rows
    return x


def _layout(source: str, data: bytes, delimiter: str, n_inputs: int | None, labels: bool) -> _Layout:
    first = line_from(data, 0)
    if first is None:
        raise InputError(f"{source}: is empty; give a file with one example a line")
    second = line_from(data, first[1])
    try:
        top = cells(data[slice(*first)], delimiter)
        below = cells(data[slice(*second)], delimiter) if second else []
    except csv.Error as error:
        raise InputError(f"{source}: the first rows: {error}; give a text file of numbers") from None
    place = f"line {breaks(data[: first[0]]) + 1}"
    label_names = (*LABEL_NAMES, _LABEL_ALSO) if labels else LABEL_NAMES
    marks = [index for index, name in enumerate(top) if name.lower() in label_names]
    header = bool(marks) or _is_header(source, place, top, below)
    index = header and len(top) > 1 and top[0].lower() in INDEX_NAMES
    n_named = len(top) - index
    if n_named < 2 and ((labels and n_inputs != 1) or marks):
        name = {",": "commas", "\t": "tabs"}[delimiter]
        raise InputError(f"{source}: {place}: has one column; want features and a label, with {name} between them")
    if len(top) > (most := _MOST_COLUMNS + len(data) // _BYTES_PER_COLUMN):
        raise InputError(
            f"{source}: {place}: has {len(top)} columns, and a file of {len(data)} bytes may have {most}; "
            f"give svmlight or npz"
        )
    if not header:
        text = not is_number(top[-1])
        bare = not text and (len(top) == n_inputs or not labels)
        return _Layout(first[0], len(top), None if bare else len(top) - 1, text)
    if not below:
        raise InputError(f"{source}: has a header and no rows; give at least two examples")
    if not labels and len(marks) > 1:
        both = " and ".join(shown(top[mark]) for mark in marks[:2])
        raise InputError(f"{source}: {place}: {both} may both be the label; rename one of them")
    label = marks[0] if len(marks) == 1 else len(top) - 1
    text = n_named > 1 and len(below) > label and bool(below[label]) and not is_number(below[label])
    bare = not marks and not text and (n_named == n_inputs or not labels)
    if nameless := [at for at, name in enumerate(top) if not name and at >= index and (bare or at != label)]:
        raise InputError(f"{source}: {place}: column {nameless[0] + 1} has no name; name it, or leave it out")
    return _Layout(first[1], len(top), None if bare else label, text, tuple(top), index)


def _is_header(source: str, place: str, top: list[str], below: list[str]) -> bool:
    """Return whether the first row is a header; refuse an ambiguous one."""
    numbers = [is_number(cell) for cell in top]
    if not any(numbers):
        return True
    if all(numbers[:-1]):  # text in the last column only: a label if the row below has one too
        return not numbers[-1] and len(below) == len(top) and is_number(below[-1])
    odd = top[numbers.index(False)]
    raise InputError(
        f"{source}: {place}: {shown(odd)} is no number, beside numbers; "
        "mend the value, or write a header without numbers"
    )


def _parse(data: bytes, layout: _Layout, delimiter: str, *, serial: bool) -> pa.Table:
    names = [str(index) for index in range(layout.width)]
    kinds = dict.fromkeys(names, pa.float32())
    if layout.label is not None:
        kinds[names[layout.label]] = _TEXT if layout.text else pa.float64()
    body = pa.py_buffer(data).slice(layout.start)
    block = min(_LARGE_BLOCK, max(_LEAST_BLOCK, _COLUMN_BLOCK * layout.width))
    if serial:
        block = min(_MOST_BLOCK, len(data) + 1)
    return pa_csv.read_csv(
        pa.BufferReader(body),
        read_options=pa_csv.ReadOptions(use_threads=not serial, column_names=names, block_size=block),
        parse_options=pa_csv.ParseOptions(delimiter=delimiter),
        convert_options=pa_csv.ConvertOptions(
            column_types=kinds,
            include_columns=names[1:] if layout.index else [],
            null_values=[],
            strings_can_be_null=False,
        ),
    )


def _coded(column: pa.ChunkedArray) -> tuple[list[str], np.ndarray]:
    """Return the distinct texts, stripped and sorted, and each row's index among them."""
    column = column.unify_dictionaries()
    texts = [text.strip() for text in column.chunk(0).dictionary.to_pylist()]
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in column.chunks])
    ordered = sorted(set(texts))
    rank = {text: index for index, text in enumerate(ordered)}
    return ordered, np.array([rank[text] for text in texts])[codes]


def _fault(data: bytes, layout: _Layout, delimiter: str, message: str) -> str:
    """Return what the CSV reader says, in one line of ours."""
    message = " ".join(message.split())
    row = re.search(r"Row #(\d+)", message)
    line = line_number(data, layout.start, int(row[1]) - 1) if row else None
    opened = open_quote(data, layout.start, None, delimiter)
    if opened is not None and (line is None or opened <= line):
        return f"line {opened}: {OPEN_QUOTE}"  # what comes after it is misread
    place = f"line {line}: " if line else ""
    if width := re.search(r"Expected (\d+) columns, got (\d+)", message):
        return f"{place}has {width[2]} columns and the first row {width[1]}; mend the row"
    if "UTF8" in message:
        return f"{place}the label is not UTF-8 text; mend it"
    if value := re.search(r"CSV column #(\d+).*invalid value '(.*)'", message):
        what = "the label" if int(value[1]) == layout.label else f"column {int(value[1]) + 1}"
        return f"{place}{what} is {shown(value[2])}; write a number"
    return f"{place}{message[:200]}; mend the file"
