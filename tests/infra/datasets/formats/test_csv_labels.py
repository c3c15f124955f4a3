"""Labels of a CSV: digits that are names stay the names they are; numbers are numbers."""

from pathlib import Path

import pytest

from proteus_spot.infra.datasets.data_files import read_data
from proteus_spot.infra.datasets.formats.example_table import examples
from proteus_spot.infra.datasets.formats.reading import Reading
from tests.support.data_files import read, refused, write


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ("007 7 7 007", ("007", "7")),
        ("7 007 7 007", ("007", "7")),  # whatever is first
        ("01 12 01 12", ("01", "12")),
        ("-01 1 -01 1", ("-01", "1")),
        ("02139 10001 02139 10001", ("02139", "10001")),
        ("12345678901234567 12345678901234568 12345678901234567", ("12345678901234567", "12345678901234568")),
        ("7 8 7 8", (7, 8)),
        ("-1 +1 -1 1", (-1, 1)),
        ("1.0 2 1 2.", (1, 2)),  # equal numbers, as pandas writes them where a cell was empty
        ("1e3 1000 0 0", (0, 1000)),
        ("0 0.0 1 1", (0, 1)),
        ("05.5 5.25 7 7", ()),  # measurements
    ],
)
def test_digits_that_are_names_are_texts_and_numbers_are_numbers(
    tmp_path: Path, labels: str, classes: tuple[int | str, ...]
) -> None:
    rows = "".join(f"{row},{label}\n" for row, label in enumerate(labels.split()))
    for header in ("", "a,b\n"):
        assert read(write(tmp_path, "a.csv", header + rows)).labels == classes
    assert read(write(tmp_path, "a.csv", rows.replace(",", ", "))).labels == classes  # blanks around them


def test_labels_of_svmlight_are_numbers(tmp_path: Path) -> None:
    assert read(write(tmp_path, "a.svm", "-1 1:1\n+1 1:2\n-1 1:3\n01 1:4\n")).labels == (-1, 1)


def test_new_labels_are_texts_as_those_of_the_model(tmp_path: Path) -> None:
    source = write(tmp_path, "a.csv", "1,7\n2,12\n")  # no leading zero here
    table = read_data(source, n_inputs=1, how=Reading(text_labels=True))
    assert examples(source, table).labels == ("12", "7")


def test_a_text_among_names_of_digits_is_refused(tmp_path: Path) -> None:
    refused(write(tmp_path, "a.csv", "1,007\n2,7\n3,x\n"), "line 3: the label is 'x'; write a number")
