"""Columns of a CSV: the label by its name, by `--label`; new data by the names of the model's inputs."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.infra.datasets.data_files import read_data
from proteus_spot.infra.datasets.formats.csv_layout import LABEL_NAMES
from proteus_spot.infra.datasets.formats.reading import Reading
from proteus_spot.infra.datasets.kinds import KINDS
from proteus_spot.infra.datasets.prepare import check_data
from proteus_spot.infra.errors import InputError
from tests.support.data_files import refused, write


@pytest.mark.parametrize(("one", "other"), list(combinations((*LABEL_NAMES, "Y"), 2)))
def test_two_columns_that_may_be_the_label_are_refused_and_an_option_says_which(
    tmp_path: Path, one: str, other: str
) -> None:
    source = write(tmp_path, "a.csv", f"{one},b,{other}\n0,2,5\n1,4,6\n0,5,5\n1,6,6\n")
    refused(source, f"line 1: '{one}' and '{other}' may both be the label; say which by --label, or rename")
    with pytest.raises(InputError, match="may both be the label; say which by --label"):
        read_data(source, n_inputs=2)  # data to predict from
    for label, labels in ((one, [0, 1]), (other, [5, 6])):
        found = KINDS["examples"](source, 1, "mlr", Reading(label))
        assert found.about["labels"] == labels
        assert found.about["label_name"] == label


def test_any_column_may_be_named_as_the_label(tmp_path: Path) -> None:
    source = write(tmp_path, "a.csv", "kind,b,c\nu,2,5\nv,4,6\nu,5,5\nv,6,6\n")
    found = KINDS["examples"](source, 1, "mlr", Reading("kind"))
    assert (found.about["labels"], found.about["inputs"]) == (["u", "v"], ["b", "c"])
    assert found.notes == ("column 1 ('kind') is the label, the other 2 columns are inputs",)
    assert (
        KINDS["examples"](source, 1, "kmeans", Reading("kind"))
        .notes[0]
        .startswith("column 1 ('kind') is the label and")
    )


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "a,b\n1,2\n3,4\n", "line 1: no column is called 'kind', but 'a', 'b'; --label kind names"),
        ("a.csv", "1,2\n3,4\n", "line 1: has no header; --label kind names"),
        ("a.csv", "kind,b,kind\n1,2,3\n3,4,5\n", "line 1: 2 columns are called 'kind'; rename one"),
        ("a.svm", "1 1:2\n0 1:3\n", "--label kind: the columns of .* have no names; leave it out"),
    ],
)
def test_a_label_that_is_not_there_is_refused(tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        check_data(write(tmp_path, name, text), 1, "mlr", how=Reading("kind"))


def test_what_is_said_of_a_table_is_refused_for_ratings_documents_and_built_in_sets() -> None:
    for app, source in (("mf", "ratings"), ("lda", "topics"), ("mlr", "digits")):
        with pytest.raises(InputError, match=r"^--label x: .*; leave it out$"):
            check_data(source, 1, app, how=Reading("x"))
    with pytest.raises(InputError, match=r"^--empty drop: ratings holds ratings"):
        check_data("ratings", 1, "mf", how=Reading(empty="drop"))


MODEL = Reading(inputs=("sl", "sw", "pl"), known_label="kind")


@pytest.mark.parametrize(
    ("text", "x", "labelled", "note"),
    [
        ("sl,sw,pl\n1,2,3\n", [1, 2, 3], False, ""),
        ("pl,sl,sw\n3,1,2\n", [1, 2, 3], False, "the columns are in another order than in the training data"),
        ("sl,sw,pl,kind\n1,2,3,u\n", [1, 2, 3], True, ""),
        ("kind,pl,sw,sl\nu,3,2,1\n", [1, 2, 3], True, "the columns are in another order"),
        ("sl,sw,pl,species\n1,2,3,u\n", [1, 2, 3], True, ""),  # a name that labels have
        (",pl,sw,sl\n0,3,2,1\n", [1, 2, 3], False, "column 1 has no name: taken for an index"),
        ('"sw","pl","sl"\n2,3,1\n', [1, 2, 3], False, "the columns are in another order"),
        ("1,2,3\n", [1, 2, 3], False, "no header: columns are taken by their places, 'sl', 'sw', 'pl'"),
    ],
)
def test_columns_of_new_data_are_taken_by_their_names(
    tmp_path: Path, text: str, x: list[float], labelled: bool, note: str
) -> None:
    table = read_data(write(tmp_path, "a.csv", text), n_inputs=3, how=MODEL)
    assert isinstance(table.x, np.ndarray)
    assert (table.x.tolist(), table.labelled) == ([x], labelled)
    assert bool(table.notes) == bool(note)
    assert not note or any(line.startswith(note) for line in table.notes), table.notes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sl,sw\n1,2\n", "line 1: lacks 'pl', which the model was trained on; name the columns as there"),
        ("sl,sw,pw\n1,2,3\n", "lacks 'pl', which the model was trained on, and 'pw' is none of its inputs"),
        ("a,b,c\n1,2,3\n", "lacks 'sl', 'sw', 'pl', .* and 'a', 'b', 'c' are none of its inputs"),
        ("sl,sw,pl,id\n1,2,3,4\n", "'id' is none of the inputs that the model was trained on, and not its label"),
        ("sl,sw,pl,sl\n1,2,3,4\n", "several columns are called 'sl'; the model was trained on one"),
        ("sl,sw,pl,class,species\n1,2,3,u,v\n", "'class' and 'species' may both be the label"),
    ],
)
def test_missing_and_unknown_columns_of_new_data_are_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        read_data(write(tmp_path, "a.csv", text), n_inputs=3, how=MODEL)
    assert "\n" not in str(caught.value)


def test_an_input_that_is_called_like_a_label_stays_an_input(tmp_path: Path) -> None:
    model = Reading(inputs=("x", "y"), known_label="label")
    for text in ("y,x\n2,1\n", "y,label,x\n2,0,1\n"):
        table = read_data(write(tmp_path, "a.csv", text), n_inputs=2, how=model)
        assert isinstance(table.x, np.ndarray)
        assert table.x.tolist() == [[1, 2]]
    numbered = Reading(inputs=("2019", "2020"))
    table = read_data(write(tmp_path, "a.csv", "2020,2019\n2,1\n"), n_inputs=2, how=numbered)  # names that are numbers
    assert isinstance(table.x, np.ndarray)
    assert table.x.tolist() == [[1, 2]]


def test_a_column_that_counts_the_rows_is_told(tmp_path: Path) -> None:
    rows = "".join(f"{row + 1},{row % 3},{row % 2}\n" for row in range(12))
    says = "column 1 ('Id') counts the rows, and is an input; leave it out of the file if it is none"
    assert says in check_data(write(tmp_path, "a.csv", "Id,a,y\n" + rows), 1)
    assert len(check_data(write(tmp_path, "b.csv", "Id,a,y\n" + rows.replace("7,", "70,", 1)), 1)) == 1


def test_texts_among_the_inputs_are_counted_and_named(tmp_path: Path) -> None:
    source = write(tmp_path, "a.csv", "city,a,zone,y\nOslo,1,north,0\nRome,2,south,1\n")
    refused(
        source, r"line 2: column 1 \('city'\) is 'Oslo'; .*2 inputs are texts: column 1 \('city'\), column 3 \('zone'\)"
    )
