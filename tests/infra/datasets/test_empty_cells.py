"""Cells without a value are counted and refused, left out with their rows, or filled in."""

from pathlib import Path

import numpy as np
import pytest

from proteus_spot.infra.datasets.formats.reading import Reading
from proteus_spot.infra.datasets.kinds import KINDS
from proteus_spot.infra.datasets.prepare import check_data
from proteus_spot.infra.errors import InputError
from tests.support.data_files import refused, write

ROWS = "a,b,y\n1,,u\n2,4,v\nNA,6,u\n4,8,v\n5,10,u\n6,12,v\n7,?,u\n8,16,v\n9,18,u\n10,20,v\n"


def test_they_are_counted_and_their_columns_named(tmp_path: Path) -> None:
    source = write(tmp_path, "a.csv", ROWS)
    refused(
        source, r"line 2: column 2 \('b'\) has no value; 3 cells in 2 columns have none \(column 1 \('a'\), column 2"
    )
    with pytest.raises(InputError, match="--empty drop leaves their rows out, --empty mean fills in the mean"):
        check_data(source, 1)
    np.savez(tmp_path / "a.npz", x=np.array([[1.0, np.nan], [2.0, 3.0]]), y=[0, 1])
    refused(str(tmp_path / "a.npz"), "row 0: column 2 has no value; 1 cell has none")


def test_their_rows_are_left_out(tmp_path: Path) -> None:
    found = KINDS["examples"](write(tmp_path, "a.csv", ROWS), 1, "mlr", Reading(empty="drop"))
    kept = np.concatenate([found.train.ids, found.held.ids])
    assert sorted(kept.tolist()) == [1, 3, 4, 5, 7, 8, 9], "rows in the source"
    assert "3 of 10 rows have an empty cell and are left out" in found.notes
    without = write(tmp_path, "b.csv", "a,y\n1,0\n2,\n3,1\n4,0\n5,1\n6,NA\n")
    assert KINDS["examples"](without, 1, "mlr", Reading(empty="drop")).about["labels"] == [0, 1]
    refused(without, "line 3: the label is empty; write a number")
    texts = write(tmp_path, "c.csv", "a,y\n1,u\n2,\n3,v\n4,u\n5,v\n")
    assert KINDS["examples"](texts, 1, "mlr", Reading(empty="drop")).about["labels"] == ["u", "v"]


def test_they_are_filled_in_by_the_mean_of_the_rows_to_train_on(tmp_path: Path) -> None:
    found = KINDS["examples"](write(tmp_path, "a.csv", ROWS), 1, "mlr", Reading(empty="mean"))
    x = {int(row): values for half in (found.train, found.held) for row, values in zip(half.ids, half.x, strict=True)}
    values = np.array(
        [[1, np.nan], [2, 4], [np.nan, 6], [4, 8], [5, 10], [6, 12], [7, np.nan], [8, 16], [9, 18], [10, 20]]
    )
    means = np.nanmean(values[found.train.ids], axis=0)
    assert found.about["fill"] == pytest.approx(means.tolist())
    assert x[0].tolist() == pytest.approx([1, means[1]])
    assert x[2].tolist() == pytest.approx([means[0], 6])
    assert any(note.startswith("3 empty cells hold the mean") for note in found.notes)
    empty = write(tmp_path, "b.csv", "a,b,y\n1,,0\n2,,1\n3,,0\n4,,1\n")
    with pytest.raises(InputError, match=r"column 2 \('b'\) has no value in the rows to train on; leave it out"):
        check_data(empty, 1, "mlr", how=Reading(empty="mean"))
    with pytest.raises(InputError, match="every row has an empty cell"):
        check_data(empty, 1, "mlr", how=Reading(empty="drop"))
