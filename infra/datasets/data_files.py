"""The data that a user names: a built-in set, or a file by path or fsspec URL.

The ending of the name gives the form, or the content if the ending is unknown; whether the content is
compressed, by the content.
"""

import io
import lzma
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from proteus_spot.infra.datasets.formats.csv_examples import read_csv
from proteus_spot.infra.datasets.formats.example_table import ExampleTable, unlabelled
from proteus_spot.infra.datasets.formats.idx import IDX_ENDINGS, labels_beside, read_idx, read_images
from proteus_spot.infra.datasets.formats.reading import PLAIN, Reading
from proteus_spot.infra.datasets.formats.separators import check_is_table, has_columns_between_blanks
from proteus_spot.infra.datasets.formats.svmlight import read_svmlight
from proteus_spot.infra.errors import InputError, check_fetched
from proteus_spot.infra.files import as_utf8, has_mark, is_there, read_whole
from proteus_spot.infra.storage.blobs import BlobError, npz_arrays
from proteus_spot.infra.text_lines import BYTE_ORDER_MARK

#: Endings of a data file's name, each also followed by one of `PACKED_ENDINGS`.
DATA_ENDINGS = (".npz", ".csv", ".tsv", ".svm", ".svmlight", ".libsvm", ".txt", *IDX_ENDINGS)
PACKED_ENDINGS = (".gz", ".bz2", ".zst", ".xz")

#: How a compressed content begins; each group is Arrow's name of its codec, but for xz, which Arrow does not unpack.
_PACKED = re.compile(rb"(?P<gzip>\x1f\x8b)|(?P<bz2>BZh[1-9]1AY&SY)|(?P<zstd>\x28\xb5\x2f\xfd)|(?P<xz>\xfd7zXZ\0)")
#: Bytes that are unpacked at once.
_UNPACKED_AT_ONCE = 2**24
#: A text does not unpack to this many times its packed size; a stream made to fill the memory does. Small ones may.
_MOST_RATIO, _UNPACKED_FREELY = 500, 2**27
#: Bytes by which a content is known for text or not, and the first ones of a zip archive, as a `.npz` is one.
_HEAD, _ZIP_MAGIC = 4096, b"PK\x03\x04"
#: The form of a table of numbers between blanks, which no ending promises; and what separates the cells of each.
_BLANKS = " "
_SEPARATORS: Mapping[str, str] = MappingProxyType({".csv": ",", ".tsv": "\t", _BLANKS: _BLANKS})
_FORM_NAMES: Mapping[str, str] = MappingProxyType(
    {
        ".npz": "npz",
        ".csv": "CSV",
        ".tsv": "TSV",
        _BLANKS: "a table with blanks",
        ".svm": "svmlight",
        IDX_ENDINGS[0]: "IDX",
    }
)


def _digits() -> ExampleTable:
    rows = np.loadtxt(Path(__file__).with_name("digits.csv.gz"), delimiter=",")
    return ExampleTable((rows[:, :-1] / 16.0).astype(np.float32), rows[:, -1].astype(int), lambda row: f"row {row}")


#: Loaders of the built-in sets by name.
BUILT_IN: Mapping[str, Callable[[], ExampleTable]] = MappingProxyType({"digits": _digits})


def form_of(source: str, endings: Sequence[str] = DATA_ENDINGS) -> str | None:
    """Return the one of `endings` that `source` has; None if it has none of them."""
    name = _plain(source.lower())
    return next((ending for ending in endings if name.endswith(ending)), None)


def read_data(
    source: str,
    first_index: int | None = None,
    n_inputs: int | None = None,
    labels: bool = True,
    how: Reading = PLAIN,
) -> ExampleTable:
    """Return what a built-in set or a data file holds; `infra.datasets.formats.example_table.examples` checks it.

    Parameters
    ----------
    first_index : from where an svmlight file counts its features; None where the file is to say it.
    n_inputs : of a model that is to be asked about the rows, which may then lack labels: see `data_csv.read_csv` for a
        CSV, a `.npz` has no `y`, beside images lie none; an svmlight file always has them. None: labels must be there.
    labels : whether the application may want labels; without it they may be absent in every form but svmlight.
    how : which columns of a CSV are meant.

    Raises
    ------
    InputError
        One line with the file, the line in it if it has lines, and what is wrong.
    """
    if source in BUILT_IN:
        return _without_names(source, BUILT_IN[source](), how)
    form = form_of(source)
    want_labels = labels and n_inputs is None
    if form in IDX_ENDINGS:
        return _without_names(source, _read_idx(source, want_labels), how)
    data = read_content(source, DATA_ENDINGS, BUILT_IN)
    notes: tuple[str, ...] = ()
    if form in (None, ".txt"):
        found = form_of_content(data)
        notes = (f"read as {_FORM_NAMES[found]}, by its content",) if form is None else ()
        form = found
    if form in (".csv", ".tsv", _BLANKS):
        table = read_csv(source, data, _SEPARATORS[form], n_inputs, labels, how)
        return replace(table, notes=notes + table.notes)
    if form == ".npz":
        table = _read_npz(source, data, want_labels)
    elif form in IDX_ENDINGS:
        table = _read_idx(source, want_labels)
    else:
        check_is_table(source, data)
        table = read_svmlight(source, data, first_index, n_inputs)
    return _without_names(source, replace(table, notes=notes + table.notes), how)


def _without_names(source: str, table: ExampleTable, how: Reading) -> ExampleTable:
    """Return a table of a form whose columns have no names; refuse a name for one of them."""
    if how.label:
        raise InputError(f"--label {how.label}: the columns of {source} have no names; leave it out")
    if not how.inputs:
        return table
    note = "its columns have no names: they are taken by their places, as the model's"
    return replace(table, notes=(*table.notes, note))


def form_of_content(data: bytes) -> str:
    """Return the ending of the form that a content has, a blank for a table with blanks.

    That is `.npz`, that of IDX images, `.csv`, `.tsv`, a blank, else `.svm`. A text whose first line has no
    ``index:value`` is a CSV where that line has a comma or a semicolon, or else a tab.
    """
    if re.match(rb"PK\x03\x04.{26}[^\0]{1,99}\.npy", data, re.DOTALL):
        return ".npz"
    if re.match(rb"\0\0[\x08-\x0e][\x01-\x08]", data):
        return IDX_ENDINGS[0]
    line = re.search(rb"^[ \t]*[^\s#].*$", data.removeprefix(BYTE_ORDER_MARK), re.MULTILINE)
    first = b"" if line is None else line[0]
    if re.search(rb"\s(\d+|qid):", first):
        return ".svm"
    if b"," in first or b";" in first:
        return ".csv"
    if b"\t" in first.strip() and b"\t\t" not in first:
        return ".tsv"
    return _BLANKS if has_columns_between_blanks(data) else ".tsv" if b"\t" in first.strip() else ".svm"


def check_form(source: str, endings: Sequence[str], names: Iterable[str]) -> str | None:
    """Return which of `endings` says the form of `source`; None where its content has to say it.

    Parameters
    ----------
    names : the built-in sets that a user may have meant.

    Raises
    ------
    InputError
        Where no ending says the form, and `source` is neither a file of this machine nor a URL. Nothing is opened.
    """
    form = form_of(source, endings)
    if form is None and "://" not in source and not is_there(source):
        raise _unknown(source, endings, names)
    return form


def _unknown(source: str, endings: Sequence[str], names: Iterable[str]) -> InputError:
    return InputError(
        f"data {source!r}: unknown; known are {', '.join(sorted(names))}, and path or URL of a file that ends in "
        f"{', '.join(endings)}, each also with {', '.join(PACKED_ENDINGS)}"
    )


def read_content(source: str, endings: Sequence[str], names: Iterable[str]) -> bytes:
    """Return the decompressed content of a data file of one of the accepted forms.

    Parameters
    ----------
    endings : those of the forms that are wanted; all but `.npz` are texts. A file with another ending is read too if it
        is
        a text.
    names : the built-in sets that a user may have meant.
    """
    form = check_form(source, endings, names)
    data = _unpacked(source, read_whole(source))
    if form is None and ".npz" in endings and form_of_content(data[:_HEAD]) in (".npz", *IDX_ENDINGS):
        return data
    if form != ".npz" and has_mark(data):
        data = as_utf8(source, data)
    if form != ".npz" and (b"\0" in data[:_HEAD] or (form is None and data.startswith(_ZIP_MAGIC))):
        if form is None:
            raise _unknown(source, endings, names)
        raise InputError(f"{source}: is a binary file, not the text that its ending {form} promises")
    return data


def _unpacked(source: str, data: bytes) -> bytes:
    packed = _PACKED.match(data)
    if packed is None:
        return data
    codec = packed.lastgroup
    chunks: list[bytes] = []
    size = 0
    try:
        with _stream(data, codec) as stream:
            while chunk := stream.read(_UNPACKED_AT_ONCE):
                chunks.append(chunk)
                size += len(chunk)
                _check_ratio(source, f"{codec} stream", size, len(data))
    except (OSError, EOFError, lzma.LZMAError):
        raise InputError(f"{source}: the {codec} stream is damaged or cut short; fetch the file again") from None
    whole = b"".join(chunks)
    check_fetched(source, whole)
    return whole


def _check_ratio(source: str, what: str, size: int, packed_size: int) -> None:
    if size > max(_MOST_RATIO * packed_size, _UNPACKED_FREELY):
        raise InputError(f"{source}: the {what} unpacks to more than {_MOST_RATIO} times its size; give a file of data")


def _stream(data: bytes, codec: str | None) -> Any:
    if codec == "xz":
        return lzma.open(io.BytesIO(data))
    return pa.CompressedInputStream(pa.BufferReader(data), codec)


def _read_idx(source: str, want_labels: bool) -> ExampleTable:
    """Return images with the labels from the file beside them; either file may be compressed, as after `gunzip`."""
    beside = labels_beside(source)
    data = _unpacked(source, read_whole(source))
    plain = _plain(beside)
    names = [beside, plain, *(plain + packed for packed in PACKED_ENDINGS)]
    labels = next((name for name in names if is_there(name)), None)
    if labels is None and not want_labels:
        return read_images(source, data)
    if labels is None:
        raise InputError(
            f"{source}: its labels are not there; put {plain.rpartition('/')[2]} next to it, packed or plain"
        )
    return read_idx(source, data, labels, _unpacked(labels, read_whole(labels)))


def _plain(name: str) -> str:
    """Return a name without the ending of a compressed file."""
    packed = next((ending for ending in PACKED_ENDINGS if name.lower().endswith(ending)), "")
    return name[: len(name) - len(packed)]


def _read_npz(source: str, data: bytes, want_labels: bool) -> ExampleTable:
    with suppress(zipfile.BadZipFile, ValueError, NotImplementedError, OSError):  # the next reader says what is wrong
        members = zipfile.ZipFile(io.BytesIO(data)).infolist()
        _check_ratio(source, "zip archive", sum(member.file_size for member in members), len(data))
    try:
        arrays = npz_arrays(data, source)
    except BlobError as error:
        raise InputError(str(error)) from None
    wanted = ("x", "y") if want_labels else ("x",)
    if missing := [name for name in wanted if name not in arrays]:
        raise InputError(f"{source}: has no array {missing[0]!r}; want x (rows, features) and y (rows)")
    x = arrays["x"]
    y = arrays.get("y", np.zeros(len(x) if x.ndim else 0, np.int64))
    if x.ndim != 2 or y.ndim != 1 or len(x) != len(y) or not x.shape[1]:
        raise InputError(f"{source}: x of shape {x.shape} and y of shape {y.shape}; want (rows, features), (rows,)")
    if x.dtype.kind not in "fiub" or y.dtype.kind not in "fiu":
        raise InputError(f"{source}: x is {x.dtype} and y is {y.dtype}; want numbers")
    with np.errstate(over="ignore"):
        table = ExampleTable(x.astype(np.float32), y, lambda row: f"row {row}")
    return table if "y" in arrays else unlabelled(table.x, table.place)
