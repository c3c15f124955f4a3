"""Data files of every form: contents, forms that are known by content, and the held-out part."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.infra.datasets.data_files import read_data
from proteus_spot.infra.datasets.formats.example_table import ExampleTable, examples, hold_out
from proteus_spot.infra.datasets.kinds import absolute
from proteus_spot.infra.datasets.prepare import prepare
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import HELD_OUT, part_name
from proteus_spot.psengine.apps.csr import Csr
from tests.support.data_files import dense, read, refused, write

PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: bytes(pa.compress(data, codec="zstd", asbytes=True)),
    ".xz": lzma.compress,
}


def test_the_digits_are_those_of_sklearn() -> None:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    table = read_data("digits")
    np.testing.assert_array_equal(table.x, (x / 16).astype(np.float32))
    np.testing.assert_array_equal(table.y, y)
    assert (table.x.dtype, table.y.dtype) == (np.float32, y.dtype)


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "1,2,0\n3,4.5,1\n"),
        ("a.tsv", "1\t2\t0\n3\t4.5\t1\n"),
        ("a.svm", "0 1:1 2:2\n1 1:3 2:4.5\n"),
        ("A.SVMLIGHT", "0 0:1 1:2\n1 0:3 1:4.5\n"),
        ("a.libsvm", "0 qid:7 1:1 2:2 # a comment\n# one more\n\n1 qid:7 1:3 2:4.5\r\n"),
        ("a.txt", "0 1:1 2:2\n1 1:3 2:4.5"),
    ],
)
def test_each_form_is_read_plain_and_packed(tmp_path: Path, packed: str, name: str, text: str) -> None:
    found = read(write(tmp_path, name + packed, PACKED[packed](text.encode())))
    assert dense(found) == [[1, 2], [3, 4.5]]
    assert (found.y.tolist(), found.ids.tolist(), found.labels) == ([0, 1], [0, 1], (0, 1))


@pytest.mark.parametrize(
    ("name", "text", "labelled", "width"),
    [
        ("a.csv", "1,2\n3,4\n", False, 2),
        ("a.tsv", "\n1\t2\n", False, 2),
        ("a.csv", "width,height\n1,2\n", False, 2),
        ("a.csv", "1,2,0\n3,4,1\n", True, 2),
        ("a.csv", "width,height,kind\n1,2,a\n", True, 2),
        ("a.csv", "width,label\n1,2\n", True, 1),  # a header names the label
        ("a.csv", "1,rose\n2,rose\n", True, 1),
        ("a.svm", "0 1:1 2:2\n", True, 2),
    ],
)
def test_as_many_columns_as_a_model_has_inputs_are_no_label(
    tmp_path: Path, name: str, text: str, labelled: bool, width: int
) -> None:
    table = read_data(write(tmp_path, name, text), n_inputs=2)
    assert (table.labelled, table.x.shape[1]) == (labelled, width)
    assert labelled or not table.y.any()


def test_one_input_alone_is_a_column_of_its_own(tmp_path: Path) -> None:
    source = write(tmp_path, "a.csv", "width\n1\n2\n")
    assert dense(examples(source, read_data(source, n_inputs=1))) == [[1], [2]]
    with pytest.raises(InputError, match="line 1: has one column; want features and a label"):
        read_data(source)
    with pytest.raises(InputError, match="line 1: has one column"):
        read_data(source, n_inputs=2)
    with pytest.raises(InputError, match="line 1: has one column"):
        read_data(write(tmp_path, "a.csv", "label\n1\n"), n_inputs=1)
    with pytest.raises(InputError, match=r"line 2: column 1 \('lily'\) is 'rose'; write a number"):
        read_data(write(tmp_path, "a.csv", "lily\nrose\n"), n_inputs=1)


def test_arrays_to_predict_from_need_no_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.eye(3))
    source = str(tmp_path / "a.npz")
    table = read_data(source, n_inputs=3)
    assert (table.labelled, table.y.tolist(), table.place(1)) == (False, [0, 0, 0], "row 1")
    with pytest.raises(InputError, match="has no array 'y'"):
        read_data(source)


def test_a_url_is_read_as_a_path_is() -> None:
    with fsspec.open("memory://somewhere/a.csv.gz", "wb") as file:
        file.write(gzip.compress(b"1,2,0\n3,4,1\n"))
    assert dense(read("memory://somewhere/a.csv.gz")) == [[1, 2], [3, 4]]


def test_paths_are_made_absolute_and_names_and_urls_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("in/a.csv") == str(tmp_path / "in/a.csv")
    assert [absolute(name) for name in ("digits", "ratings", "s3://b/a.csv", "/in/a.csv")] == [
        "digits",
        "ratings",
        "s3://b/a.csv",
        "/in/a.csv",
    ]


@pytest.mark.parametrize("packed", [".gz", ".bz2", ".zst", ".xz"])
def test_a_packed_file_that_is_cut_short_is_told(tmp_path: Path, packed: str) -> None:
    whole = PACKED[packed](b"".join(b"%d,%d,%d\n" % (i, i * i, i % 2) for i in range(1000)))
    for cut in (whole[:-3], whole[: len(whole) // 2], whole + b"more"):
        refused(write(tmp_path, f"a.csv{packed}", cut), "stream is damaged or cut short; fetch the file again")


@pytest.mark.parametrize("content", [b"PAR1\0\1\2", b"PK\3\4" + bytes(26) + b"a.csv1,2,0\n", None])
@pytest.mark.parametrize("name", ["a.parquet", "a", "a.csv.zip", "a.gz", "mnist"])
def test_unknown_file_extension_lists_known_ones(tmp_path: Path, name: str, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    refused(str(tmp_path / name), r"known are digits, .* \.npz, \.csv, \.tsv, \.svm, .* with \.gz, \.bz2, \.zst, \.xz")


SPARSE = "+1 1:0.5 3:1\n-1 2:0.25\n+1 1:1 2:1\n-1 3:0.5\n"


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize(
    ("name", "text", "read_as", "first"),
    [
        ("a9a", SPARSE, "svmlight", [0.5, 0, 1]),
        ("a9a.t", "# of a tool\n\n" + SPARSE, "svmlight", [0.5, 0, 1]),
        ("train.dat", "1 qid:3 1:0.5 3:1\n-1 2:0.25", "svmlight", [0.5, 0, 1]),
        ("sparse.binary", "-1\n+1 1:2\n", "svmlight", [0]),
        ("iris.data", "5.1,3.5,setosa\n7.0,3.2,virginica\n", "CSV", [5.1, 3.5]),
        ("wine", "\ufeffa,b,class\n1,2,0\n3,4,1\n", "CSV", [1, 2]),
        ("table.dat", "1\t2\t0\n3\t4\t1\n", "TSV", [1, 2]),
    ],
)
def test_a_text_whose_name_says_nothing_is_read_by_its_content(
    tmp_path: Path, packed: str, name: str, text: str, read_as: str, first: list[float]
) -> None:
    table = read_data(write(tmp_path, name + packed, PACKED[packed](text.encode())))
    x = table.x.dense() if isinstance(table.x, Csr) else table.x
    assert x[0].tolist() == pytest.approx(first)
    assert table.notes[0] == f"read as {read_as}, by its content"


def test_a_text_ending_says_nothing_either_and_arrays_are_known_by_content(tmp_path: Path) -> None:
    assert dense(read(write(tmp_path, "a.txt", "a,b,class\n1,2,0\n3,4,1\n"))) == [[1, 2], [3, 4]]
    np.savez(tmp_path / "a.npz", x=np.eye(2), y=np.arange(2))
    (tmp_path / "a.npz").rename(tmp_path / "arrays")
    assert dense(read(str(tmp_path / "arrays"))) == [[1, 0], [0, 1]]
    refused(write(tmp_path, "images", b"\0\0\x08\x03" + bytes(20)), "call the files NAME-images-idx3-ubyte")


def test_a_label_that_is_there_once_cannot_be_held_out(tmp_path: Path) -> None:
    refused(write(tmp_path, "a.csv", "1,2,a\n3,4,b\n\n5,6,a\n"), "line 2: the only row with label 'b'")
    refused(write(tmp_path, "b.csv", "1,0.5\n"), "line 1: the only row;")


@pytest.mark.parametrize(("y", "says"), [("1\n1", "all rows have one label"), ("0.5\n1", "which are no classes")])
def test_mlr_wants_classes_and_another_application_may_not(tmp_path: Path, y: str, says: str) -> None:
    blobs = Blobs((tmp_path / "blobs").as_uri())
    source = write(tmp_path, "a.csv", "".join(f"1,{label}\n" for label in y.split()))
    with pytest.raises(InputError, match=f"{says}; mlr wants at least 2 classes"):
        prepare(blobs, "job", source, 1, 0, "mlr")
    assert blobs.list() == []
    assert prepare(blobs, "job", source, 1, 0, "my:Own").sizes["n_classes"] < 2
    with pytest.raises(InputError, match=says):  # also where they are there already
        prepare(blobs, "job", source, 1, 0, "mlr")


def test_what_is_written_of_a_sparse_set_is_the_set(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = np.where(rng.random((52, 200)) < 0.02, rng.integers(1, 9, (52, 200)), 0)
    x[:, 199] = 1
    lines = [f"{2 * (i % 2) - 1} " + " ".join(f"{j + 1}:{x[i, j]}" for j in np.flatnonzero(x[i])) for i in range(52)]
    blobs = Blobs((tmp_path / "blobs").as_uri())
    source = write(tmp_path, "a.svm.gz", gzip.compress("\n".join(lines).encode()))
    summary = prepare(blobs, "job", source, 3, 0, "mlr")
    assert (summary.rows, summary.heldout_rows) == (41, 11)
    assert summary.sizes == {"n_inputs": 200, "n_classes": 2, "n_examples": 41, "n_partitions": 3}
    manifest = blobs.manifest("jobs/job/data")
    assert manifest is not None
    assert manifest.about["labels"] == [-1, 1]
    seen = []
    for name in (part_name(0), part_name(1), part_name(2), HELD_OUT):
        part = blobs.read_npz(f"jobs/job/data/{name}")
        assert "x" not in part
        assert (Csr.from_arrays(part).dense() == x[part["ids"]]).all()
        assert (part["y"] == part["ids"] % 2).all()
        seen += part["ids"].tolist()
    assert sorted(seen) == list(range(52))


@given(st.lists(st.integers(2, 40), min_size=1, max_size=8), st.integers(0, 9))
def test_a_fifth_of_each_class_is_held_out_and_some_of_each_is_on_either_side(counts: list[int], seed: int) -> None:
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    table = ExampleTable(np.zeros((len(y), 1), np.float32), y, str)
    train, held = hold_out("a", table, examples("a", table))
    assert sorted([*train.ids, *held.ids]) == list(range(len(y)))
    assert (train.y == y[train.ids]).all()
    assert (held.y == y[held.ids]).all()
    shares = np.bincount(held.y, minlength=len(counts))
    for count, share in zip(counts, shares, strict=True):
        assert 1 <= share < count
        assert share in {count // 5, -(-count // 5)}
    if min(counts) >= 5:
        assert len(held) == -(-len(y) // 5)
