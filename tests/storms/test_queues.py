"""Two jobs of one queue: the second takes over the machines of the first, and both ledgers together are the bill."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from proteus_spot.bidding.market.model import Tier
from proteus_spot.infra.state.records import JobState
from tests.support.flow_processes import Boundary, Cut
from tests.support.queue_world import FIRST, SECOND, QueueWorld

HOUR = 3600
#: Calls of the first job's end from which on a process is killed, and the parts that all points are divided into.
BEFORE = 12
PARTS = 24
BILLINGS = ["hourly-refund", "per-second-first-hour-free"]


@contextmanager
def world(directory: Path, cut: Cut | None = None, **fields: Any) -> Iterator[QueueWorld]:
    directory.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        made = QueueWorld(directory, patch, Boundary(cut), **fields)
        try:
            yield made
        finally:
            made.store.close()


def live(here: QueueWorld, idle_s: float = 600) -> None:
    """Let both jobs happen; a run that was killed is rerun ten minutes later."""
    for run in (here.train_first, here.train_second):
        process = run()
        if process.dead:
            here.advance(here.now_s + 600)
            run()
        here.advance(here.now_s + idle_s)
    here.advance(here.now_s + 2 * HOUR)


def check(here: QueueWorld) -> None:
    """Assert what must hold after both jobs."""
    assert here.faults == []
    assert here.living() == []
    assert {job.job_id: (job.state, job.failure) for job in here.store.jobs.list_jobs()} == {
        FIRST: (JobState.FINISHED, None),
        SECOND: (JobState.FINISHED, None),
    }
    assert here.bought_twice() == {}
    assert here.spent() == here.bill()


@pytest.mark.parametrize("billing", BILLINGS)
@pytest.mark.parametrize("taken_after_s", [None, 2400, 5700])
def test_the_second_job_begins_on_the_machines_of_the_first(
    billing: str, taken_after_s: int | None, tmp_path: Path
) -> None:
    with world(tmp_path, transient={"billing": billing}, taken_after_s=taken_after_s) as here:
        live(here)
        check(here)
        assert here.failures == []
        on_demand = [fact for fact in here.ours() if fact.bid_micros is None]
        assert len(on_demand) == 1, "the reliable tier was bought once"
        (mine,) = [r for r in here.store.purchases.allocations(SECOND) if r.allocation.tier is Tier.RELIABLE]
        ended_at_s = here.store.jobs.job(FIRST).ended_at_s
        assert ended_at_s is not None
        assert (mine.bought_for, mine.held_from_s) == (FIRST, int(ended_at_s))
        assert here.store.purchases.spent(FIRST) > 0 < here.store.purchases.spent(SECOND)


@pytest.fixture(scope="module")
def cuts(tmp_path_factory: pytest.TempPathFactory) -> list[Cut]:
    """Every point around the hand-over at which a process may be killed, in a seeded order."""
    with world(tmp_path_factory.mktemp("undisturbed")) as here:
        live(here)
        check(here)
        calls = here.boundary.calls
        window = range(here.ended_after - BEFORE, here.training.of[SECOND].begun_after)
    found = [Cut(number, after) for number in window if calls[number].effect for after in (False, True)]
    assert {calls[cut.call].process for cut in found} == {"train", "tick"}
    random.Random(0).shuffle(found)
    return found


def crash(cut: Cut, directory: Path) -> str | None:
    """Kill one process there; return what does not hold after ticks and a rerun."""
    with world(directory, cut) as here:
        try:
            live(here)
            check(here)
            assert sum(fact.bid_micros is None for fact in here.ours()) == 1, "the reliable tier was bought once"
        except AssertionError as error:
            struck = here.boundary.calls[cut.call]
            return f"{cut}, {struck.process}: {struck.name}: {error}"
    return None


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.storm) for part in range(1, PARTS))])
def test_a_process_that_is_killed_at_the_hand_over_is_followed_by_the_next(
    cuts: list[Cut], part: int, tmp_path: Path
) -> None:
    broken = [crash(cut, tmp_path / str(number)) for number, cut in enumerate(cuts[part::PARTS])]
    assert [line for line in broken if line] == []
