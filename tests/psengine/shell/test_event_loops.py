"""Code of the user, and what takes as long as a model is large, run beside the event loops of controller and nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from proteus_spot.psengine.config import JobConfig, TableSpec
from proteus_spot.psengine.protocol.events import NodeReady, ShardsOpened
from proteus_spot.psengine.protocol.instructions import LoadPartitions, OpenShards
from proteus_spot.psengine.shell import controller_shell, state_saving
from proteus_spot.psengine.tables.sharding import Sharding
from tests.support.agents import HERE, Counting, Disk, Wires, alone
from tests.support.shell_nodes import NODE, Nodes, Scheduler, Store, job, story, until


def on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Watched(Counting):
    """Notes which of its methods are called on an event loop."""

    called: ClassVar[list[tuple[str, bool]]] = []

    def __init__(self) -> None:
        super().__init__()
        self.note("created")

    def note(self, what: str) -> None:
        self.called.append((what, on_loop()))

    def tables(self) -> tuple[TableSpec, ...]:
        self.note("tables")
        return super().tables()

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        self.note("initial")
        return super().initial(table, rows, rng)

    def prepare(self, arrays: Any) -> float:
        self.note("prepare")
        return super().prepare(arrays)

    def evaluate(self, params: Mapping[str, Any], heldout: Any) -> dict[str, float]:
        self.note("evaluate")
        return {"sum": float(params["w"].sum())}


@pytest.fixture
def called() -> list[tuple[str, bool]]:
    Watched.called.clear()
    return Watched.called


APP = "tests.psengine.shell.test_event_loops:Watched"


def test_a_node_creates_the_application_and_its_values_beside_the_loop(called: list[tuple[str, bool]]) -> None:
    async def body(wires: Wires, agent: Any) -> None:
        config = JobConfig("job", APP, {}, n_partitions=4, n_shards=2, clocks=9)
        agent.instruct(OpenShards("here", HERE, config, (0, 1), 1))
        agent.instruct(LoadPartitions("here", HERE, config, 1, (1,)))
        await wires.report(ShardsOpened)
        await wires.report(NodeReady)

    alone(Disk(0), body)
    assert {what for what, _ in called} == {"created", "tables", "initial", "prepare"}
    assert [what for what, loop in called if loop] == []
    assert sum(what == "created" for what, _ in called) == 1, "two instructions at a time share it"


def test_the_controller_joins_and_measures_a_model_beside_its_loop(
    called: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    join, sent_bytes = Sharding.join, state_saving.sent_bytes

    def watched_join(self: Sharding, shards: Any) -> Any:
        called.append(("join", on_loop()))
        return join(self, shards)

    def watched_bytes(shards: Any) -> int:
        called.append(("measure", on_loop()))
        return sent_bytes(shards)

    monkeypatch.setattr(Sharding, "join", watched_join)
    monkeypatch.setattr(state_saving, "sent_bytes", watched_bytes)

    async def body(shell: controller_shell.ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job(app=APP, clocks=10**6).to_dict())
        await until(shell, "running")
        called.clear()  # what a test's node does is done on its loop
        assert (await shell.checkpoint())["error"] == ""
        await shell.stop()
        assert (await until(shell, "stopped", "failed"))["state"] == "stopped"

    story(body, Store())
    assert {"created", "evaluate", "join", "measure"} <= {what for what, _ in called}
    assert [what for what, loop in called if loop] == []
