"""The shell against nodes in memory: what it does when a node, the store or the application lets it down."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import math
import re
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from infra.storage.blobs import Blobs
from infra.storage.checkpoints import find_checkpoint, save_checkpoint
from psengine.apps.registry import initial_shards, resolve
from psengine.config import JobConfig, JobError
from psengine.protocol.checkpoint import Checkpoint
from psengine.protocol.events import BatchDone, Event, NodeReady, NodesLost, ShardsOpened, TaskStats, TimerFired
from psengine.protocol.instructions import Dispatch, Instruction, LoadPartitions, OpenShards
from psengine.rpc.transport import Unreachable
from psengine.server.shard_server import ShardServer
from psengine.shell.callbacks import ControllerCallbacks
from psengine.shell.controller_shell import ControllerShell
from psengine.tables.sharding import Sharding
from psengine.telemetry.training_progress import losses_of
from tests.psengine.worker.test_agent import Counting
from tests.support.timeouts import PATIENCE

NODE, OTHER = "tcp://r", "tcp://t"


class Evaluated(Counting):
    """An application that tells the sum of its table, or fails to."""

    def __init__(self, silent: bool = False) -> None:
        super().__init__()
        self.silent = silent

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        if self.silent:
            raise ZeroDivisionError("by the user")
        return {"sum": float(params["w"].sum())}


class Slow(Counting):
    """An application that evaluates when it may."""

    may = threading.Event()

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        assert self.may.wait(5 * PATIENCE)
        return {"sum": float(params["w"].sum())}


class Odd(Counting):
    """An application whose figures are no plain numbers, and have names of ours."""

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        losses: Any = np.float32(0.5)
        return {"losses": losses, "clocks": 7.0, "low": float("-inf"), "none": float("nan")}


class Scheduler:
    """As much of Dask's as the shell touches once it is open."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        self.workers: dict[str, Any] = {}

    async def remove_worker(self, address: str, *, stimulus_id: str) -> str:
        self.removed.append(address)
        return "OK"


class Store:
    """The blob store: fails so many times, then keeps what it is given."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.saved: list[dict[str, Any]] = []
        self.kept: Checkpoint | None = None
        self.shards: Mapping[int, Mapping[str, np.ndarray]] = {}

    def save(self, config: JobConfig, arrays: Mapping[str, np.ndarray], result: dict[str, Any]) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("away")
        self.saved.append(dict(result))

    def keep(
        self, config: JobConfig, clock: int, shards: Mapping[int, Any], summary: Mapping[str, Any], *states: Any
    ) -> Checkpoint:
        if self.failures:
            self.failures -= 1
            raise OSError("away")
        self.kept, self.shards = Checkpoint(clock, f"clock-{clock}", dict(summary)), shards
        return self.kept


class Nodes:
    """Nodes that do what they are told at once; `loses` leaves the updates of that many micro-tasks out."""

    def __init__(self) -> None:
        self.shell: ControllerShell
        self.refuses: dict[str, Exception] = {}
        self.loses = 0
        self.gathers = 0
        #: so many times more servers say that they have gone on
        self.gone_on = 0
        self.opened_at: str | None = None
        self.server = ShardServer()
        self.asked: list[str] = []

    async def call(self, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        self.asked.append(op)
        await asyncio.sleep(0)
        if op == "proteus_gather":
            self.gathers += 1
            if self.gone_on:
                self.gone_on -= 1
                return {"status": "stale", "error": "shard 0 is at clock 11, clock 10 was requested"}
            return self.server.gather(**message)
        if op == "proteus_marked":
            return self.server.marked(**message)
        if address in self.refuses:
            raise self.refuses[address]
        order, node = message["instruction"], message["instruction"].node
        match order:
            case OpenShards():
                app = resolve(order.config.app, order.config.app_params)
                sharding = Sharding(app.tables(), order.config.n_shards)
                initial = initial_shards(app, sharding, 0, order.shards)
                self.server.open(initial, order.config.n_partitions, order.epoch)
                self.opened_at = None if order.checkpoint is None else order.checkpoint.name
                await self.shell.event(ShardsOpened(node, address, order.shards, order.epoch, 0.0))
            case LoadPartitions():
                await self.shell.event(NodeReady(node, address, order.request, order.partitions, 0.0))
            case Dispatch():
                for task in order.tasks:
                    if self.loses:
                        self.loses -= 1
                        continue
                    self.server.push(
                        f"{node}/{order.batch}/{task.partition}",
                        1,
                        order.clock,
                        {0: 1},
                        [(task.partition, [task.attempt])],
                        {0: [{"w": np.ones((4, 1))}]},
                    )
                stats = tuple(TaskStats(t.partition, t.attempt, 1.0, 1, 0.0) for t in order.tasks)
                await self.shell.event(BatchDone(node, address, order.clock, stats, 0.0))
        return "ok"


def job(**config: Any) -> JobConfig:
    app = "tests.psengine.shell.test_controller_shell:Evaluated"
    given = {"app": app, "clocks": 2} | config
    return JobConfig("job", n_partitions=2, n_shards=1, start_patience_s=0.0, **given)


def story(
    body: Callable[[ControllerShell, Nodes, Scheduler], Coroutine[Any, Any, None]],
    store: Store,
    found: dict[str, Any] | None = None,
) -> None:
    async def run() -> None:
        scheduler, nodes = Scheduler(), Nodes()
        world = ControllerCallbacks(
            lambda url: {},
            store.save,
            lambda config: found,
            lambda: 0.0,
            lambda about: None,
            store.keep,
            lambda config: store.kept,
        )
        nodes.shell = shell = ControllerShell(scheduler, world, nodes)  # type: ignore[arg-type]
        try:
            await body(shell, nodes, scheduler)
        finally:
            await shell.close()

    asyncio.run(run())


async def until(shell: ControllerShell, *states: str) -> dict[str, Any]:
    """Return the status once the job is in one of `states`; the ticks of an hour pass meanwhile."""
    async with asyncio.timeout(5 * PATIENCE):
        while True:
            status = await shell.status()
            if status["state"] in states:
                return status
            shell._feed(TimerFired(asyncio.get_running_loop().time() + 3600.0))
            await asyncio.sleep(0.001)


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


def test_nothing_is_saved_when_effects_are_missing() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        nodes.loses = 1
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job().to_dict())
        status = await until(shell, "finished", "failed")
        assert (status["reason"], status["lost_micro_tasks"]) == ("1 effect(s) are missing from the model", 1)
        assert store.saved == []

    story(body, store := Store())


def test_an_application_that_cannot_evaluate_fails_the_job_at_once() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job(app_params={"silent": True}).to_dict())
        status = await until(shell, "finished", "failed")
        line = re.sub(r":\d+:", ":LINE:", status["reason"])
        assert line == (
            "the model could not be saved: test_controller_shell.py:LINE: ZeroDivisionError: by the user (try 1)"
        )
        assert (nodes.gathers, store.saved) == (1, [])

    story(body, store := Store())


def test_figures_of_an_application_are_kept_by_name_and_hide_none_of_ours() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job().to_dict() | {"app": "tests.psengine.shell.test_controller_shell:Odd"})
        status = await until(shell, "finished", "failed")
        assert status["state"] == "finished"
        (result,) = store.saved
        assert result["metrics"] == {"losses": 0.5, "clocks": 7.0, "low": None, "none": None}
        assert (result["clocks"], len(result["losses"]), result["low"]) == (2, 2, None)
        json.dumps(result, allow_nan=False)

    story(body, store := Store())


def test_a_node_of_another_version_is_refused_and_both_versions_are_named() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        shell._version = "0.2.0 (protocol 2)"
        shell._on_joined("r", NODE, "reliable", 1, version="0.2.0 (protocol 2)")
        shell._on_joined("t", OTHER, "transient", 1, version="0.1.9 (protocol 2)")
        shell._on_joined("old", "tcp://old", "reliable", 1)
        await shell.start(job().to_dict())
        status = await until(shell, "finished", "failed")
        assert status["state"] == "finished"
        found = {node["name"]: (node["state"], node["error"]) for node in status["nodes"]}
        mend = "install one version on both (a node's is that of the image PROTEUS_IMAGE_ID)"
        assert found["t"] == (
            "unfit",
            f"it runs Proteus 0.1.9 (protocol 2), and the controller 0.2.0 (protocol 2); {mend}",
        )
        assert found["old"] == (
            "unfit",
            f"it runs Proteus 0.1.0 (protocol 1), and the controller 0.2.0 (protocol 2); {mend}",
        )
        assert found["r"][1] == ""
        held = {node["name"]: node["partitions"] for node in status["nodes"]}
        assert (held["t"], held["old"]) == ([], []), "they were given no work"

    story(body, Store())


def test_code_that_is_not_the_jobs_is_told_and_nothing_is_started() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        def load_code(config: JobConfig) -> None:
            loaded.append(config.code_sha256)
            if len(loaded) == 1:
                raise JobError("the controller has another")

        shell._callbacks = dataclasses.replace(shell._callbacks, load_code=load_code)
        shell._on_joined("r", NODE, "reliable", 1, "c" * 64)
        record = job(code_sha256="c" * 64).to_dict()
        assert await shell.start(record | {"app": "not_there:App"}) == {"error": "the controller has another"}
        assert shell.controller.config is None
        await shell.start(record)
        assert (await until(shell, "finished", "failed"))["state"] == "finished"
        assert loaded == ["c" * 64] * 2

    loaded: list[str] = []
    story(body, Store())


def test_a_node_that_refuses_an_order_is_given_up_and_told_to_come_back() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        nodes.refuses[OTHER] = ValueError("what is that?")
        shell._on_joined("r", NODE, "reliable", 1)
        shell._on_joined("t", OTHER, "transient", 1)
        await shell.start(job().to_dict())
        status = await until(shell, "finished", "failed")
        assert status["state"] == "finished"  # without it
        await told_of_losses(shell)
        status = await shell.status()
        assert [(n["name"], n["state"]) for n in status["nodes"]] == [("r", "ready"), ("t", "lost")]
        assert scheduler.removed == [OTHER]
        shell._watch.lose(OTHER, "Dask says so, too")

    story(body, Store())


def test_an_order_that_is_not_answered_is_repeated() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        nodes.refuses[NODE] = Unreachable(NODE, "proteus_instruct", OSError("away"))
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job().to_dict())
        await asyncio.sleep(0.01)
        nodes.refuses.clear()
        assert (await until(shell, "finished", "failed"))["state"] == "finished"
        assert scheduler.removed == []

    story(body, Store())


def test_a_job_that_was_stopped_is_found_stopped() -> None:
    result = {"clocks": 1, "losses": [[1, 0.5]], "lost_micro_tasks": 0, "stopped": "enough"}

    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        status = await shell.start(job().to_dict())
        assert (status["state"], status["reason"], status["result"]) == ("stopped", "enough", result)
        assert (status["clock"], status["losses"]) == (1, [])

    story(body, Store(), found=result)


def test_a_drain_answers_with_names() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        shell._on_joined("r", NODE, "reliable", 1)
        shell._on_joined("t", OTHER, "transient", 1)
        await shell.start(job(clocks=10**6).to_dict())
        await until(shell, "running")
        assert await shell.drain(["t", "r", "x"], 5.0) == {"draining": ["t"], "refused": ["r", "x"]}

    story(body, Store())


def test_a_plan_is_told_before_it_is_carried_out(caplog: pytest.LogCaptureFixture) -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        shell._on_joined("r", NODE, "reliable", 1)
        shell._on_joined("t", OTHER, "transient", 1)
        with caplog.at_level("INFO", "psengine.shell.controller_shell"):
            await shell.start(job(clocks=10**6, stage=2).to_dict())
        # Nobody has been sent anything yet: orders are delivered when this has returned.
        assert nodes.asked == []
        assert "partitions: r loads 0; t loads 1" in caplog.messages
        with caplog.at_level("INFO", "psengine.shell.controller_shell"):
            await until(shell, "running")
        assert any(line.startswith("layout: stage 1 -> 2: 1 server(s), 1 backup owner(s)") for line in caplog.messages)

    story(body, Store())


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
        nodes.gone_on = 10**6  # for ever: that is told
        answer = await shell.checkpoint()
        assert answer["error"] == "GoneOn: shard 0 is at clock 11, clock 10 was requested"

    story(body, Store())


def test_a_checkpoint_waits_for_the_evaluations_before_it() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        nodes.server.mark_every = 2
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(
            job(app="tests.psengine.shell.test_controller_shell:Slow", clocks=10**6, evaluate_every=2).to_dict()
        )
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


def test_a_training_that_diverges_is_saved_all_the_same(tmp_path: Path) -> None:
    config, blobs = job(), Blobs(tmp_path.as_uri())
    summary = {"losses": [[1, 0.5], [2, float("nan")]], "lost_micro_tasks": 0, "stopped": None}
    save_checkpoint(blobs, config, 2, {0: {"w": np.full((4, 1), np.nan)}}, summary)
    kept = find_checkpoint(blobs, config)
    assert kept is not None
    first, second = losses_of(kept.summary)
    assert (first, second[0], math.isnan(second[1])) == ((1, 0.5), 2, True)
    story(_ends_finished, Store(), found=dict(kept.summary))


async def _ends_finished(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
    assert (await shell.start(job().to_dict()))["state"] == "finished"


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
        gone = {node.name: node.gone for node in shell.controller.members.nodes.values()}
        assert gone == {"r": False, "t": True}

    story(body, Store())


async def told_of_losses(shell: ControllerShell) -> None:
    """Wait until the controller knows of all who are gone."""
    async with asyncio.timeout(5 * PATIENCE):
        while shell._watch._lost:
            await asyncio.sleep(0.001)


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
        assert [node.gone for node in shell.controller.members.nodes.values()] == [True, True, True, False]

    story(body, Store())


def test_who_is_gone_is_sent_nothing_before_the_loss_is_told() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        nodes.refuses[OTHER] = Unreachable(OTHER, "proteus_instruct", OSError("away"))
        shell._on_joined("t", OTHER, "transient", 1)
        shell._watch.lose(OTHER, "killed")
        await shell.start(job().to_dict())
        told = shell.controller.members.nodes["t"].request
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
                if shell.controller.members.nodes["t"].gone:
                    break
                shell._watch.lose(f"tcp://stranger-{number}", "killed")
                await asyncio.sleep(0.001)

    story(body, Store())
