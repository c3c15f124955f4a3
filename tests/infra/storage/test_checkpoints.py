"""Checkpoints in the blob store: the newest complete one counts, whatever was interrupted."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.infra.storage.blobs import MANIFEST, Blobs, DamagedSet
from proteus_spot.infra.storage.checkpoints import (
    find_checkpoints,
    newest_clock,
    read_shard,
    read_state,
    save_checkpoint,
)
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.psengine.config import JobConfig, JobError
from proteus_spot.psengine.protocol.checkpoint import Checkpoints

CONFIG = JobConfig("job", n_shards=2, clocks=100, app_params={"step": 0.5})
PLACE = JobPaths("job").checkpoints
SUMMARY = {"losses": [[1, 0.5]], "seconds": 3.0}


def shards(value: float) -> dict[int, dict[str, np.ndarray]]:
    return {shard: {"w": np.full((2, 3), value + shard, np.float32)} for shard in range(2)}


def names(blobs: Blobs) -> list[str]:
    return sorted(path.name for path in (Path(blobs.url.removeprefix("file://")) / PLACE).iterdir())


@pytest.fixture
def blobs(tmp_path) -> Blobs:
    return Blobs(tmp_path.as_uri())


def test_the_newest_is_found_and_the_two_before_it_are_kept(blobs: Blobs) -> None:
    assert find_checkpoints(blobs, CONFIG) == Checkpoints()
    for clock in (8, 9, 10, 11):
        save_checkpoint(blobs, CONFIG, clock, shards(clock), SUMMARY)
    found = find_checkpoints(blobs, CONFIG)
    assert found.damaged == ""
    assert [(kept.clock, kept.summary) for kept in found.kept] == [(clock, SUMMARY) for clock in (11, 10, 9)]
    assert names(blobs) == ["clock-000000009", "clock-000000010", "clock-000000011"]
    assert read_shard(blobs, found.kept[0].name, 1)["w"].tobytes() == shards(11)[1]["w"].tobytes()


def test_those_that_the_job_has_gone_back_behind_and_rests_are_removed(blobs: Blobs) -> None:
    for clock in (8, 9, 10):
        save_checkpoint(blobs, CONFIG, clock, shards(clock), SUMMARY)
    blobs.write_bytes(f"{PLACE}/clock-000000007/shard-00000.npz", b"a writing that was interrupted")
    save_checkpoint(blobs, CONFIG, 9, shards(9), SUMMARY)
    assert names(blobs) == ["clock-000000008", "clock-000000009"]


def cut(blobs: Blobs, name: str) -> None:
    blobs.write_bytes(name, blobs.read_bytes(name)[:40])


def remove(blobs: Blobs, name: str) -> None:
    blobs.remove(name)


def replace_manifest(blobs: Blobs, name: str) -> None:
    blobs.write_json(name, {"files": {}, "about": {}})


@pytest.mark.parametrize(
    ("damage", "file"),
    [
        *[(cut, file) for file in (MANIFEST, "shard-00001.npz", "partition-00000.npz")],
        *[(remove, file) for file in ("shard-00000.npz", "partition-00000.npz")],
        (replace_manifest, MANIFEST),
    ],
)
def test_an_older_one_is_found_where_the_newest_is_damaged_and_the_file_is_named(
    blobs: Blobs, damage: Callable[[Blobs, str], None], file: str
) -> None:
    for clock in (5, 6):
        save_checkpoint(blobs, CONFIG, clock, shards(clock), SUMMARY, {0: {"w": np.zeros(2)}})
    damage(blobs, f"{PLACE}/clock-000000006/{file}")
    found = find_checkpoints(blobs, CONFIG)
    assert [kept.clock for kept in found.kept] == [5]
    assert found.damaged.startswith(f"{blobs.url}/{PLACE}/clock-000000006/{file}: ")
    assert newest_clock(blobs, "job") == 5
    damage(blobs, f"{PLACE}/clock-000000005/{file}")
    found = find_checkpoints(blobs, CONFIG)
    assert (found.kept, newest_clock(blobs, "job")) == ((), 0)
    assert f"clock-000000006/{file}: " in found.damaged


@pytest.mark.parametrize("cut_off", [MANIFEST, "shard-00001.npz"])
def test_one_whose_writing_was_cut_off_is_passed_over(blobs: Blobs, cut_off: str) -> None:
    save_checkpoint(blobs, CONFIG, 5, shards(5), SUMMARY)
    whole = blobs.read_set(f"{JobPaths('job').checkpoints}/clock-000000005")
    blobs.write_set(f"{JobPaths('job').checkpoints}/clock-000000006", whole, {"group": 6})
    blobs.remove(f"{JobPaths('job').checkpoints}/clock-000000006/{cut_off}")
    found = find_checkpoints(blobs, CONFIG).newest
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
        find_checkpoints(blobs, other)
    assert find_checkpoints(blobs, JobConfig(**(CONFIG.to_dict() | {"clocks": 200}))).newest is not None


def test_states_of_executors_are_in_it_and_those_that_only_the_older_one_has_are_carried_on(blobs: Blobs) -> None:
    states = {p: {"users": np.full((2, 1), p, np.float32), "users/rows": np.array([[p, p + 2]])} for p in range(3)}
    first = save_checkpoint(blobs, CONFIG, 5, shards(5), SUMMARY, states)
    assert first.partitions == (0, 1, 2)
    save_checkpoint(blobs, CONFIG, 6, shards(6), SUMMARY, {1: {"users": np.zeros((1, 1))}}, {2: first.name})
    found = find_checkpoints(blobs, CONFIG).newest
    assert found is not None
    assert (found.clock, found.partitions) == (6, (1, 2))
    carried = read_state(blobs, found.name, 2)
    assert {name: array.tobytes() for name, array in carried.items()} == {
        name: array.tobytes() for name, array in states[2].items()
    }
