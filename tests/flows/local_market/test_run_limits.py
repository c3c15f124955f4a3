"""`proteus run` with a budget that is reached, and with a deadline that only machines on demand keep."""

import json
from pathlib import Path
from typing import Any

import pytest

from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from tests.support.cli_process import market_log, proteus, wait_gone

#: Over a minute each: the rules, and simulated jobs that keep to them, are in `make test`.
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.storm]

BY_SECOND = ("--billing", "per-second-first-hour-free")


def run(here: Path, *options: str) -> dict[str, Any]:
    """Run a job to its end in `here`; return its figures."""
    command = ["run", "--job", "limited", "--dir", str(here / "run"), *options]
    outcome = proteus(*command, "--json", "out.json", cwd=here, home=here, timeout_s=300)
    assert outcome.code == 0, outcome
    wait_gone(here / "run")
    result: dict[str, Any] = json.loads((here / "out.json").read_text())
    return result


def test_a_budget_that_is_reached_ends_the_job_with_its_model(tmp_path: Path) -> None:
    budget = 0.08
    figures = run(tmp_path, "--budget", str(budget), *BY_SECOND)
    assert (figures["state"], figures["why"]) == ("stopped", "budget")
    assert 0 < figures["ledger_usd"] <= budget
    assert figures["clocks"] > 0
    assert Blobs((tmp_path / "run" / "blobs").as_uri()).manifest(JobPaths("limited").model) is not None
    assert all(instance["ended_at_s"] is not None for instance in market_log(tmp_path / "run"))


def test_a_deadline_in_a_market_where_nothing_is_bid_for_buys_machines_on_demand(tmp_path: Path) -> None:
    figures = run(tmp_path, "--policy", "on-demand", "--deadline", "20m", "--clocks", "400", *BY_SECOND)
    assert (figures["state"], figures["clocks"]) == ("finished", 400)
    assert figures["acquisitions"] >= 1
    log = market_log(tmp_path / "run")
    assert all(instance["bid_micros"] is None for instance in log)
    assert {instance["market"].partition("/")[2] for instance in log} == {"us-east-1a"}, "one zone"
