from pathlib import Path

import numpy as np
import pytest

from proteus_spot.infra.datasets.examples import deal
from proteus_spot.infra.datasets.prepare import DataSummary, has_moved, prepare
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import BlobMissing, Blobs
from proteus_spot.infra.storage.job_paths import HELD_OUT, JobPaths, part_name


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs((tmp_path / "blobs").as_uri())


def save(folder: Path, **arrays: np.ndarray) -> str:
    path = folder / "data.npz"
    np.savez(path, **arrays)
    return path.as_uri()


def test_digits_are_spread_over_the_parts_evenly_and_wholly(blobs: Blobs) -> None:
    summary = prepare(blobs, "job-1", "digits", 7, seed=3)
    sizes = {"n_inputs": 64, "n_classes": 10, "n_examples": 1437, "n_partitions": 7}
    assert summary == DataSummary("digits", blobs.url_of("jobs/job-1/data"), 7, 1437, 360, sizes)
    parts = [blobs.read_npz(f"jobs/job-1/data/{part_name(index)}") for index in range(7)]
    heldout = blobs.read_npz(f"jobs/job-1/data/{HELD_OUT}")
    for part in [*parts, heldout]:
        assert (part["x"].dtype, part["y"].dtype, part["ids"].dtype) == (np.float32, np.int32, np.int64)
        assert part["x"].shape == (len(part["y"]), 64)
        assert (part["x"].min(), part["x"].max()) == (0.0, 1.0)
    sizes = [len(part["y"]) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    ids = np.concatenate([part["ids"] for part in [*parts, heldout]])
    assert sorted(ids) == list(range(1797))
    assert np.bincount(heldout["y"]).min() >= 34  # stratified: a fifth of each class


def test_rows_keep_their_labels(blobs: Blobs, tmp_path: Path) -> None:
    x = np.repeat(np.arange(100.0)[:, None], 3, axis=1)
    url = save(tmp_path, x=x, y=np.arange(100) % 4)
    assert prepare(blobs, "job-1", url, 3, seed=0).sizes["n_classes"] == 4
    for name in (part_name(0), part_name(2), HELD_OUT):
        part = blobs.read_npz(f"jobs/job-1/data/{name}")
        assert (part["x"] == part["ids"][:, None]).all()
        assert (part["y"] == part["ids"] % 4).all()


def test_the_split_is_the_same_for_every_seed_and_the_deal_is_not(blobs: Blobs) -> None:
    for job_id, seed in (("a", 0), ("b", 1), ("c", 0)):
        prepare(blobs, job_id, "digits", 4, seed)
    read = {
        (job, name): blobs.read_bytes(f"jobs/{job}/data/{name}") for job in "abc" for name in (HELD_OUT, part_name(0))
    }
    assert read["a", HELD_OUT] == read["b", HELD_OUT]
    assert read["a", part_name(0)] != read["b", part_name(0)]
    assert read["a", part_name(0)] == read["c", part_name(0)]


def test_a_set_that_is_there_is_kept(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare(blobs, "job-1", "digits", 4, 0)
    with monkeypatch.context() as patch:
        patch.setattr(blobs, "write_bytes", None)  # anything written would fail
        assert prepare(blobs, "job-1", "digits", 4, 0) == first
    whole = blobs.read_set("jobs/job-1/data")
    blobs.write_bytes(f"jobs/job-1/data/{part_name(1)}", b"cut")
    assert prepare(blobs, "job-1", "digits", 4, 0) == first
    assert blobs.read_set("jobs/job-1/data") == whole


def test_a_file_that_moved_is_the_same_data_and_another_one_is_not(blobs: Blobs, tmp_path: Path) -> None:
    x, y = np.arange(80.0).reshape(40, 2), np.arange(40) % 2
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
    made = prepare(blobs, "job-1", save(tmp_path / "old", x=x, y=y), 4, seed=0)
    (tmp_path / "old" / "data.npz").unlink()
    moved = save(tmp_path / "new", x=x, y=y)
    assert has_moved(blobs, "job-1", moved, 4, 0)
    found = prepare(blobs, "job-1", moved, 4, seed=0)
    assert (found.source, found.sizes, found.data_url) == (moved, made.sizes, made.data_url)
    (tmp_path / "new" / "data.npz").unlink()
    assert prepare(blobs, "job-1", moved, 4, seed=0) == found, "the new place is noted: the file is not read again"
    x[3, 1] += 1
    other = save(tmp_path / "old", x=x, y=y)
    assert not has_moved(blobs, "job-1", other, 4, 0)
    with pytest.raises(InputError, match=r"was prepared from .* use another job id"):
        prepare(blobs, "job-1", other, 4, seed=0)
    assert prepare(blobs, "job-1", moved, 4, seed=0) == found


def test_a_preparation_that_broke_off_is_begun_again(blobs: Blobs) -> None:
    first = prepare(blobs, "job-1", "digits", 4, 0)
    blobs.remove(f"{JobPaths('job-1').data}/manifest.json")
    with pytest.raises(BlobMissing):
        blobs.read_set("jobs/job-1/data")
    assert prepare(blobs, "job-1", "digits", 4, 0) == first
    assert len(blobs.read_set("jobs/job-1/data")) == 5


@pytest.mark.parametrize(("source", "parts", "seed"), [("digits", 5, 0), ("digits", 4, 1)])
def test_the_data_of_a_job_are_not_changed_under_it(blobs: Blobs, source: str, parts: int, seed: int) -> None:
    prepare(blobs, "job-1", "digits", 4, 0)
    with pytest.raises(InputError, match="use another job id"):
        prepare(blobs, "job-1", source, parts, seed)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"x": np.zeros((9, 2))}, "has no array 'y'"),
        ({"x": np.zeros(9), "y": np.zeros(9, int)}, "want \\(rows, features\\)"),
        ({"x": np.zeros((9, 2)), "y": np.zeros(8, int)}, "want \\(rows, features\\)"),
        ({"x": np.zeros((9, 2)), "y": np.full(9, "a")}, "want numbers"),
        ({"x": np.full((9, 2), "a"), "y": np.zeros(9, int)}, "want numbers"),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0, int)}, "holds no examples"),
        (
            {"x": np.array([[1.0], [np.nan], [2.0]]), "y": np.zeros(3, int)},
            "row 1: column 1 has no value; 1 cell has none",
        ),
        ({"x": np.full((2, 1), 1e39), "y": np.zeros(2, int)}, "row 0: a value is inf"),
        ({"x": np.zeros((3, 2)), "y": np.array([0.5, np.inf, 1.0])}, "row 1: the label is inf"),
        ({"x": np.zeros((9, 2)), "y": np.arange(9) // 2 - 1}, "row 8: the only row with label 3"),
        ({"x": np.zeros((10, 2)), "y": np.zeros(10, int)}, "too few for 9 parts"),
    ],
)
def test_data_that_cannot_be_used_are_told_in_one_line(
    blobs: Blobs, tmp_path: Path, arrays: dict[str, np.ndarray], reason: str
) -> None:
    url = save(tmp_path, **arrays)
    with pytest.raises(InputError, match=reason) as caught:
        prepare(blobs, "job-1", url, 9, 0)
    assert url in str(caught.value)
    assert "\n" not in str(caught.value)
    assert blobs.list() == []


def test_unknown_and_unreadable_sources_are_told_in_one_line(blobs: Blobs, tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "folder.npz").mkdir()
    for source, reason in {
        "mnist": r"unknown; known are digits, and path or URL of a file that ends in \.npz, \.csv",
        f"{tmp_path}/nothing.npz": "there is no such file",
        f"{tmp_path}/folder.npz": "is a directory",
        f"{tmp_path}/text.npz": r"not a readable \.npz",
        "nosuch://x.npz": "nosuch",
    }.items():
        with pytest.raises(InputError, match=reason) as caught:
            prepare(blobs, "job-1", source, 2, 0)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="at least 1"):
        prepare(blobs, "job-1", "digits", 0, 0)


def test_no_code_in_a_data_file_is_run(blobs: Blobs, tmp_path: Path) -> None:
    url = save(tmp_path, x=np.array([object()]), y=np.zeros(1, int))
    with pytest.raises(InputError, match="allow_pickle"):
        prepare(blobs, "job-1", url, 1, 0)


def test_rows_are_dealt_evenly() -> None:
    for n_rows, n_partitions in ((10, 3), (7, 7), (1, 1)):
        runs = deal(n_rows, n_partitions, 5)
        assert sorted(np.concatenate(runs)) == list(range(n_rows))
        assert {len(run) for run in runs} <= {n_rows // n_partitions, n_rows // n_partitions + 1}


def test_every_row_to_train_on_has_a_number(tmp_path: Path) -> None:
    """Partitions are consecutive runs of numbers, so that an application may store a value for each example."""
    blobs = Blobs(tmp_path.as_uri())
    summary = prepare(blobs, "job", "digits", 7, 3)
    parts = [blobs.read_npz(f"jobs/job/data/{part_name(part)}") for part in range(7)]
    sizes = [len(part["ids"]) for part in parts]
    assert [int(part["first"]) for part in parts] == [sum(sizes[:part]) for part in range(7)]
    assert sum(sizes) == summary.rows
