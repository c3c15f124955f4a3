"""`proteus market` and `proteus plan --live`: what is known of the markets of a run."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from proteus_spot.bidding.evictions.fit_capacity import capacity_trace
from proteus_spot.bidding.facts.rates import NodeWork, TypeWork
from proteus_spot.bidding.facts.records import Rebalance
from proteus_spot.flows.cli.main import cli
from proteus_spot.infra.clock import ScaledClock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.local_market.environment import clock_file
from proteus_spot.infra.state.store import Store
from tests.support.task_runtime import BEGIN_S, MARKET, TaskRuntime, spec

JOB = f"""job_id: next
training: {{app: mlr, clocks: 100}}
transient: {{markets: [{MARKET}], max_vcpus: 8}}
deadline: 12h
budget_usd: 5
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a run in which a job got two of four machines, by today's rules."""
    world = TaskRuntime(tmp_path, monkeypatch)
    ScaledClock.create(clock_file(tmp_path), BEGIN_S, 1.0)
    job = spec(rules="today", policy="best", billing="per-second-first-hour-free", max_vcpus=8, allocation_vcpus=None)
    world.begin(job)
    world.market.capacity.traces = {MARKET: capacity_trace([2, 2], 600, BEGIN_S)}
    world.tick(job)
    for kind, rate in ((MARKET.instance_type, 5.0), ("m4.large", 10.0)):
        nodes = {f"i-{kind}": NodeWork(100, 100 * rate, 100.0)}
        world.store.markets.record_work(TypeWork(BEGIN_S - 600, "job", "mlr", "vcpu", kind, nodes))
    world.close()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, words, catch_exceptions=False)


def test_the_table_and_the_json_say_the_same(run: Path) -> None:
    shown = call("market", "--dir", str(run)).output
    assert f"{MARKET}" in shown
    assert "50% (0:00:00)" in shown
    assert "mlr 0.84 (0:10:00)" in shown
    (record,) = json.loads(call("market", "--dir", str(run), "--json", "-").output)["markets"]
    assert record["share_granted"] == {"value": 0.5, "source": "own requests and machines", "at_s": BEGIN_S, "age_s": 0}
    assert record["chance"] > 0.5
    assert record["speeds"]["mlr"] | {"value": 0} == {
        "value": 0, "nodes": 1, "at_s": BEGIN_S - 600, "source": "own requests and machines", "age_s": 600
    }  # fmt: skip


def test_a_rebalance_recommendation_is_shown_with_its_age(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    with closing(Store.open(f"sqlite:///{run / 'state.db'}")) as store:
        store.markets.record_rebalances([Rebalance(BEGIN_S, MARKET, "i-1")])
    shown = call("market", "--dir", str(run)).output
    assert "rebalance" in shown
    assert "1 (0:00:00)" in shown
    (record,) = json.loads(call("market", "--dir", str(run), "--json", "-").output)["markets"]
    assert record["rebalances"] == {"value": 1, "source": "instance metadata", "at_s": BEGIN_S, "age_s": 0}


def test_an_advisor_file_is_recorded_and_shown(run: Path) -> None:
    bands = {"ranges": [{"index": 0, "max": 5}, {"index": 1, "max": 11}], "spot_advisor": {
        "us-east-1": {"Linux": {MARKET.instance_type: {"r": 1, "s": 70}}}}}  # fmt: skip
    (run / "advisor.json").write_text(json.dumps(bands))
    call("market", "--dir", str(run), "--advisor", "advisor.json")
    (record,) = json.loads(call("market", "--dir", str(run), "--json", "-").output)["markets"]
    assert record["monthly_share"]["value"] == pytest.approx(0.075)
    assert record["lives"]["24h"] > 0.9


def test_a_market_that_is_none_is_refused(run: Path) -> None:
    with pytest.raises(InputError, match=r"not a market: 'c4\.large'"):
        call("market", "c4.large", "--dir", str(run))


def test_a_job_is_planned_by_what_is_known(run: Path) -> None:
    (run / "job.yaml").write_text(JOB)
    words = ("plan", "job.yaml", "--live", "--vcpu-hours", "40", "--starts", "50", "--dir", str(run))
    shown = call(*words).output
    assert "Of 50 futures: keeps its deadline in 100%" in shown
    assert "times the usual speed (1 node, 10 min ago)" in " ".join(shown.split())
    record = json.loads(call(*words, "--json", "-").output)
    assert (record["in_time"], record["finished"]) == (1.0, 1.0)
    assert 0 < record["cost_usd"]["p10"] <= record["cost_usd"]["p90"] < 5
    with pytest.raises(InputError, match="counts its work in clocks; say what they take by --vcpu-hours W"):
        call("plan", "job.yaml", "--live", "--dir", str(run))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--live", "--deadline", "3"], "--live: --deadline has no effect"),
        (["--live", "--picture", "plan.png"], "--live: --picture has no effect"),
        (["--vcpu-hours", "40", "--dir", "."], "--database and --dir: have no effect without --live"),
    ],
)
def test_options_without_effect_are_refused(run: Path, words: list[str], line: str) -> None:
    (run / "job.yaml").write_text(JOB)
    with pytest.raises(InputError, match=line):
        call("plan", "job.yaml", *words)
