"""Examples in svmlight (libsvm) files, read by Arrow: lines ``label index:value …``, zeros omitted."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from proteus_spot.infra.datasets.formats.example_table import ExampleTable
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.text_lines import BYTE_ORDER_MARK
from proteus_spot.psengine.apps.csr import Csr

#: A set stays sparse if its dense form would be more than this many times as large.
_WORTH_IT = 4
_MOST_INDEX = 2**31 - 1
#: Every blank ends the line of a feature.
_ONE_A_LINE = bytes.maketrans(b" \t\r\v\f", b"\n\n\n\n\n")


def read_svmlight(
    source: str, data: bytes, first_index: int | None = None, n_inputs: int | None = None
) -> ExampleTable:
    """Return the rows of a file with the content `data`; `source` is its name in errors.

    Indices count from `first_index`; if that is None, from 1, or from 0 if index 0 occurs. Comments (``#``) and query
    ids (``qid:``) are ignored. The inputs are compressed rows if their dense form would be more than 4 times as large,
    else dense.

    Parameters
    ----------
    n_inputs : of a model that is to be asked about the rows: features beyond are passed over. None: a comment
        ``# features: N`` before the first example says how many there are at least.

    Raises
    ------
    InputError
        One line with the file and the line in it, counted from 1.
    """
    data = data.removeprefix(BYTE_ORDER_MARK)
    if not data.strip():
        raise InputError(f"{source}: is empty; give a file with one example a line")
    try:
        y, indptr, indices, values = _parsed(data)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{source}: {_first_fault(data) or ' '.join(str(error).split())[:200]}") from None
    if len(y) and not len(indices):
        raise InputError(f"{source}: has labels and no features; write label index:value …")
    first = int(indices.min(initial=1) > 0) if first_index is None else first_index
    if (below := indices < first).any():
        row = int(np.searchsorted(indptr, below.argmax(), side="right")) - 1
        place = _line_number(data, row)
        raise InputError(f"{source}: line {place}: index 0, and the training data count from 1; number the features so")
    columns = max(int(indices.max(initial=-1)) + 1 - first, 0)
    sparse = Csr(values.astype(np.float32), (indices - first).astype(np.int32), indptr, columns)
    notes: tuple[str, ...] = ()
    if n_inputs is None:
        columns = max(columns, _declared_columns(source, data))
    elif columns > n_inputs:
        notes = (_unknown_note(data, sparse, n_inputs, first),)
        sparse = _without_columns_from(sparse, n_inputs)
        columns = n_inputs
    else:
        columns = n_inputs
    sparse = Csr(sparse.data, sparse.indices, sparse.indptr, columns)
    return ExampleTable(
        _fitting(sparse), y, lambda row: f"line {_line_number(data, row)}", first_index=first, notes=notes
    )


def _parsed(data: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return labels, the place of each row's first feature, indices and values; `ValueError` for any fault."""
    labels: list[bytes] = []
    features: list[bytes] = []
    counts: list[int] = []
    for line in data.split(b"\n"):
        label, rest = _first_word(line.partition(b"#")[0] if b"#" in line else line)
        if not label:
            continue
        labels.append(label)
        if rest.startswith(b"qid"):
            _, rest = _first_word(rest)
        counts.append(rest.count(b":"))
        features.append(rest)
    y = np.array([float(label) for label in labels])
    indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    if not indptr[-1]:
        if b"".join(features).strip():
            raise ValueError("a feature without a colon")
        return y, indptr, np.empty(0, np.int64), np.empty(0)
    table = pa_csv.read_csv(
        pa.py_buffer(b"\n".join(features).translate(_ONE_A_LINE).replace(b":+", b":")),
        read_options=pa_csv.ReadOptions(column_names=["index", "value"], use_threads=True),
        parse_options=pa_csv.ParseOptions(delimiter=":", quote_char=False),
        convert_options=pa_csv.ConvertOptions(
            column_types={"index": pa.int64(), "value": pa.float64()}, null_values=[], check_utf8=False
        ),
    )
    indices, values = table["index"].to_numpy(), table["value"].to_numpy()
    rises = np.diff(indices, prepend=-1) > 0
    rises[indptr[:-1][np.diff(indptr) > 0]] = True
    if len(indices) != indptr[-1] or not rises.all() or indices.min() < 0 or indices.max() > _MOST_INDEX:
        raise ValueError("features are not in ascending order")
    return y, indptr, indices, values


def _first_word(line: bytes) -> tuple[bytes, bytes]:
    words = line.split(None, 1)
    return (words[0] if words else b""), (words[1] if len(words) > 1 else b"")


def _declared_columns(source: str, data: bytes) -> int:
    head = re.match(rb"(?:[ \t]*(?:#[^\n]*)?\n)*", data)
    found = re.search(rb"^[ \t]*#[ \t]*features[ \t]*:[ \t]*(\d+)[ \t]*\r?$", head[0] if head else b"", re.MULTILINE)
    if found is None:
        return 0
    if len(found[1]) > len(str(_MOST_INDEX)) or int(found[1]) > _MOST_INDEX:
        line = data.count(b"\n", 0, found.start()) + 1
        raise InputError(f"{source}: line {line}: says more than {_MOST_INDEX} features; fix the number")
    return int(found[1])


def _unknown_note(data: bytes, x: Csr, n_inputs: int, first: int) -> str:
    unknown = np.flatnonzero(x.indices >= n_inputs)
    row = int(np.searchsorted(x.indptr, unknown[0], side="right")) - 1
    features = len(np.unique(x.indices[unknown]))
    return (
        f"{features} feature{'s' if features > 1 else ''} that the model was not trained on, of index "
        f"{n_inputs + first} or more, passed over: index {x.indices[unknown[0]] + first} in line "
        f"{_line_number(data, row)} is the first"
    )


def _without_columns_from(x: Csr, columns: int) -> Csr:
    fits = x.indices < columns
    indptr = np.concatenate([[0], np.cumsum(fits)])[x.indptr]
    return Csr(x.data[fits], x.indices[fits], indptr.astype(np.int64), columns)


def _fitting(x: Csr) -> Csr | np.ndarray:
    rows, columns = x.shape
    dense_bytes = rows * columns * x.data.itemsize
    return x if dense_bytes > _WORTH_IT * (x.data.nbytes + x.indices.nbytes + x.indptr.nbytes) else x.dense()


def _line_number(data: bytes, row: int) -> int:
    """Return the line number of an example, counted from 0; lines with only a comment are no examples."""
    seen = -1
    lines = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        seen += bool(line.partition(b"#")[0].strip())
        if seen == row:
            return number
    return len(lines)


def _first_fault(data: bytes) -> str | None:
    """Return the first fault with its line; called only if the fast reader has failed."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        parts = line.partition(b"#")[0].decode(errors="replace").split()
        if parts and (fault := _label_fault(parts[0]) or _features_fault(parts[1:])):
            return f"line {number}: {fault}"
    return None


def _label_fault(label: str) -> str | None:
    if ":" in label:
        return f"no label before {label[:40]!r}; write label index:value …"
    if "," in label:
        return f"several labels, {label[:40]!r}; give one an example"
    if _number(float, label) is None:
        return f"label {label[:40]!r} is not a number; write one"
    return None


def _features_fault(features: list[str]) -> str | None:
    last: float = -1
    for feature in features[1:] if features and features[0].startswith("qid") else features:
        name, colon, value = feature.partition(":")
        index = None if name.startswith("+") else _number(int, name)
        if not colon or index is None:
            return f"{feature[:40]!r} is not an index:value; write a whole number, a colon and a number"
        if index < 0 or index > _MOST_INDEX:
            return f"index {name[:40]} is below 0 or beyond {_MOST_INDEX}; number the features from 1"
        if index <= last:
            return f"index {index} comes after {last}; write each once, in ascending order"
        if _number(float, value) is None:
            return f"value {value[:40]!r} of index {index} is not a number; write one"
        last = index
    return None


def _number(kind: type[int] | type[float], text: str) -> float | None:
    try:
        return None if "_" in text else kind(text)
    except ValueError:
        return None
