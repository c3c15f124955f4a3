"""The data that a user names: a built-in set, or a file by path or fsspec URL; which forms there are, how each is read.

The form is said by the name's ending; whether the content is compressed, by the content.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from infra.blobs import BlobError, npz_arrays
from infra.data_csv import read_csv
from infra.data_svmlight import read_svmlight
from infra.errors import InputError
from infra.examples import Table
from infra.input_files import read_whole

#: Endings of a data file's name, each also followed by one of `PACKED_ENDINGS`.
DATA_ENDINGS = (".npz", ".csv", ".tsv", ".svm", ".svmlight", ".libsvm", ".txt")
PACKED_ENDINGS = (".gz", ".bz2", ".zst")

#: How a compressed content begins; each group is Arrow's name of its codec.
_PACKED = re.compile(rb"(?P<gzip>\x1f\x8b)|(?P<bz2>BZh[1-9]1AY&SY)|(?P<zstd>\x28\xb5\x2f\xfd)")


def _digits() -> Table:
    try:
        from sklearn.datasets import load_digits  # heavy, and not on a node
    except ImportError:
        raise InputError("data digits: needs scikit-learn; install proteus[local]") from None
    x, y = load_digits(return_X_y=True)
    return Table((x / 16.0).astype(np.float32), y, lambda row: f"row {row}")


#: Name -> loader.
BUILT_IN: Mapping[str, Callable[[], Table]] = MappingProxyType({"digits": _digits})


def form_of(source: str) -> str | None:
    """Return the ending that says the form of `source`, None where it has none that is known."""
    name = source.lower()
    for packed in PACKED_ENDINGS:
        name = name.removesuffix(packed)
    return next((ending for ending in DATA_ENDINGS if name.endswith(ending)), None)


def absolute(source: str) -> str:
    """Return a path as an absolute one, as whoever works elsewhere wants it; a URL or a name as it is."""
    return source if source in BUILT_IN or "://" in source else str(Path(source).absolute())


def read_data(source: str) -> Table:
    """Return what a built-in set or a data file holds; `infra.examples.examples` checks it.

    Raises
    ------
    InputError
        One line with the file, the line in it where there is one, and what is wrong.
    """
    if source in BUILT_IN:
        return BUILT_IN[source]()
    form = form_of(source)
    if form is None:
        raise InputError(
            f"data {source!r}: unknown; known are {', '.join(sorted(BUILT_IN))}, and path or URL of a file that ends in "
            f"{', '.join(DATA_ENDINGS)}, each also with {', '.join(PACKED_ENDINGS)}"
        )
    data = _unpacked(source, read_whole(source))
    if form == ".npz":
        return _read_npz(source, data)
    if b"\0" in data[:4096]:
        raise InputError(f"{source}: is a binary file, not the text that its ending {form} promises")
    if form in (".csv", ".tsv"):
        return read_csv(source, data, "," if form == ".csv" else "\t")
    return read_svmlight(source, data)


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


def _read_npz(source: str, data: bytes) -> Table:
    try:
        arrays = npz_arrays(data, source)
    except BlobError as error:
        raise InputError(str(error)) from None
    if missing := [name for name in ("x", "y") if name not in arrays]:
        raise InputError(f"{source}: has no array {missing[0]!r}; want x (rows, features) and y (rows)")
    x, y = arrays["x"], arrays["y"]
    if x.ndim != 2 or y.ndim != 1 or len(x) != len(y) or not x.shape[1]:
        raise InputError(f"{source}: x of shape {x.shape} and y of shape {y.shape}; want (rows, features), (rows,)")
    if x.dtype.kind not in "fiub" or y.dtype.kind not in "fiu":
        raise InputError(f"{source}: x is {x.dtype} and y is {y.dtype}; want numbers")
    with np.errstate(over="ignore"):
        return Table(x.astype(np.float32), y, lambda row: f"row {row}")
