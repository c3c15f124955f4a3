"""Two nodes that cannot reach each other: which one is excluded, and when, and that the training continues."""

from __future__ import annotations

import asyncio

import pytest

from proteus_spot.psengine.membership.failure_detector import SILENCE_S
from proteus_spot.psengine.membership.reachability import End, Links
from proteus_spot.psengine.protocol.events import BackedUp, BatchDone, BatchFailed, Event, NodeUnfit, NotBackedUp
from tests.support.lossy_network import Trouble, machine
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import check, job, reached, run_job
from tests.support.virtual_time import run_virtual

APP = "Tally"
ENDS = {
    "tcp://r1": End("r1", "reliable", True),
    "tcp://r2": End("r2", "reliable", True),
    "tcp://t1": End("t1", "transient", True),
    "tcp://t2": End("t2", "transient", True),
    "tcp://t3": End("t3", "transient", False),
    "tcp://t4": End("t4", "transient", False),
}
LATER_S = SILENCE_S
#: Seconds in which a training ends though two of its nodes are cut from each other: the link is given up twice.
LIMIT_S = 300.0


def fails(links: Links, asks: str, answers: str, now_s: float) -> None:
    links.heard(BatchFailed(asks, f"tcp://{asks}", 3, (), "", False, 0.0, f"tcp://{answers}"), now_s)


def broken(*pairs: tuple[str, str]) -> Links:
    links = Links()
    for now_s in (0.0, LATER_S / 2):
        for asks, answers in pairs:
            fails(links, asks, answers, now_s)
    return links


@pytest.mark.parametrize(
    ("pairs", "goes"),
    [
        ([("t3", "r1")], "t3"),
        ([("r1", "t1")], "t1"),
        ([("t3", "t1")], "t3"),
        ([("t1", "t2")], "t1"),
        ([("r1", "r2")], None),
        ([("t3", "r1"), ("t3", "t1")], "t3"),
        ([("t3", "t1"), ("t4", "t1")], "t1"),
        ([("t3", "r1"), ("t4", "r1")], None),
    ],
)
def test_of_two_that_one_goes_whose_loss_is_least(pairs: list[tuple[str, str]], goes: str | None) -> None:
    cut = broken(*pairs).look(ENDS, LATER_S)
    assert (None if cut is None else cut.name) == goes
    if cut is not None:
        assert cut.address == f"tcp://{goes}"
        assert cut.reason.startswith("it and ")
        assert not cut.aside


def test_nobody_goes_before_it_has_lasted_and_been_tried_again() -> None:
    links = broken(("t3", "r1"))
    assert links.look(ENDS, LATER_S - 0.1) is None
    once = Links()
    fails(once, "t3", "r1", 0.0)
    assert once.look(ENDS, 9 * LATER_S) is None


def test_a_batch_that_was_done_and_a_node_that_is_gone_end_it() -> None:
    links = broken(("t3", "r1"))
    links.heard(BatchDone("t3", "tcp://t3", 3, (), 0.0), 1.0)
    assert links.look(ENDS, LATER_S) is None
    links = broken(("t3", "t1"))
    assert links.look({name: end for name, end in ENDS.items() if name != "tcp://t1"}, LATER_S) is None
    assert links.look(ENDS, LATER_S) is None, "what is forgotten stays so"


def test_who_comes_back_and_is_cut_off_again_is_set_aside_if_it_holds_nothing() -> None:
    links = broken(("t3", "r1"), ("t1", "r2"))
    found = [links.look(ENDS, LATER_S) for _ in range(3)]
    assert [(cut.name, cut.aside) for cut in found if cut is not None] == [("t3", False), ("t1", False)]
    fails(links, "t3", "r1", 20.0)
    fails(links, "t1", "r2", 20.0)
    found = [links.look(ENDS, 20.0) for _ in range(3)]
    assert [(cut.name, cut.aside) for cut in found if cut is not None] == [("t3", True), ("t1", False)]


@pytest.mark.parametrize("stage_2_above", [0.5, 9.0])
@pytest.mark.parametrize("pair", [("t1", "r1"), ("t3", "t1"), ("t2", "t1"), ("t3", "t2")])
def test_two_nodes_that_are_cut_from_each_other_for_good_hold_up_nobody(
    pair: tuple[str, str], stage_2_above: float
) -> None:
    """The training is over in minutes of its own time, and its model is the undisturbed one."""
    cluster = WiredCluster(0, Trouble())
    ways = {(machine(f"sim://{one}/1"), machine(f"sim://{other}/1")) for one, other in (pair, pair[::-1])}

    async def cut(cluster: WiredCluster) -> None:
        await reached(cluster, 5)
        cluster.wires.cuts |= ways

    config = job(APP, n_reliable=2, stage_2_above=stage_2_above)
    run_job(cluster, config, ("r1", "r2", "t1", "t2", "t3"), cut, LIMIT_S)
    check(cluster, APP)


def test_who_is_set_aside_is_given_nothing_more() -> None:
    """It failed at its batch, and would at the next: the others have it."""
    cluster = WiredCluster(0, Trouble())
    ways = {(machine(f"sim://{one}/1"), machine(f"sim://{other}/1")) for one, other in (("t3", "t1"), ("t1", "t3"))}
    runs: list[int] = []

    async def story() -> None:
        cluster.open()
        feed = cluster.shell._watch._report

        def watched(event: Event) -> None:
            if isinstance(event, NodeUnfit):
                assert cluster.shell.controller.job.tasks is not None
                runs.append(cluster.shell.controller.job.tasks.running_on(event.node))
            feed(event)

        cluster.shell._watch._report = watched  # type: ignore[method-assign]
        try:
            for name in ("r1", "r2"):
                cluster.start(name, "reliable")
            for name in ("t1", "t2", "t3"):
                cluster.start(name)
            await cluster.shell.start(job(APP, n_reliable=2, stage_2_above=0.5, clocks=200).to_dict())
            while (tasks := cluster.shell.controller.job.tasks) is None or tasks.common < 5:
                await asyncio.sleep(0.01)
            cluster.wires.cuts |= ways
            while not runs:
                await asyncio.sleep(0.1)
        finally:
            await cluster.close()

    run_virtual(story(), LIMIT_S)
    assert runs == [0]


def test_copies_that_cannot_be_made_are_no_better_for_batches_that_are_done() -> None:
    links = Links()
    for now_s in (0.0, LATER_S / 2):
        links.heard(NotBackedUp("t1", "tcp://t1", 3, "", 0.0, "tcp://r1"), now_s)
        links.heard(BatchDone("t1", "tcp://t1", 3, (), 0.0), now_s)
    cut = links.look(ENDS, LATER_S)
    assert cut is not None
    assert cut.name == "t1", "the transient one"
    for now_s in (0.0, LATER_S / 2):
        links.heard(NotBackedUp("t2", "tcp://t2", 3, "", 0.0, "tcp://r1"), now_s)
    links.heard(BackedUp("t2", "tcp://t2", 4, (0,), 0.0), LATER_S / 2)
    assert links.look(ENDS, LATER_S) is None


def test_a_server_that_cannot_reach_who_keeps_its_shards_is_done_without() -> None:
    """In stage 3 the node that keeps the copies does not work, and so misses nothing.

    A cut may be silent; then each of three rounds ends with its deadline. With this seed the connections break.
    """
    cluster = WiredCluster(1, Trouble())
    kept: list[int] = []

    async def story() -> None:
        cluster.open()
        controller = cluster.shell.controller
        try:
            cluster.start("r1", "reliable")
            for name in ("t1", "t2", "t3"):
                cluster.start(name)
            await cluster.shell.start(job(APP, stage=3, clocks=20_000).to_dict())
            while controller.job.stage != 3 or not controller.job.tiers.backups.group:
                await asyncio.sleep(0.01)
            served = controller.job.shards.owners[0]
            cluster.wires.cuts |= {
                (machine(one), machine(other))
                for one, other in ((served.address, "sim://r1/1"), ("sim://r1/1", served.address))
            }
            kept.append(controller.job.tiers.backups.group)
            while served.node not in cluster.shell._watch._links._went:
                await asyncio.sleep(0.1)
            while (controller.job.tiers.backups.group or 0) <= kept[0] + 10:
                await asyncio.sleep(0.1)
        finally:
            await cluster.close()

    run_virtual(story(), LIMIT_S)
