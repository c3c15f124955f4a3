"""Tasks that are sent before the ones before them are completed: sooner, in order, and given back when they move."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from proteus_spot.psengine.protocol.events import BatchDone, BatchFailed, Event
from proteus_spot.psengine.protocol.instructions import Instruction, RecallTasks
from proteus_spot.psengine.scheduling.dispatcher import BatchDispatcher
from proteus_spot.psengine.worker.node_scheduler import NodeScheduler, RecalledError
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import CLOCKS, Meanwhile, check, finished, job, reached, run_job, started
from tests.support.simulated_storm import WiredStorm
from tests.support.small_apps import PARTITIONS

CALM = Trouble(usual_s=0.05)
#: (clock, partition, attempt).
Key = tuple[int, int, int]


class History:
    """What the controller hears of tasks, and what it recalls."""

    def __init__(self, cluster: WiredCluster) -> None:
        self.recalled: list[RecallTasks] = []
        self.given_back, self.reported, self.early = set[Key](), set[Key](), set[Key]()
        controller = cluster.shell.controller
        handle = controller.handle

        def heard(event: Event) -> list[Instruction]:
            tasks = controller.job.tasks
            if isinstance(event, BatchFailed) and event.recalled:
                self.given_back |= {(event.group, *task) for task in event.tasks}
            if isinstance(event, BatchDone) and tasks is not None:
                done = {(s.partition, s.attempt) for s in event.results}
                self.reported |= {(event.group, *task) for task in done}
                following = {(p, sent.attempt) for p, sent in tasks.following.items() if sent.group == event.group}
                self.early |= {(event.group, *task) for task in done & following}
            instructions = handle(event)
            self.recalled += [order for order in instructions if isinstance(order, RecallTasks)]
            return instructions

        controller.handle = heard  # type: ignore[method-assign]

    def check(self) -> None:
        """Raise AssertionError if tasks were reported out of order, or were done though they were given back."""
        assert not self.early, f"reported before the tasks before them: {sorted(self.early)}"
        assert not self.given_back & self.reported, "done by a node that has given them back"
        done = {key[:2] for key in self.reported}
        assert {key[:2] for key in self.given_back} <= done, "given back, and done by no node"


def trained(
    meanwhile: Meanwhile | None = None,
    trouble: Trouble = CALM,
    seed: int = 0,
    app: str = "Tally",
    **config: object,
) -> tuple[WiredCluster, History]:
    cluster = WiredCluster(seed, trouble)
    history = History(cluster)
    run_job(cluster, job(app, **{"staleness": 2, **config}), ("r1", "r2", "t1"), meanwhile)
    if app == "Tally":
        check(cluster, app)
    else:  # its model depends on what each task happened to read
        _, result = finished(cluster)
        assert sum(result["micro_tasks_done"].values()) == CLOCKS * PARTITIONS
    return cluster, history


def test_a_clock_is_shorter_where_links_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages take up to 50 ms, and kernels 20 ms."""

    def clock_s() -> float:
        cluster, history = trained(stage=1, n_reliable=2)
        history.check()
        assert cluster.store.result is not None
        seconds = cluster.store.result["seconds_by_clock"][5:]
        return float(sum(seconds) / len(seconds))

    early_s = clock_s()
    monkeypatch.setattr(BatchDispatcher, "_following", lambda *args: {})
    assert early_s < 0.75 * clock_s()


def after_a_while(act: Callable[[WiredCluster], Awaitable[object]]) -> Meanwhile:
    async def befalls(cluster: WiredCluster) -> None:
        await reached(cluster, 5)
        batches = cluster.nodes["t1"].agent._batches
        while not any(batch.followed and not batch.is_begun for batch in batches._in_flight):
            await asyncio.sleep(0.005)
        await act(cluster)

    return befalls


async def drain(cluster: WiredCluster) -> None:
    assert (await cluster.shell.drain(["t1"], 60.0))["draining"] == ["t1"]


async def notice(cluster: WiredCluster) -> None:
    await cluster.shell.notice("t1", 3.0)


async def join(cluster: WiredCluster) -> None:
    cluster.start("t2")


@pytest.mark.parametrize("app", ["Tally", "Walk"])
@pytest.mark.parametrize("act", [drain, notice, join])
def test_tasks_that_have_not_begun_go_with_their_executor(
    act: Callable[[WiredCluster], Awaitable[object]], app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.simulated_cluster.KERNEL_S", 0.3)
    cluster, history = trained(after_a_while(act), app=app)
    history.check()
    if act is not notice:  # with a notice a node works on, and is sent nothing early before its partitions move
        assert history.recalled
        assert history.given_back or act is join  # a node that joins loads first
    if act is not join:
        assert cluster.shell.controller.job.members.nodes["t1"].state == "drained"


def test_a_task_that_is_given_back_and_done_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = list[asyncio.Future[None]]()

    def recall(self: NodeScheduler, group: int) -> None:
        for batch in self._in_flight:
            if batch.order.group == group and batch.followed:
                failure = self._report_failure(batch.order, RecalledError("planted"), False)
                reports.append(asyncio.ensure_future(failure))

    monkeypatch.setattr(NodeScheduler, "recall", recall)
    _, history = trained(after_a_while(drain))
    with pytest.raises(AssertionError, match="done by a node that has given them back"):
        history.check()


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.storm) for seed in range(40) if seed != 3)])
def test_the_history_is_in_order_while_nodes_come_and_go(seed: int) -> None:
    async def meanwhile(cluster: WiredCluster) -> None:
        storm = WiredStorm(cluster)
        storm.names = 1  # t1 is present
        await started(cluster)
        await storm.run(10)

    trouble = Trouble(lost=0.01, doubled=0.1, late=0.02, late_s=3.0, usual_s=0.05)
    config = {"n_reliable": 2, "checkpoint_s": 2.0, "stage_2_above": 0.5}
    _, history = trained(meanwhile, trouble, seed, ("Tally", "Walk")[seed // 2 % 2], staleness=1 + seed % 3, **config)
    history.check()
