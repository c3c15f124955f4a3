"""All go back, once more to a checkpoint that is newer than what was kept the first time, or while the job ends."""

from collections.abc import Callable

import pytest

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.controller.reconciler import MOST_FROM_REPLICAS
from proteus_spot.psengine.protocol.events import (
    CheckpointRequested,
    JobStarted,
    NodeJoined,
    ShardsNotOpened,
    StopRequested,
    TimerFired,
)
from tests.support.controller_model import SHARDS, ModelNode, World


def join(world: World, name: str, reliable: bool) -> ModelNode:
    node = ModelNode(name, f"tcp://{name}", reliable)
    world.nodes[name] = node
    world.feed(NodeJoined(name, node.address, "reliable" if reliable else "transient", 1, world.now_s))
    return node


def settle(world: World, copies: bool = True) -> None:
    """Let everybody do what is to be done besides work."""
    while any(node.loads or node.opens or node.takes or (copies and node.backups) for node in world.alive()):
        for node in world.alive():
            while node.loads or node.opens:
                world.answer(node)
            while node.takes:
                world.take(node)
            while copies and node.backups:
                world.back_up(node)


def clocks(world: World, count: int, copies: bool) -> None:
    for _ in range(count):
        before = world.common()
        while world.common() == before:
            for node in world.busy():
                world.work(node)
            settle(world, copies)


def test_a_checkpoint_that_is_newer_than_the_copies_is_gone_on_from() -> None:
    world = World()
    world.anew(JobConfig("job", n_partitions=2, n_shards=SHARDS, clocks=30, stage_2_above=0.0, start_patience_s=1.0))
    r, t = join(world, "r", True), join(world, "t", False)
    world.feed(JobStarted(world.config, 0.0))
    settle(world)
    clocks(world, 3, copies=True)
    assert world.serving() == [t]
    kept = world.controller.job.tiers.backups.group
    assert kept is not None
    clocks(world, 3, copies=False)
    world.feed(CheckpointRequested(world.now_s))
    world.written(True)
    newest = world.common()
    assert newest > kept

    world.lose(t)
    settle(world)
    assert world.common() == kept, "what the backup has"
    r.backups.clear()
    world.lose(r)
    join(world, "r2", True)
    controller: Controller = world.controller
    settle(world)
    world.now_s += 5.0
    world.feed(TimerFired(world.now_s))
    settle(world)
    assert controller.job.tasks is not None
    assert controller.job.tasks.common == world.common() == newest
    assert [clock for clock, _ in controller.job.progress.losses] == list(range(1, newest + 1))
    assert [clock for clock, _ in controller.job.rollbacks] == [kept, newest]
    clocks(world, 2, copies=True)
    assert sum(controller.job.progress.done_by_tier.values()) == 2 * world.common()


def test_many_that_are_lost_at_one_time_are_one_way_back() -> None:
    world = World()
    world.anew(JobConfig("job", n_partitions=2, n_shards=SHARDS, clocks=30, stage_2_above=0.0, start_patience_s=1.0))
    r, *gone = [join(world, "r", True), *(join(world, f"t{i}", False) for i in range(4))]
    world.feed(JobStarted(world.config, 0.0))
    settle(world)
    clocks(world, 3, copies=True)
    served = [node.name for node in world.serving()]
    assert len(served) == 2
    world.lose(*gone)
    settle(world)
    why = f"node {served[0]} and 1 more were lost with the shards they served: killed; rolled back to clock 3"
    assert world.controller.job.rollbacks == [(3, why)]
    clocks(world, 2, copies=True)
    assert world.serving() == [r]


def rescued(fails: int) -> World:
    """Return a job whose server was lost, and whose shards could not be opened from the backup so many times."""
    world = World()
    world.anew(JobConfig("job", n_partitions=2, n_shards=SHARDS, clocks=30, stage_2_above=0.0, start_patience_s=1.0))
    join(world, "r", True)
    others = [join(world, f"t{i}", False) for i in range(4)]
    world.feed(JobStarted(world.config, 0.0))
    settle(world)
    world.feed(CheckpointRequested(world.now_s))
    clocks(world, 2, copies=True)
    world.feed(CheckpointRequested(world.now_s))
    world.written(True)
    clocks(world, 3, copies=True)
    assert world.controller.job.tiers.backups.group == 5
    world.lose(next(node for node in others if node in world.serving()))
    for _ in range(fails):
        orders = [(node, node.opens.pop(0)) for node in world.alive() if node.opens]
        for node, order in orders[::-1]:  # all of them say so
            assert order.replicas is not None
            why = "tcp://r did not answer"
            world.feed(ShardsNotOpened(node.name, node.address, order.shards, order.epoch, why, world.now_s, True))
        for _ in range(80):
            world.now_s += 0.25
            world.feed(TimerFired(world.now_s))
            if any(node.opens for node in world.alive()):
                break
    return world


@pytest.mark.parametrize("fails", [1, MOST_FROM_REPLICAS])
def test_a_rescue_that_fails_is_tried_again_from_the_copies(fails: int) -> None:
    world = rescued(fails)
    settle(world)
    assert world.common() == 5, "not the checkpoint"
    assert [clock for clock, _ in world.controller.job.rollbacks] == [5]
    clocks(world, 2, copies=True)


def test_a_rescue_that_fails_again_and_again_takes_the_checkpoint() -> None:
    world = rescued(MOST_FROM_REPLICAS + 1)
    assert world.controller.job.not_opened == 0, "the checkpoint has attempts of its own"
    world.now_s += 5.0
    world.feed(TimerFired(world.now_s))
    settle(world)
    assert world.common() == 2
    assert [clock for clock, _ in world.controller.job.rollbacks] == [5, 2]
    assert "tcp://r did not answer" in world.controller.job.rollbacks[1][1]
    clocks(world, 2, copies=True)


def test_a_backup_that_is_lost_while_a_rescue_is_to_be_repeated_leaves_the_checkpoint() -> None:
    world = rescued(0)
    for node in [node for node in world.alive() if node.opens]:
        order = node.opens.pop(0)
        why = "tcp://r did not answer"
        world.feed(ShardsNotOpened(node.name, node.address, order.shards, order.epoch, why, world.now_s, True))
    world.lose(world.nodes["r"])
    world.now_s += 5.0
    world.feed(TimerFired(world.now_s))
    join(world, "r2", True)
    settle(world)
    world.now_s += 5.0
    world.feed(TimerFired(world.now_s))
    settle(world)
    assert world.common() == 2
    clocks(world, 2, copies=True)


EVERY_S = 60.0


def saving(reliable: int, transient: int) -> World:
    """Return a job in stage 1 or 2 that has done three clocks and copied the third; its first checkpoint is due."""
    world = World()
    world.anew(
        JobConfig(
            "job",
            n_partitions=2,
            n_shards=SHARDS,
            clocks=30,
            n_reliable=reliable,
            stage_2_above=0.0,
            checkpoint_s=EVERY_S,
            start_patience_s=1.0,
        )
    )
    for i in range(reliable):
        join(world, f"r{i}", True)
    for i in range(transient):
        join(world, f"t{i}", False)
    world.feed(JobStarted(world.config, 0.0))
    settle(world)
    clocks(world, 2, copies=True)
    world.now_s = EVERY_S / 2  # after any pause between two rounds
    clocks(world, 1, copies=True)
    world.now_s = EVERY_S
    assert world.controller.job.tiers.backups.group == 3
    return world


def being_written(world: World) -> int | None:
    """Return the clock of the checkpoint that is being written."""
    return None if world.keeping is None else world.keeping[0].group


def fail_rounds(world: World, count: int) -> None:
    for _ in range(count):
        world.now_s += 1.0
        world.feed(TimerFired(world.now_s))
        (node,) = world.copying()
        world.back_up(node, works=False)


def test_a_checkpoint_that_is_due_is_read_from_the_backups_once_they_are_newer() -> None:
    """And waits for no clock to end: one may take minutes."""
    world = saving(reliable=1, transient=1)
    clocks(world, 1, copies=False)
    assert being_written(world) == 3, "what the backup has"
    world.written(True)
    world.now_s += EVERY_S
    clocks(world, 1, copies=False)
    assert being_written(world) is None, "the backup has nothing newer"
    (node,) = world.copying()
    world.back_up(node)
    assert being_written(world) == 4


def test_backups_that_complete_a_round_before_a_checkpoint_is_due_begin_none() -> None:
    world = saving(reliable=1, transient=1)
    clocks(world, 1, copies=False)
    world.written(True)
    world.now_s += EVERY_S - 1.0
    clocks(world, 1, copies=True)
    assert being_written(world) is None


def test_a_checkpoint_is_read_from_the_servers_if_replication_fails_and_the_backups_have_nothing_newer() -> None:
    world = saving(reliable=1, transient=1)
    clocks(world, 1, copies=False)
    world.written(True)
    fail_rounds(world, 2)
    world.now_s += EVERY_S
    clocks(world, 1, copies=False)
    assert being_written(world) == world.common() == 5


def test_a_checkpoint_is_read_from_backups_that_are_newer_though_replication_fails() -> None:
    world = saving(reliable=1, transient=1)
    clocks(world, 1, copies=False)
    world.written(True)
    clocks(world, 1, copies=True)
    clocks(world, 1, copies=False)
    fail_rounds(world, 2)
    world.now_s += EVERY_S
    clocks(world, 1, copies=False)
    assert (being_written(world), world.common()) == (5, 7)


def test_a_checkpoint_in_stage_1_is_of_the_last_clock() -> None:
    world = saving(reliable=2, transient=0)
    clocks(world, 1, copies=False)
    assert world.controller.job.tiers.backups.group == 3
    assert being_written(world) == world.common() == 4


TIME = 1e6


def trained(clocks_done: int, kept: bool) -> tuple[World, ModelNode]:
    """Return a job on one node that has done some clocks, and has kept the third, or none."""
    world = World()
    world.anew(JobConfig("job", n_partitions=2, n_shards=SHARDS, clocks=100, max_seconds=TIME, start_patience_s=1.0))
    node = join(world, "r", True)
    world.feed(JobStarted(world.config, 0.0))
    settle(world)
    clocks(world, 3, copies=False)
    if kept:
        world.feed(CheckpointRequested(world.now_s))
        world.written(True)
    clocks(world, clocks_done - 3, copies=False)
    return world, node


def replace(world: World, node: ModelNode) -> None:
    world.lose(node)
    join(world, "another", True)
    settle(world)


def stop(world: World) -> None:
    world.feed(StopRequested("enough", world.now_s))


def time_is_over(world: World) -> None:
    world.now_s += 2 * TIME
    world.feed(TimerFired(world.now_s))


def end(world: World) -> int:
    """Let all work be done that there is; return the clock of the model."""
    settle(world)
    for _ in range(3):
        for node in world.busy():
            world.work(node)
    assert world.gathered is not None
    return world.gathered.committed


@pytest.mark.parametrize("ends", [stop, time_is_over])
def test_who_ends_a_job_that_has_gone_back_gets_the_clock_under_way(ends: Callable[[World], None]) -> None:
    """And does not pay for all that was lost once more."""
    world, node = trained(20, kept=True)
    replace(world, node)
    ends(world)
    assert end(world) == 4


@pytest.mark.parametrize("ends", [stop, time_is_over])
def test_a_job_that_goes_back_while_it_ends_ends_there(ends: Callable[[World], None]) -> None:
    world, node = trained(20, kept=True)
    ends(world)
    replace(world, node)
    assert end(world) == 3


def test_a_job_that_goes_back_to_the_beginning_when_its_time_is_over_does_one_clock() -> None:
    world, node = trained(20, kept=False)
    time_is_over(world)
    replace(world, node)
    assert end(world) == 1


def test_a_job_that_was_stopped_and_has_lost_everything_has_ended() -> None:
    world, node = trained(20, kept=False)
    stop(world)
    world.lose(node)
    assert (world.controller.job.state, world.controller.job.reason) == ("stopped", "enough")
    assert world.controller.job.result is not None
    assert world.controller.job.result["clocks"] == 0


@pytest.mark.parametrize("ends", [stop, time_is_over])
def test_time_that_is_over_and_a_stop_while_nobody_is_there_leave_no_model_of_nothing(
    ends: Callable[[World], None],
) -> None:
    world, node = trained(20, kept=False)
    world.lose(node)
    ends(world)
    join(world, "another", True)
    settle(world)
    if ends is stop:
        assert (world.controller.job.state, world.gathered) == ("stopped", None)
    else:
        assert end(world) == 1


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("ends", [stop, time_is_over])
@pytest.mark.parametrize("lost_first", [True, False])
def test_a_checkpoint_that_is_being_written_is_waited_for(
    ends: Callable[[World], None], whole: bool, lost_first: bool
) -> None:
    world, node = trained(20, kept=False)
    world.feed(CheckpointRequested(world.now_s))
    for what in (world.lose, lambda _: ends(world)) if lost_first else (lambda _: ends(world), world.lose):
        what(node)
    join(world, "another", True)
    settle(world)
    assert not world.controller.job.training
    world.written(whole)
    world.feed(TimerFired(world.now_s))
    if ends is stop and not whole:
        assert (world.controller.job.state, world.gathered) == ("stopped", None)
    else:
        assert end(world) == (20 if whole else 1)


def test_a_second_stop_changes_nothing() -> None:
    world, node = trained(20, kept=True)
    stop(world)
    world.lose(node)
    stop(world)
    join(world, "another", True)
    assert end(world) == 3
