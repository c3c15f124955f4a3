"""The shell finds lost nodes, and reports losses that come together as one event."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace

from proteus_spot.psengine.protocol.events import Event, NodesLost
from proteus_spot.psengine.protocol.instructions import Instruction
from proteus_spot.psengine.rpc.transport import Unreachable
from proteus_spot.psengine.shell.controller_shell import ControllerShell
from tests.support.shell_nodes import NODE, OTHER, Nodes, Scheduler, Store, job, story, told_of_losses
from tests.support.timeouts import PATIENCE


def test_a_node_that_says_nothing_is_done_without_and_one_that_beats_is_not() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        for name, address in (("r", NODE), ("t", OTHER)):
            shell._on_joined(name, address, "reliable", 1)
            scheduler.workers[address] = SimpleNamespace(last_seen=0.0, extra={})
        for ago_s in (5.0, 4.0, 3.0, 2.0):
            looked_s = asyncio.get_running_loop().time() - ago_s
            shell._watch._failure_detector.look({NODE: 0.0, OTHER: 0.0}, looked_s, lambda address: 1.0)
        shell.controller.silence_timeout_s = lambda address: 0.5  # type: ignore[method-assign]
        scheduler.workers[NODE].last_seen = 1.0
        await shell._watch.exclude_failed(asyncio.get_running_loop().time())
        assert scheduler.removed == [OTHER]
        await told_of_losses(shell)
        gone = {node.name: node.gone for node in shell.controller.job.members.nodes.values()}
        assert gone == {"r": False, "t": True}

    story(body, Store())


def test_losses_that_come_together_are_one_event() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        told: list[tuple[str, ...]] = []
        handle = shell.controller.handle

        def heard(event: Event) -> list[Instruction]:
            if isinstance(event, NodesLost):
                told.append(tuple(event.reasons))
            return handle(event)

        shell.controller.handle = heard  # type: ignore[method-assign]
        for name in "abcd":
            shell._on_joined(name, f"tcp://{name}", "transient", 1)
        shell._watch.lose("tcp://a", "killed")
        await asyncio.sleep(0)
        shell._watch.lose("tcp://b", "killed")
        shell._watch.lose("tcp://b", "it refused an order")
        await told_of_losses(shell)
        assert told == [("tcp://a", "tcp://b")]
        shell._watch.lose("tcp://c", "killed")
        await told_of_losses(shell)
        assert told[1:] == [("tcp://c",)]
        assert [node.gone for node in shell.controller.job.members.nodes.values()] == [True, True, True, False]

    story(body, Store())


def test_who_is_gone_is_sent_nothing_before_the_loss_is_told() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        nodes.refuses[OTHER] = Unreachable(OTHER, "proteus_instruct", OSError("away"))
        shell._on_joined("t", OTHER, "transient", 1)
        shell._watch.lose(OTHER, "killed")
        await shell.start(job().to_dict())
        told = shell.controller.job.members.nodes["t"].request
        assert told, "the controller has told it to load"
        assert shell._watch._lost
        await told_of_losses(shell)
        assert OTHER not in shell._queues._queues

    story(body, Store())


def test_a_loss_is_told_though_there_are_always_more() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        shell._on_joined("t", OTHER, "transient", 1)
        shell._watch.lose(OTHER, "killed")
        async with asyncio.timeout(5 * PATIENCE):
            for number in itertools.count():
                if shell.controller.job.members.nodes["t"].gone:
                    break
                shell._watch.lose(f"tcp://stranger-{number}", "killed")
                await asyncio.sleep(0.001)

    story(body, Store())
