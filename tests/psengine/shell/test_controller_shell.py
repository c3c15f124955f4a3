"""The shell against nodes in memory: what it does if a node or the application fails."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.checkpoints import find_checkpoints, save_checkpoint
from proteus_spot.psengine.config import JobConfig, JobError
from proteus_spot.psengine.rpc.transport import Unreachable
from proteus_spot.psengine.shell.controller_shell import ControllerShell
from proteus_spot.psengine.telemetry.training_progress import losses_of
from tests.support.shell_nodes import NODE, OTHER, Nodes, Scheduler, Store, job, story, told_of_losses, until


def test_an_application_that_cannot_evaluate_fails_the_job_at_once() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job(app_params={"silent": True}).to_dict())
        status = await until(shell, "finished", "failed")
        line = re.sub(r":\d+:", ":LINE:", status["reason"])
        assert line == ("the model could not be saved: shell_nodes.py:LINE: ZeroDivisionError: by the user (try 1)")
        assert (nodes.gathers, store.saved) == (1, [])

    story(body, store := Store())


def test_figures_of_an_application_are_kept_by_name_and_hide_none_of_ours() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job().to_dict() | {"app": "tests.support.shell_nodes:Odd"})
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
        fix = "install one version on both (a node's is that of the image PROTEUS_IMAGE_ID)"
        assert found["t"] == (
            "unfit",
            f"it runs Proteus 0.1.9 (protocol 2), and the controller 0.2.0 (protocol 2); {fix}",
        )
        assert found["old"] == (
            "unfit",
            f"it runs Proteus of an unknown version, and the controller 0.2.0 (protocol 2); {fix}",
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
        assert shell.controller.job.config is None
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
        with caplog.at_level("INFO", "proteus_spot.psengine.shell.controller_shell"):
            await shell.start(job(clocks=10**6, stage=2).to_dict())
        # Nobody has been sent anything yet: orders are delivered when this has returned.
        assert nodes.asked == []
        assert "partitions: r loads 0; t loads 1" in caplog.messages
        with caplog.at_level("INFO", "proteus_spot.psengine.shell.controller_shell"):
            await until(shell, "running")
        assert any(line.startswith("layout: stage 1 -> 2: 1 server(s), 1 backup(s)") for line in caplog.messages)

    story(body, Store())


def test_a_training_that_diverges_is_saved_all_the_same(tmp_path: Path) -> None:
    config, blobs = job(), Blobs(tmp_path.as_uri())
    summary = {"losses": [[1, 0.5], [2, float("nan")]], "lost_micro_tasks": 0, "stopped": None}
    save_checkpoint(blobs, config, 2, {0: {"w": np.full((4, 1), np.nan)}}, summary)
    kept = find_checkpoints(blobs, config).newest
    assert kept is not None
    first, second = losses_of(kept.summary)
    assert (first, second[0], math.isnan(second[1])) == ((1, 0.5), 2, True)
    story(_ends_finished, Store(), found=dict(kept.summary))


async def _ends_finished(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
    assert (await shell.start(job().to_dict()))["state"] == "finished"
