"""A flow process is killed before or after every call with an effect; the next tick or a rerun fixes it.

The calls are found by instrumenting the boundary (`tests.support.flow_processes`): one undisturbed run says which calls
there are, and which of them have an effect. What is asserted is read from the market's own log.
"""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proteus_spot.infra.state.records import JobState
from proteus_spot.infra.storage.job_paths import JobPaths
from tests.support.flow_processes import Boundary, Cut
from tests.support.job_world import BEGIN_S, LEASE_S, STEP_S, JobWorld

HOUR = 3600
#: By then a job has ended that was cut in its first half hour and begun anew, and its last machine an hour later.
ENOUGH_S = 4 * HOUR
#: Number of parts that the storm of all points of a story is divided into.
PARTS = 60
#: Seconds after the job's begin at which `proteus stop` is called in the second story.
STOP_S = 2700
#: What happens to the job: it finishes, or it is stopped while it trains.
STORIES = {"finishes": JobState.FINISHED, "is stopped": JobState.STOPPED}


@contextmanager
def world(directory: Path, cut: Cut | None = None, story: str = "finishes") -> Iterator[JobWorld]:
    directory.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        made = JobWorld(directory, patch, Boundary(cut))
        if story == "is stopped":
            made.events.append((float(BEGIN_S + STOP_S), JobWorld.stop))
        try:
            yield made
        finally:
            made.store.close()


def live(here: JobWorld, *, rerun: bool) -> None:
    """Let the whole job happen; a train run that was killed is rerun half an hour later, or never."""
    first = here.train()
    if first.dead and rerun:
        here.advance(here.now_s + HOUR / 2)
        here.train()
    here.advance(BEGIN_S + ENOUGH_S)


def check(here: JobWorld, story: str = "finishes") -> None:
    """Assert what must hold after any crash that was fixed."""
    assert here.faults == []
    assert here.bought_twice() == {}
    assert here.living() == []
    assert here.store.purchases.spent(here.job_id) == here.bill()
    job = here.store.jobs.find_job(here.job_id)
    if not here.market.log():  # its flow died before it had opened the job: a tick has closed it, a rerun begins it
        assert job is None or (job.state is JobState.FAILED and "did not open it" in str(job.failure)), job
        return
    assert job is not None
    check_end(here, story)
    manifest = here.blobs.manifest(JobPaths(here.job_id).model)
    assert manifest is not None
    assert manifest.about["clocks"] == (job.result or {})["clocks"]


def check_end(here: JobWorld, story: str, *, in_the_dark: bool = False) -> None:
    """Assert how the job has ended.

    A `stop` that was killed may not have been heard, and without ticks the work may be done before it is carried out.
    """
    job, cut = here.store.jobs.job(here.job_id), here.boundary.cut
    unheard = in_the_dark or (cut is not None and here.boundary.calls[cut.call].process == "stop")
    assert job.state is STORIES[story] or (unheard and job.state is JobState.FINISHED), (job.state, job.failure)
    if job.state is JobState.FINISHED:
        assert (job.result or {})["clocks"] == here.spec.training.clocks


def told(here: JobWorld, cut: Cut, how: str, error: AssertionError) -> str:
    struck = here.boundary.calls[cut.call]
    return f"{cut}, {struck.process}: {struck.name}, {how}: {error}"


def crash(cut: Cut, directory: Path, *, rerun: bool, story: str = "finishes") -> str | None:
    """Cut one process there; return what does not hold afterwards."""
    with world(directory, cut, story) as here:
        try:
            live(here, rerun=rerun)
            check(here, story)
        except AssertionError as error:
            return told(here, cut, "rerun" if rerun else "never rerun", error)
    return None


def blackout(cut: Cut, directory: Path, story: str = "finishes") -> str | None:
    """End every flow there, as if the Prefect server died, for six hours; return what does not hold."""
    with world(directory, cut, story) as here:

        def lights_out() -> None:
            here.ticks_run = False

        here.boundary.all_die, here.boundary.on_cut = True, lights_out
        try:
            here.train()
            while here.ticks_run and here.now_s < BEGIN_S + ENOUGH_S:
                here.advance(here.now_s + STEP_S)
            here.advance(here.now_s + LEASE_S + STEP_S)
            assert here.living() == [], "the last lease has ended"
            here.faults.clear()  # without ticks the tasks says nothing
            here.advance(here.now_s + 5 * HOUR)
            assert here.living() == []
            here.ticks_run = True
            here.train()
            here.advance(here.now_s + ENOUGH_S)
            assert here.faults == []
            assert here.bought_twice() == {}
            assert here.living() == []
            check_end(here, story, in_the_dark=True)
            assert here.store.purchases.spent(here.job_id) >= here.bill(), "an end that nobody saw may cost too much"
        except AssertionError as error:
            return told(here, cut, "blackout", error)
    return None


def points(directory: Path, story: str) -> list[Cut]:
    """Return every point at which the undisturbed job may be cut, in a seeded order."""
    with world(directory, story=story) as here:
        live(here, rerun=False)
        check(here, story)
        assert here.failures == []
        calls = here.boundary.calls
    found = [Cut(number, after) for number, call in enumerate(calls) if call.effect for after in (False, True)]
    kinds = {call.name.split(" ")[0] for call in calls if call.effect}
    assert kinds == {"market", "store", "files", "prefect"}
    assert {call.process for call in calls if call.effect} >= {"train", "tick", "handle-eviction"}
    random.Random(0).shuffle(found)
    return found


@pytest.fixture(scope="module")
def cuts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Cut]]:
    """The points of each story."""
    return {story: points(tmp_path_factory.mktemp("undisturbed"), story) for story in STORIES}


def one_way(number: int, cut: Cut, directory: Path, story: str) -> str | None:
    """Cut the job in the way whose turn it is."""
    if number % 3 == 2:
        return blackout(cut, directory, story)
    return crash(cut, directory, rerun=number % 3 == 0, story=story)


@pytest.mark.parametrize(("story", "share"), [("finishes", 40), ("is stopped", 80)])
def test_a_seeded_share_of_all_points_is_mended(
    cuts: dict[str, list[Cut]], story: str, share: int, tmp_path: Path
) -> None:
    """Each in one way: by ticks and a rerun, by ticks alone, or after hours without any flow."""
    some = cuts[story][: len(cuts[story]) // share]
    broken = [one_way(number, cut, tmp_path / str(number), story) for number, cut in enumerate(some)]
    assert [line for line in broken if line] == []


def test_machines_that_ended_before_anybody_saw_them_are_in_the_ledger(tmp_path: Path) -> None:
    """Every flow dies when the machines are bought, and the market has forgotten them when the flows come back."""
    with world(tmp_path / "undisturbed") as here:
        here.train()
        calls = here.boundary.calls
    bought = [number for number, call in enumerate(calls) if call.name == "market launch" and call.effect]
    for number in bought[:2]:  # the reliable machine, and the first spot machines
        assert blackout(Cut(number, after=True), tmp_path / str(number)) is None


@pytest.mark.storm
@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_point_is_mended_in_every_way(cuts: dict[str, list[Cut]], story: str, part: int, tmp_path: Path) -> None:
    broken = []
    for number, cut in enumerate(cuts[story][part::PARTS]):
        for way in range(3):
            broken.append(one_way(way, cut, tmp_path / f"{number}-{way}", story))
    assert [line for line in broken if line] == []


def die_for_real(cut: Cut, directory: Path) -> None:
    """Live until the cut, and end this process by SIGKILL there."""
    with world(directory, cut) as here:

        def die() -> None:
            here.save(directory)  # the market and the machines are no part of this process
            os.kill(os.getpid(), signal.SIGKILL)

        here.boundary.on_cut = die
        live(here, rerun=False)


@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=pytest.mark.storm) for number in range(1, 8))])
def test_a_process_that_is_killed_for_real_is_mended(cuts: dict[str, list[Cut]], number: int, tmp_path: Path) -> None:
    """SIGKILL: the database and the blobs are as the kernel has them, no handler and no `finally` has run."""
    cut = random.Random(number).choice(cuts["finishes"])
    command = f"from tests.storms.test_crash_points import *; die_for_real({cut!r}, Path({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", command], check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL
    with world(tmp_path) as here:
        here.load(tmp_path)
        here.advance(here.now_s + HOUR / 2)
        here.train()
        here.advance(BEGIN_S + ENOUGH_S)
        check(here)
