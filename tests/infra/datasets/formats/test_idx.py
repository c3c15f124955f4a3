"""IDX images: labels found by name, values of every type, and refused files."""

import gzip
import struct
from pathlib import Path

import fsspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from proteus_spot.infra.datasets.data_files import read_data
from proteus_spot.infra.datasets.formats.idx import labels_beside, read_idx
from proteus_spot.infra.datasets.prepare import check_data, prepare
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import part_name

CODES = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}
IMAGES = np.arange(6 * 2 * 3).reshape(6, 2, 3) * 7 % 256
LABELS = np.array([3, 9, 3, 9, 3, 9])


def idx(values: np.ndarray, kind: str = "u1") -> bytes:
    """Return the file of an array, written from the format's description without our code."""
    head = struct.pack(f">BBBB{values.ndim}I", 0, 0, CODES[kind], values.ndim, *values.shape)
    return head + values.astype(np.dtype(kind).newbyteorder(">")).tobytes()


def write(folder: Path, name: str, data: bytes) -> str:
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return str(folder / name)


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
        ("t10k-images.idx3-ubyte", "t10k-labels.idx1-ubyte"),
        ("my-images-train-images-idx3-ubyte.gz", "my-images-train-labels-idx1-ubyte.gz"),
        ("images-idx3-ubyte.gz", "labels-idx1-ubyte"),  # one of them unpacked
        ("images-idx3-ubyte", "labels-idx1-ubyte.gz"),
    ],
)
def test_images_and_the_labels_beside_them_are_read(tmp_path: Path, images: str, labels: str) -> None:
    write(tmp_path, labels, idx(LABELS))
    table = read_data(write(tmp_path, images, idx(IMAGES)))
    assert isinstance(table.x, np.ndarray)
    assert (table.x.dtype, table.x.shape) == (np.float32, (6, 6))
    np.testing.assert_allclose(table.x, IMAGES.reshape(6, 6) / 255, rtol=1e-6)
    assert table.y.tolist() == LABELS.tolist()


def test_images_to_predict_from_need_no_labels(tmp_path: Path) -> None:
    source = write(tmp_path, "images-idx3-ubyte", idx(IMAGES))
    table = read_data(source, n_inputs=6)
    assert isinstance(table.x, np.ndarray)
    np.testing.assert_allclose(table.x, IMAGES.reshape(6, 6) / 255, rtol=1e-6)
    assert not table.labelled
    write(tmp_path, "labels-idx1-ubyte", idx(LABELS))
    assert read_data(source, n_inputs=6).y.tolist() == LABELS.tolist()


def test_a_job_is_dealt_images_from_a_url(tmp_path: Path) -> None:
    for name, values in (("images-idx3", IMAGES), ("labels-idx1", LABELS)):
        with fsspec.open(f"memory://mnist/{name}-ubyte", "wb") as file:
            file.write(idx(values))
    blobs = Blobs(tmp_path.as_uri())
    summary = prepare(blobs, "job", "memory://mnist/images-idx3-ubyte", 2, 0, "mlr")
    assert (summary.rows, summary.heldout_rows) == (4, 2)
    assert (summary.sizes["n_inputs"], summary.sizes["n_classes"]) == (6, 2)
    part = blobs.read_npz(f"jobs/job/data/{part_name(0)}")
    np.testing.assert_allclose(part["x"], IMAGES.reshape(6, 6)[part["ids"]] / 255, rtol=1e-6)
    manifest = blobs.manifest("jobs/job/data")
    assert manifest is not None
    assert manifest.about["labels"] == [3, 9]


@given(
    kind=st.sampled_from(sorted(CODES)),
    shape=arrays_of.array_shapes(min_dims=2, max_dims=4, max_side=4),
    seed=st.integers(0, 99),
)
def test_values_of_every_type_come_back(kind: str, shape: tuple[int, ...], seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 100, shape)
    table = read_idx("a", idx(values, kind), "b", idx(np.arange(shape[0]), kind))
    assert isinstance(table.x, np.ndarray)
    np.testing.assert_allclose(table.x, values.reshape(shape[0], -1) / (255 if kind == "u1" else 1), rtol=1e-6)
    assert table.y.tolist() == list(range(shape[0]))
    assert table.y.dtype.isnative


@pytest.mark.parametrize(
    ("images", "labels", "says"),
    [
        (b"", idx(LABELS), "begins with nothing, which is not a magic number of IDX"),
        (b"1,2,3\n4", idx(LABELS), "begins with 31 2c 32 2c, which is not a magic number"),
        (b"\0\0\x0a\x03" + bytes(12), idx(LABELS), "begins with 00 00 0a 03"),
        (idx(IMAGES)[:10], idx(LABELS), "says that it has 3 dimensions, and ends before; fetch the file again"),
        (idx(IMAGES)[:-1], idx(LABELS), "says 6 x 2 x 3 values, 36 bytes, and holds 35; fetch the file again"),
        (idx(IMAGES) + b"x", idx(LABELS), "36 bytes, and holds 37"),
        (idx(IMAGES[:, :0]), idx(LABELS), "says 6 x 0 x 3, images without pixels"),
        (idx(IMAGES[:0]), idx(LABELS[:0]), "holds no images"),
        (idx(LABELS), idx(LABELS), "holds 1 dimension; want images"),
        (idx(IMAGES), idx(IMAGES), "images-idx3-ubyte: holds|labels-idx1-ubyte: holds 3 dimensions; want labels"),
        (idx(IMAGES), idx(LABELS)[:-2], "labels-idx1-ubyte: says 6 values, 6 bytes, and holds 4"),
        (idx(IMAGES), idx(LABELS[:4]), "holds 6 images, and .*labels-idx1-ubyte 4 labels; give the two that belong"),
        (idx(np.where(IMAGES == 7, np.nan, 1.0), "f4"), idx(LABELS), "image 0, counted from 0: column 2 has no value"),
        (idx(IMAGES), idx(np.array([1, 1, 1, 1, 1, 2])), "image 5, counted from 0: the only row with label 2"),
        (idx(IMAGES), None, "its labels are not there; put labels-idx1-ubyte next to it, packed or plain"),
    ],
)
def test_bad_images_are_told_in_one_line(tmp_path: Path, images: bytes, labels: bytes | None, says: str) -> None:
    source = write(tmp_path, "images-idx3-ubyte", images)
    if labels is not None:
        write(tmp_path, "labels-idx1-ubyte", labels)
    with pytest.raises(InputError, match=says) as caught:
        check_data(source, 1)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a-labels-idx1-ubyte.gz", "holds labels; name the file of the images next to it"),
        ("digits-idx3-ubyte", "call the files NAME-images-idx3-ubyte and NAME-labels-idx1-ubyte"),
    ],
)
def test_a_name_without_labels_beside_it_is_told(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_data(name)


def test_only_the_name_of_the_file_is_changed() -> None:
    assert labels_beside("images-idx3-ubyte/A-Images-idx3-ubyte") == "images-idx3-ubyte/A-labels-idx1-ubyte"
