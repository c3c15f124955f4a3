"""The metrics of a state database, and the dashboard that shows them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from proteus_spot.bidding.market.model import Allocation, Tier
from proteus_spot.flows.cli.commands.inspection.metrics import metrics
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.state.records import JobState, LedgerKind, LedgerLine, ObservationKind
from proteus_spot.infra.state.store import Store
from proteus_spot.tasks.metrics import JobMetrics
from tests.support.job_states import JOB, record_job
from tests.support.ledgers import HOUR, SPOT, T0
from tests.support.market_servers import ManualClock
from tests.support.sweep_states import SWEEP, record_sweep

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "proteus.json"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/state.db") as store:
        yield store


def scraped(store: Store, at_s: float) -> dict[str, float]:
    """Return what a scrape finds: {name and labels: value}."""
    registry = CollectorRegistry()
    registry.register(JobMetrics(store, ManualClock(at_s)))
    return {
        f"{sample.name}{sorted(sample.labels.items()) or ''}": sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def test_an_open_job(store: Store) -> None:
    store.jobs.create_job("job", {"budget_usd": 5.0}, T0)
    held = Allocation("a-1", SPOT, 3, T0, Tier.TRANSIENT, 50_000)
    store.purchases.record_allocation("job", "order-1", held, ["i-1", "i-2", "i-3"])
    line = LedgerLine("job", "a-1", 0, LedgerKind.CHARGE, T0, 20_000, 60_000)
    store.purchases.add_lines([line])
    store.jobs.observe("job", T0 + 1, ObservationKind.PROGRESS, {"clock": 7, "loss": 0.5})
    for failed in ("no price", "", "no price"):
        store.jobs.observe("job", T0 + 2, ObservationKind.TICK, {"failed": failed, "is_purchase": False})
    found = scraped(store, T0 + 60)
    of = "[('job', 'job')]"
    assert {name.removesuffix(of): value for name, value in found.items() if name.endswith(of)} == {
        "proteus_job_open": 1.0,
        "proteus_job_cost_dollars": 0.06,
        "proteus_job_budget_dollars": 5.0,
        "proteus_job_dollars_per_hour": 0.06,
        "proteus_job_clock": 7.0,
        "proteus_job_loss": 0.5,
        "proteus_job_ticks_failed": 2.0,
        "proteus_job_tick_failing": 1.0,
    }
    assert found["proteus_job_machines[('job', 'job'), ('tier', 'transient')]"] == 3.0


def test_ended_jobs_are_shown_for_a_day_and_the_last_tick_ages(store: Store) -> None:
    record_job(store, hours=1)
    ended_s, newest_s = store.jobs.job(JOB).ended_at_s, store.journals.newest_entry_s()
    assert ended_s is not None
    assert newest_s is not None
    found = scraped(store, newest_s + 120)
    assert found["proteus_last_tick_age_seconds"] == 120.0
    assert found[f"proteus_job_open[('job', '{JOB}')]"] == 0.0
    assert store.jobs.job(JOB).state is JobState.FINISHED
    assert not any("proteus_job" in name for name in scraped(store, ended_s + 24 * HOUR))


def test_a_sweep(store: Store) -> None:
    world = record_sweep(store)
    found = scraped(store, world.now_s)
    of = f"[('job', '{SWEEP}')"
    assert {name.removeprefix("proteus_job_"): value for name, value in found.items() if of in name} == {
        f"open{of}]": 1.0,
        f"cost_dollars{of}]": 0.12,
        f"budget_dollars{of}]": 5.0,
        f"dollars_per_hour{of}]": 0.12,
        f"machines{of}, ('tier', 'transient')]": 4.0,
        f"machines{of}, ('tier', 'reliable')]": 0.0,
        f"trials{of}, ('state', 'running')]": 4.0,
        f"best_value{of}]": 1.0,
    }


def test_the_verb_prints_them_once(store: Store, tmp_path: Path) -> None:
    record_job(store, hours=1)
    done = CliRunner().invoke(metrics, ["--database", f"sqlite:///{tmp_path}/state.db"])
    assert done.exception is None, done.output
    assert "# TYPE proteus_last_tick_age_seconds gauge" in done.output
    bad = CliRunner().invoke(metrics, ["--serve", "nowhere"])
    assert isinstance(bad.exception, InputError)


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    absent = tmp_path / "absent.db"
    bad = CliRunner().invoke(metrics, ["--database", f"sqlite:///{absent}"])
    assert isinstance(bad.exception, InputError)
    assert not absent.exists()


def test_the_dashboard_shows_metrics_that_there_are(store: Store) -> None:
    record_job(store, hours=1)
    registry = CollectorRegistry()
    registry.register(JobMetrics(store, ManualClock(T0)))
    there = {family.name for family in text_string_to_metric_families(generate_latest(registry).decode())}
    shown = {
        name
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel["targets"]
        for name in re.findall(r"proteus_\w+", target["expr"])
    }
    assert shown <= there
    assert there - shown == {"proteus_job_open", "proteus_job_tick_failing"}
