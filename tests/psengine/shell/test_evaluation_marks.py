"""Marked states that are evaluated during the training: present after their clock, limited in number, never partial."""

import asyncio
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.protocol.answers import Pushed, Rows, StaleEpoch, StaleRead
from proteus_spot.psengine.protocol.instructions import ShardOwner
from proteus_spot.psengine.protocol.moved_state import ShardState
from proteus_spot.psengine.protocol.read_version import Committed
from proteus_spot.psengine.rpc.transport import Transfers
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.server.shard_store import ShardStore
from tests.support.servers import at_once
from tests.support.shell_nodes import NODE, Evaluated, Nodes, Scheduler, Store, job, story, until
from tests.support.timeouts import PATIENCE

ONES = {"w": np.ones((2, 1))}


def server(mark_every: int | None = 2, clock: int = 0) -> ShardServer:
    """A server of shard 0, one partition, at `clock`."""
    made = ShardServer()
    made.mark_every = mark_every
    at_once(made.open({0: ShardState({"w": np.full((2, 1), float(clock))}, clock, clock)}, 1, 1))
    return made


def push(there: ShardServer, clock: int) -> None:
    assert at_once(there.push(clock, {0: 1}, [(0, [1])], {0: [ONES]})) == Pushed()


def value(answer: Any) -> float:
    return float(answer.shards[0]["w"][0, 0])


async def _count_nothing(*gathered: Any) -> None:
    """Count no bytes."""


def test_a_marked_clock_is_told_when_the_server_is_further_and_before_it_is_read() -> None:
    there = server()
    for clock in (1, 2, 3):
        push(there, clock)
    assert value(at_once(there.marked({0: 1}, 2))) == 2.0, "what is common is folded by who asks for it"
    at_once(there.read({0: 1}, Committed(3, exact=True)))
    assert value(at_once(there.marked({0: 1}, 2))) == 2.0


def test_only_the_last_two_are_kept_and_no_others_are_marked() -> None:
    there = server()
    for clock in range(1, 8):
        push(there, clock)
    at_once(there.read({0: 1}, Committed(7, exact=True)))
    assert [type(at_once(there.marked({0: 1}, clock))) for clock in (2, 3, 4, 6)] == [StaleRead, StaleRead, Rows, Rows]
    push(unmarked := server(None), 1)
    assert isinstance(at_once(unmarked.marked({0: 1}, 1)), StaleRead)


def test_a_shard_that_moves_at_a_marked_clock_is_marked_where_it_comes_to() -> None:
    old = server()
    for clock in (1, 2):
        push(old, clock)
    at_once(old.read({0: 1}, Committed(2, exact=True)))
    state = at_once(old.hand_over({0: 1}, "new", "tcp://new", 2)).states
    assert value(at_once(old.marked({0: 1}, 2))) == 2.0, "what it had marked it still tells"
    new = server(clock=0)
    new.expect([0], 2)
    at_once(new.take(1, state, 2))
    at_once(new.push(3, {0: 2}, [(0, [1])], {0: [ONES]}))
    at_once(new.read({0: 2}, Committed(3, exact=True)))
    assert value(at_once(new.marked({0: 2}, 2))) == 2.0


def test_who_has_handed_over_never_makes_a_mark_of_what_it_no_longer_hears() -> None:
    old = server()
    push(old, 1)
    at_once(old.hand_over({0: 1}, "new", "tcp://new", 2))
    assert isinstance(at_once(old.marked({0: 1}, 2)), StaleRead)


def test_what_is_handed_over_is_folded_as_far_as_it_is_complete() -> None:
    old = server()
    for clock in (1, 2, 3):
        push(old, clock)
    state = at_once(old.hand_over({0: 1}, "new", "tcp://new", 2, committed=2)).states[0]
    assert (state.group, state.folded, [block[0] for block in state.later]) == (2, 2, [3])
    assert value(Rows({0: state.arrays})) == 2.0


@pytest.mark.parametrize("epoch", [0, 2])
def test_under_another_epoch_nothing_is_told(epoch: int) -> None:
    assert isinstance(at_once(server().marked({0: epoch}, 0)), StaleEpoch)


def test_marks_are_the_arrays_themselves() -> None:
    store = ShardStore(0, 1, {"w": np.zeros((2, 1))}, 1)
    store.mark_every = 1
    store.push(1, 0, [1], ONES)
    store.fold(1)
    assert store.marks[1] is store.committed, "no copy is made"


# -- in a shell -----------------------------------------------------------------------------------------------------


def test_every_clock_is_evaluated_beside_the_training_and_the_last_one_with_the_model() -> None:
    async def body(shell: Any, nodes: Nodes, scheduler: Scheduler) -> None:
        nodes.server.mark_every = 2
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job(clocks=7, evaluate_every=2).to_dict())
        status = await until(shell, "finished", "failed")
        # Two partitions add one to each of four rows a clock.
        series = {clock: figures["sum"] for clock, figures in status["result"]["metrics_by_clock"]}
        assert series == {clock: 8.0 * clock for clock in series}
        assert {2, 7} <= set(series) <= {2, 4, 6, 7}
        assert status["result"]["metrics"] == {"sum": 56.0}
        moved = status["result"]["bytes_moved"]
        assert moved["evaluate"] == 32 * (len(series) - 1)
        assert moved["model"] == 32

    story(body, Store())


def test_the_end_waits_for_an_evaluation_that_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Nodes.call

    async def call(self: Nodes, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        while op == "proteus_marked" and not self.gathers:
            await asyncio.sleep(0)
        return await calls(self, address, op, deadline_s, **message)

    monkeypatch.setattr(Nodes, "call", call)

    async def body(shell: Any, nodes: Nodes, scheduler: Scheduler) -> None:
        nodes.server.mark_every = 2
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job(clocks=3, evaluate_every=2).to_dict())
        status = await until(shell, "finished", "failed")
        assert status["result"]["metrics_by_clock"] == [[2, {"sum": 16.0}], [3, {"sum": 24.0}]]

    story(body, Store())


def test_an_evaluation_that_fails_is_left_out_and_the_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Evaluated.evaluate

    def evaluate(self: Evaluated, params: Any, heldout: Any) -> dict[str, float]:
        if params["w"].sum() < 40:
            raise ZeroDivisionError("early")
        return judged(self, params, heldout)

    monkeypatch.setattr(Evaluated, "evaluate", evaluate)

    async def body(shell: Any, nodes: Nodes, scheduler: Scheduler) -> None:
        nodes.server.mark_every = 1
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job(clocks=5, evaluate_every=4).to_dict())
        status = await until(shell, "finished", "failed")
        assert status["state"] == "finished"
        assert status["result"]["metrics_by_clock"] == [[5, {"sum": 40.0}]]

    story(body, Store())


async def end_of(shell: Any, nodes: Nodes, criterion: str) -> dict[str, Any]:
    """Run a job that is held until its clock 2 is evaluated: else its mark may be gone before. Return its end."""
    nodes.server.mark_every = 1
    shell._on_joined("r", NODE, "reliable", 1)
    await shell.hold(2)
    await shell.start(job(clocks=10_000, until=criterion).to_dict())
    async with asyncio.timeout(PATIENCE):
        while [2, {"sum": 16.0}] not in (await shell.status())["metrics"]:
            await asyncio.sleep(0.001)
    await shell.hold(None)
    return await until(shell, "finished", "failed")


def test_a_figure_that_reaches_its_bound_ends_the_job() -> None:
    async def body(shell: Any, nodes: Nodes, scheduler: Scheduler) -> None:
        status = await end_of(shell, nodes, "sum>=16")
        assert status["result"]["converged"].startswith("converged: sum of clock 2 ")
        assert 2 < status["result"]["clocks"] < 10_000

    story(body, Store())


def test_a_figure_that_is_not_evaluated_fails_the_job_in_one_line() -> None:
    async def body(shell: Any, nodes: Nodes, scheduler: Scheduler) -> None:
        status = await end_of(shell, nodes, "summe>=16")
        assert status["state"] == "failed"
        assert status["reason"].startswith("until names 'summe', and the application's evaluate returns sum: ")

    story(body, Store())


def test_a_server_that_is_gone_is_no_reason_to_wait() -> None:
    from proteus_spot.psengine.protocol.instructions import Evaluate
    from proteus_spot.psengine.shell.evaluator import Evaluator

    async def run() -> None:
        nodes = Nodes()
        evaluator = Evaluator(Transfers(nodes), lambda url: {}, _count_nothing)
        order = Evaluate(job(evaluate_every=1), 1, 1, (ShardOwner(0, "r", NODE, 1),), 1)
        assert await evaluator.evaluate(order) is None, "it serves no such shard"

    asyncio.run(run())
