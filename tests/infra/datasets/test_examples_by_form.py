"""CSV and svmlight: the column of the label, and refused files."""

from pathlib import Path

import numpy as np
import pytest

from proteus_spot.infra.datasets.data_files import read_data
from proteus_spot.infra.datasets.formats.example_table import examples
from proteus_spot.infra.datasets.kinds import KINDS
from proteus_spot.infra.datasets.prepare import check_data, prepare
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.psengine.apps.csr import Csr
from tests.support.data_files import dense, read, refused, write


@pytest.mark.parametrize(
    ("text", "x", "y", "labels"),
    [
        ("a,b,c\n1,2,0\n3,4,1\n", [[1, 2], [3, 4]], [0, 1], (0, 1)),  # a header; the last column
        ("a,Label,c\n1,0,2\n3,1,4\n", [[1, 2], [3, 4]], [0, 1], (0, 1)),  # by name
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
        ("\n\na;b;y\n1;2;3\n1;x;3\n", r"line 5: column 2 \('b'\) is 'x'; write a number"),
        ("1,x,0\n2,3,1\n", "line 1: 'x' is not a number, among numbers"),
        ("1,2,0\n\n3,x,1\n", "line 3: column 2 is 'x'; write a number"),
        ("a,y,b\n1,0,2\n3,1,x\n", r"line 3: column 3 \('b'\) is 'x'"),
        ("a,b,y\n1,2,0\n3,,1\n", r"line 3: column 2 \('b'\) has no value; 1 cell has none: --empty drop"),
        ("1,2,0\n3,NA,1\n", "line 2: column 2 has no value; 1 cell has none"),
        ("a,,y\n1,2,0\n3,4,1\n", "line 1: column 2 has no name; name it, or leave it out"),
        (",,y\n0,2,0\n1,4,1\n", "line 1: column 2 has no name"),
        (",y\n0,0\n1,1\n", "line 1: has one column; want features and a label"),
        ('1,2,a\n\n3,4,"b\n5,6,a\n7,8,b"\n', "line 3: a quote is opened and not closed in the line; double it, or"),
        ('a,b,y\n1,2,"a"\r\n3,4,"b\r\n5,6,a\r\n', "line 3: a quote is opened and not closed"),
        ("1,2,0\n3,4\n", "line 2: has 2 columns and the first row 3"),
        ("\n1,2,0\n3,4,1,9\n", "line 3: has 4 columns and the first row 3"),
        ("1,2,0\n3,nan,1\n", "line 2: column 2 has no value"),
        ("h,i,j\n1,2,0\n\n3,-inf,1\n", "line 4: a value is -inf"),
        ("1,1e39,0\n3,2,1\n", "line 1: a value is inf"),
        ("1,2,0\n3,4,\n", "line 2: the label is empty; write a number"),
        ("1,2,0\n3,4,b\n", "line 2: the label is 'b'; write a number"),
        ("1,2,0.5\n3,4,nan\n", "line 2: the label is nan"),
        ("1,2,a\n3,4,b\n5,6,7\n", "line 3: labels '7' and 'a'; write all labels as numbers, or all as texts"),
        ("1,2,a\n3,4,b\n5,6,\n", "line 3: labels '' and 'a'"),
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
    with pytest.raises(InputError, match="line 1: 'label' and 'class' may both be the label; say which by --label"):
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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("# nothing but this\n", "holds no examples"),
        ("1\n2\n", "has labels and no features"),
        ("1 1:1\n# c\nx 1:1\n", "line 3: label 'x' is not a number"),
        ("1 1:1\n1:1 2:2\n", "line 2: no label before '1:1'"),
        ("1,2 1:1\n", "line 1: several labels, '1,2'"),
        ("1 1:1\n\n1 3:1 2:1\n", "line 3: index 2 comes after 3; write each once, in ascending order"),
        ("1 3:1 3:1\n", "line 1: index 3 comes after 3"),
        ("1 1:1\n1 -1:1\n", "line 2: index -1 is below 0"),
        ("1 99999999999:1\n", "line 1: index 99999999999 is below 0 or beyond 2147483647"),
        ("1 1:x\n", "line 1: value 'x' of index 1 is not a number"),
        ("1 1:\n", "line 1: value '' of index 1 is not a number"),
        ("1 1:1\n1 2\n", "line 2: '2' is not an index:value"),
        ("1 a:1\n", "line 1: 'a:1' is not an index:value"),
        ("1 1:1\n1 +2:1\n", r"line 2: '\+2:1' is not an index:value"),
        ("1 1:1\n1 2:1_0\n", "line 2: value '1_0' of index 2 is not a number"),
        ("1 1:1:1 4\n", "line 1: value '1:1' of index 1 is not a number"),
        ("1 1:1 2\n1 3: 4:1\n", "line 1: '2' is not an index:value"),
        ("# c\n1 1:1\n0 1:1\n\n1 2:nan\n", "line 5: column 2 has no value"),
        ("1 1:1\n0 1:1e39\n", "line 2: a value is inf"),
        ("1 1:1\n# c\nnan 1:1\n", "line 3: the label is nan"),
        (b"1 1:1\n\xff 1:1\n", "line 2: label '\N{REPLACEMENT CHARACTER}' is not a number"),
    ],
)
def test_a_bad_svmlight_file_is_told_by_line(tmp_path: Path, text: str | bytes, says: str) -> None:
    refused(write(tmp_path, "a.svm", text), says)


def test_an_svmlight_file_is_read_as_scikit_learn_reads_it(tmp_path: Path) -> None:
    from sklearn.datasets import dump_svmlight_file, load_svmlight_file

    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 30)) * (rng.random((200, 30)) < 0.1) * 10.0 ** rng.integers(-30, 30, (200, 30))
    y = rng.normal(size=200)
    path = tmp_path / "a.svm"
    dump_svmlight_file(x, y, str(path), zero_based=False, query_id=np.arange(200), comment="made by a test")
    odd = b"1.5e0\tqid:3\t1:+.5  2:5.  03:-1e-3 # c 4:1\r\n\n  # c\n-2 30:1e-40"
    path.write_bytes(path.read_bytes() + odd)
    theirs, labels = load_svmlight_file(str(path), dtype=np.float32)
    found = read(str(path))
    np.testing.assert_array_equal(dense(found), theirs.toarray())
    np.testing.assert_array_equal(found.y, labels.astype(np.float32))


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
