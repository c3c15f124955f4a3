"""Checkpoints in the blob store: the newest complete one counts, whatever was interrupted."""

from pathlib import Path

import numpy as np
import pytest

from infra.storage.blobs import MANIFEST, Blobs, DamagedSet
from infra.storage.checkpoints import find_checkpoint, read_shard, read_state, save_checkpoint
from infra.storage.job_paths import JobPaths
from psengine.config import JobConfig, JobError

CONFIG = JobConfig("job", n_shards=2, clocks=100, app_params={"step": 0.5})
SUMMARY = {"losses": [[1, 0.5]], "seconds": 3.0}


def shards(value: float) -> dict[int, dict[str, np.ndarray]]:
    return {shard: {"w": np.full((2, 3), value + shard, np.float32)} for shard in range(2)}


@pytest.fixture
def blobs(tmp_path) -> Blobs:
    return Blobs(tmp_path.as_uri())


def test_the_newest_is_found_and_the_older_ones_are_gone(blobs: Blobs) -> None:
    assert find_checkpoint(blobs, CONFIG) is None
    for clock in (9, 10, 11):
        save_checkpoint(blobs, CONFIG, clock, shards(clock), SUMMARY)
    found = find_checkpoint(blobs, CONFIG)
    assert found is not None
    assert (found.clock, found.summary) == (11, SUMMARY)
    place = Path(blobs.url.removeprefix("file://")) / JobPaths("job").checkpoints
    assert [path.name for path in place.iterdir()] == ["clock-000000011"]
    assert read_shard(blobs, found.name, 1)["w"].tobytes() == shards(11)[1]["w"].tobytes()


@pytest.mark.parametrize("cut_off", [MANIFEST, "shard-00001.npz"])
def test_one_whose_writing_was_cut_off_is_passed_over(blobs: Blobs, cut_off: str) -> None:
    save_checkpoint(blobs, CONFIG, 5, shards(5), SUMMARY)
    whole = blobs.read_set(f"{JobPaths('job').checkpoints}/clock-000000005")
    blobs.write_set(f"{JobPaths('job').checkpoints}/clock-000000006", whole, {"clock": 6})
    blobs.remove(f"{JobPaths('job').checkpoints}/clock-000000006/{cut_off}")
    found = find_checkpoint(blobs, CONFIG)
    assert found is not None
    assert found.clock == 5


def test_the_older_one_stays_while_the_new_one_does_not_read_back(blobs: Blobs, monkeypatch) -> None:
    save_checkpoint(blobs, CONFIG, 5, shards(5), SUMMARY)
    write = blobs.write_bytes

    def spoil(name: str, data: bytes) -> None:
        write(name, data[:-1] + b"?" if name.endswith("shard-00001.npz") else data)

    monkeypatch.setattr(blobs, "write_bytes", spoil)
    with pytest.raises(DamagedSet):
        save_checkpoint(blobs, CONFIG, 6, shards(6), SUMMARY)
    old = f"{JobPaths('job').checkpoints}/clock-000000005"
    assert read_shard(blobs, old, 0)["w"][0, 0] == 5
    with pytest.raises(DamagedSet):
        read_shard(blobs, f"{JobPaths('job').checkpoints}/clock-000000006", 1)


@pytest.mark.parametrize("field", [{"n_shards": 3}, {"app_params": {"step": 1.0}}, {"seed": 7}, {"staleness": 1}])
def test_a_checkpoint_of_another_job_is_refused(blobs: Blobs, field: dict[str, object]) -> None:
    save_checkpoint(blobs, CONFIG, 5, shards(5), SUMMARY)
    other = JobConfig(**(CONFIG.to_dict() | field))
    with pytest.raises(JobError, match=f"{next(iter(field))} is .*another job id"):
        find_checkpoint(blobs, other)
    assert find_checkpoint(blobs, JobConfig(**(CONFIG.to_dict() | {"clocks": 200}))) is not None


def test_states_of_executors_are_in_it_and_those_that_only_the_older_one_has_are_carried_on(blobs: Blobs) -> None:
    states = {p: {"users": np.full((2, 1), p, np.float32), "users/rows": np.array([[p, p + 2]])} for p in range(3)}
    first = save_checkpoint(blobs, CONFIG, 5, shards(5), SUMMARY, states)
    assert first.executors == (0, 1, 2)
    save_checkpoint(blobs, CONFIG, 6, shards(6), SUMMARY, {1: {"users": np.zeros((1, 1))}}, {2: first.name})
    found = find_checkpoint(blobs, CONFIG)
    assert found is not None
    assert (found.clock, found.executors) == (6, (1, 2))
    carried = read_state(blobs, found.name, 2)
    assert {name: array.tobytes() for name, array in carried.items()} == {
        name: array.tobytes() for name, array in states[2].items()
    }


def test_one_of_an_older_version_is_refused_where_rows_of_own_tables_would_be_missing(blobs: Blobs) -> None:
    sizes = {"n_users": 4, "n_items": 4, "n_partitions": 2}
    for app, params, refused in (("mf", sizes, True), ("mlr", {"n_inputs": 2, "n_classes": 2, "n_examples": 4}, False)):
        config = JobConfig(f"old-{app}", app=app, app_params=params, n_partitions=2, n_shards=2, clocks=9)
        prefix = f"{JobPaths(config.job_id).checkpoints}/clock-000000005"
        blobs.write_set(prefix, iter(()), {"clock": 5, "job": config.to_dict(), "summary": SUMMARY})
        if refused:
            with pytest.raises(
                JobError, match=r"clock 5 was written by Proteus 0\.1\.0, .* table 'users' .*another job id"
            ):
                find_checkpoint(blobs, config)
        else:
            assert find_checkpoint(blobs, config) is not None
