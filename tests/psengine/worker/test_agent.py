"""The agent and its client: batches, pushes and reports, over messages that are lost, repeated and refused."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from proteus_spot.psengine.protocol.events import BatchDone, BatchFailed, NodeFailed, ShardsTaken
from proteus_spot.psengine.protocol.instructions import Dispatch, TakeShards, TaskKey
from proteus_spot.psengine.protocol.read_version import Committed
from proteus_spot.psengine.telemetry.byte_counts import link
from proteus_spot.psengine.worker import routing
from proteus_spot.psengine.worker.agent import NodeAgent
from tests.support.agents import CONTROLLER, HERE, THERE, Wires, config, dispatch, story, values
from tests.support.servers import at_once
from tests.support.timeouts import PATIENCE


def test_a_batch_is_one_message_a_server_and_its_own_server_is_not_called() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        wires.calls.clear()
        here.instruct(dispatch(1, 1, [(0, 1), (1, 1)]))
        done = await wires.report(BatchDone)
        assert [(s.partition, s.attempt, s.examples) for s in done.results] == [(0, 1, 1), (1, 1, 1)]
        expected = [(THERE, "Committed"), (THERE, "proteus_push"), (CONTROLLER, "proteus_event")]
        assert wires.calls == expected  # the report comes after the flush
        assert values(here, 0, 1) == values(there, 1, 1) == 1.0 + 2.0

    story(body)


def test_a_batch_that_is_received_twice_runs_once_and_a_batch_of_the_clock_shares_the_read() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        for _ in range(2):
            here.instruct(dispatch(1, 1, [(0, 1)]))
        here.instruct(dispatch(2, 1, [(3, 2)]))  # taken over: not loaded here, so it is loaded on demand
        for _ in range(2):
            await wires.report(BatchDone)
        assert [op for _, op in wires.calls].count("Committed") == 1
        assert values(here, 0, 1) == 1.0 + 4.0

    story(body)


def test_what_was_read_as_it_is_is_not_taken_for_exactly_the_group_before() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        for number, (group, task, completions, committed) in enumerate(
            [(1, (0, 1), 0, 0), (2, (1, 1), 1, 1), (3, (0, 1), 2, 1), (3, (1, 1), 3, 1)], start=1
        ):
            here.instruct(dispatch(number, group, [task], completions=completions, committed=committed, read="parent"))
            await wires.report(BatchDone)
        here.instruct(dispatch(5, 3, [(0, 2)], completions=3, committed=2, read="group"))
        (stats,) = (await wires.report(BatchDone)).results
        assert stats.loss_sum == 4 * (1.0 + 2.0), "without the updates of group 3"

    story(body)


def test_a_node_tells_what_it_has_moved_with_what_it_reports() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        assert wires.moved[HERE] == {"input": 2 * 8}, "two partitions of one number each"
        here.instruct(dispatch(1, 1, [(0, 1), (1, 1)]))
        await wires.report(BatchDone)
        # Each server has two rows of eight bytes; its own rows do not move.
        assert wires.moved[HERE] == {"input": 16, "read": 16, "push": 16, link(THERE): 32}
        there.instruct(TakeShards("there", THERE, config(), HERE, (0,), (1,), 2))
        await wires.report(ShardsTaken)
        # The state at group 0, and an update of two partitions, which is one sum.
        assert wires.moved[THERE] == {"hand_over": 16 + 16, link(HERE): 32}

    story(body)


def test_a_push_whose_answer_is_lost_is_sent_again_and_counts_once() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        wires.spoil = lambda op, n: "answer lost" if op == "proteus_push" and n == 1 else ""
        here.instruct(dispatch(1, 1, [(0, 1), (1, 1)]))
        await wires.report(BatchDone)
        assert [op for _, op in wires.calls].count("proteus_push") == 2
        assert values(there, 1, 1) == 3.0

    story(body)


def test_a_server_that_stays_away_fails_the_batch_and_the_next_attempt_replaces_the_half_that_arrived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routing, "_MAP_S", 0.05)

    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        wires.spoil = lambda op, n: "lost" if op == "proteus_push" and n <= 3 else ""
        here.instruct(dispatch(1, 1, [(0, 1)]))
        failed = await wires.report(BatchFailed)
        assert (failed.tasks, failed.fatal) == (((0, 1),), False)
        here.instruct(dispatch(2, 1, [(0, 2)]))
        await wires.report(BatchDone)
        assert values(here, 0, 1) == values(there, 1, 1) == 1.0
        assert here.server.stores[0].folded == there.server.stores[1].folded == 1

    story(body)


def test_a_server_folds_what_is_committed_when_its_node_is_sent_tasks_that_read_rows() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        stores = here.server.stores
        here.instruct(dispatch(1, 1, [(0, 1), (1, 1)]))
        await wires.report(BatchDone)
        here.instruct(replace(dispatch(2, 2, [(0, 1)], committed=1, read="rows"), generation=2))
        await asyncio.sleep(0)
        assert stores[0].committed_group == 0, "of another generation"
        await wires.report(BatchFailed)
        here.instruct(dispatch(3, 2, [(0, 2)], committed=1, read="rows"))
        await asyncio.sleep(0)
        assert stores[0].committed_group == 1, "before it reads and pushes"
        await wires.report(BatchDone)
        await here.server.hand_over({0: 1}, "there", THERE, 2)
        await here.server.fold(2, 1)
        assert stores[0].committed_group == 1, "handed over: it may lack updates"

    story(body)


def test_work_that_is_no_longer_wanted_is_dropped() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        at_once(there.server.read({1: 1}, Committed(1, exact=True)))  # somebody else is a group ahead already
        here.instruct(dispatch(1, 1, [(0, 1)]))
        assert not (await wires.report(BatchFailed)).fatal
        here.instruct(dispatch(2, 1, [(0, 2)], map_version=2))
        assert "map 2 required" in (await wires.report(BatchFailed)).error
        there.server.stores[1].epoch = 2
        here.instruct(dispatch(3, 2, [(0, 1)]))
        assert "epoch 1 requested, 2 served" in (await wires.report(BatchFailed)).error

    story(body)


def test_an_order_for_another_process_of_this_name_is_ignored() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        here.instruct(Dispatch("here", "tcp://before", 1, 1, (TaskKey(0, 1),), 0, 0, 1, 1))
        here.instruct(dispatch(2, 1, [(1, 1)]))
        assert [s.partition for s in (await wires.report(BatchDone)).results] == [1]

    story(body)


def test_what_the_application_raises_reaches_the_controller_as_one_line() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        here.instruct(dispatch(1, 1, [(0, 1)]))
        failed = await wires.report(BatchFailed)
        assert failed.fatal
        assert re.fullmatch(r"agents\.py:\d+: ZeroDivisionError: by the user", failed.error)

    story(body, fails=True)


def test_an_agent_closes_although_what_a_batch_raises_takes_the_place_of_its_cancellation() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        began = asyncio.Event()

        async def raises_when_cancelled(order: Dispatch) -> BatchDone:
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ZeroDivisionError("by the user, just then") from None
            raise AssertionError("unreachable")

        here._run = raises_when_cancelled  # type: ignore[method-assign]
        here.instruct(dispatch(1, 1, [(0, 1)]))
        async with asyncio.timeout(5 * PATIENCE):
            await began.wait()
            await here.close()

    story(body)


def test_an_agent_whose_work_loop_has_died_ends_its_process() -> None:
    """Its heartbeats would go on, and its partitions stay where nobody works on them."""

    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        here._on_failed = ended.set_result

        def spoil(op: str, n: int) -> str:
            if op == "proteus_event":
                raise ValueError("planted")
            return ""

        wires.spoil = spoil
        here.instruct(dispatch(1, 1, [(0, 1)]))
        async with asyncio.timeout(5 * PATIENCE):
            assert (await ended).endswith("ValueError: planted")

    story(body)


def test_a_fault_of_the_agent_reaches_the_controller_as_one_line() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        here._on_failed = ended.set_result

        async def work() -> None:
            raise KeyError("planted")

        here._spawn(work())
        assert (await wires.report(NodeFailed)).error.endswith("KeyError: 'planted'")
        async with asyncio.timeout(5 * PATIENCE):
            assert (await ended).endswith("KeyError: 'planted'")

    story(body)
