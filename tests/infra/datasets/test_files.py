"""Data files of every form: contents, the column of the label, and refused files."""

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

from infra.datasets.files import read_data
from infra.datasets.formats.example_table import Examples, ExampleTable, examples, hold_out
from infra.datasets.kinds import KINDS, absolute
from infra.datasets.prepare import check_data, prepare
from infra.errors import InputError
from infra.storage.blobs import Blobs
from infra.storage.job_paths import HELD_OUT, part_name
from psengine.apps.csr import Csr


def write(folder: Path, name: str, text: str | bytes) -> str:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def read(source: str) -> Examples:
    return examples(source, read_data(source))


def dense(of: Examples) -> list[list[float]]:
    x = of.x.dense() if isinstance(of.x, Csr) else of.x
    assert x.dtype == np.float32
    return x.tolist()


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
    with pytest.raises(InputError, match="line 2: column 1 is 'rose'; write a number"):
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


# -- CSV --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "x", "y", "labels"),
    [
        ("a,b,c\n1,2,0\n3,4,1\n", [[1, 2], [3, 4]], [0, 1], (0, 1)),  # a header; the last column
        ("a,Label,c\n1,0,2\n3,1,4\n", [[1, 2], [3, 4]], [0, 1], (0, 1)),  # by name
        ("y,b,target\n1,2,0\n3,4,1\n", [[1, 2], [3, 4]], [0, 1], (0, 1)),  # two such: the last
        ("class,0,1\nb,1,2\na,3,4\n", [[1, 2], [3, 4]], [1, 0], ("a", "b")),  # numbers as names
        (",a,y\n1,2,0\n3,4,1\n", [[2], [4]], [0, 1], (0, 1)),  # an index as pandas writes it
        ('"","a","y"\n"r1",2,0\n"r2",4,1\n', [[2], [4]], [0, 1], (0, 1)),  # and as R does
        ("Unnamed: 0,y,a\n7,0,2\n8,1,4\n", [[2], [4]], [0, 1], (0, 1)),  # and as pandas writes what it has read
        ("a,species,c\n1,0,2\n3,1,4\n", [[1, 2], [3, 4]], [0, 1], (0, 1)),
        ("0,1,2\n1,2,3\n", [[0, 1], [1, 2]], [0, 1], (2, 3)),  # no header
        ("1,2,rose\n3,4,lily\n", [[1, 2], [3, 4]], [1, 0], ("lily", "rose")),  # texts and no header
        ("0,1,species\n1,2,0\n3,4,1\n", [[1, 2], [3, 4]], [0, 1], (0, 1)),  # numbers below a text
        ("1,2,-1\n3,4,1\n", [[1, 2], [3, 4]], [0, 1], (-1, 1)),
        ("1,2,7\n3,4,40\n5,6,7\n", [[1, 2], [3, 4], [5, 6]], [0, 1, 0], (7, 40)),
        ("1,2,1.0\n3,4,2e0\n", [[1, 2], [3, 4]], [0, 1], (1, 2)),
        ("1,2,0.5\n3,4,2\n", [[1, 2], [3, 4]], [0.5, 2.0], ()),  # measurements
        ('\ufeff\n\n"a b","c, d",y\r\n 1 ,"2",0\r\n\r\n+3,4,1', [[1, 2], [3, 4]], [0, 1], (0, 1)),
    ],
)
def test_the_label_column_and_its_labels(
    tmp_path: Path, text: str, x: list[list[float]], y: list[float], labels: tuple[int | str, ...]
) -> None:
    found = read(write(tmp_path, "a.csv", text))
    assert (dense(found), found.y.tolist(), found.labels) == (x, y, labels)
    assert found.y.dtype == (np.int32 if labels else np.float32)


def test_a_csv_of_many_blocks_and_of_long_lines_is_read_whole(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tall, wide = rng.standard_normal((60_000, 4)).round(3), rng.standard_normal((6, 20_000)).round(3)
    for name, x in (("tall.csv", tall), ("wide.csv", wide)):
        y = np.arange(len(x)) % 3
        np.savetxt(tmp_path / name, np.column_stack([x, y]), fmt="%.10g", delimiter=",")
        found = read(str(tmp_path / name))
        assert (found.y == y).all()
        assert isinstance(found.x, np.ndarray)
        assert found.x.tobytes() == x.astype(np.float32).tobytes()
    padded = f"1,2,0\n3,4,1\n3,{' ' * (1 << 21)}4,1\n"  # a line that no block of the first try holds
    assert dense(read(write(tmp_path, "padded.csv", padded))) == [[1, 2], [3, 4], [3, 4]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        (" \n\n", "is empty"),
        ("a,b,y\n", "has a header and no rows"),
        (f"1,{'2' * 200_000},0\n1,2,3\n", "the first rows: field larger than field limit"),
        ("1\n2\n", "line 1: has one column; want features and a label, with commas"),
        ("\n\na;b;y\n1;2;3\n", "line 3: has one column"),
        ("1,x,0\n2,3,1\n", "line 1: 'x' is no number, beside numbers"),
        ("1,2,0\n\n3,x,1\n", "line 3: column 2 is 'x'; write a number"),
        ("a,y,b\n1,0,2\n3,1,x\n", "line 3: column 3 is 'x'"),
        ("a,b,y\n1,2,0\n3,,1\n", "line 3: column 2 is empty; write a number"),
        ("1,2,0\n3,NA,1\n", "line 2: column 2 is 'NA'"),
        ("a,,y\n1,2,0\n3,4,1\n", "line 1: column 2 has no name; name it, or leave it out"),
        (",,y\n0,2,0\n1,4,1\n", "line 1: column 2 has no name"),
        (",y\n0,0\n1,1\n", "line 1: has one column; want features and a label"),
        ('1,2,a\n\n3,4,"b\n5,6,a\n7,8,b"\n', "line 3: a quote is opened and not closed in the line; double it, or"),
        ('a,b,y\n1,2,"a"\r\n3,4,"b\r\n5,6,a\r\n', "line 3: a quote is opened and not closed"),
        ("1,2,0\n3,4\n", "line 2: has 2 columns and the first row 3"),
        ("\n1,2,0\n3,4,1,9\n", "line 3: has 4 columns and the first row 3"),
        ("1,2,0\n3,nan,1\n", "line 2: a value is nan"),
        ("h,i,j\n1,2,0\n\n3,-inf,1\n", "line 4: a value is -inf"),
        ("1,1e39,0\n3,2,1\n", "line 1: a value is inf"),
        ("1,2,0\n3,4,\n", "line 2: the label is empty; write a number"),
        ("1,2,0\n3,4,b\n", "line 2: the label is 'b'; write a number"),
        ("1,2,0.5\n3,4,nan\n", "line 2: the label is nan"),
        ("1,2,a\n3,4,b\n5,6,7\n", "line 3: label '7' beside 'a'; write all labels as numbers, or all as texts"),
        ("1,2,a\n3,4,b\n5,6,\n", "line 3: label '' beside 'a'"),
        (b"1,2,a\n3,4,\xff\n", "line 2: the label is not UTF-8 text"),
        (b"PAR1\x00\x00\n", "is a binary file, not the text that its ending .csv promises"),
    ],
)
def test_a_bad_csv_is_told_by_line(tmp_path: Path, text: str | bytes, says: str) -> None:
    refused(write(tmp_path, "a.csv", text), says)


@pytest.mark.parametrize(
    ("text", "x", "labels", "note"),
    [
        ("x,y\n1,2\n3,4\n5,6\n", [[1, 2], [3, 4], [5, 6]], (),
         "all 2 columns are inputs; no column is named label, target, class or species"),
        ("1,2\n3,4\n5,6\n", [[1, 2], [3, 4], [5, 6]], (), "all 2 columns are inputs"),
        ("V1,V2\n1,2\n3,4\n", [[1, 2], [3, 4]], (), "all 2 columns are inputs"),
        ("lat\n1\n3\n", [[1], [3]], (), "all 1 column is the input"),
        (",x,y\n0,1,2\n1,3,4\n", [[1, 2], [3, 4]], (), "column 1 has no name: taken for an index of rows and left out"),
        (",x\n0,1\n1,3\n", [[1], [3]], (), "all 1 column is the input"),
        ("x,Class,y\n1,0,2\n3,1,4\n", [[1, 2], [3, 4]], (0, 1),
         "column 2 ('Class') is the label and passed over, the other 2 columns"),
        ("x,y,kind\n1,2,rose\n3,4,lily\n", [[1, 2], [3, 4]], ("lily", "rose"),
         "column 3 ('kind') is the label and passed over"),
        ("1,2,rose\n3,4,lily\n", [[1, 2], [3, 4]], ("lily", "rose"), "column 3 is the label and passed over"),
    ],
)  # fmt: skip
def test_an_application_without_labels_learns_from_all_columns_but_one_that_is_named(
    tmp_path: Path, text: str, x: list[list[float]], labels: tuple[int | str, ...], note: str
) -> None:
    source = write(tmp_path, "a.csv", text)
    found = KINDS["examples"](source, 1, "kmeans")
    assert found.sizes == {"n_inputs": len(x[0]), "n_classes": len(labels), "n_examples": len(x) - 1, "n_partitions": 1}
    assert (found.about["labels"], len(found.notes)) == (list(labels), 1 + text.startswith(","))
    assert any(line.startswith(note) for line in found.notes), found.notes
    parts = [*found.parts(0), found.heldout()]
    assert all(("y" in part) == bool(labels) for part in parts)
    rows = np.concatenate([part["ids"] for part in parts])
    assert np.concatenate([part["x"] for part in parts])[np.argsort(rows)].tolist() == x
    new = read_data(source, n_inputs=len(x[0]), labels=False)  # for a model that was trained on it
    assert isinstance(new.x, np.ndarray)
    assert new.x.tolist() == x


def test_what_may_be_two_labels_is_refused_where_none_is_wanted(tmp_path: Path) -> None:
    source = write(tmp_path, "a.csv", "x,label,class\n1,0,2\n3,1,4\n")
    with pytest.raises(InputError, match="line 1: 'label' and 'class' may both be the label; rename one of them"):
        check_data(source, 1, "kmeans")
    with pytest.raises(InputError, match="line 1: has one column"):
        check_data(write(tmp_path, "a.csv", "label\n1\n2\n"), 1, "kmeans")


def test_a_class_of_one_row_and_measurements_in_place_of_labels_are_no_matter_without_labels(tmp_path: Path) -> None:
    rare = write(tmp_path, "rare.csv", "x,label\n1,0\n2,1\n3,1\n4,7\n5,8\n")
    refused(rare, "the only row with label 0")
    assert check_data(rare, 2, "kmeans")
    assert check_data(write(tmp_path, "a.svm", "0.5 1:2 2:1\n3 1:1\n4 2:2\n"), 2, "kmeans") == ()
    np.savez(tmp_path / "a.npz", x=np.eye(5))
    assert KINDS["examples"](str(tmp_path / "a.npz"), 2, "kmeans").rows == 4
    with pytest.raises(InputError, match="has no array 'y'"):
        check_data(str(tmp_path / "a.npz"), 2, "mlr")
    with pytest.raises(InputError, match="the only row;"):
        check_data(write(tmp_path, "one.csv", "x,y\n1,2\n"), 1, "kmeans")


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("a,b,c\n1,2,0\n3,4,0\n", ("column 3 ('c') is the label, the other 2 columns are inputs",)),
        ("1,0\n3,0\n", ("column 2 is the label, the other 1 column is the input",)),
        (",a,y\n0,2,1\n1,4,1\n", ("column 3 ('y') is the label, the other 1 column is the input",
                                "column 1 has no name: taken for an index of rows and left out")),
    ],
)  # fmt: skip
def test_the_label_column_is_told(tmp_path: Path, text: str, notes: tuple[str, ...]) -> None:
    blobs = Blobs((tmp_path / "blobs").as_uri())
    source = write(tmp_path, "a.csv", text)
    for _ in range(2):  # written, and found written
        assert prepare(blobs, "job", source, 1, 0, "my:Own").notes == notes
    assert check_data(source, 1, "my:Own") == notes


# -- svmlight ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("# nothing but this\n", "holds no examples"),
        ("1\n2\n", "has labels and no features"),
        ("1 1:1\n# c\nx 1:1\n", "line 3: label 'x' is no number"),
        ("1 1:1\n1:1 2:2\n", "line 2: no label before '1:1'"),
        ("1,2 1:1\n", "line 1: several labels, '1,2'"),
        ("1 1:1\n\n1 3:1 2:1\n", "line 3: index 2 comes after 3; write each once, in ascending order"),
        ("1 3:1 3:1\n", "line 1: index 3 comes after 3"),
        ("1 1:1\n1 -1:1\n", "line 2: index -1 is below 0"),
        ("1 99999999999:1\n", "line 1: index 99999999999 is below 0 or beyond 2147483647"),
        ("1 1:x\n", "line 1: value 'x' of index 1 is no number"),
        ("1 1:\n", "line 1: value '' of index 1 is no number"),
        ("1 1:1\n1 2\n", "line 2: '2' is no index:value"),
        ("1 a:1\n", "line 1: 'a:1' is no index:value"),
        ("# c\n1 1:1\n0 1:1\n\n1 2:nan\n", "line 5: a value is nan"),
        ("1 1:1\n0 1:1e39\n", "line 2: a value is inf"),
        ("1 1:1\n# c\nnan 1:1\n", "line 3: the label is nan"),
        (b"1 1:1\n\xff 1:1\n", "line 2: label '\N{REPLACEMENT CHARACTER}' is no number"),
    ],
)
def test_a_bad_svmlight_file_is_told_by_line(tmp_path: Path, text: str | bytes, says: str) -> None:
    refused(write(tmp_path, "a.svm", text), says)


def test_what_is_mostly_zeros_stays_sparse_and_what_is_not_becomes_dense(tmp_path: Path) -> None:
    few = read(write(tmp_path, "few.svm", "1 1:1 900:2\n-1 5:3\n"))
    assert isinstance(few.x, Csr)
    assert few.x.shape == (2, 900)
    assert (few.x.data.tolist(), few.x.indices.tolist(), few.x.indptr.tolist()) == ([1, 2, 3], [0, 899, 4], [0, 2, 3])
    assert [array.dtype.name for array in few.arrays().values()][:5] == ["float32", "int32", "int64", "int64", "int32"]
    many = read(write(tmp_path, "many.svm", "1 1:1 12:2\n-1 5:3\n"))  # 96 bytes dense, 48 sparse
    assert isinstance(many.x, np.ndarray)
    assert np.flatnonzero(many.x).tolist() == [0, 11, 16]


def test_a_file_counts_from_zero_where_index_0_occurs(tmp_path: Path) -> None:
    assert dense(read(write(tmp_path, "one.svm", "1 1:1\n2 2:1\n"))) == [[1, 0], [0, 1]]
    assert dense(read(write(tmp_path, "zero.svm", "1 0:1\n2 2:1\n"))) == [[1, 0, 0], [0, 0, 1]]


def test_a_comment_may_say_how_many_features_there_are(tmp_path: Path) -> None:
    rows = "1 1:1\n2 3:1\n"
    for head, width in (("# features: 5\n", 5), ("# of a tool\r\n\n#features:4\r\n", 4), ("# features: 2\n", 3)):
        assert read(write(tmp_path, "a.svm", head + rows)).x.shape == (2, width)
    assert read(write(tmp_path, "a.svm", rows + "# features: 5\n")).x.shape == (2, 3)
    assert read_data(write(tmp_path, "a.svm", "# features: 9\n" + rows), n_inputs=2).x.shape == (2, 2)
    refused(
        write(tmp_path, "a.svm", "\n# features: 99999999999\n" + rows), "line 2: says more than 2147483647 features"
    )


def test_features_beyond_a_models_are_passed_over_and_those_that_it_has_more_are_zeros(tmp_path: Path) -> None:
    source = write(tmp_path, "a.svm", "1 1:1 4:2\n# c\n0 2:3\n0 4:1 900000000:5\n")
    few = read_data(source, n_inputs=3)
    assert dense(examples(source, few)) == [[1, 0, 0], [0, 3, 0], [0, 0, 0]]
    assert few.notes == (
        "2 features that the model was not trained on, of index 4 or more, passed over: index 4 in line 1 is the first",
    )
    many = read_data(source, n_inputs=10**9)
    assert (many.x.shape, many.notes) == ((3, 10**9), ())
    assert isinstance(many.x, Csr)  # and not three rows of 4 GB
    from_0 = read_data(write(tmp_path, "a.svm", "1 0:1 1:2\n0 2:3\n"), 0, n_inputs=2)
    assert from_0.notes[0].endswith("of index 2 or more, passed over: index 2 in line 2 is the first")


# -- any form ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [".gz", ".bz2", ".zst", ".xz"])
def test_a_packed_file_that_is_cut_short_is_told(tmp_path: Path, packed: str) -> None:
    whole = PACKED[packed](b"".join(b"%d,%d,%d\n" % (i, i * i, i % 2) for i in range(1000)))
    for cut in (whole[:-3], whole[: len(whole) // 2], whole + b"more"):
        refused(write(tmp_path, f"a.csv{packed}", cut), "stream is damaged or cut short; fetch the file again")


@pytest.mark.parametrize("content", [b"PAR1\0\1\2", b"PK\3\4" + bytes(26) + b"a.csv1,2,0\n", None])
@pytest.mark.parametrize("name", ["a.parquet", "a", "a.csv.zip", "a.gz", "mnist"])
def test_an_unknown_ending_of_what_is_no_text_is_told_with_those_that_are_known(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
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


def refused(source: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        check_data(source, 1)
    assert source in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300 + len(source)
