"""Fences: of two copies of a state database one ticks a job, and the other stops before it buys."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proteus_spot.bidding.market.model import InstanceFact
from proteus_spot.infra.local_market.job_stores import JobStore
from proteus_spot.infra.runtime import Runtime
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.storage.blobs import BlobError
from proteus_spot.infra.storage.fences import fences_of, read_fence, replace_fence
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.purchases import fence
from proteus_spot.tasks.market.purchases.fence import Superseded, check_fence, holds_fence, keep_fence
from proteus_spot.tasks.market.purchases.reliable_purchases import is_reliable_tier_complete
from proteus_spot.tasks.market.purchases.sending import Result, buy
from proteus_spot.tasks.market.reaping import orphans
from proteus_spot.tasks.reports.job_list import job_lines
from tests.support.copied_databases import on_a_copy
from tests.support.plain_ticks import plain_tick
from tests.support.purchases import TICK_S, alive, opened, secure, states
from tests.support.task_runtime import TaskRuntime, plain, spec


class Heads:
    """Heads on copies of one database, which share the market, the bucket and the clock."""

    def __init__(self, here: TaskRuntime, directory: Path) -> None:
        self.here, self._directory, self.first = here, directory, here.runtime
        self.opened: list[Store] = []

    def copy(self, runtime: Runtime) -> Runtime:
        """Return a head on a copy of another one's database, as it is now: a backup."""
        made = on_a_copy(runtime, self._directory / f"copy-{len(self.opened)}.db")
        self.opened.append(made.store)
        return made

    @contextmanager
    def on(self, runtime: Runtime) -> Iterator[None]:
        """Run what follows on a head."""
        before = self.here.runtime, self.here.store
        self.here.runtime, self.here.store = runtime, runtime.store
        try:
            yield
        finally:
            self.here.runtime, self.here.store = before

    def tick(self, runtime: Runtime, job_id: str = "job") -> None:
        """Tick a job on a head, as the flow does."""
        with self.on(runtime):
            check_fence(job_id)
            self.here.tick(spec(job_id))

    def refuses(self, runtime: Runtime, job_id: str = "job") -> bool:
        """Tick a job on a head; return whether another one has it."""
        try:
            self.tick(runtime, job_id)
        except Superseded:
            return True
        return False


@pytest.fixture
def heads(here: TaskRuntime, tmp_path: Path) -> Iterator[Heads]:
    here.begin(spec())
    here.clock.at_s += TICK_S
    made = Heads(here, tmp_path)
    yield made
    for store in made.opened:
        store.close()


def stray(here: TaskRuntime, job_id: str) -> InstanceFact:
    """Buy a machine of a job that no order of its database knows."""
    bought = here.market.request_of(here.facts(spec())[0].instance_id)
    tags = {**bought.tags, "proteus:job": job_id, "proteus:order": f"{job_id}-stray"}
    (fact,) = here.market.launch(replace(bought, token=f"{job_id}-stray", tags=tags))
    return fact


def test_a_database_alone_keeps_its_generation_whatever_dies(heads: Heads, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed_before(*_: Any) -> bool:
        raise BlobError("the process is killed")

    def killed_after(*values: Any) -> bool:
        replace_fence(*values)
        raise BlobError("the process is killed")

    here = heads.here
    seen = set()
    for dies in ("", "before", "", "after", ""):
        with monkeypatch.context() as patch:
            if dies:
                patch.setattr(fence, "replace_fence", killed_before if dies == "before" else killed_after)
                with pytest.raises(BlobError):
                    keep_fence("job")
            else:
                keep_fence("job")
        found, _ = read_fence(here.runtime.blobs, here.runtime.owner, "job")
        assert found is not None
        assert found.generation == here.store.owner.identity().generation == "000000"
        assert holds_fence("job")
        seen.add(found.mark)
    assert len(seen) == 4, "each tick that wrote has a mark of its own"


def test_processes_of_one_database_may_write_its_fence_at_once(heads: Heads) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(keep_fence, ["job"] * 24))
    assert heads.here.store.owner.identity().generation == "000000"


def test_another_process_of_one_database_that_ticks_in_between_is_no_copy(
    heads: Heads, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_fence("job")
    reads: list[str] = []

    def overtaken(*names: Any) -> Any:
        reads.append("read")
        if len(reads) == 1:
            keep_fence("job")
        return read_fence(*names)

    monkeypatch.setattr(fence, "read_fence", overtaken)
    keep_fence("job")
    assert len(reads) > 2
    assert heads.here.store.owner.identity().generation == "000000"


def test_a_database_from_a_backup_goes_on_and_the_other_stops_before_it_buys(heads: Heads) -> None:
    here, first = heads.here, heads.first
    backup = heads.copy(first)
    heads.tick(first)  # it buys
    assert len(alive(here)) == 3
    here.clock.at_s += TICK_S
    heads.tick(backup)
    assert backup.store.owner.identity().generation.startswith("000001-")
    assert len(alive(here)) == 3, "what the other has bought is found"
    here.market.terminate([fact.instance_id for fact in alive(here) if fact.bid_micros is not None])
    here.clock.at_s += 3 * TICK_S
    with pytest.raises(Superseded) as caught:
        heads.tick(first)
    assert str(caught.value).startswith("job job: another copy of this state database, on ")
    assert str(caught.value).endswith(f"remove {first.blobs.url_of(fences_of(first.owner))}")
    with heads.on(first), pytest.raises(Superseded):
        here.tick(spec())  # no purchase goes by the fence, whatever asked for it
    assert len(alive(here)) == 1
    heads.tick(backup)
    assert len(alive(here)) == 3
    assert heads.refuses(first)


def test_orders_after_a_restore_have_the_generation_in_their_ids(heads: Heads) -> None:
    here, backup = heads.here, heads.copy(heads.first)
    heads.tick(heads.first)
    here.market.terminate([fact.instance_id for fact in alive(here)])
    here.clock.at_s += TICK_S
    heads.tick(backup)
    with heads.on(backup):
        assert secure(here) is None
    here.clock.at_s += 2 * TICK_S
    heads.tick(backup)
    own = backup.store.owner.identity().generation_of_orders
    assert own == f"g2-{backup.store.owner.identity().generation.partition('-')[2]}"
    living = {fact.order_id for fact in alive(here)}
    assert living == {f"job-{own}-reliable-0-again-1", f"job-{own}-buy-1"}, "after what was found of the other one"
    assert is_reliable_tier_complete(spec())


@pytest.mark.parametrize("bought", [False, True])
def test_an_order_that_was_not_sent_before_a_restore_is_sent_by_the_other_copy_alone(
    heads: Heads, monkeypatch: pytest.MonkeyPatch, bought: bool
) -> None:
    def away(*_: object) -> bytes:
        raise BlobError("the bucket is away")

    here, first = heads.here, heads.first
    keep_fence("job")
    with monkeypatch.context() as patch:
        patch.setattr(first.blobs, "read_bytes", away)
        heads.tick(first)
    assert states(here)["job-buy-0"] == "planned"
    backup = heads.copy(first)
    here.clock.at_s += TICK_S
    if bought:
        heads.tick(first)  # it sends the order
        here.clock.at_s += 1
    else:
        with heads.on(first):
            keep_fence("job")
    with heads.on(backup):
        (order,) = JobEngine("job").refresh().holdings.open_orders.values()
        outcome = plain(buy)(spec(), JobEngine("job"), order)
        assert outcome.result is (Result.GRANTED if bought else Result.REFUSED)
        assert states(here)["job-buy-0"] == ("done" if bought else "abandoned")
    here.clock.at_s += 600
    heads.tick(backup)
    with heads.on(backup):
        own = backup.store.owner.identity().generation_of_orders
        assert [fact.order_id for fact in alive(here)][1:] == (
            ["job-buy-0"] * 2 if bought else [f"job-{own}-buy-1"] * 2
        )


def test_a_reliable_tier_that_the_other_copy_has_bought_is_not_bought_again(heads: Heads) -> None:
    here, job = heads.here, spec("other")
    opened(here, job)
    keep_fence("other")
    backup = heads.copy(heads.first)
    assert secure(here, job) is None
    here.clock.at_s += TICK_S
    with heads.on(backup):
        keep_fence("other")
        assert secure(here, job) is None
        assert [record.order_id for record in here.store.purchases.allocations("other")] == ["other-reliable-0"]
    assert len([fact for fact in here.facts(job) if fact.alive]) == 1


def test_the_list_of_jobs_says_that_another_copy_has_the_job(heads: Heads, monkeypatch: pytest.MonkeyPatch) -> None:
    here, first, backup = heads.here, heads.first, heads.copy(heads.first)
    heads.tick(first)
    heads.tick(backup)
    tick_job = plain_tick(monkeypatch)
    here.clock.at_s += 1200
    with heads.on(first), pytest.raises(Superseded):
        tick_job("job")
    (line,) = job_lines(JobStore(first.store, None), [])
    assert line.why.startswith("its ticks fail: job job: another copy of this state database, on ")
    assert first.blobs.list(JobPaths("job").root) == [], "nothing was extended"


def test_an_operator_decides_which_one_goes_on(heads: Heads) -> None:
    first, backup = heads.first, heads.copy(heads.first)
    heads.tick(first)
    heads.tick(backup)
    assert heads.refuses(first)
    for name in first.blobs.list(fences_of(first.owner)):
        first.blobs.remove(name)
    heads.tick(first)
    heads.tick(first)
    assert not heads.refuses(backup), "a newer generation that is not stopped takes over again"
    assert heads.refuses(first)


def test_a_backup_of_the_one_that_went_on_goes_on_in_its_turn(heads: Heads) -> None:
    first, second = heads.first, heads.copy(heads.first)
    heads.tick(first)
    heads.tick(second)
    third = heads.copy(second)
    heads.tick(second)
    heads.tick(third)
    assert [heads.refuses(each) for each in (first, second, third)] == [True, True, False]


def test_two_that_find_each_other_at_once_agree_on_one_for_all_jobs(heads: Heads) -> None:
    heads.here.begin(spec("other"))
    first, copy = heads.first, heads.copy(heads.first)
    heads.tick(first, "job")
    heads.tick(copy, "other")
    heads.tick(first, "other")
    for _ in range(2):
        refused = {
            name: [heads.refuses(each, job_id) for job_id in ("job", "other")]
            for name, each in (("first", first), ("copy", copy))
        }
    assert sorted(refused.values()) == [[False, False], [True, True]]
    generations = [each.store.owner.identity().generation for each in (first, copy)]
    assert max(generations) == generations[0 if refused["copy"][0] else 1]


def test_a_bucket_that_fails_stops_no_tick_and_lets_nothing_be_bought(
    heads: Heads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> bytes:
        raise BlobError("the bucket is away")

    with monkeypatch.context() as patch:
        patch.setattr(heads.first.blobs, "read_bytes", away)
        heads.tick(heads.first)
    assert len(alive(heads.here)) == 1
    heads.tick(heads.first)
    assert len(alive(heads.here)) == 3


def test_the_reaper_leaves_the_machines_that_another_copy_has_bought(heads: Heads) -> None:
    here, first = heads.here, heads.first
    backup = heads.copy(first)
    heads.tick(first)
    here.clock.at_s += 2 * TICK_S
    with heads.on(backup):
        assert plain(orphans)() == {}, "it has not ticked the job yet, and will find them"
    heads.tick(backup)
    with heads.on(first):
        lost = stray(here, "job")
        here.clock.at_s += 2 * TICK_S
        assert plain(orphans)() == {}, "the other one has the job"
    with heads.on(backup):
        assert plain(orphans)() == {"job": [lost.instance_id]}


def test_the_reaper_leaves_a_job_that_was_begun_since_the_backup(heads: Heads) -> None:
    here, first = heads.here, heads.first
    backup = heads.copy(first)
    here.begin(spec("night"))
    for _ in range(5):
        here.clock.at_s += TICK_S
        heads.tick(first, "night")
        heads.tick(backup)
        with heads.on(backup):
            assert plain(orphans)() == {}
    assert len([fact for fact in here.facts(spec("night")) if fact.alive]) == 3


def test_the_reaper_ends_no_machine_of_an_unknown_job_that_is_younger_than_the_journal(heads: Heads) -> None:
    here = heads.here
    heads.tick(heads.first)  # the newest entry
    old = stray(here, "old")
    here.clock.at_s += TICK_S
    young = stray(here, "young")
    here.clock.at_s += 2 * TICK_S
    assert plain(orphans)() == {"old": [old.instance_id]}
    assert here.market.fact(young.instance_id).alive
