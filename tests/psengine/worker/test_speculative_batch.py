"""Batches that are begun ahead of their order: what waits for what, and that only what fits the order is used."""

from __future__ import annotations

import asyncio
import re
import threading
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.membership.placement import Placement
from proteus_spot.psengine.protocol.events import BatchDone, BatchFailed
from proteus_spot.psengine.protocol.instructions import UpdateShardMap
from proteus_spot.psengine.protocol.moved_state import ShardState, StateRef
from proteus_spot.psengine.worker.parameter_client import ParameterClient
from proteus_spot.psengine.worker.routing import SupersededError
from proteus_spot.psengine.worker.speculative_batch import Ahead, Begun
from tests.support.agents import HERE, OWNERS, THERE, Counting, Wires, dispatch, story
from tests.support.row_training import CLOCKS, NODES, PARTITIONS, Cluster, Wanderers, address, check
from tests.support.row_training import story as training
from tests.support.servers import at_once
from tests.support.timeouts import PATIENCE

# -- the agent ----------------------------------------------------------------------------------------------------


def pulls(wires: Wires) -> int:
    return sum(op == "Committed" for _, op in wires.calls)


async def go_on(cluster: Cluster, group: int) -> None:
    """Train up to `group`, as a part of all groups: whoever has done it has begun the next one."""
    while cluster.tasks.common < group:
        cluster.dispatch(CLOCKS)
        await cluster.done()


def test_clocks_that_follow_one_another_are_read_ahead_alone() -> None:
    async def body(cluster: Cluster) -> None:
        await go_on(cluster, CLOCKS)
        assert pulls(cluster.wires) == len(NODES) * (len(NODES) - 1), "the first clock's"
        check(cluster)

    training(Cluster(), body)


def test_what_others_do_now_is_dropped_and_what_came_from_others_is_read() -> None:
    async def body(cluster: Cluster) -> None:
        await go_on(cluster, 3)
        cluster.placement = Placement(("c", "b", "a", "a", "b", "a"), (None,) * PARTITIONS)
        cluster.wires.calls.clear()
        await go_on(cluster, CLOCKS)
        assert pulls(cluster.wires) == 4, "a and b have something new, c has less"
        check(cluster)

    training(Cluster(), body)


def test_work_that_was_done_again_is_not_gone_on_from_ahead() -> None:
    async def body(cluster: Cluster) -> None:
        await go_on(cluster, 3)
        cluster.dispatch(CLOCKS)
        cluster.tasks.give_up("b")  # it is taken for lost when its updates are there already
        cluster.wires.calls.clear()
        await go_on(cluster, CLOCKS)
        assert pulls(cluster.wires) >= len(NODES) * (len(NODES) - 1)
        check(cluster)

    training(Cluster(), body)


def test_a_new_map_in_between_is_read_by() -> None:
    async def body(cluster: Cluster) -> None:
        await go_on(cluster, 3)
        cluster.tell_map()
        cluster.wires.calls.clear()
        await go_on(cluster, CLOCKS)
        assert pulls(cluster.wires) == len(NODES) * (len(NODES) - 1)
        assert {a.client.routes.version for a in cluster.agents.values()} == {cluster.version}
        assert address("a") in cluster.wires.agents
        check(cluster)

    training(Cluster(), body)


def test_the_rows_of_the_next_clock_are_asked_for_while_the_kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {(data, group): threading.Event() for data in range(PARTITIONS) for group in range(1, CLOCKS + 2)}
    rows, run = Wanderers.rows, Wanderers.run

    def noted(self: Wanderers, data: int, group: int) -> Any:
        asked[data, group].set()
        return rows(self, data, group)

    def waits(self: Wanderers, data: int, params: Any, group: int) -> Work:
        assert group == CLOCKS or asked[data, group + 1].wait(5 * PATIENCE)
        return run(self, data, params, group)

    monkeypatch.setattr(Wanderers, "rows", noted)
    monkeypatch.setattr(Wanderers, "run", waits)

    async def body(cluster: Cluster) -> None:
        await go_on(cluster, CLOCKS)
        assert not any(event.is_set() for (_, group), event in asked.items() if group > CLOCKS), (
            "there is no such clock"
        )
        monkeypatch.undo()
        check(cluster)

    training(Cluster(), body)


class Musing(Counting):
    """It takes long to say which rows it wants of group 2, the first time it is asked."""

    asked, free = threading.Event(), threading.Event()

    def rows(self, data: float, group: int) -> dict[str, slice]:
        if group == 2 and not self.asked.is_set():
            self.asked.set()
            assert self.free.wait(5 * PATIENCE)
        return {"w": slice(0, 4)}


def test_who_gives_up_what_he_has_begun_ahead_leaves_the_question_for_its_rows_to_others() -> None:
    async def body(wires: Wires, here: Any, there: Any) -> None:
        Musing.asked.clear()
        Musing.free.clear()
        await all_of_clock_1(wires, here, there)
        assert Musing.asked.is_set()
        here.instruct(dispatch(2, 2, [(0, 1), (1, 1)], completed_by=0))  # which does not fit
        for _ in range(20):
            await asyncio.sleep(0)
        Musing.free.set()
        done = await wires.report(BatchDone)
        assert [stats.loss_sum for stats in done.results] == [12.0, 12.0]

    story(body, app="tests.psengine.worker.test_speculative_batch:Musing")


def test_the_bits_are_the_same_where_nothing_can_be_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(self: ParameterClient, sharding: Any, wanted: Any, group: int) -> Any:
        raise SupersededError("another time")

    monkeypatch.setattr(ParameterClient, "read_ahead", refused)

    async def body(cluster: Cluster) -> None:
        await go_on(cluster, CLOCKS)
        check(cluster)

    training(Cluster(), body)


class Failing(Counting):
    """It fails at group 2."""

    def run(self, data: float, params: Any, group: int) -> Work:
        if group == 2:
            raise ZeroDivisionError("by the user")
        return super().run(data, params, group)


async def all_of_clock_1(wires: Wires, here: Any, there: Any) -> None:
    """Have group 1 done: partitions 0 and 1 here, and the others' updates, which are nothing, come from elsewhere."""
    here.instruct(dispatch(1, 1, [(0, 1), (1, 1)], goes_on=True))
    await wires.report(BatchDone)
    for agent, shard in ((here, 0), (there, 1)):
        at_once(agent.server.push(1, {shard: 1}, [(2, [1, 1])], {shard: [{}]}))


@pytest.mark.parametrize(("completed_by", "pulled"), [(1, 0), (2, 1), (0, 1)])
def test_only_the_attempt_that_counts_is_gone_on_from(completed_by: int, pulled: int) -> None:
    async def body(wires: Wires, here: Any, there: Any) -> None:
        await all_of_clock_1(wires, here, there)
        wires.calls.clear()
        here.instruct(dispatch(2, 2, [(0, 1), (1, 1)], completed_by=completed_by))
        done = await wires.report(BatchDone)
        assert [stats.loss_sum for stats in done.results] == [12.0, 12.0]  # 4 rows of 1 + 2
        assert pulls(wires) == pulled

    story(body)


def test_what_an_application_raises_ahead_is_told_when_the_order_has_come() -> None:
    async def body(wires: Wires, here: Any, there: Any) -> None:
        await all_of_clock_1(wires, here, there)
        here.instruct(dispatch(2, 2, [(0, 1), (1, 1)], completed_by=1))
        failed = await wires.report(BatchFailed)
        assert failed.fatal
        assert re.fullmatch(r"test_speculative_batch\.py:\d+: ZeroDivisionError: by the user", failed.error)

    story(body, app="tests.psengine.worker.test_speculative_batch:Failing")


def test_all_go_back_while_one_has_begun_ahead() -> None:
    async def body(wires: Wires, here: Any, there: Any) -> None:
        await all_of_clock_1(wires, here, there)
        for agent, owner in zip((here, there), OWNERS, strict=True):
            at_once(agent.server.open({owner.shard: ShardState({"w": np.zeros((2, 1))}, 0, 0)}, 4, 2))
        owners = tuple(type(owner)(owner.shard, owner.node, owner.address, 2) for owner in OWNERS)
        here.instruct(UpdateShardMap("here", HERE, 2, owners, 2))
        again = {"map_version": 2, "generation": 2}
        here.instruct(dispatch(2, 1, [(0, 2), (1, 2)], **again))
        done = await wires.report(BatchDone)
        assert [stats.loss_sum for stats in done.results] == [0.0, 0.0]
        assert (THERE, "Committed") in wires.calls

    story(body)


@pytest.mark.parametrize(
    ("group", "attempt", "wanted"), [(3, 2, [0, 1]), (3, 1, [1]), (2, 2, [1])], ids=["same", "attempt", "group"]
)
def test_a_task_that_was_begun_with_another_state_is_done_again(group: int, attempt: int, wanted: list[int]) -> None:
    async def run() -> None:
        kernels = Mock()

        async def begin() -> Begun:
            return 1, kernels

        ahead = Ahead(dispatch(1, 3, [(0, 2), (1, 2)]), 1, begin)
        order = dispatch(2, 4, [(0, 1), (1, 1)], completed_by=1)
        state = StateRef(0, group, attempt, THERE)
        order = replace(order, tasks=(replace(order.tasks[0], state=state), order.tasks[1]))
        assert await ahead.kernels_for(order, 1) is kernels
        kernels.want.assert_called_once_with(wanted)

    asyncio.run(run())
