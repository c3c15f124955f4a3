"""At which market time, and at which scale, a job of this machine goes on."""

from contextlib import closing
from pathlib import Path

import pytest

from proteus_spot.infra.clock import ScaledClock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.local_market.environment import STILL, clock_file
from proteus_spot.infra.state.records import JobState
from proteus_spot.infra.state.store import Store
from proteus_spot.tasks.local_market.run_checks import check_place, note_place
from proteus_spot.tasks.local_market.run_environment import resume_point

BEGUN_S = 1_464_739_200.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The state database of a job that was recorded and got no further."""
    url = f"sqlite:///{tmp_path / 'state.db'}"
    with closing(Store.open(url)) as store:
        store.jobs.create_job("job", {}, BEGUN_S)
    return url


def test_a_job_goes_on_at_the_scale_that_it_was_begun_at_unless_another_is_asked_for(tmp_path: Path, url: str) -> None:
    ScaledClock.create(clock_file(tmp_path), BEGUN_S, 60.0).run_at(48.0)
    assert resume_point(tmp_path, url, "job", None, market_stays=True) == (BEGUN_S, 48.0)
    assert resume_point(tmp_path, url, "job", 48.0, market_stays=True) == (BEGUN_S, 48.0)
    with pytest.raises(InputError, match="--scale 60: job job was begun at 48; give that"):
        resume_point(tmp_path, url, "job", 60.0, market_stays=True)


@pytest.mark.parametrize("scale", [None, 60.0])
def test_one_that_never_ran_goes_on_at_what_is_asked_for(tmp_path: Path, url: str, scale: float | None) -> None:
    assert resume_point(tmp_path, url, "job", scale, market_stays=True) == (BEGUN_S, scale)
    ScaledClock.create(clock_file(tmp_path), BEGUN_S, STILL)
    assert resume_point(tmp_path, url, "job", scale, market_stays=True) == (BEGUN_S, scale)


def test_a_directory_that_was_moved_before_its_job_ended_is_refused(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    check_place(old, f"sqlite:///{old / 'state.db'}")
    note_place(old)
    with closing(Store.open(f"sqlite:///{old / 'state.db'}")) as store:
        store.jobs.create_job("job", {}, BEGUN_S)
    check_place(old, f"sqlite:///{old / 'state.db'}")
    old.rename(new)
    moved = f"sqlite:///{new / 'state.db'}"
    for _ in range(2):
        with pytest.raises(InputError, match=f"--dir {new}: this run was begun in {old}; move it back"):
            check_place(new, moved)
    old.symlink_to(new)
    check_place(old, moved)
    old.unlink()
    with closing(Store.open(moved)) as store:
        store.jobs.move_job("job", JobState.FAILED, BEGUN_S)
    check_place(new, moved)
