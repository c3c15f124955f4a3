"""What separates the columns of a text table is found, and text that is no table is named."""

from pathlib import Path

import pytest

from proteus_spot.infra.datasets.data_files import read_data
from tests.support.data_files import dense, read, refused, write


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.data", "1.5 2 0\n3 4 1\n"),
        ("a.txt", "  1.5   2   0\n  3   4   1  \n"),
        ("a.txt", "1.5\t\t2\t0\n3\t4\t\t1\n"),  # as UCI's seeds
        ("a.csv", "1.5 2 0\n3 4 1\n"),
        ("a.data", "a b y\n1.5 2 0\n3 4 1\n"),
        ("a.csv", "a;b;y\n1.5;2;0\n3;4;1\n"),
        ("a.csv", "a;b;y\n1,5;2;0\n3;4;1\n"),  # decimal commas
        ("a.csv", "1,5;2,0;0\n3;4;1\n"),
        ("a.data", "a;b;y\n1,5;2;0\n3;4;1\n"),
        ("a.csv", "sep=;\na;b;y\n1,5;2;0\n3;4;1\n"),  # Excel's first line
        ("a.csv", '"sep=,"\r\na,b,y\r\n1.5,2,0\r\n3,4,1\r\n'),
        ("a.csv", "a\tb\ty\n1.5\t2\t0\n3\t4\t1\n"),
        ("a.tsv", "a,b,y\n1.5,2,0\n3,4,1\n"),
        ("a.txt", "a\tb\ty\n1,5\t2\t0\n3\t4\t1\n"),
    ],
)
def test_the_separator_is_found(tmp_path: Path, name: str, text: str) -> None:
    for data in (text.encode(), text.encode("utf-16")):  # Windows PowerShell, and Excel's "Unicode text"
        found = read(write(tmp_path, name, data))
        assert (dense(found), found.labels, found.y.tolist()) == ([[1.5, 2], [3, 4]], (0, 1), [0, 1])


def test_a_separator_that_the_ending_does_not_promise_is_told(tmp_path: Path) -> None:
    notes = read_data(write(tmp_path, "a.csv", "a;b;y\n1;2;0\n3;4;1\n")).notes
    assert notes[0] == "read as columns with semicolons between them"
    assert (
        read_data(write(tmp_path, "a.data", "1 2 0\n3 4 1\n")).notes[0] == "read as a table with blanks, by its content"
    )


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "a.arff",
            "% Iris\n@RELATION iris\n@attribute a numeric\n@data\n1,2\n",
            "is an ARFF file of Weka; save it as CSV",
        ),
        ("a.csv", "@relation iris\n", "is an ARFF file of Weka"),
        ("a.txt", '{"a": 1, "y": 0}\n{"a": 2, "y": 1}\n', "is JSON; save it as CSV"),
        ("a.csv", '[{"a": 1}]\n', "is JSON"),
        ("a.data", "%%MatrixMarket matrix\n1 2 3\n", "is a Matrix Market file"),
        ("a.data", "1 2 0\n3 4\n", "line 2: has 2 columns and the first row 3"),
    ],
)
def test_text_of_another_form_is_named(tmp_path: Path, name: str, text: str, says: str) -> None:
    refused(write(tmp_path, name, text), says)
