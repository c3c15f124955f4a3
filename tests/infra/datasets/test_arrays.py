"""Arrays of any rank and type are cut by their first axis; a text is cut into runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proteus_spot.infra.datasets.arrays import read
from proteus_spot.infra.errors import InputError


def saved(tmp_path: Path, **arrays: Any) -> str:
    file = tmp_path / "a.npz"
    np.savez(file, **arrays)
    return str(file)


def test_every_example_is_once_in_a_partition_or_held_out(tmp_path: Path) -> None:
    images = np.arange(23 * 2 * 3 * 4, dtype=np.uint8).reshape(23, 2, 3, 4)
    number = np.arange(23, dtype=np.int16)
    found = read(saved(tmp_path, images=images, y=number % 3, number=number), 4)
    parts = [*found.parts(seed=1), found.heldout()]
    assert sorted(np.concatenate([part["number"] for part in parts]).tolist()) == list(range(23))
    assert (found.rows, found.heldout_rows, [len(part["number"]) for part in parts]) == (19, 4, [5, 5, 5, 4, 4])
    for part in parts:
        np.testing.assert_array_equal(part["images"], images[part["number"]])
        assert (part["images"].dtype, part["number"].dtype) == (np.uint8, np.int16)
    assert all(part["ids"].tolist() == part["number"].tolist() for part in parts[:-1])
    assert [int(part["first"]) for part in parts[:-1]] == [0, 5, 10, 15]
    assert found.sizes == {"n_inputs": 0, "n_classes": 3, "n_examples": 19, "n_partitions": 4}
    other = [part["number"].tolist() for part in found.parts(seed=2)]
    assert other != [part["number"].tolist() for part in parts[:-1]]


def test_a_text_is_cut_into_runs_and_its_end_is_held_out(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes("Grüße, world. ".encode() * 10)
    found = read(str(file), 3)
    parts = [part["text"].tobytes() for part in found.parts(seed=1)]
    assert b"".join([*parts, found.heldout()["text"].tobytes()]) == file.read_bytes()
    assert found.heldout_rows == len(file.read_bytes()) // 5


def test_a_built_in_set_and_a_table_are_labelled_examples() -> None:
    part = next(iter(read("digits", 2).parts(0)))
    assert sorted(part) == ["first", "ids", "x", "y"]


@pytest.mark.parametrize(
    ("arrays", "line"),
    [
        ({"a": np.zeros(3), "b": np.zeros(4)}, r"differ in their first axis, the examples: a \(3,\), b \(4,\)"),
        ({"a": np.zeros(())}, r"differ in their first axis, the examples: a \(\)"),
        ({"a": np.array(["x"] * 9)}, "array 'a' is of <U1; want numbers"),
        ({"ids": np.zeros(9)}, "array 'ids' has a name that partitions need"),
        ({"a": np.zeros(4)}, "has 4 examples, too few for 4 workers"),
        ({}, "holds no arrays"),
    ],
)
def test_what_cannot_be_cut_is_refused_in_one_line(tmp_path: Path, arrays: Any, line: str) -> None:
    with pytest.raises(InputError, match=line):
        read(saved(tmp_path, **arrays), 4)


def test_sparse_examples_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.svm"
    file.write_text("".join(f"{row % 2} {row + 1}:1\n" for row in range(20)))
    with pytest.raises(InputError, match="holds sparse examples; a net takes dense ones"):
        read(str(file), 2)
