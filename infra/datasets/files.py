"""The data that a user names: a built-in set, or a file by path or fsspec URL; which forms there are, how each is read.

The form is said by the name's ending; whether the content is compressed, by the content.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from infra.datasets.formats.csv_examples import read_csv
from infra.datasets.formats.example_table import ExampleTable, unlabelled
from infra.datasets.formats.idx import IDX_ENDINGS, labels_beside, read_idx, read_images
from infra.datasets.formats.svmlight import read_svmlight
from infra.errors import InputError
from infra.files import is_there, read_whole
from infra.storage.blobs import BlobError, npz_arrays

#: Endings of a data file's name, each also followed by one of `PACKED_ENDINGS`.
DATA_ENDINGS = (".npz", ".csv", ".tsv", ".svm", ".svmlight", ".libsvm", ".txt", *IDX_ENDINGS)
PACKED_ENDINGS = (".gz", ".bz2", ".zst")

#: How a compressed content begins; each group is Arrow's name of its codec.
_PACKED = re.compile(rb"(?P<gzip>\x1f\x8b)|(?P<bz2>BZh[1-9]1AY&SY)|(?P<zstd>\x28\xb5\x2f\xfd)")


def _digits() -> ExampleTable:
    from sklearn.datasets import load_digits  # heavy, and not on a node

    x, y = load_digits(return_X_y=True)
    return ExampleTable((x / 16.0).astype(np.float32), y, lambda row: f"row {row}")


#: Name -> loader.
BUILT_IN: Mapping[str, Callable[[], ExampleTable]] = MappingProxyType({"digits": _digits})


def form_of(source: str, endings: Sequence[str] = DATA_ENDINGS) -> str | None:
    """Return which of `endings` says the form of `source`, None where it has none of them."""
    name = _plain(source.lower())
    return next((ending for ending in endings if name.endswith(ending)), None)


def read_data(source: str, first_index: int | None = None, n_inputs: int | None = None) -> ExampleTable:
    """Return what a built-in set or a data file holds; `infra.datasets.formats.example_table.examples` checks it.

    Parameters
    ----------
    first_index : from where an svmlight file counts its features; None where the file is to say it.
    n_inputs : of a model that is to be asked about the rows, which may then lack labels: see `data_csv.read_csv` for a
        CSV, a `.npz` has no `y`, beside images lie none; an svmlight file always has them. None: labels must be there.

    Raises
    ------
    InputError
        One line with the file, the line in it where there is one, and what is wrong.
    """
    if source in BUILT_IN:
        return BUILT_IN[source]()
    form = form_of(source)
    if form in IDX_ENDINGS:
        return _read_idx(source, n_inputs is None)
    data = read_content(source, DATA_ENDINGS, BUILT_IN)
    if form == ".npz":
        return _read_npz(source, data, n_inputs is None)
    if form in (".csv", ".tsv"):
        return read_csv(source, data, "," if form == ".csv" else "\t", n_inputs)
    return read_svmlight(source, data, first_index)


def check_form(source: str, endings: Sequence[str], names: Iterable[str]) -> str:
    """Return which of `endings` says the form of `source`; `InputError` where none does. The file is not opened.

    Parameters
    ----------
    names : the built-in sets that a user may have meant.
    """
    form = form_of(source, endings)
    if form is None:
        raise InputError(
            f"data {source!r}: unknown; known are {', '.join(sorted(names))}, and path or URL of a file that ends in "
            f"{', '.join(endings)}, each also with {', '.join(PACKED_ENDINGS)}"
        )
    return form


def read_content(source: str, endings: Sequence[str], names: Iterable[str]) -> bytes:
    """Return what is in a data file of a form that is wanted, unpacked.

    Parameters
    ----------
    endings : those of the forms that are wanted; all but `.npz` are texts.
    names : the built-in sets that a user may have meant.
    """
    form = check_form(source, endings, names)
    data = _unpacked(source, read_whole(source))
    if form != ".npz" and b"\0" in data[:4096]:
        raise InputError(f"{source}: is a binary file, not the text that its ending {form} promises")
    return data


def _unpacked(source: str, data: bytes) -> bytes:
    packed = _PACKED.match(data)
    if packed is None:
        return data
    codec = packed.lastgroup
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
            return bytes(stream.read())
    except OSError:
        raise InputError(f"{source}: the {codec} stream is damaged or cut short; fetch the file again") from None


def _read_idx(source: str, want_labels: bool) -> ExampleTable:
    """Return images with the labels beside them; the one file may be packed and the other not, as after `gunzip`."""
    beside = labels_beside(source)
    data = _unpacked(source, read_whole(source))
    plain = _plain(beside)
    names = [beside, plain, *(plain + packed for packed in PACKED_ENDINGS)]
    labels = next((name for name in names if is_there(name)), None)
    if labels is None and not want_labels:
        return read_images(source, data)
    if labels is None:
        raise InputError(f"{source}: its labels are not there; put {plain.rpartition('/')[2]} beside it, packed or not")
    return read_idx(source, data, labels, _unpacked(labels, read_whole(labels)))


def _plain(name: str) -> str:
    """Return a name without the ending of a packed file."""
    packed = next((ending for ending in PACKED_ENDINGS if name.lower().endswith(ending)), "")
    return name[: len(name) - len(packed)]


def _read_npz(source: str, data: bytes, want_labels: bool) -> ExampleTable:
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
