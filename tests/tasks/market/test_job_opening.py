"""What the unit of a job means from its check on: sizes, quotas and threads by vCPUs, or by GPUs."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from proteus_spot.bidding.engine.orders import Acquire, Wait
from proteus_spot.bidding.market.catalog import Catalog, CatalogRow
from proteus_spot.bidding.market.model import InstanceType
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.state.records import ObservationKind
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.purchases.requests import node_threads
from proteus_spot.tasks.training.preparation import check
from proteus_spot.tasks.training.work_left import vcpu_seconds
from tests.support.task_runtime import MARKET, OTHER, TaskRuntime, plain, spec

#: Of the standard families, spot.
QUOTA = "L-34B43A08"


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskRuntime]:
    """A runtime whose catalogue gives the first market's type two GPUs and eight vCPUs, and the other's none."""
    made = TaskRuntime(tmp_path, monkeypatch)
    kinds = (InstanceType(MARKET.instance_type, 8, 61.0, 105_000, 2), InstanceType(OTHER.instance_type, 8, 61.0, 1))
    made.runtime = replace(made.runtime, catalog=Catalog(CatalogRow(kind, "us-east-1") for kind in kinds))
    yield made
    made.close()


def job(**transient: object) -> JobSpec:
    fields = {"unit": "gpu", "rules": "today", "policy": "deadline", "billing": "per-second-first-hour-free"}
    return spec(**fields | {"max_vcpus": 5, "allocation_vcpus": None} | transient)


def test_a_market_without_gpus_is_refused_where_they_are_counted(gpus: TaskRuntime) -> None:
    plain(check)(job())
    plain(check)(job(unit="vcpu", markets=[str(MARKET), str(OTHER)]))
    with pytest.raises(InputError, match=f"^job job: transient.unit is gpu, and {OTHER} has no GPU .*catalog fetch`$"):
        plain(check)(job(markets=[str(MARKET), str(OTHER)]))
    assert gpus.market.log() == []
    assert gpus.store.jobs.list_jobs() == []


def test_the_most_that_is_held_counts_gpus(gpus: TaskRuntime) -> None:
    gpus.begin(job())
    (order,) = gpus.tick(job())
    assert isinstance(order, Acquire)
    assert (order.market, order.count) == (MARKET, 2), "five GPUs are two machines"
    assert "/GPU-h" in order.decision.reason
    assert JobEngine("job").refresh().holdings.spot_vcpus == 4
    gpus.clock.at_s += 120
    (waits,) = gpus.tick(job())
    assert isinstance(waits, Wait)
    assert "4 of at most 5 spot GPUs are held" in waits.decision.reason


def test_quotas_count_vcpus_all_the_same(gpus: TaskRuntime) -> None:
    gpus.market.behaviour = replace(gpus.market.behaviour, quotas={QUOTA: 15})
    gpus.begin(job())
    (order,) = gpus.tick(job())
    assert order.count == 1
    assert "leaves 15 vCPUs" in order.decision.reason


def test_a_machine_works_on_a_task_for_each_gpu(gpus: TaskRuntime) -> None:
    assert [node_threads(each, 1.0, "gpu") for each in (MARKET, OTHER)] == [2, 1]
    assert node_threads(MARKET, 1.0) == 8


def test_the_work_of_a_job_is_counted_in_its_unit(gpus: TaskRuntime) -> None:
    gpus.begin(job())
    gpus.tick(job())
    machines = [fact.instance_id for fact in gpus.facts(job())]
    gpus.store.jobs.observe("job", gpus.clock.at_s, ObservationKind.NODES, dict.fromkeys(machines, "ready"))
    gpus.clock.at_s += 100
    assert vcpu_seconds(job(), gpus.clock.at_s) == len(machines) * 2 * 100
