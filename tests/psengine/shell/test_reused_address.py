"""A process that listens where its predecessor did joins as another one, and is not taken for that one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Scheduler, Worker

from proteus_spot.infra.nodes.main import DASK_CONFIG
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.protocol.checkpoint import Checkpoints
from proteus_spot.psengine.protocol.instructions import UpdateShardMap
from proteus_spot.psengine.rpc.transport import Unreachable, address_of
from proteus_spot.psengine.shell.callbacks import ControllerCallbacks
from proteus_spot.psengine.shell.controller_shell import ControllerShell
from proteus_spot.psengine.shell.dask_plugins import AgentPlugin, hello
from proteus_spot.psengine.shell.dask_transport import DaskTransport
from tests.support.agents import no_shards
from tests.support.timeouts import PATIENCE


async def start_node(scheduler: Scheduler, mark: str, port: int) -> tuple[Worker, AgentPlugin]:
    plugin = AgentPlugin("r", 1, lambda url, partition: {"x": np.float64(partition)}, no_shards, mark=mark)
    worker = Worker(
        scheduler.address,
        nthreads=1,
        name=f"r#{mark}",
        host="127.0.0.1",
        port=port,
        plugins=(plugin,),
        startup_information=hello("r", "reliable", 1, mark=mark),
        dashboard=False,
    )
    return await worker, plugin


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(3 * PATIENCE):
        while not holds():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("heard", [True, False], ids=["after the loss was processed", "before"])
def test_the_successor_of_a_process_joins_and_does_its_work(heard: bool) -> None:
    async def story() -> None:
        async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler, AsyncExitStack() as stack:
            shell = ControllerShell(scheduler, callbacks())
            shell.open()
            stack.push_async_callback(shell.close)
            nodes = shell.controller.job.members.nodes
            job = JobConfig("job", "tests.support.agents:Counting", n_partitions=2, n_shards=1, clocks=10**9)
            await shell.start(job.to_dict())
            worker, _ = await start_node(scheduler, "one", 0)
            await until(lambda: shell.controller.job.tasks is not None and shell.controller.job.tasks.common > 2)
            first = nodes["r"].address
            await worker.close(executor_wait=False)
            if heard:
                await until(lambda: nodes["r"].gone)
            worker, plugin = await start_node(scheduler, "two", worker.port)
            stack.push_async_callback(worker.close, executor_wait=False)
            await until(lambda: nodes["r"].address != first)
            await until(lambda: nodes["r"].state == "ready" and shell.controller.job.progress.started_s is not None)
            before = shell.controller.job.tasks.common
            await until(lambda: shell.controller.job.tasks.common > before)
            assert nodes["r"].address == address_of(worker.address, "two")
            assert first == address_of(worker.address, "one"), "the port is the same"
            await shell._watch.exclude(first, "silent, as was heard too late")
            assert worker.address in scheduler.workers, "its successor is not removed for that"

            caller = DaskTransport(scheduler)
            map_ = UpdateShardMap("r", first, 10**6, (), 10**6)
            with pytest.raises(Unreachable, match="has ended"):
                await caller.call(first, "proteus_instruct", 5.0, instruction=map_, number=10**6)
            assert plugin.agent is not None
            assert plugin.agent.client.routes.version < 10**6

    with dask.config.set(DASK_CONFIG):
        asyncio.run(story())


def callbacks() -> ControllerCallbacks:
    def no(*arguments: Any) -> None:
        return None

    return ControllerCallbacks(lambda url: {}, no, no, lambda: 0.0, no, no, lambda config: Checkpoints())  # type: ignore[arg-type]
