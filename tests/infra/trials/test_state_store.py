"""The newest complete state of a trial counts, whichever deployment uploaded it."""

import filecmp
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from proteus_spot.infra.storage.blobs import CHUNK, MANIFEST, BlobMissing, Blobs, DamagedSet
from proteus_spot.infra.storage.trial_paths import TrialPaths
from proteus_spot.infra.trials.saved_states import pack_state, unpack_state
from proteus_spot.infra.trials.shipping import fetch_inputs, ship_data
from proteus_spot.infra.trials.state_store import (
    fetch_newest_state,
    fetch_state,
    load_state,
    stored_states,
    upload_state,
)
from proteus_spot.infra.trials.trial_errors import TrialError

PATHS = TrialPaths("digits", 7)


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(f"file://{tmp_path}/blobs")


def _upload(blobs: Blobs, tmp_path: Path, step: int, deployment: str) -> None:
    folder = tmp_path / f"{step}-{deployment}"
    (tmp_path / "net" / "layers").mkdir(parents=True, exist_ok=True)
    (tmp_path / "net" / "layers" / "0").write_text(f"{step} by {deployment}")
    pack_state(tmp_path / "net", folder)
    upload_state(blobs, PATHS, deployment, step, folder)


def _newest(blobs: Blobs, tmp_path: Path) -> tuple[int, str]:
    state = fetch_newest_state(blobs, PATHS, tmp_path / "fetched")
    assert state is not None
    return state.step, (unpack_state(tmp_path / "fetched") / "layers" / "0").read_text()


def test_states_and_data_of_any_size_take_some_chunks_of_memory(blobs: Blobs, tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        for number in range(12):
            file.write(bytes([number]) * CHUNK)
    pack_state(large, tmp_path / "state")

    def peak(move: Callable[[], object]) -> int:
        tracemalloc.start()
        try:
            move()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    moves = {
        "upload": lambda: upload_state(blobs, PATHS, "a", 9, tmp_path / "state"),
        "fetch": lambda: fetch_newest_state(blobs, PATHS, tmp_path / "fetched"),
        "ship": lambda: ship_data(blobs, "digits", "large.bin", large),
        "ship again": lambda: ship_data(blobs, "digits", "large.bin", large.as_uri()),
        "fetch data": lambda: fetch_inputs(blobs, "digits", "mine:train", tmp_path / "inputs"),
    }
    peaks = {name: peak(move) for name, move in moves.items()}
    assert max(peaks.values()) < 4 * CHUNK, peaks
    for copy in (unpack_state(tmp_path / "fetched"), tmp_path / "inputs" / "data" / "large.bin"):
        assert filecmp.cmp(copy, large, shallow=False)


def test_the_newest_step_of_any_deployment_counts_and_old_ones_go(blobs: Blobs, tmp_path: Path) -> None:
    assert fetch_newest_state(blobs, PATHS, tmp_path / "fetched") is None
    for step, deployment in ((9, "a"), (20, "b"), (100, "a")):
        _upload(blobs, tmp_path, step, deployment)
    assert [state.step for state in stored_states(blobs, PATHS)] == [100, 20]
    assert _newest(blobs, tmp_path) == (100, "100 by a")
    _upload(blobs, tmp_path, 30, "late")  # a machine that was taken for dead removes nothing that is newer
    assert _newest(blobs, tmp_path) == (100, "100 by a")


def test_an_incomplete_or_damaged_state_is_passed_over(blobs: Blobs, tmp_path: Path) -> None:
    for step, deployment in ((1, "a"), (2, "b")):
        _upload(blobs, tmp_path, step, deployment)
    blobs.write_bytes(f"{PATHS.state(3, 'c')}/content", b"no manifest yet")
    assert _newest(blobs, tmp_path) == (2, "2 by b")
    blobs.write_bytes(f"{PATHS.state(2, 'b')}/content/layers/0", b"2 by x")
    assert _newest(blobs, tmp_path) == (1, "1 by a")


def test_a_folder_that_lost_its_state_is_not_uploaded(blobs: Blobs, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError):
        upload_state(blobs, PATHS, "a", 1, tmp_path / "empty")
    assert stored_states(blobs, PATHS) == []


def test_a_set_that_names_a_file_outside_is_refused(blobs: Blobs, tmp_path: Path) -> None:
    _upload(blobs, tmp_path, 1, "a")
    prefix = PATHS.state(1, "a")
    manifest = json.loads(blobs.read_bytes(f"{prefix}/{MANIFEST}"))
    manifest["files"]["../../outside"] = manifest["files"]["state.json"]
    blobs.write_json(f"{prefix}/{MANIFEST}", manifest)
    with pytest.raises(DamagedSet, match="outside"):
        fetch_state(blobs, prefix, tmp_path / "fetched")
    assert not (tmp_path / "fetched").exists()


@pytest.mark.parametrize("by_url", [True, False])
def test_a_state_is_loaded_from_its_folder_or_its_url(by_url: bool, blobs: Blobs, tmp_path: Path) -> None:
    _upload(blobs, tmp_path, 1, "a")
    url = blobs.url_of(PATHS.state(1, "a"))
    folder = load_state(url if by_url else url.removeprefix("file://"))
    assert (folder / "layers" / "0").read_text() == "1 by a"
    with pytest.raises(BlobMissing if by_url else TrialError):
        load_state(f"{url}-missing" if by_url else tmp_path)
