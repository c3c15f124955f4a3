"""The shell saves the model and checkpoints, over a store that fails."""

from __future__ import annotations

import asyncio

from proteus_spot.psengine.shell.controller_shell import ControllerShell
from tests.support.shell_nodes import NODE, Nodes, Scheduler, Slow, Store, job, story, until


def test_a_save_that_fails_in_passing_is_done_again() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job().to_dict())
        status = await until(shell, "finished", "failed")
        assert (status["state"], nodes.gathers) == ("finished", 3)
        (result,) = store.saved
        assert (result["sum"], result["lost_micro_tasks"], result["stopped"]) == (16.0, 0, None)
        assert status["result"] == result

    story(body, store := Store(failures=2))


def test_nothing_is_saved_when_updates_are_missing() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        nodes.loses = 1
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job().to_dict())
        status = await until(shell, "finished", "failed")
        assert (status["reason"], status["lost_micro_tasks"]) == ("1 update(s) are missing from the model", 1)
        assert store.saved == []

    story(body, store := Store())


def test_a_checkpoint_is_kept_when_it_is_asked_for_and_gone_on_from() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        assert await shell.checkpoint() == {"clock": 0, "error": ""}  # nothing to keep
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job(clocks=10**6).to_dict())
        while (await shell.status())["clock"] < 3:
            await asyncio.sleep(0)
        answer = await shell.checkpoint()
        assert answer["error"] == ""
        assert store.kept is not None
        assert answer["clock"] == store.kept.clock >= 3
        assert store.shards[0]["w"].sum() == 4 * 2 * store.kept.clock
        assert [clock for clock, _ in store.kept.summary["losses"]] == list(range(1, store.kept.clock + 1))

    store = Store()
    story(body, store)

    async def again(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        assert store.kept is not None
        shell._on_joined("r", NODE, "reliable", 1)
        status = await shell.start(job(clocks=10**6).to_dict())
        assert status["checkpoint_clock"] == status["clock"] == store.kept.clock
        await until(shell, "running")
        assert nodes.opened_at == store.kept.name

    story(again, store)


def test_a_checkpoint_that_is_waited_for_is_asked_for_again_where_the_servers_have_gone_on() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job(clocks=10**6).to_dict())
        while (await shell.status())["clock"] < 3:
            await asyncio.sleep(0)
        nodes.gone_on = 3
        answer = await shell.checkpoint()
        assert (answer["error"], nodes.gone_on) == ("", 0)
        assert answer["clock"] >= 3
        nodes.gone_on = 10**6  # as often as it is tried: the failure is reported
        answer = await shell.checkpoint()
        assert answer["error"] == "GoneOn: shard 0 is at clock 11, clock 10 was requested"

    story(body, Store())


def test_a_checkpoint_waits_for_the_evaluations_before_it() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        nodes.server.mark_every = 2
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job(app="tests.support.shell_nodes:Slow", clocks=10**6, evaluate_every=2).to_dict())
        while (await shell.status())["clock"] < 5:
            await asyncio.sleep(0)
        asked, gathers = asyncio.create_task(shell.checkpoint()), nodes.gathers
        while nodes.gathers == gathers:
            await asyncio.sleep(0)
        now = (await shell.status())["clock"]
        while (await shell.status())["clock"] < now + 5:  # nobody waits but the checkpoint
            await asyncio.sleep(0)
        assert store.kept is None
        Slow.may.set()
        assert (await asked)["error"] == ""
        assert store.kept is not None
        assert store.kept.summary["metrics_by_clock"] == [[2, {"sum": 16.0}], [4, {"sum": 32.0}]]

    Slow.may.clear()
    store = Store()
    try:
        story(body, store)
    finally:
        Slow.may.set()


def test_a_store_that_takes_no_checkpoint_is_told_and_the_training_goes_on() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job(clocks=10**6).to_dict())
        while (await shell.status())["clock"] < 3:
            await asyncio.sleep(0)
        assert await shell.checkpoint() == {"clock": 0, "error": "OSError: away"}
        before = (await shell.status())["clock"]
        while (await shell.status())["clock"] <= before:
            await asyncio.sleep(0)
        assert (await shell.checkpoint())["clock"] > before

    story(body, Store(failures=1))
