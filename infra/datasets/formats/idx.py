"""Images in IDX files, as of MNIST and similar sets: a file of images, and beside it a file of labels.

A file is a magic number (two zero bytes, the type of the values, the number of dimensions), the length of each
dimension as a 32-bit integer, then the values, the last dimension fastest; all of it big-endian.

Source: LeCun, Cortes and Burges, "The MNIST database of handwritten digits", file formats.
"""

import re
from collections.abc import Mapping
from math import prod
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from proteus_spot.infra.datasets.formats.example_table import ExampleTable, unlabelled
from proteus_spot.infra.errors import InputError

#: Endings of a file of images and of one of labels; the latter is recognised to give a helpful error.
IDX_ENDINGS = ("idx3-ubyte", "idx1-ubyte")

#: Type of the values by the third byte of a file.
_TYPES: Mapping[int, np.dtype] = MappingProxyType(
    {code: np.dtype(name) for code, name in {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}.items()}
)
_MAGIC_BYTES, _LENGTH_BYTES = 4, 4
_MOST_DIMENSIONS = 8


def labels_beside(source: str) -> str:
    """Return the conventional name of the labels for the images `source`, with the same compression.

    As in ``train-images-idx3-ubyte.gz`` and ``train-labels-idx1-ubyte.gz``, or with a dot before `idx`.

    Raises
    ------
    InputError
        If the name does not follow the convention, or is that of labels.
    """
    folder, slash, name = source.rpartition("/")
    if re.search(r"idx1-ubyte", name, re.IGNORECASE):
        raise InputError(
            f"{source}: holds labels; name the file of the images next to it, as in train-images-idx3-ubyte"
        )
    beside, found = re.subn(r"images(?=[-.]idx3-ubyte)", "labels", name, flags=re.IGNORECASE)
    if not found:
        raise InputError(
            f"{source}: the labels are looked for next to it by name; call the files NAME-images-idx3-ubyte and "
            "NAME-labels-idx1-ubyte"
        )
    return folder + slash + re.sub(r"idx3(?=-ubyte)", "idx1", beside, flags=re.IGNORECASE)


def read_idx(source: str, data: bytes, labels_source: str, labels_data: bytes) -> ExampleTable:
    """Return images, one row of pixels each, and their labels; the sources are the names in errors.

    Pixels of one byte become numbers from 0 to 1 (float32, value / 255); values of other types are not scaled.

    Raises
    ------
    InputError
        One line with the file and what is wrong in it.
    """
    images, labels = _values(source, data), _values(labels_source, labels_data)
    x = _pixels(source, images)
    if labels.ndim != 1:
        raise InputError(f"{labels_source}: holds {labels.ndim} dimensions; want labels, 1 dimension")
    if len(images) != len(labels):
        raise InputError(
            f"{source}: holds {len(images)} images, and {labels_source} {len(labels)} labels; give the two that belong "
            "together"
        )
    return ExampleTable(x, labels.astype(labels.dtype.newbyteorder("=")), _place)


def read_images(source: str, data: bytes) -> ExampleTable:
    """Return images without labels, one row of pixels each (see `read_idx`)."""
    return unlabelled(_pixels(source, _values(source, data)), _place)


def _pixels(source: str, images: NDArray[np.generic]) -> NDArray[np.float32]:
    if images.ndim < 2:
        raise InputError(f"{source}: holds {images.ndim} dimension; want images, at least 2 dimensions")
    if not len(images):
        raise InputError(f"{source}: holds no images; give at least two")
    pixels = images.reshape(len(images), -1)
    with np.errstate(over="ignore"):  # values that do not fit are reported later by their row, as in every form
        x = pixels.astype(np.float32)
    if images.dtype == np.uint8:
        x /= np.float32(255)
    return x


def _place(row: int) -> str:
    return f"image {row}, counted from 0"


def _values(source: str, data: bytes) -> NDArray[np.generic]:
    """Return the values of an IDX file, in their shape and type."""
    if len(data) < _MAGIC_BYTES or data[:2] != b"\0\0" or data[2] not in _TYPES:
        raise InputError(
            f"{source}: begins with {data[:_MAGIC_BYTES].hex(' ') or 'nothing'}, which is not a magic number of IDX "
            "(00 00 08 03 for images of bytes); fetch the file again"
        )
    dtype, dimensions = _TYPES[data[2]], data[3]
    begin = _MAGIC_BYTES + _LENGTH_BYTES * dimensions
    if not 1 <= dimensions <= _MOST_DIMENSIONS or len(data) < begin:
        raise InputError(f"{source}: says that it has {dimensions} dimensions, and ends before; fetch the file again")
    lengths = [int(length) for length in np.frombuffer(data, ">u4", dimensions, _MAGIC_BYTES)]
    if not all(lengths[1:]):
        raise InputError(f"{source}: says {_by(lengths)}, images without pixels; give a file of images")
    wanted = prod(lengths) * dtype.itemsize
    if len(data) - begin != wanted:
        raise InputError(
            f"{source}: says {_by(lengths)} values, {wanted} bytes, and holds {len(data) - begin}; fetch the file again"
        )
    return np.frombuffer(data, dtype, offset=begin).reshape(lengths)


def _by(lengths: list[int]) -> str:
    return " x ".join(map(str, lengths))
