"""Plans of jobs: what is asked, what is simulated, and what is written of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proteus_spot.studies.plan.planner
from proteus_spot.bidding.backtest.outcomes import Outcome
from proteus_spot.bidding.backtest.reference_cluster import draw_starts
from proteus_spot.bidding.backtest.runner import run as run_jobs
from proteus_spot.bidding.backtest.schemes.scheme_registry import SCHEMES
from proteus_spot.bidding.evictions.table import fit
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.studies.plan.outlook import ENOUGH, rank
from proteus_spot.studies.plan.plan_files import plan_json
from proteus_spot.studies.plan.plan_spec import PlanSpec, hours_to_deadline, plan_spec, reliable_machines, spec_of_job
from proteus_spot.studies.plan.planned_job import planned_job, scheme_of
from proteus_spot.studies.plan.planner import JobPlan, make_plan
from tests.support.backtests import MARKETS, quiet, small_file

STARTS = 12


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_file(tmp_path_factory.mktemp("prices") / "small.csv")


def asked(prices: Path, **fields: Any) -> PlanSpec:
    work = {} if "vcpu_hours" in fields else {"hours": 2.0}
    return plan_spec(**{"prices": str(prices), "starts": STARTS, **work, **fields})


@pytest.fixture(scope="module")
def made(prices: Path) -> JobPlan:
    return make_plan(asked(prices), quiet)


# What is simulated


def test_the_jobs_are_those_of_a_backtest(made: JobPlan) -> None:
    """With the paper's cluster and nothing else said, each scheme does what `proteus backtest` has it do."""
    window, reference = made.field.windows.evaluation, made.field.reference
    assert (made.job.reference, made.job.max_spot_vcpus, made.job.machines) == (reference, 756, 128)
    starts_s = draw_starts(np.random.default_rng(0), window.from_s, window.until_s, 2, STARTS)
    assert [each.scheme for each in made.outlooks] == ["on-demand", "standard+checkpoint", "proteus", "best"]
    for each in made.outlooks:
        rows = run_jobs(*made.field.packed(MARKETS), SCHEMES[each.scheme], starts_s, 2, reference).rows
        assert np.array_equal(each.cost_usd, rows[:, Outcome.COST_MICROS] / 1e6)
        assert np.array_equal(each.hours, rows[:, Outcome.RUNTIME_S] / HOUR_S)


def test_on_demand_costs_what_the_work_costs(made: JobPlan) -> None:
    each = made.outlooks[0]
    assert set(each.hours) == {2.0}
    assert each.cost_usd == pytest.approx(512 * 2 * 0.209 / 4)
    assert each.on_demand_usd == pytest.approx(512 * 2 * 0.209 / 4)
    assert each.relative_cost == pytest.approx(1)


def test_a_candidate_is_its_market_alone(made: JobPlan) -> None:
    window = made.field.windows.evaluation
    starts_s = draw_starts(np.random.default_rng(0), window.from_s, window.until_s, 2, STARTS)
    lately = fit(made.field.traces, window.from_s, window.until_s)
    assert {each.market for each in made.candidates} == set(MARKETS)
    assert [rank(each.alone) for each in made.candidates] == sorted(rank(each.alone) for each in made.candidates)
    for each in made.candidates:
        packed = made.field.packed((each.market,))
        rows = run_jobs(*packed, SCHEMES["best"], starts_s, 2, made.field.reference).rows
        assert np.array_equal(each.alone.cost_usd, rows[:, Outcome.COST_MICROS] / 1e6)
        assert each.price_micros == made.field.traces[each.market].prices_micros[-1]
        assert (each.free_share, each.free_s) == lately.lookup(each.market, 0)


def test_what_is_said_of_the_job_decides(prices: Path, made: JobPlan) -> None:
    other = make_plan(
        asked(
            prices,
            vcpu_hours=30.0,
            machines=4,
            instance_type="m4.xlarge",
            reliable="2xc4.xlarge",
            schemes=["on-demand", "best"],
            markets=["m4.xlarge/us-east-1b"],
            scaling_efficiency=0.5,
            deadline_h=3.0,
            budget_usd=0.01,
        ),
        quiet,
    )
    job, (on_demand, best) = other.job, other.outlooks
    assert (job.reference.vcpus, job.max_spot_vcpus) == (16, 23)
    assert (job.reliable_count, job.reliable_vcpus, job.reliable_micros) == (2, 4, 209_000)
    assert set(on_demand.hours) == {30 / 16 / 0.5}
    assert on_demand.cost_usd == pytest.approx(job.on_demand_usd) == pytest.approx(30 / 0.5 * 0.239 / 4)
    assert (on_demand.in_time, on_demand.in_budget, on_demand.keeps) == (0.0, 0.0, 0.0)
    assert best.cost_usd.min() > 2 * 0.209 * best.hours.min(), "the reliable machines are paid for"
    assert best.hours.min() > 30 / 20 / 0.5, "23 vCPUs are five machines"
    assert [str(each.market) for each in other.candidates] == ["m4.xlarge/us-east-1b"]
    assert np.array_equal(other.candidates[0].alone.cost_usd, best.cost_usd), "there is no other market"


def test_the_standard_strategy_keeps_to_the_cap(prices: Path) -> None:
    spec = asked(prices, vcpu_hours=16.0, max_spot_vcpus=8, machines=4, schemes=["standard+checkpoint"])
    assert make_plan(spec, quiet).outlooks[0].hours.min() >= 16 / 8 / 0.83


def test_a_far_deadline_is_waited_for_as_far_as_the_history_allows(prices: Path, made: JobPlan) -> None:
    field = made.field
    span_s = field.windows.evaluation.until_s - field.windows.evaluation.from_s
    windows = [
        planned_job(asked(prices, deadline_h=hours), field).window_s for hours in (1.0, 20.0, span_s / HOUR_S * 2)
    ]
    assert windows == [9 * HOUR_S, 20 * HOUR_S, span_s // 2]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"hours": 100.0}, r"--hours 100: takes 100\.0 h undisturbed and is tried for 352, but the history has 7"),
        ({"vcpu_hours": 51200.0}, r"--vcpu-hours 51200: takes 100\.0 h"),
        ({"max_spot_vcpus": 3}, r"--max-vcpus 3: the smallest machine on sale has 4 vCPUs"),
        ({"reliable": "1xz9.huge"}, r"--reliable 1xz9\.huge: z9\.huge is not on sale on 2016-06-07"),
    ],
)
def test_what_the_history_does_not_do_for_is_refused(
    prices: Path, made: JobPlan, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        planned_job(asked(prices, **fields), made.field)


def test_reliable_machines_are_fewer_for_a_small_cluster(prices: Path, made: JobPlan) -> None:
    counts = [planned_job(asked(prices, machines=n), made.field).reliable_count for n in (1, 63, 64, 96, 500)]
    assert counts == [1, 1, 2, 3, 3]
    assert planned_job(asked(prices, reliable="0"), made.field).reliable_count == 0


def test_overheads_efficiency_and_ceiling_reach_every_scheme_that_bids(made: JobPlan) -> None:
    spec = plan_spec(hours=1, eviction_overhead_s=600, resize_overhead_s=7, scaling_efficiency=0.5, ceiling=False)

    job = replace(made.job, reliable_micros=123_000)

    def setting(name: str) -> Any:
        scheme, changes = scheme_of(name, spec, job)
        return scheme.setting(made.job.reference, 1, **changes)

    for name in ("proteus", "best", "standard+agileml"):
        asked = setting(name)
        assert (asked.eviction_overhead_s, asked.resize_overhead_s, asked.ceiling) == (600, 7, 0)
        assert (asked.efficiency_ppm, asked.max_spot_vcpus, asked.work_vcpu_s) == (500_000, 756, 1024 * HOUR_S)
        assert (asked.reliable_count, asked.reliable_micros) == (3, 123_000)
    checkpointed = setting("standard+checkpoint")
    assert (checkpointed.efficiency_ppm, checkpointed.reliable_count) == (415_000, 0)
    assert (checkpointed.eviction_overhead_s, checkpointed.restart_s) == (0, 300), "it has overheads of its own"
    on_demand = setting("on-demand")
    assert (on_demand.efficiency_ppm, on_demand.reliable_vcpus, on_demand.reliable_micros) == (500_000, 512, 26_752_000)


def test_the_hours_are_the_clusters_however_well_it_scales(prices: Path, made: JobPlan) -> None:
    job = planned_job(asked(prices, scaling_efficiency=0.5), made.field)
    assert job.work_vcpu_s == 512 * HOUR_S
    assert job.on_demand_usd == pytest.approx(512 * 2 * 0.209 / 4)


def test_of_many_markets_the_cheapest_are_tried_alone(
    prices: Path, made: JobPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proteus_spot.studies.plan.planner, "MOST_ALONE", 1)
    spec = asked(prices, max_spot_vcpus=4, instance_type="m4.xlarge", vcpu_hours=4.0, starts=2, schemes=["on-demand"])
    few = make_plan(spec, quiet)
    window = made.field.windows.evaluation
    seconds = np.arange(window.from_s, window.until_s + 1)
    means = {}
    for market, trace in made.field.traces.items():
        means[market] = trace.prices_micros[np.searchsorted(trace.times_s, seconds, side="right") - 1].mean()
    assert [each.market for each in few.candidates] == [min(means, key=lambda market: means[market])]
    assert few.notes[-1] == "tried alone are the 1 of 3 markets that were cheapest per vCPU on average"


# What is written


def test_the_json_is_complete(prices: Path, made: JobPlan) -> None:
    result = plan_json(made, 1.5)
    assert [each["scheme"] for each in result["schemes"]] == [each.scheme for each in made.outlooks]
    assert (
        list(result["schemes"][0]["cost_usd"]) == list(result["schemes"][0]["hours"]) == ["mean", "p10", "p50", "p90"]
    )
    assert result["job"]["vcpu_hours"] == 1024
    assert result["job"]["cluster"] == {
        "machines": 128, "instance_type": "c4.xlarge", "vcpus": 512, "usd_per_hour": pytest.approx(26.752)
    }  # fmt: skip
    assert (result["fit"]["until"], result["evaluation"]["from"]) == ("2016-06-07T00:00:00Z",) * 2
    assert result["enough"] == ENOUGH
    assert {each["scheme"]: each["cannot_run"] for each in result["schemes"]} == {
        "on-demand": "a job holds at most 64 reliable machines",
        "standard+checkpoint": "it holds no reliable machine, and a job holds at least 1",
        "proteus": None,
        "best": None,
    }
    assert result["notes"][0].startswith(
        "learnt from 2016-06-01 00:00 to 2016-06-07 00:00, tried from 2016-06-07 00:00"
    )
    assert {each["market"] for each in result["candidates"]} == set(map(str, MARKETS))


# What is asked


def test_machines_are_written_count_x_type() -> None:
    assert reliable_machines("3xc4.xlarge") == (3, "c4.xlarge")
    assert reliable_machines("0") == (0, "")
    with pytest.raises(ValueError, match="COUNTxTYPE"):
        reliable_machines("c4.xlarge")


def job_spec(**training: Any) -> JobSpec:
    tier = {"markets": ["m4.xlarge/us-east-1b"], "max_vcpus": 32, "allocation_vcpus": 8, "scaling_efficiency": 0.5}
    return JobSpec.model_validate({"job_id": "j", "training": training, "transient": tier})


def test_a_job_of_hours_is_what_its_vcpus_do_in_them() -> None:
    fields = spec_of_job(job_spec(hours=3), "job.yaml", works=False)
    assert (fields["vcpu_hours"], fields["max_spot_vcpus"], fields["reliable"]) == (48, 32, "1xm4.xlarge")
    assert fields["notes"][0].startswith("job.yaml ends after 3 h: taken as the work of all its 32 vCPUs")
    assert "vcpu_hours" not in spec_of_job(job_spec(hours=3), "job.yaml", works=True)
    with pytest.raises(InputError, match=r"job\.yaml: counts its work in clocks; say .* --vcpu-hours W"):
        spec_of_job(job_spec(clocks=3), "job.yaml", works=False)


def test_a_job_s_budget_and_deadline_are_the_plan_s() -> None:
    job = job_spec(clocks=3).model_copy(update={"budget_usd": 2.5, "deadline": "90m"})
    fields = spec_of_job(job, "job.yaml", works=True)
    assert (fields["budget_usd"], fields["deadline_h"]) == (2.5, 1.5)
    assert not {"budget_usd", "deadline_h"} & set(spec_of_job(job_spec(clocks=3), "job.yaml", works=True))


@pytest.mark.parametrize(("text", "hours"), [("6", 6), ("0.5", 0.5), ("90m", 1.5), ("2d", 48), ("1.5h", 1.5)])
def test_a_bare_number_of_a_deadline_is_hours(text: str, hours: float) -> None:
    assert hours_to_deadline("--deadline", text) == pytest.approx(hours)
