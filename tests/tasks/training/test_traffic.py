"""Bytes between zones: counted links become pairs of zones by the book, a price, and a line beside the ledger."""

from typing import Any

import pytest

import proteus_spot.tasks.training.traffic
from proteus_spot.infra.nodes.controller_client import ControllerUnreachable
from proteus_spot.infra.state.records import JobState, ObservationKind
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.market.costs import by_zones, zone_traffic
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.training.traffic import crossing_usd_per_vcpu_h
from tests.support.task_runtime import BEGIN_S, MARKET, OTHER, TaskRuntime, plain, spec

TWO_ZONES = {"markets": [str(OTHER)], "allocation_vcpus": 2, "max_vcpus": 2}


class Controller:
    """A controller that has counted."""

    def __init__(self, links: list[list[Any]], model_bytes: int = 500_000) -> None:
        self.links, self.model_bytes, self.asked, self.silent = links, model_bytes, 0, False

    def __call__(self, address: str, within_s: float) -> "Controller":
        return self

    def traffic(self) -> dict[str, Any]:
        self.asked += 1
        if self.silent:
            raise ControllerUnreachable("silent")
        return {"links": self.links, "model_bytes": self.model_bytes}


@pytest.fixture
def counted(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> Controller:
    controller = Controller([])
    monkeypatch.setattr(proteus_spot.tasks.training.traffic, "ControllerClient", controller)
    return controller


def begin(here: TaskRuntime, job: JobSpec) -> tuple[str, str]:
    """Begin the job with one reliable machine and one spot machine in the other zone; return the two."""
    here.begin(job)
    here.store.jobs.set_controller("job", "tcp://controller:1")
    here.store.jobs.observe("job", BEGIN_S, ObservationKind.TRAINING_BEGUN, {})
    here.use(cross_zone_usd_per_gb=0.0)  # else nothing is bought in the other zone
    here.tick(job)
    here.use(cross_zone_usd_per_gb=0.02)
    facts = {fact.market: fact.instance_id for fact in here.facts(job)}
    here.store.jobs.observe("job", BEGIN_S, ObservationKind.NODES, dict.fromkeys(facts.values(), "ready"))
    return facts[MARKET], facts[OTHER]


def test_links_become_pairs_of_zones_by_the_book(here: TaskRuntime) -> None:
    job = spec(**TWO_ZONES)
    home, away = begin(here, job)
    links = [["", away, 5], ["", home, 7], [away, home, 100], ["i-unknown", away, 50]]
    assert by_zones(links, here.store.purchases.allocations("job")) == {
        "us-east-1a/us-east-1a": 7,
        "us-east-1a/us-east-1b": 105,
    }


def test_with_one_zone_nobody_is_asked_and_nothing_costs(here: TaskRuntime, counted: Controller) -> None:
    here.begin(spec())
    here.store.jobs.set_controller("job", "tcp://controller:1")
    assert crossing_usd_per_vcpu_h(spec()) == 0.0
    assert counted.asked == 0
    here.use(cross_zone_usd_per_gb=0.0)
    assert crossing_usd_per_vcpu_h(spec(**TWO_ZONES)) == 0.0
    assert counted.asked == 0


def test_the_price_of_a_vcpu_hour_is_the_measured_bytes_or_those_of_the_model(
    here: TaskRuntime, counted: Controller
) -> None:
    job = spec(**TWO_ZONES)
    home, away = begin(here, job)
    # a clock a second reads the model and sends as much: 3.6 GB an hour, on a machine of 2 vCPUs
    assert crossing_usd_per_vcpu_h(job) == pytest.approx(3.6 / 2 * 0.02)
    here.clock.at_s += 1800
    counted.links = [[away, home, 1_000_000_000]]
    # 2 machines of 2 vCPUs have exchanged a gigabyte in half an hour
    assert crossing_usd_per_vcpu_h(job) == pytest.approx(1 / (2 * 2 * 0.5) * 0.02)
    assert zone_traffic(here.store, here.store.jobs.job("job")).crossed_bytes == 1_000_000_000


def test_the_tick_weighs_what_was_measured(here: TaskRuntime, counted: Controller) -> None:
    job = spec(**TWO_ZONES)
    begin(here, job)
    counted.links = [["", "", 0]]
    here.tick(job)
    ticks = [entry.record for entry in here.store.journals.entries("job", kinds=("TickDue",))]
    assert ticks[-1]["crossing_usd_per_vcpu_h"] == pytest.approx(0.036)


def test_a_silent_controller_leaves_the_last_figures(here: TaskRuntime, counted: Controller) -> None:
    job = spec(**TWO_ZONES)
    begin(here, job)
    before = crossing_usd_per_vcpu_h(job)
    counted.silent = True
    assert crossing_usd_per_vcpu_h(job) == before > 0


def test_the_result_s_links_count_at_the_end_and_show_as_an_estimate(here: TaskRuntime) -> None:
    job = spec(**TWO_ZONES)
    home, away = begin(here, job)
    assert zone_traffic(here.store, here.store.jobs.job("job")).line(0.02) == ""
    result = {"clocks": 3, "bytes_by_link": [[away, home, 2_500_000_000]]}
    here.store.jobs.move_job("job", JobState.FINISHED, here.clock.now_s(), result=result)
    moved = zone_traffic(here.store, here.store.jobs.job("job"))
    assert moved.line(0.02) == "2.500 GB between zones, about $0.0500 at $0.02 a GB (an estimate, not in the ledger)"
    assert JobEngine("job").refresh().holdings.job_id == "job"
    assert plain(lambda: moved.usd(0.01))() == pytest.approx(0.025)
