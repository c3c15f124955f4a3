"""Built-in applications through the whole engine: nodes that join, leave or are killed change no bit of the model.

The real shell and agents in virtual time, over links that lose nothing.
For `mlr`, tests/faults has the same on real processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.apps.base import Application, MakesDriver
from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.apps.residents import prepare
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.controller.state import ENDED
from proteus_spot.psengine.single_process import drive_alone, initial, train_alone
from proteus_spot.psengine.tables.sharding import Arrays
from tests.psengine.apps import test_lda, test_mf
from tests.support.controller_invariants import check_invariants
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import finished, run_job

PARTITIONS, SHARDS, CLOCKS = 8, 3, 40
LIMIT_S = 600.0


@dataclass(frozen=True)
class Subject:
    """An application, what it is made of, and its data; `check` looks at a model of it."""

    app: str
    params: Mapping[str, Any]
    parts: list[dict[str, Any]]
    check: Callable[[Arrays], None] = field(default=lambda model: None)


def ratings() -> Subject:
    sizes = {"n_users": 40, "n_items": 30, "n_partitions": PARTITIONS, "rating_mean": 3.0, "rating_sd": 1.5}
    return Subject("mf", {**sizes, "rank": 5}, test_mf.made(parts=PARTITIONS))


def rotated_ratings() -> Subject:
    """With the driver that rotates blocks of items."""
    of = ratings()
    return replace(of, params={**of.params, "parallel": "model"})


def cloud() -> Subject:
    """Examples without any clusters, so that many still change theirs when a node is lost."""
    x = np.random.default_rng(1).standard_normal((4000, 4)).astype(np.float32)
    parts = [{"x": x[rows], "first": rows[0]} for rows in np.array_split(np.arange(len(x)), PARTITIONS)]
    return Subject("kmeans", {"n_inputs": 4, "n_examples": len(x), "k": 60}, parts)


def documents() -> Subject:
    parts = test_lda.parts([30, 20], [25], [9, 40], [33], [18, 4, 17], [21], [7, 7], [28])
    words, k = np.concatenate([part["words"] for part in parts]), 4

    def check(model: Arrays) -> None:
        assert (model["assignments"] > 0).all(), "every token has a topic"
        assert np.array_equal(model["word_topic"], test_lda.counted(model, words, k))
        assert np.array_equal(model["topics"][0], model["word_topic"].sum(axis=0))
        assert model["topics"].sum() == len(words)

    return Subject("lda", {"n_words": test_lda.V, "n_tokens": len(words), "k": k}, parts, check)


def rotated_documents() -> Subject:
    """As many blocks of words as partitions, rotated by a driver; topics of tokens are state of partitions."""
    of = documents()
    words = np.concatenate([part["words"] for part in of.parts])

    def check(model: Arrays) -> None:
        assert np.array_equal(model["word_topic"].sum(axis=1), np.bincount(words, minlength=test_lda.V))
        assert np.array_equal(model["topics"][0], model["word_topic"].sum(axis=0))
        assert (model["word_topic"] >= 0).all()

    return Subject("lda", {**of.params, "parallel": "model", "n_partitions": PARTITIONS}, of.parts, check)


async def until(controller: Controller, holds: Callable[[], bool]) -> None:
    while not holds():
        assert controller.job.state not in ENDED, "it was over too soon"
        await asyncio.sleep(0.01)
        check_invariants(controller.job)


async def nothing(cluster: WiredCluster) -> None:
    """Befalls nobody."""


async def trouble(cluster: WiredCluster) -> None:
    """A node joins, a server is told to go, and another one is killed."""
    controller = cluster.shell.controller

    def servers() -> list[str]:
        return sorted({owner.node for owner in controller.job.shards.owners})

    def all_transient() -> bool:
        return bool(controller.job.tiers.backups.group) and all(name.startswith("t") for name in servers())

    await until(controller, all_transient)
    cluster.start("t4")
    await until(controller, lambda: bool(controller.job.members.placement.owned_by("t4")))
    told = servers()[0]
    await cluster.shell.notice(told, 3.0)
    await until(controller, lambda: controller.job.members.nodes[told].state == "drained")
    await cluster.kill(told)
    assert not controller.job.rollbacks
    await until(controller, all_transient)
    await cluster.kill(servers()[0])
    await until(controller, lambda: bool(controller.job.rollbacks))


def train(
    of: Subject, nodes: tuple[str, ...], befalls: Callable[[WiredCluster], Awaitable[None]]
) -> tuple[dict[str, bytes], list[Any]]:
    """Train on these nodes, and return the bits of the model, and the losses."""
    cluster = WiredCluster(0, Trouble(), of.parts.__getitem__, of.parts[0])
    job = JobConfig(
        "job",
        of.app,
        of.params,
        n_partitions=PARTITIONS,
        n_shards=SHARDS,
        clocks=CLOCKS,
        n_reliable=sum(name.startswith("r") for name in nodes),
        stage_2_above=0.5,
    )
    run_job(cluster, job, nodes, befalls, LIMIT_S)
    model, result = finished(cluster)
    assert sum(result["micro_tasks_done"].values()) == CLOCKS * PARTITIONS
    of.check(model)
    return bits(model), result["losses"]


def bits(model: Arrays) -> dict[str, bytes]:
    return {name: table.tobytes() for name, table in model.items()}


@pytest.mark.parametrize("subject", [ratings, rotated_ratings, cloud, documents, rotated_documents])
def test_a_join_a_notice_and_a_kill_leave_the_bits_that_other_nodes_come_to_undisturbed(
    subject: Callable[[], Subject],
) -> None:
    of = subject()
    calm = train(of, ("r1", "t9"), nothing)
    assert train(of, ("r1", "r2", "t1", "t2", "t3"), trouble) == calm
    app = resolve(of.app, of.params)
    parts, tables = [prepare(app, part, p, PARTITIONS) for p, part in enumerate(of.parts)], initial(app, 0, SHARDS)
    if isinstance(app, MakesDriver):
        assert isinstance(app, Application)
        alone = drive_alone(app, parts, tables, CLOCKS)[0]
    else:
        alone = train_alone(app, parts, tables, CLOCKS)
    assert bits(alone) == calm[0], "and those of a bare loop"
